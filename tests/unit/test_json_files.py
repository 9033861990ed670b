"""JSON in files, arrays, objects one after another or by their ids: each record once, in any layout.

Of objects one after another, a malformed one costs itself. An array, or an object that has records by their ids, is
whole, or an error that names the byte.

A reader takes the first 64 KiB of a file, and then a MiB at a time; so files are also read with white space before
them, after which one byte after another is the first of the second piece.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.reading import File, read_each
from support.records import outcome

FIRST_PIECE = 1 << 16
BOM = b"\xef\xbb\xbf"
# A record of two lines, by which a file is known not to be JSON lines.
PRETTY = b'{\n"z": 0}\n'
TEXTS = ["", "a", '[]{}",:\\/', "\n\t", " é😀", "x" * 9, "{\n", "}\n{", '", "b": "']
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": 'Hello, {you}, "]" \\ é'}]


def by_id(count: int = 4) -> dict[str, dict[str, Any]]:
    """An object that has records by their ids."""
    return {f'd{number}, "{{é\\': {"messages": TALK, "topic": number} for number in range(count)}


def with_ids(records: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": key, **record} for key, record in records.items()]


def read_all(folder: Path, files: dict[str, bytes], **options: Any) -> dict[str, File]:
    """Read files of these contents, by their names."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    found = read_each([folder / name for name in files], **options)
    return {name: found.get(name, File()) for name in files}


def split_pieces(content: bytes) -> list[bytes]:
    """A content after a record: in one piece, and with so much white space that each byte is the first of a piece."""
    spaces = [0, *(FIRST_PIECE - len(PRETTY) - at for at in range(1, len(content), 2))]
    return [PRETTY + b" " * each + content for each in spaces]


def read_records(file: File) -> list[bytes]:
    """The records of a file without a reject, whose positions are their numbers."""
    assert (file.rejects, file.faults) == ([], [])
    assert [position for position, _ in file.records] == [*range(len(file.records))]
    return [raw for _, raw in file.records]


# Layouts


