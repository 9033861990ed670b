"""JSON arrays and objects one after another: each record once, with its number, in any layout and after any damage."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transforms import Slice, Split, parse
from transforms.inputs import malformed as malformed_json
from transforms.inputs.formats import MAX_RECORD_BYTES, Part
from transforms.inputs.formats import json as json_format
from transforms.inputs.listing import list_inputs
from transforms.inputs.splits import splits_of
from transforms.steps.read import read_split

THOROUGHLY = settings(max_examples=200)

BOM = b"\xef\xbb\xbf"
each_chunk = pytest.mark.parametrize("chunk", [1, 5, 1 << 20])

texts = st.text(st.sampled_from('[]{}",:\\/\n\t é😀') | st.characters(codec="utf-8"), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | texts
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
json_objects = st.dictionaries(texts, json_values, max_size=4)
layouts = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, None, 0, 1, 3, "\t"]),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", " : ")]),
        "ensure_ascii": st.booleans(),
    }
)


def parts_of(content: bytes, chunk: int = 1 << 20, part_bytes: int = 1 << 20) -> list[Part]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_format, "_CHUNK", chunk)
        patch.setattr(json_format, "SNIFFED_BYTES", max(chunk, len(BOM)))
        return list(json_format.read(io.BytesIO(content), 0, None, part_bytes, MAX_RECORD_BYTES))


def records_of(parts: list[Part]) -> list[bytes]:
    """The records of parts without a reject. Their positions are the numbers from 0."""
    assert all(not part.rejects for part in parts)
    records = [record for part in parts for record in part.records]
    assert [record.position for record in records] == list(range(len(records)))
    return [record.raw for record in records]


def read(content: bytes, chunk: int = 1 << 20) -> list[bytes]:
    return records_of(parts_of(content, chunk))


def with_rest(content: bytes, chunk: int = 1 << 20) -> tuple[list[bytes], tuple[str, bytes]]:
    """The records of a file that is cut short, and the detail and the bytes of the reject that ends it."""
    [part] = parts_of(content, chunk)
    [reject] = part.rejects
    assert (reject.position, reject.reason) == (len(part.records), "cut_short")
    return [record.raw for record in part.records], (reject.detail, reject.record)


# Layouts


@THOROUGHLY
@given(
    elements=st.lists(json_values, max_size=6),
    layout=layouts,
    around=st.tuples(*[st.sampled_from(["", "\n", " \r\n\t"])] * 2),
    mark=st.sampled_from([b"", BOM]),
    trailing_comma=st.booleans(),
    chunk=st.integers(1, 24),
    part_bytes=st.integers(1, 60),
)
def test_an_array_in_any_layout_yields_each_element_in_bounded_parts(
    elements, layout, around, mark, trailing_comma, chunk, part_bytes
):
    array = json.dumps(elements, **layout)
    if trailing_comma and elements:
        array = array[:-1] + " ,\n]"
    parts = parts_of(mark + (around[0] + array + around[1]).encode(), chunk, part_bytes)
    assert [json.loads(raw) for raw in records_of(parts)] == elements
    sizes = [sum(len(record.raw) for record in part.records) for part in parts]
    longest = max((len(raw) for raw in records_of(parts)), default=0)
    assert all(size >= part_bytes for size in sizes[:-1]) and all(size < part_bytes + longest for size in sizes if size)


@THOROUGHLY
@given(
    objects=st.lists(json_objects, max_size=6),
    layout=layouts,
    between=st.sampled_from(["", "\n", "\r\n", "\n\n", " ", ",", ",\n", "\n,\n"]),
    mark=st.sampled_from([b"", BOM]),
    chunk=st.integers(1, 24),
    part_bytes=st.integers(1, 60),
)
def test_objects_one_after_another_in_any_layout_are_the_records(objects, layout, between, mark, chunk, part_bytes):
    written = [json.dumps(each, **layout) for each in objects]
    parts = parts_of(mark + between.join(written).encode(), chunk, part_bytes)
    assert records_of(parts) == [text.encode() for text in written]
    sizes = [sum(len(record.raw) for record in part.records) for part in parts]
    assert all(size >= part_bytes for size in sizes[:-1])


FORMS = {
    "lines": lambda objects, layout: "".join(json.dumps(each) + "\n" for each in objects),
    "array": lambda objects, layout: json.dumps(objects, **layout),
    "array of lines": lambda objects, layout: "[\n" + ",\n".join(map(json.dumps, objects)) + "\n]\n",
    "concatenated": lambda objects, layout: "".join(json.dumps(each, **layout) for each in objects),
    "one below another": lambda objects, layout: "\n".join(json.dumps(each, **layout) for each in objects),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One folder for all examples of a property; each writes its own files into it."""
    return tmp_path_factory.mktemp("forms")


