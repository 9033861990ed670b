"""CSV and TSV: each row once, with its number; cells stay the text that they are."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transforms import Conversation, InputError, PlainText, PromptCompletion, parse
from transforms.inputs import delimited
from transforms.inputs.listing import list_inputs
from transforms.inputs.splits import splits_of
from transforms.model.batches import Records
from transforms.model.outcomes import Reject
from transforms.steps.parse import Parser
from transforms.steps.read import read_split

BOM = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One folder for all examples of a property; each writes its own files into it."""
    return tmp_path_factory.mktemp("delimited")


def parts_of(path: Path, content: bytes, part_bytes: int = 1 << 20) -> list[Records]:
    path.write_bytes(content)
    return [part for split in splits_of(list_inputs([str(path)]), 1 << 20) for part in read_split(split, part_bytes)]


def read(path: Path, content: bytes) -> tuple[list[tuple[int, Any]], list[Reject]]:
    """The position and the columns of each record, and the rejects."""
    [part] = parts_of(path, content)
    assert part.outcomes.read == len(part.records) + len(part.outcomes.rejects)
    return [(record.position, record.raw) for record in part.records], list(part.outcomes.rejects)


def written(rows: list[list[str]], how: dict[str, Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, **how).writerows(rows)
    return text.getvalue().encode()


cells = st.text(st.sampled_from("\",;\t\n\r é😀[]{}0'\\") | st.characters(codec="utf-8", exclude_characters="\0"))


@settings(max_examples=200)
@given(
    rows=st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), max_size=8)),
    suffix=st.sampled_from(["csv", "tsv", "csv.gz"]),
    # The writer does not quote "\r" if lines end with "\n" and it quotes only what it must.
    how=st.sampled_from([{}, {"quoting": csv.QUOTE_ALL}, {"quoting": csv.QUOTE_ALL, "lineterminator": "\n"}]),
    mark=st.sampled_from([b"", BOM]),
    part_bytes=st.integers(1, 60),
)
@example(rows=[["\n"]], suffix="csv", how={"lineterminator": "\n"}, mark=b"", part_bytes=9)
@example(rows=[["a", "\r\n"]], suffix="csv", how={"lineterminator": "\r\n"}, mark=b"", part_bytes=9)
@example(rows=[['"']], suffix="csv", how={"lineterminator": "\n"}, mark=b"", part_bytes=9)
def test_each_cell_that_is_written_is_read_in_bounded_parts(folder, rows, suffix, how, mark, part_bytes):
    names = [f"c{i}" for i in range(len(rows[0]))] if rows else ["c"]
    content = mark + written([names, *rows], {"delimiter": "\t" if suffix == "tsv" else ",", **how})
    content = gzip.compress(content) if suffix.endswith("gz") else content
    parts = parts_of(folder / f"a.{suffix}", content, part_bytes)
    records = [record for part in parts for record in part.records]
    assert [record.position for record in records] == list(range(len(rows)))
    # An empty cell is null if it has no quotes.
    assert [[record.raw.get(name, "") for name in names] for record in records] == rows
    sizes = [
        sum(len(cell.encode("latin-1", "replace")) for r in part.records for cell in r.raw.values()) for part in parts
    ]
    assert all(len(part.records) >= 1 for part in parts) or not rows
    assert len(parts) == 1 or max(sizes) < part_bytes + max(sum(len(cell.encode()) for cell in row) for row in rows)


def test_no_type_is_inferred_and_only_an_empty_cell_without_quotes_is_null(tmp_path):
    content = b'a,b,c\n007,NA,null\n1e5,true,2026-01-01\n,"",nan\n"x, ""y""\nz",\xc3\xa9,-\n'
    records, rejects = read(tmp_path / "a.csv", content)
    assert records == [
        (0, {"a": "007", "b": "NA", "c": "null"}),
        (1, {"a": "1e5", "b": "true", "c": "2026-01-01"}),
        (2, {"b": "", "c": "nan"}),
        (3, {"a": 'x, "y"\nz', "b": "é", "c": "-"}),
    ]
    assert rejects == []


@pytest.mark.parametrize("block", [12, 40, 1 << 20])
def test_rows_with_another_number_of_cells_and_rows_that_are_not_utf8_cost_only_themselves(
    tmp_path, monkeypatch, block
):
    monkeypatch.setattr(delimited, "_BLOCK", block)
    rows = [b"1,one", b"2", b"3,three,x", b'4,"a\nb"', b"\xff,5", b"", b'\xff,"6",6', b"7,seven", b"8,\xe9", b"9"]
    records, rejects = read(tmp_path / "a.csv", b"\n".join([b"a,b", *rows]) + b"\n")
    assert records == [
        (0, {"a": "1", "b": "one"}),
        (3, {"a": "4", "b": "a\nb"}),
        (6, {"a": "7", "b": "seven"}),
    ]
    assert [(reject.position, reject.reason, reject.record) for reject in rejects] == [
        (1, "bad_row", b"2"),
        (2, "bad_row", b"3,three,x"),
        (4, "invalid_unicode", b"\xff,5"),
        (5, "bad_row", b'\xff,"6",6'),
        (7, "invalid_unicode", b"8,\xe9"),
        (8, "bad_row", b"9"),
    ]
    assert rejects[1].detail == "it has 3 cells; expected 2, as the header has"


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_file_that_ends_inside_quotes_ends_with_a_reject_of_all_that_they_hold(tmp_path, end):
    records, [reject] = read(tmp_path / "a.csv", b'a,b\n1,one\n2,"tw""o\n3,three\n4,four' + end)
    assert records == [(0, {"a": "1", "b": "one"})]
    assert (reject.position, reject.reason) == (1, "cut_short")
    assert b"4,four" in reject.record


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_a_last_row_that_is_too_long_and_ends_inside_quotes_costs_no_other_row(tmp_path, part_bytes):
    (tmp_path / "a.csv").write_bytes(b'a,b\n1,one\n2,"' + b"x" * 99)
    [split] = splits_of(list_inputs([str(tmp_path / "a.csv")]), 1 << 20)
    parts = [*read_split(split, part_bytes, max_record_bytes=50)]
    assert [record.position for part in parts for record in part.records] == [0]
    assert [(reject.position, reject.reason) for part in parts for reject in part.outcomes.rejects] == [(1, "too_long")]


