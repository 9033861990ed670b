"""A JSON file of one object that has records by their ids: each value is a record, with the key as its id."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms import RecordError, parse
from transforms.inputs.formats import Part
from transforms.inputs.formats import json as json_format
from transforms.inputs.json_values import has_records_by_id
from transforms.inputs.listing import list_inputs
from transforms.inputs.splits import splits_of
from transforms.steps.parse import Parser
from transforms.steps.read import read_split

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": 'Hello, {you}, "]" \\ é'}]


def records(count: int = 4) -> dict[str, dict[str, Any]]:
    return {f'd{number}, "{{é\\': {"messages": TALK, "topic": number} for number in range(count)}


def parts_of(content: bytes, most: int = 1 << 20) -> list[Part]:
    return list(json_format.read(io.BytesIO(content), 0, None, 1 << 20, most))


@given(
    indent=st.sampled_from([None, 0, 2, "\t"]),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", " : ")]),
    ascii=st.booleans(),
    around=st.tuples(*[st.sampled_from(["", "\n", " \r\n\t"])] * 2),
    mark=st.sampled_from(["", "\ufeff"]),
    chunk=st.sampled_from([1, 7, 1 << 20]),
)
def test_each_value_is_a_record_with_its_number_and_its_key_as_its_id(indent, separators, ascii, around, mark, chunk):
    text = json.dumps(records(), indent=indent, separators=separators, ensure_ascii=ascii)
    content = (mark + around[0] + text + around[1]).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_format, "_CHUNK", chunk)
        patch.setattr(json_format, "SNIFFED_BYTES", 450)  # less than all of it
        [part] = parts_of(content)
    assert part.rejects == [] and [record.position for record in part.records] == [0, 1, 2, 3]
    assert [json.loads(record.raw) for record in part.records] == [
        {"id": key, **record} for key, record in records().items()
    ]


def test_a_record_keeps_its_own_id():
    content = {"one": {"id": 7, "messages": TALK}, "two": {"messages": [{"role": "user", "id": "in a message"}]}}
    [part] = parts_of(json.dumps(content).encode())
    assert [json.loads(record.raw)["id"] for record in part.records] == [7, "two"]


def test_a_value_that_is_not_a_record_costs_only_itself():
    text = json.dumps(records(3))
    first, second = text.index('"topic": 0'), text.index('"topic": 1')
    broken = f'{text[:second]}"topic": ,{text[second + 10 :]}'[:-1] + ', "n": 5, "t": "x"}'
    [part] = parts_of(broken.encode())
    assert first and [record.position for record in part.records] == [0, 1, 2, 3, 4]
    parsed = Parser()(_records(part))
    assert len(parsed.examples) == 2
    assert [(reject.position, reject.reason) for reject in parsed.outcomes.rejects] == [
        (1, "invalid_json"), (3, "not_an_object"), (4, "not_an_object"),
    ]  # fmt: skip


def test_a_file_that_is_cut_short_says_so():
    [part] = parts_of(json.dumps(records(3)).encode()[:-30])
    assert len(part.records) == 2
    [reject] = part.rejects
    assert (reject.position, reject.reason) == (2, "cut_short") and "inside the record that begins" in reject.detail


def test_text_after_the_object_is_rejected():
    content = json.dumps(records(2)).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_format, "SNIFFED_BYTES", len(content) - 5)
        [part] = parts_of(content + b"more")
    assert [record.raw for record in part.records][2:] == [b"more"]


def test_a_record_that_is_too_long_costs_only_itself():
    content = records(3)
    content[[*content][1]]["long"] = "x" * (3 << 20)
    parts = parts_of(json.dumps(content).encode(), most=1 << 20)
    assert [record.position for part in parts for record in part.records] == [0, 2]
    assert [(reject.position, reject.reason) for part in parts for reject in part.rejects] == [(1, "too_long")]


TWO = json.dumps(records(2))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"messages": TALK}),
        json.dumps({"d1": {"messages": TALK}}),  # it may be a record that a formatter reads
        json.dumps({"meta": {"messages": TALK}, "info": {"messages": TALK}, "messages": TALK}),
        json.dumps({"en": {"text": "a"}, "de": {"text": "b"}}),
        f"{TWO}\n{TWO}\n",
        "{}",
        "",
        "[1]",
        '{"a": 1}',
    ],
)
def test_other_objects_are_records_themselves(text):
    assert not has_records_by_id(text.encode())


@pytest.mark.parametrize(
    "value", [b'{"messages": "\xff"}', b'{"a": 1e999}', b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"]
)
def test_a_value_that_cannot_be_decoded_shows_nothing(value):
    assert not has_records_by_id(b'{"a": ' + value + b', "b": ' + value + b"}")


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("indent", [None, 1])
def test_such_a_file_is_recognized_and_read_by_several_splits(tmp_path, name, indent):
    path = tmp_path / name
    path.write_text(json.dumps(records(400), indent=indent))
    [file] = list_inputs(str(path))
    splits = list(splits_of([file], 20_000))
    found = [record.raw for split in splits for part in read_split(split, 1 << 20) for record in part.records]
    assert len(splits) > 1 and [json.loads(record)["topic"] for record in found] == list(range(400))


def test_a_file_of_one_line_is_read(tmp_path):
    path = tmp_path / "dictofrec.json"
    path.write_text(json.dumps({"d1": {"messages": TALK}, "d2": {"messages": TALK}}) + "\n")
    [split] = splits_of(list_inputs(str(path)), 1 << 20)
    [part] = read_split(split, 1 << 20)
    assert [json.loads(record.raw)["id"] for record in part.records] == ["d1", "d2"]
    assert len(Parser()(part).examples) == 2


def test_one_large_object_is_not_searched_byte_by_byte(monkeypatch):
    """A search for the end of a malformed record takes the time of a large object's signs."""
    searched: list[int] = []
    monkeypatch.setattr(json_format, "end_of_malformed", lambda *_: searched.append(1))
    content = json.dumps({"other": records(5_000)}, indent=1).encode()
    part, *_ = parts_of(content, most=1 << 26)
    assert [record.raw for record in part.records] == [content] and searched == []


def test_an_error_names_only_some_of_many_columns():
    with pytest.raises(RecordError) as raised:
        parse(json.dumps({f"c{number}": number for number in range(500)}).encode())[0]
    assert "c18, c19 and 480 more; expected" in raised.value.detail


def _records(part: Part) -> Any:
    from transforms import Slice, Split
    from transforms.model.batches import Records
    from transforms.model.outcomes import Outcomes

    split = Split(0, (Slice("a.json", "json", None, 0, 1),))
    return Records(split, 0, True, Outcomes(read=len(part.records)), part.records)