@pytest.mark.parametrize("suffix", ["json", "jsonl", "ndjson", "data", "json.gz"])
@settings(max_examples=60)
@given(
    objects=st.lists(json_objects, min_size=1, max_size=6),
    form=st.sampled_from(sorted(FORMS)),
    layout=layouts,
    split_bytes=st.integers(1, 200),
    mark=st.sampled_from([b"", BOM]),
)
@example(objects=[{"a": [{"b": 1}]}, {"c": 2}], form="one below another", layout={"indent": 0}, split_bytes=9, mark=b"")
@example(objects=[{"a": "{}\n{"}] * 2, form="concatenated", layout={}, split_bytes=9, mark=b"")
def test_a_list_of_objects_gives_the_same_records_in_every_form_and_cut(
    folder, suffix, objects, form, layout, split_bytes, mark
):
    path = folder / f"records.{suffix}"
    content = mark + FORMS[form](objects, layout).encode()
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    files = list_inputs([str(path)])
    parts = [part for split in splits_of(files, split_bytes) for part in read_split(split, split_bytes)]
    assert [json.loads(record.raw) for part in parts for record in part.records] == objects
    assert not any(part.outcomes.rejects for part in parts)


def test_every_cut_of_json_yields_each_record_and_reject_once_at_its_position(folder):
    content = BOM + b' so [{"a": 1}, 2 , {"b": [{}]}, , x]\n{"c": 3},{"d": 4}\n [{"e": 5}'
    path = folder / "cut.json"
    path.write_bytes(content)

    def found(*content: int | None) -> list[Any]:
        split = Split(0, (Slice(str(path), "json", None, 0, 1, content),))
        return [each for part in read_split(split, 9) for each in (*part.records, *part.outcomes.rejects)]

    everything = found(0, None)
    assert len(everything) == 10
    for cut in range(len(content) + 2):
        assert found(0, cut) + found(cut, None) == everything, cut


@pytest.mark.parametrize("array", [b"[]", b" [ ]\n", b"[\n\n]", BOM + b"[]", BOM + b"\r\n[\t]\r\n"])
def test_an_empty_array_has_no_records(array):
    assert read(array) == []


def test_a_record_of_many_chunks_is_read_whole_and_once():
    record = json.dumps({"text": "{\\" * 2_000_000}).encode()
    assert read(b"[" + record + b"]") == [record]
    assert read(record + b"\n" + record) == [record] * 2


@each_chunk
def test_text_outside_of_arrays_and_objects_is_a_record_of_its_own(chunk):
    content = b'so [{"a": 1}], and\n[{"b": 2}] so on {"c": 3}'
    assert read(content, chunk) == [b"so", b'{"a": 1}', b", and", b'{"b": 2}', b"so on", b'{"c": 3}']


def test_an_object_whose_list_has_the_records_is_rejected_with_the_name_of_the_list():
    from transforms import RecordError

    whole = {"version": 1, "data": [{"messages": [{"role": "user", "content": "Hi"}]}]}
    with pytest.raises(RecordError, match="the records are in the list data of an object"):
        parse(json.dumps(whole).encode())[0]


# Malformed records

MALFORMED_ELEMENTS = [
    *(b'{"a": tru}', b'{"a": 1,}', b'{"a" 1}', b"{a: 1}", b"nul", b"'x'", b"01", b"-", b'{"a": NaN}', b'{"a": 1}}'),
    *(b'{"a": "\xff"}', b'{"a": "new\nline"}', b'{"a": "\\x"}', b'{"a": "\\ud800"}', b'{"a": 1} {"a": 2}', b""),
    *(b'{"a": "escaped new\\\nline, ]"}', b'{"a": [2}', b'{"a": {"b": 1]}', b'{"a": 1]}', b'{"a": "b, "c": 1}'),
    *(b'{"a": 1', b'{"a": "He said "hi", and left"}', b'{"a": "zero \0"}', b'{"a": [{"b": 1, {"c": 2}]}'),
]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("malformed", MALFORMED_ELEMENTS)
def test_a_malformed_element_costs_only_itself(malformed, chunk):
    array = b'[{"a": "good, \\"]"},' + malformed + b', {"a": ["good"]},' + malformed + b',{"a": 3}]'
    assert read(array, chunk) == [b'{"a": "good, \\"]"}', malformed, b'{"a": ["good"]}', malformed, b'{"a": 3}']


