"""The records of tests/data/records as files: a build says of each what `parse` says, in lines and in tables alike."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rejects, write_jsonl
from support.marked import marked_rows
from support.paths import ROOT, TOKENIZER
from support.records import CASES, malformed, outcome, plain_records, read_lines, read_records

KINDS = ("lines", "tables", "lines of tables")
OPTIONS = ["--max_reject_fraction=1", "--direct_num_workers=1", "--report=none"]
QUESTION, ANSWER = user("2+2?"), assistant("4.")
OUTPUT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4."}]}
SUMMARY = [{"type": "summary_text", "text": "Adding two."}]
WRITTEN = [{"type": "reasoning_text", "text": "It is a sum."}]
# Outputs of the Responses API, with reasoning.
OUTPUTS: list[list[dict[str, Any]]] = [
    [{"type": "reasoning", "id": "r", "summary": SUMMARY, "encrypted_content": "gA"}, OUTPUT],
    [{"type": "reasoning", "id": "r", "summary": SUMMARY, "content": WRITTEN}, OUTPUT],
    [OUTPUT, {"type": "reasoning", "summary": SUMMARY}],
    [{"type": "reasoning", "summary": SUMMARY}],
]
# The template of the tokenizer, with reasoning.
TEMPLATE = (TOKENIZER / "chat_template.jinja").read_text()
TEMPLATE = TEMPLATE.replace(
    "{%- generation -%}", "{%- generation -%}{{- '(' ~ message.reasoning_content ~ ')' if message.reasoning_content -}}"
)
PLAIN_CASES = [case for cases in CASES.values() for case in cases if "options" not in case]
RECORDS = [
    {"id": number, **{key: value for key, value in record.items() if key != "id"}}
    for number, record in enumerate(
        [*({"input": [QUESTION], "output": each} for each in OUTPUTS)]
        + [record for case in PLAIN_CASES for record in read_records(case)[:3] if isinstance(record, dict)]
    )
]
BROKEN = [line for case in PLAIN_CASES for line in read_lines(case) if "rejected" in case]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [*map(without_nulls, value)] if isinstance(value, list) else value


def tables(records: Iterable[dict[str, Any]]) -> Iterator[tuple[list[dict[str, Any]], pa.Table]]:
    """Few tables that have the records, so that Arrow gives each of them the keys of many; and what is in each."""
    left = [*records]
    while left:
        rows: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        schema, table = pa.schema([]), None
        for record in left:
            try:
                both = pa.unify_schemas([schema, pa.Table.from_pylist([record]).schema], promote_options="permissive")
                found = pa.Table.from_pylist([*rows, record], both)
                pq.write_table(found, pa.BufferOutputStream())
            except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
                others.append(record)
                continue
            # A number may have become another one.
            texts = [json.dumps(without_nulls(each), sort_keys=True) for each in (found.to_pylist(), [*rows, record])]
            if texts[0] == texts[1]:
                rows, schema, table = [*rows, record], both, found
            else:
                others.append(record)
        if table is None:
            return
        yield rows, table
        left = others


def build(folder: Path, *options: object) -> Path:
    """Build a dataset of all files in a folder, which is beside them."""
    given = ("--input", folder / "in", "--output", folder / "out", "--tokenizer", TOKENIZER, *OPTIONS, *options)
    assert chatmill("build", *given) == 0
    return folder / "out"


def outcomes(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a build of all files in a folder: what became of each record, by its id, and the manifest."""
    out = build(folder, "--chat_template", TEMPLATE, "--keep_columns=id")
    records = [(reject, reject["record"]) for reject in read_rejects(out) if reject["record"] not in BROKEN]
    rejects = {str(json.loads(record)["id"]): (reject["reason"], reject["detail"]) for reject, record in records}
    rows = marked_rows(out)
    assert not rows.keys() & rejects.keys()
    return {**rows, **rejects}, read_manifest(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the records in lines and in tables, and in lines that were written from these tables."""
    folder = tmp_path_factory.mktemp("found")
    held: set[int] = set()
    for kind in (*KINDS, "broken lines"):
        (folder / kind / "in").mkdir(parents=True)
    for number, (rows, table) in enumerate(tables(RECORDS)):
        pq.write_table(table, folder / "tables" / "in" / f"{number}.parquet")
        write_jsonl(folder / "lines of tables" / "in" / f"{number}.jsonl", table.to_pylist())
        held |= {row["id"] for row in rows}
    lines = [record for record in RECORDS if record["id"] in held]
    write_jsonl(folder / "lines" / "in" / "records.jsonl", lines)
    # Arrow cannot hold contents that are texts in one message and lists in another.
    assert len(lines) > 0.8 * len(RECORDS) > 300
    return folder


@pytest.fixture(scope="module")
def found(folder) -> dict[str, Any]:
    return {kind: outcomes(folder / kind) for kind in KINDS}


def text_or_reason(rows: dict[str, Any]) -> dict[str, str]:
    """The text of each row, and the reason of each reject: its detail may say what is null, and in which order."""
    return {id: row if isinstance(row, str) else row[0] for id, row in rows.items()}


def test_the_same_is_trained_on_and_rejected_whether_records_are_lines_or_rows(found):
    (of_lines, in_lines), (of_tables, in_tables) = found["lines"], found["tables"]
    assert text_or_reason(of_tables) == text_or_reason(of_lines)
    assert in_tables["records"] == in_lines["records"] and in_lines["records"]["kept"] > 200
    for name in ("schemas", "unread", "roles"):
        assert in_tables["statistics"][name] == in_lines["statistics"][name]


def test_lines_that_were_written_from_tables_are_read_as_the_lines_before(found):
    # Of arguments of calls without tools nobody knows which nulls they have had.
    others = {str(record["id"]) for record in RECORDS if '"arguments": {' not in json.dumps(record)}
    found_in = (text_or_reason(found[kind][0]) for kind in ("lines", "lines of tables"))
    of_lines, of_others = ({id: row for id, row in rows.items() if id in others} for rows in found_in)
    assert of_others == of_lines


def test_a_build_rejects_and_drops_what_parse_does_and_counts_its_notes(found):
    rows, manifest = found["lines"]
    alone = {str(record["id"]): outcome(record, keep_columns=("id",)) for record in RECORDS}
    rejected = {id: tuple(one["rejected"]) for id, one in alone.items() if "rejected" in one}
    assert {id: rows[id] for id in rejected.keys() & rows.keys()} == {id: rejected[id] for id in rejected if id in rows}
    dropped = [id for id, one in alone.items() if "dropped" in one]
    assert not rows.keys() & {*dropped} and sum(manifest["records"]["dropped"].values()) > 3
    assert manifest["notes"]["train_flags_not_understood"] > 3


def test_a_malformed_line_costs_only_itself_and_is_rejected_with_its_position_and_its_bytes(tmp_path):
    good = [json.dumps({"id": str(number), "text": f"Good record {number}"}).encode() for number in range(len(BROKEN))]
    lines = [line for pair in zip(good, BROKEN, strict=True) for line in pair]
    positions = [sum(len(line) + 2 for line in lines[:number]) for number in range(len(lines))]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mixed.jsonl").write_bytes(b"\r\n".join(lines))
    out = build(tmp_path, "--keep_columns=id")
    rejects = [(reject["origin_position"], reject["record"]) for reject in read_rejects(out)]
    assert rejects == [*zip(positions[1::2], BROKEN, strict=True)]
    # The order is that of the file.
    assert [*marked_rows(out).items()] == [(str(i), f"⟦Good record {i}<|im_end|>⟧") for i in range(len(good))]


@pytest.mark.parametrize("kind", KINDS)
def test_summary_of_reasoning_is_counted_and_not_trained_on(found, kind):
    rows, manifest = found[kind]
    begin = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    texts = [f"{begin}⟦{text}<|im_end|>\n⟧" for text in ("4.", "(It is a sum.)4.", "4.")]
    assert [rows[str(number)] for number in range(3)] == texts
    assert rows["3"][0] == "not_printed"
    unread = manifest["statistics"]["unread"]
    assert unread["messages[].summary"]["records"] == 4  # and one of the forms
    assert unread["messages[].encrypted_content"]["records"] == 1


def test_cells_that_are_the_json_of_messages_or_of_blocks_are_these(tmp_path):
    """A table that has messages in one row and a text in another has both as texts."""
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    messages, completion = json.dumps([QUESTION]), json.dumps([ANSWER])
    records: list[dict[str, Any]] = [
        {"prompt": messages, "completion": completion},
        {"prompt": messages, "completion": "4."},
        {"prompt": " " + messages, "completion": completion},
        {"system": json.dumps(blocks), "messages": [QUESTION, ANSWER]},
        {"system": json.dumps(blocks), "instruction": "2+2?", "output": "4."},
        {"prompt": "2+2?", "completion": completion},
        {"prompt": "[2, 2]", "completion": "[4]"},
    ]
    (tmp_path / "in").mkdir()
    for number, record in enumerate(records):
        path, row = tmp_path / "in" / str(number), {"id": f"jsonl {number}", **record}
        write_jsonl(path.with_suffix(".jsonl"), [row])
        pq.write_table(pa.Table.from_pylist([row | {"id": f"parquet {number}"}]), path.with_suffix(".parquet"))
        with path.with_suffix(".csv").open("w", newline="") as file:
            cells = [value if isinstance(value, str) else json.dumps(value) for value in record.values()]
            csv.writer(file).writerows([row.keys(), [f"csv {number}", *cells]])
    chat = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦4.<|im_end|>\n⟧"
    brief = f"<|im_start|>system\nBe brief.<|im_end|>\n{chat}"
    expected = [chat] * 3 + [brief] * 2 + ["bad_prompt_completion", "[2, 2]⟦[4]<|im_end|>⟧"]
    rows, _ = outcomes(tmp_path)
    assert text_or_reason(rows) == {
        f"{suffix} {number}": text for suffix in ("jsonl", "parquet", "csv") for number, text in enumerate(expected)
    }


def in_cells(record: dict[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in record.items()}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_each_malformed_record_is_read_or_rejected_and_costs_no_other(tmp_path, kind):
    """Each form, of which one value after another is missing or has another type."""
    records = [record for case in CASES["forms"] for one in plain_records(case) for record in malformed(one)]
    (tmp_path / "in").mkdir()
    if kind == "jsonl":
        write_jsonl(tmp_path / "in" / "records.jsonl", records)
    else:
        records = [record for record in records if isinstance(record, dict)]
        names = dict.fromkeys(name for record in records for name in record if name)
        rows = [in_cells(record) for record in records]
        columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in names}
        pq.write_table(pa.table(columns), tmp_path / "in" / "records.parquet", row_group_size=500)
    of = read_manifest(build(tmp_path))["records"]
    assert of["read"] == len(records) > 2000
    assert not {"formatter"} & of["rejected"].keys() and of["kept"] > 200


@pytest.mark.parametrize("kind", ["claude_code", "codex", "atif"])
def test_each_malformed_event_of_a_session_costs_no_other_session(tmp_path, kind):
    (sample,) = (ROOT / "tests" / "data" / "traces").glob(f"{kind}*")
    is_lines = sample.suffix == ".jsonl"
    lines = sample.read_text().splitlines()
    session = [json.loads(line) for line in lines if line.endswith("}")] if is_lines else json.loads(sample.read_text())
    (tmp_path / "in").mkdir()
    count = 0
    for count, other in enumerate(malformed(session), 1):
        events = other if is_lines else [other]
        (tmp_path / "in" / f"{count:05d}{sample.suffix}").write_text("".join(json.dumps(of) + "\n" for of in events))
    options = [f"--input_format={kind}", "--unprinted=report", "--trace_branches=examples"]
    of = read_manifest(build(tmp_path, *options))["records"]
    assert of["read"] >= count > 100 and of["kept"] > 10  # events of another session are one of their own


def test_strings_are_trained_on_as_an_answer_as_chat_and_a_build_says_that_they_can_be(tmp_path, capsys):
    arguments: dict[str, Any] = {}
    for _ in range(500):  # nested too deeply to be shown, which does not end the build
        arguments = {"a": arguments}
    calls = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
    deep = {"id": "deep", "messages": [QUESTION, assistant("4.", tool_calls=calls)]}
    (tmp_path / "in").mkdir()
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"id": "1", "prompt": "Is tea hot?", "completion": "Yes."}, deep])
    prompt = "<|im_start|>user\nIs tea hot?<|im_end|>\n<|im_start|>assistant\n"
    for options, row, is_noted in (
        ([], "Is tea hot?⟦Yes.<|im_end|>⟧", True),
        (["--as_chat=true"], f"{prompt}⟦Yes.<|im_end|>\n⟧", False),
        (["--as_chat=true", "--engine=reference"], f"{prompt}⟦Yes.<|im_end|>\n⟧", False),
        (["--schema=text", "--columns=text=prompt"], "⟦Is tea hot?<|im_end|>⟧", False),
    ):
        rows = marked_rows(build(tmp_path, "--keep_columns=id", "--overwrite", *options))
        assert rows["1"] == row
        assert capsys.readouterr().err.count("chatmill: note: prompt and completion are strings") == is_noted