def drawn_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(3 if depth > 2 else 5)
    if kind < 3:
        return draw.choice([None, True, -9, 0.5, 1e-7, *TEXTS])
    inner = [drawn_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return inner if kind == 3 else {draw.choice(TEXTS): each for each in inner}


def drawn_files() -> Iterator[tuple[str, bytes, list[Any]]]:
    """The name, the content and the records of files of each form."""
    draw = random.Random(46)
    for number in range(240):
        layout: dict[str, Any] = {
            "indent": draw.choice([None, None, 0, 1, 3, "\t"]),
            "separators": draw.choice([(",", ":"), (", ", ": "), (" ,\r\n", " : ")]),
            "ensure_ascii": draw.choice([False, True]),
        }
        objects = [{"a": drawn_value(draw), draw.choice(TEXTS): drawn_value(draw)} for _ in range(draw.randrange(1, 7))]
        texts = [json.dumps(each, **layout) for each in objects]
        form, records = number % 6, objects
        if form == 0:
            content, records = json.dumps(values := [objects[0], drawn_value(draw), 7, [objects]], **layout), values
        elif form == 1:
            content = f"{json.dumps(objects, **layout)[:-1]} ,\n]"  # with a comma after the last one
        elif form == 2:
            content = "[\n" + ",\n".join(map(json.dumps, objects)) + "\n]\n"
        elif form == 3:
            content = draw.choice(["", "\n", "\r\n", "\n\n", " ", ",", ",\n", "\n,\n"]).join(texts)
        elif form == 4:
            content = "".join(json.dumps(each) + "\n" for each in objects)
        else:
            content, records = json.dumps(by_id(number % 4 + 2), **layout), with_ids(by_id(number % 4 + 2))
        around = draw.choice(["", "\n", " \r\n\t"])
        suffix = ["json", "jsonl", "ndjson", "data"][number % 4]
        yield f"{number}.{suffix}", BOM * (number % 3 == 0) + (around + content + around).encode(), records


@pytest.mark.parametrize("split_bytes", [1 << 20, 90, 17])
def test_each_record_of_any_form_and_layout_is_read_once_in_order_in_any_cuts(tmp_path, split_bytes):
    expected = {name: records for name, _, records in drawn_files()}
    found = read_all(tmp_path / "in", {name: content for name, content, _ in drawn_files()}, split_bytes=split_bytes)
    for name, file in found.items():
        assert ([json.loads(raw) for _, raw in file.records], file.rejects) == (expected[name], []), name


def test_every_cut_of_json_yields_each_record_once_at_its_position(tmp_path):
    content = BOM + PRETTY + b' so [{"a": 1}, 2 , {"b": [{}]}, , NaN]\n{"c": x},{"d": 4}\n{"e": 5} [{"f": 6}] end'
    parts = [PRETTY.strip(), b"so", b'{"a": 1}', b"2", b'{"b": [{}]}', b"NaN", b'{"c": x},{"d": 4}', b'{"e": 5}']
    parts += [b'{"f": 6}', b"end"]
    for split_bytes in (1, 2, 3, 7, 20, 50):
        found = read_all(tmp_path, {"cut.json": content}, input_format="json", split_bytes=split_bytes)["cut.json"]
        assert found == File([*enumerate(parts)]), split_bytes


FILES: dict[str, tuple[bytes, list[bytes]]] = {
    **{f"empty {number}": (array, []) for number, array in enumerate([b"[]", b" [ ]\n", b"[\n\n]", b"[\t]\r\n"])},
    "text outside of arrays and objects": (
        b'so [{"a": 1}], and\n[{"b": 2}] so on {"c": 3}',
        [b"so", b'{"a": 1}', b"and", b'{"b": 2}', b"so on", b'{"c": 3}'],
    ),
    "an object that is cut where another may follow": (
        b'{"a": 1}\n{"a": [\n{"a": 3}\n{"a": 4}\n{"a": 5}',
        [b'{"a": 1}', b'{"a": [', b'{"a": 3}', b'{"a": 4}', b'{"a": 5}'],
    ),
    "a malformed object with lines that begin with a bracket": (
        b'{"a": 1}\n{"a": [\n{"b" 2},\n{"c": 3}\n]}\n{"d": 4}',
        [b'{"a": 1}', b'{"a": [', b'{"b" 2},', b'{"c": 3}', b"]}", b'{"d": 4}'],
    ),
}
MALFORMED_OBJECTS = [
    b'{"a": tru}', b'{"a": 1,}', b'{"a" 1}', b"{a: 1}", b'{"a": NaN}', b'{"a": "\xff"}', b'{"a": "new\nline"}',
    b'{"a": [2}', b'{"a": 1', b'{"a": "Hel', b'{"a": {\n "b": "c\n', b'{"a": "b, "c": 1}', b'{"a": "\0"}',
    b'{"a": "b\\', b'{"messages": [\n {"role": "user",\n  "content": "x" "y"\n },\n {\n  "role": "assistant"\n }\n]\n}',
]  # fmt: skip
for number, malformed in enumerate(MALFORMED_OBJECTS):
    for indent in (None, 0, 2):
        good = [json.dumps({"a": ["{}\n{"], "b": [{}, {"c": n}]}, indent=indent).encode() for n in range(3)]
        several = [good[0], malformed.strip(), good[1], malformed.strip(), good[2]]
        FILES[f"object {number} {indent}"] = (b"\n".join([good[0], malformed, good[1], malformed, good[2]]), several)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a malformed", "an object", "empty", "object", "text"])
def test_a_malformed_record_costs_only_itself_wherever_a_piece_of_the_file_ends(tmp_path, kind):
    files = {name: each for name, each in FILES.items() if name.startswith(kind)}
    contents = {
        f"{name} {at}.json": content
        for name, (whole, _) in files.items()
        for at, content in enumerate(split_pieces(whole))
    }
    for name, file in read_all(tmp_path / "in", contents).items():
        assert read_records(file) == [PRETTY.strip(), *files[name.rpartition(" ")[0]][1]], name


ELEMENTS = [
    b'{"a": tru}', b'{"a": 1,}', b'{"a" 1}', b"{a: 1}", b"nul", b"'x'", b"-", b'{"a": NaN}', b"-Infinity", b'{"a": 1}}',
    b'{"a": "\xff"}', b'{"a": "new\nline"}', b'{"a": "\\x"}', b'{"a": "\\ud800"}', b'{"a": [2}', b'{"a": {"b": 1]}',
    b'{"a": "escaped new\\\nline, ]"}', b'{"a": 1]}', b'{"a": "b, "c": 1}', b'{"a": 1', b'{"a": "zero \0"}',
    b'{"a": "b', b'{"a": "He said "hi", and left"}', b'{"a": [{"b": 1, {"c": 2}]}', b'{"a": 1e999}', b"[" * 5_000,
]  # fmt: skip


def test_an_array_is_read_as_json_reads_it_or_is_one_error_with_the_byte(tmp_path):
    good = [b'{"a": "good, \\"]"}', b'{"a": ["good"]}']
    expected: dict[str, tuple[list[bytes], str]] = {}
    files = {}
    for number, element in enumerate(ELEMENTS):
        for before in (b"", PRETTY + b" " * (FIRST_PIECE - 20)):
            name = f"{number} {len(before)}.json"
            files[name] = before + b"[" + b", ".join([good[0], element, good[1]]) + b"]"
            try:
                json.loads(files[name][len(before) :].decode("latin-1"), strict=False)
                expected[name] = [PRETTY.strip()] * bool(before) + [good[0], element, good[1]], ""
            except json.JSONDecodeError as error:
                expected[name] = [], f", at byte {error.pos + len(before):,}). Restore the file"
            except RecursionError:
                expected[name] = [], "json (what is nested too deeply begins there, at byte"
    for name, file in read_all(tmp_path / "in", files).items():
        records, fault = expected[name]
        assert [raw for _, raw in file.records] == records and len(file.faults) == bool(fault), name
        assert not fault or fault in file.faults[0], (name, file.faults)
    # What json refuses here, and costs nothing.
    lenient = {"a.json": b'[{"a": 1} {"a": 2}, , 3, 04,]'}
    assert read_records(read_all(tmp_path, lenient)["a.json"]) == [b'{"a": 1}', b'{"a": 2}', b"3", b"0", b"4"]


def test_a_file_is_read_alike_wherever_a_piece_of_it_ends(tmp_path):
    arrays = b'[ {"a": "b, \\"]"} ,1234, true,"c\\\\" , [{}],{"d": [-1.5e3] }]  [[], "e"]'
    conversation = json.dumps(TALK, indent=1).encode()
    ids = json.dumps(by_id(3), separators=(" , ", " : ")).encode()
    expected = {
        "array": [b'{"a": "b, \\"]"}', b"1234", b"true", b'"c\\\\"', b"[{}]", b'{"d": [-1.5e3] }', b"[]", b'"e"']
    }
    files = {f"array {n}.json": content for n, content in enumerate(split_pieces(arrays))}
    files |= {f"conversation {n}.json": content for n, content in enumerate(split_pieces(conversation))}
    for name, file in read_all(tmp_path / "in", files).items():
        kind = name.partition(" ")[0]
        assert read_records(file) == [PRETTY.strip(), *expected.get(kind, [conversation])], name
    spaces = [FIRST_PIECE + 10 - at for at in range(12, len(ids))]
    start = json.dumps(by_id(2))[:-1].encode()
    files = {f"{n}.json": start + b" " * (n - len(start)) + b"," + ids[1:] for n in spaces if n > len(start)}
    for name, file in read_all(tmp_path / "ids", files).items():
        assert [json.loads(raw) for raw in read_records(file)] == with_ids(by_id(2)) + with_ids(by_id(3)), name


def test_a_record_of_many_pieces_is_read_whole_and_once(tmp_path):
    record = json.dumps({"text": "{\\" * 2_000_000}).encode()
    malformed = b'{"a":xx}'
    files = {
        "array.json": (b"[" + record + b"]", [record]),
        "objects.json": (record + b"\n" + record, [record] * 2),
        # What follows a malformed record is not searched for its end each time: otherwise this takes hours.
        "malformed.json": ((malformed + b"\n") * 50_000, [malformed] * 50_000),
    }
    found = read_all(tmp_path / "in", {name: PRETTY + content for name, (content, _) in files.items()})
    for name, (_, records) in files.items():
        assert read_records(found[name]) == [PRETTY.strip(), *records]


def test_a_file_that_is_one_conversation_which_is_too_long_is_rejected(tmp_path):
    content = json.dumps([*TALK, {"role": "user", "content": "x" * (1 << 26)}]).encode()
    file = read_all(tmp_path, {"talk.json": content}, split_bytes=1 << 27)["talk.json"]
    assert (file.rejected, file.records, file.faults) == ([(0, "too_long")], [], [])


def letters(content: bytes) -> bytes:
    return bytes(byte for byte in content if byte not in b"[], \r\n\t")


def test_no_byte_is_lost_and_the_records_before_the_damage_are_read(tmp_path):
    draw = random.Random(46)
    files, sound = {}, {}
    for number in range(400):
        records = [{"a": drawn_value(draw), "number": n} for n in range(draw.randrange(2, 6))]
        texts = [json.dumps(each, indent=draw.choice([None, 1, 2])) for each in records]
        content = ("[" + ",\n".join(texts) + "]" if number % 2 else "\n".join(texts)).encode()
        at = draw.randrange(len(content))
        damage = draw.choice([b"", b"x", b'"', b"{", b"}", b"]", b"\n", b"\\", b"\0", b"\xff"])
        files[f"{number}.json"] = PRETTY + content[:at] + damage + content[at + 1 :]
        ends = [content.index(text.encode()) + len(text.encode()) for text in texts]
        whole = [text.encode() for text, end in zip(texts, ends, strict=True) if end < at]
        sound[f"{number}.json"] = [PRETTY.strip(), *whole]
    for name, file in read_all(tmp_path / "in", files).items():
        found = [raw for _, raw in file.records]
        if file.faults:
            assert int(name.removesuffix(".json")) % 2 and re.search(r"byte \d|ends before the \]", file.faults[0]), (
                name
            )
        else:
            assert letters(b"".join(found)) == letters(files[name]), name
            assert found[: len(sound[name])] == sound[name]


# Files that are cut short


def test_an_array_that_is_cut_short_is_an_error_and_of_objects_the_last_one_is_cut(tmp_path):
    array = b'[{"a": "1, 2"}, {"b": [3, 4]}, {"c": "]"}]'
    objects = b'{\n"a": 1}\n{\n "b": [\n  {"c": "2"}]}'
    files = {f"array {cut}.json": array[:cut] for cut in range(1, len(array))}
    files |= {f"objects {cut}.json": objects[:cut] for cut in range(11, len(objects))}
    for name, file in read_all(tmp_path / "in", files).items():
        if name.startswith("array"):
            assert not file.records and re.search(
                r"json \((.*, at byte \d+|the file ends before the \].*)\)", file.faults[0]
            )
        else:
            assert read_records(file) == [b'{\n"a": 1}', files[name][10:].strip()]


# Records by their ids


def test_records_by_their_ids_keep_their_own_ids(tmp_path):
    own = {"one": {"id": 7, "messages": TALK}, "two": {"messages": [{"role": "user", "id": "in a message"}]}}
    text = json.dumps(by_id(3))
    other = json.dumps(by_id(900))[:-1] + ', "n": 5, "t": "x"}'
    large = json.dumps({"other": by_id(5_000)}, indent=1)  # one object, whose end is not searched byte by byte
    files = {
        "own": json.dumps(own),
        "other": other,
        "broken": text.replace('"topic": 1', '"topic": '),
        "key": text[:-1] + ", 5}",
        "cut": text[:-30],
        "open": text[:-1],
        "more": json.dumps(by_id(900)) + "more",
        "large": large,
    }
    encoded = {f"{name}.json": content.encode() for name, content in files.items()}
    found = read_all(tmp_path / "in", encoded)
    assert [json.loads(raw)["id"] for raw in read_records(found["own.json"])] == [7, "two"]
    became = [outcome(raw) for raw in read_records(found["other.json"])[899:]]
    reasons = [one["rejected"][0] if "rejected" in one else one["schema"] for one in became]
    assert reasons == ["messages", "not_an_object", "not_an_object"]
    damage = files["broken"].index('"topic": }') + len('"topic": ')
    assert f", at byte {damage:,})" in found["broken.json"].faults[0]
    for name, why in {"key": "Expecting a key, at byte", "cut": ", at byte", "open": "ends before the }"}.items():
        assert why in found[f"{name}.json"].faults[0]
    assert read_records(found["more.json"])[900:] == [b"more"]
    assert read_records(found["large.json"]) == [large.encode()]


TWO = json.dumps(by_id(2))
DEEP = '{"a":' + "[" * 5_000 + "]" * 5_000 + "}"
NOT_BY_ID = [
    json.dumps({"messages": TALK}),
    json.dumps({"d1": {"messages": TALK}}),  # it may be a record that a formatter reads
    json.dumps({"meta": {"messages": TALK}, "info": {"messages": TALK}, "messages": TALK}),
    json.dumps({"en": {"text": "a"}, "de": {"text": "b"}}),
    *(f'{{"a": {value}, "b": {value}}}' for value in ('{"a": "\udcff"}', '{"a": 1e999}', DEEP)),
]


def test_other_objects_are_records_themselves(tmp_path):
    encoded = {f"{number}.json": text.encode("utf-8", "surrogateescape") for number, text in enumerate(NOT_BY_ID)}
    found = read_all(tmp_path / "in", encoded)
    assert {name: [raw for _, raw in file.records] for name, file in found.items()} == {
        name: [content] for name, content in encoded.items()
    }
    lines = f"{TWO}\n{TWO}\n".encode()
    assert len(read_all(tmp_path / "lines", {"a.jsonl": lines})["a.jsonl"].records) == 2