MALFORMED_OBJECTS = [
    *(b'{"a": tru}', b'{"a": 1,}', b'{"a" 1}', b"{a: 1}", b'{"a": NaN}', b'{"a": "\xff"}', b'{"a": "new\nline"}'),
    *(b'{"a": [2}', b'{"a": 1', b'{"a": "Hel', b'{"a": {\n "b": "c\n', b'{"a": "b, "c": 1}', b'{"a": "\0"}'),
    *(b'{"messages": [\n{"role": "user",\n "content": "x" "y"\n},\n{\n"role": "assistant"\n}\n]\n}', b'{"a": "b\\'),
]


@each_chunk
@pytest.mark.parametrize("malformed", MALFORMED_OBJECTS)
@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_malformed_object_costs_only_itself_if_the_next_one_begins_a_line(malformed, indent, chunk):
    good = [json.dumps({"a": ["{}\n{"], "b": [{}, {"c": n}]}, indent=indent).encode() for n in range(3)]
    content = b"\n".join([good[0], malformed, good[1], malformed, good[2]])
    assert read(content, chunk) == [good[0], malformed.strip(), good[1], malformed.strip(), good[2]]


def test_an_object_that_is_cut_short_where_another_may_follow_costs_that_one_too():
    content = b'{"a": 1}\n{"a": [\n{"a": 3}\n{"a": 4}\n{"a": 5}'
    assert read(content) == [b'{"a": 1}', b'{"a": [\n{"a": 3}', b'{"a": 4}', b'{"a": 5}']


@pytest.mark.parametrize("record", [b'{"a":xx}', b'{"a": {"b\\"": x, "c": [y]}}'])
def test_what_follows_malformed_records_on_their_line_is_searched_once(record, monkeypatch):
    pattern, searched = malformed_json._NEXT_OBJECT, []

    class Searches:
        def search(self, content: bytes, start: int, stop: int | None = None) -> re.Match[bytes] | None:
            searched.append((len(content) if stop is None else stop) - start)
            return pattern.search(content, start, *(() if stop is None else (stop,)))

    monkeypatch.setattr(malformed_json, "_NEXT_OBJECT", Searches())
    assert read(record * 500) == [record] * 500
    assert sum(searched) <= len(record) * 500


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@settings(max_examples=300)
@given(
    records=st.lists(st.lists(json_objects, min_size=1, max_size=3), min_size=2, max_size=5),
    indent=st.sampled_from([None, 1, 2]),
    form=st.sampled_from(["array", "objects"]),
    data=st.data(),
)
def test_no_byte_is_lost_and_the_records_before_the_damage_are_read(records, indent, form, data, chunk):
    written = [json.dumps({"a": each}, indent=indent) for each in records]
    content = ("[" + ",\n".join(written) + "]" if form == "array" else "\n".join(written)).encode()
    at = data.draw(st.integers(0, len(content) - 1))
    damage = data.draw(st.sampled_from([b"", b"x", b'"', b"{", b"}", b"]", b"\n", b"\\", b"\0", b"\xff"]))
    damaged = content[:at] + damage + content[at + 1 :]
    [part] = parts_of(damaged, chunk)
    found = [record.raw for record in part.records] + [reject.record for reject in part.rejects]
    outside = b"[], \r\n\t"
    assert letters(b"".join(found), outside) == letters(damaged, outside)
    sound = 0
    for text in written:
        if content.index(text.encode()) + len(text) >= at or written.count(text) > 1:
            break
        sound += 1
    assert found[:sound] == [text.encode() for text in written[:sound]]


def letters(content: bytes, without: bytes) -> bytes:
    return bytes(byte for byte in content if byte not in without)


# Files that are cut short