@pytest.mark.parametrize("content", [b"", b"\n", b"a,b\n", BOM + b"a,b"])
def test_a_file_without_rows_has_no_records(tmp_path, content):
    (tmp_path / "other.csv").write_bytes(b"a\n1\n")
    (tmp_path / "a.csv").write_bytes(content)
    files = list_inputs([str(tmp_path)])
    assert sum(len(part.records) for split in splits_of(files, 99) for part in read_split(split, 99)) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a,b,a\n1,2,3\n", "header has 'a' twice"),
        (b"\xff,b\n1,2\n", "header is not UTF-8"),
        (b"a,b\n1,2\n" + b"x" * 500 + b",2\n", "a row is longer than"),
        (b",".join(b"c%d" % i for i in range(1001)) + b"\n", "more than 1,000"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path, monkeypatch, content, problem):
    monkeypatch.setattr(delimited, "_BLOCK", 200 if b"x" * 500 in content else 1 << 20)
    with pytest.raises(InputError, match=rf"a\.csv: it cannot be read as csv \(.*{problem}"):
        read(tmp_path / "a.csv", content)


def test_columns_without_a_name_get_one(tmp_path):
    assert read(tmp_path / "a.csv", b",text,\n0,x,y\n")[0] == [(0, {"column_1": "0", "text": "x", "column_3": "y"})]


# JSON in cells

TURNS = [{"role": "user", "content": 'Hi, "you"'}, {"role": "assistant", "content": "[1]"}]
ASKED, ANSWERED = json.dumps(TURNS[:1]), json.dumps(TURNS[1:])
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


def content_of(path: Path, row: dict[str, str], **options: Any) -> Any:
    text = io.StringIO()
    csv.writer(text).writerows([row.keys(), row.values()])
    [part] = parts_of(path, text.getvalue().encode())
    [example] = [Parser(**options).parse(record) for record in part.records]
    return example.content


def test_cells_with_the_json_of_messages_and_tools_are_a_conversation(tmp_path):
    content = content_of(tmp_path / "a.csv", {"id": "1", "messages": json.dumps(TURNS), "tools": json.dumps(TOOLS)})
    assert content == Conversation(TURNS, TOOLS)
    shared = json.dumps([{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}])
    named = content_of(tmp_path / "a.csv", {"dialog": shared}, columns={"conversations": "dialog"})
    assert [message["content"] for message in named.messages] == ["Hi", "Yes"]


def test_a_prompt_and_a_completion_are_messages_if_they_are_the_json_of_some(tmp_path):
    both = content_of(tmp_path / "a.csv", {"prompt": ASKED, "completion": ANSWERED})
    assert both == Conversation(TURNS, completion_start=1)
    asked = content_of(tmp_path / "a.csv", {"prompt": ASKED, "completion": "fine"})
    assert asked == Conversation([TURNS[0], {"role": "assistant", "content": "fine"}], completion_start=1)
    for prompt, completion in [("[1, 2]", "[3]"), ('{"a": 1}', '{"b": 2}'), ("[]", "fine")]:
        content = content_of(tmp_path / "a.csv", {"prompt": prompt, "completion": completion})
        assert content == PromptCompletion(prompt, completion)


def test_text_that_is_the_json_of_a_list_stays_text(tmp_path):
    assert content_of(tmp_path / "a.csv", {"text": ASKED}) == PlainText(ASKED)


def test_tokenized_rows_of_cells_are_decoded(tmp_path):
    row = content_of(tmp_path / "a.csv", {"input_ids": "[5, 6]", "labels": "[-100, 6]"})
    assert (row.input_ids.tolist(), row.trained.tolist()) == ([5, 6], [False, True])


def test_messages_in_a_string_of_json_lines_are_read():
    lines = [{"prompt": ASKED, "completion": ANSWERED}, {"messages": json.dumps(TURNS)}]
    first, second = (parse(json.dumps(line).encode())[0].content for line in lines)
    assert first == Conversation(TURNS, completion_start=1)
    assert second == Conversation(TURNS)


@pytest.mark.parametrize("label", ["False", "false"])
def test_an_answer_whose_label_is_false_is_dropped(tmp_path, label):
    from transforms import RecordDropped

    with pytest.raises(RecordDropped):
        content_of(tmp_path / "a.csv", {"prompt": "a", "completion": "b", "label": label})
    for good in ("True", "1", "0", "spam"):
        kept = content_of(tmp_path / "a.csv", {"prompt": "a", "completion": "b", "label": good})
        assert kept == PromptCompletion("a", "b")