@each_chunk
def test_an_array_that_is_cut_short_ends_with_a_reject_of_the_record_that_is_cut(chunk):
    array = b'[{"a": "1, 2"}, {"b": [3, 4]}, {"c": "]"}]'
    for cut in range(1, len(array)):
        ends = [end for end in (14, 29, 41) if end <= cut]
        starts = [1, 16, 31]
        rest = array[:cut][starts[len(ends)] :] if len(ends) < 3 and cut > starts[len(ends)] else b""
        records, (detail, found) = with_rest(array[:cut], chunk)
        assert records == [array[start:end] for start, end in zip(starts, ends, strict=False)]
        assert found == rest.strip()
        where = f"record that begins at byte {starts[len(ends)]}" if rest else "array that begins at byte 0"
        assert detail == f"the file ends inside the {where}"


@each_chunk
def test_objects_that_are_cut_short_end_with_a_reject_of_the_last(chunk):
    content = b'{"a": 1}\n{\n "b": [\n  {"c": "2"}]}'
    for cut in range(10, len(content)):
        assert with_rest(content[:cut], chunk) == (
            [b'{"a": 1}'],
            ("the file ends inside the record that begins at byte 9", content[9:cut].strip()),
        )


# Which files have this form


def listed(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    [file] = list_inputs([str(path)])
    return file.format


LONG = b'{"text": "' + b"x" * 100_000
FORM_OF_START = {
    "a record on each line": (b'{"a": 1}\n{"b": 2}\n', "jsonl"),
    "one record on one line": (b'{"a": {"b": "}{"}}', "jsonl"),
    "blank lines": (b'\n\n{"a": 1}\r\n\r\n{"b": 2}', "jsonl"),
    "byte order mark": (BOM + b'{"a": 1}\n', "jsonl"),
    "first line malformed": (b'{"a": tru}\n{"b": 2}\n', "jsonl"),
    "first line cut in a string": (b'{"a": "Hel\n{"b": 2}\n', "jsonl"),
    "first line cut after a bracket": (b'{"a": [\n{"b": 2}\n{"c": 3}\n', "jsonl"),
    "first line longer than what is looked at": (LONG + b'"}\n{"b": 2}', "jsonl"),
    "a record on each line, of which the second is long": (b'{"a": 1}\n' + LONG + b'"}', "jsonl"),
    "lines of arrays and objects": (b'[1]\n[2]\n{"a": 1}\n', "jsonl"),
    "pretty": (b'{\n  "a": 1\n}\n', "json"),
    "pretty with CRLF": (b'{\r\n  "a": 1\r\n}\r\n', "json"),
    "pretty without indentation": (b'{\n"a": [\n{"b": 1}\n]\n}\n{"c": 2}', "json"),
    "pretty after a byte order mark": (BOM + b'{\n "a": 1}', "json"),
    "pretty and longer than what is looked at": (b"{\n" + LONG[1:] + b'"}', "json"),
    "pretty and malformed": (b'{\n  "a": tru\n}\n{\n  "a": 2\n}', "json"),
    "objects on one line": (b'{"a": 1}{"b": 2}\n', "json"),
    "objects with a blank between them": (b'{"a": 1} {"b": 2}\n{"c": 3}', "json"),
    "lines that end with commas": (b'{"a": 1},\n{"b": 2},\n', "json"),
    "array": (b'[{"a": 1},\n{"b": 2}]', "json"),
    "array of a long record": (b'[\n{"c": 1}, ' + LONG + b'"}]', "json"),
    "array that is malformed": (b'[{"a": tru}, {"b": 2}]', "json"),
    "array on one line": (b'[{"a": 1}]\n', "json"),
    "two arrays below each other, the first on several lines": (b'[{"a": 1},\n{"b": 2}]\n[{"c": 3}]', "json"),
}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson", "a"])
@pytest.mark.parametrize("form", FORM_OF_START)
def test_the_form_of_a_file_is_found_from_its_start(tmp_path, name, form):
    content, format = FORM_OF_START[form]
    assert listed(tmp_path / name, content) == format


def test_json_lines_that_are_chosen_are_not_looked_at(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{\n"a": 1}')
    [file] = list_inputs([str(tmp_path / "a.jsonl")], "jsonl")
    assert file.format == "jsonl"
