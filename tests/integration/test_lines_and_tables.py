"""The same records as lines of JSON and as rows of Parquet: the same text is trained on, and the same is rejected."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import chatmill
from support.datasets import manifest_of, rejects_of, write_jsonl
from support.marked import marked_rows
from support.paths import TOKENIZER
from transforms.inputs.shapes import shapes
from transforms.inputs.turns import turn_forms

KINDS = ("lines", "tables", "lines of tables")
DATA = Path(__file__).parents[1] / "data"
QUESTION = {"role": "user", "content": "2+2?"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4."}]}
SUMMARY = [{"type": "summary_text", "text": "Adding two."}]
# The template of the tokenizer, with reasoning.
TEMPLATE = (TOKENIZER / "chat_template.jinja").read_text()
TEMPLATE = TEMPLATE.replace(
    "{%- generation -%}", "{%- generation -%}{{- '(' ~ message.reasoning_content ~ ')' if message.reasoning_content -}}"
)
WRITTEN = [{"type": "reasoning_text", "text": "It is a sum."}]


OUTPUTS = [
    [{"type": "reasoning", "id": "r", "summary": SUMMARY, "encrypted_content": "gA"}, ANSWER],
    [{"type": "reasoning", "id": "r", "summary": SUMMARY, "content": WRITTEN}, ANSWER],
    [ANSWER, {"type": "reasoning", "summary": [], "content": WRITTEN}],
    [ANSWER, {"type": "reasoning", "summary": SUMMARY}],
    [{"type": "reasoning", "summary": SUMMARY}],
]
RESPONSES = [{"input": [QUESTION], "output": output} for output in OUTPUTS]
SAMPLES = [entry.sample.record for entry in (*shapes(), *turn_forms())]
FORMS = [json.loads(line) for line in (DATA / "forms.jsonl").read_text().splitlines()]
RECORDS = [
    {"id": number, **{key: value for key, value in record.items() if key != "id"}}
    for number, record in enumerate([*RESPONSES, *SAMPLES, *FORMS])
    if isinstance(record, dict)
]


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
            except (pa.ArrowException, TypeError):
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


def outcomes(
    folder: Path, tokenizer: Path = TOKENIZER, template: str = TEMPLATE
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a build of all files in a folder: what became of each record, by its id, and the manifest."""
    out = folder / "out"
    arguments = ["--input", folder / "in", "--output", out, "--tokenizer", tokenizer, "--chat_template", template]
    arguments += ["--keep_columns=id", "--max_reject_fraction=1", "--direct_num_workers=1"]
    assert chatmill("build", *arguments) == 0
    rejects = {
        str(json.loads(reject["record"])["id"]): (reject["reason"], reject["detail"]) for reject in rejects_of(out)
    }
    rows = marked_rows(out, tokenizer=tokenizer)
    assert not rows.keys() & rejects.keys()
    return {**rows, **rejects}, manifest_of(out)


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    """The outcomes of the records in lines and in tables, and in lines that were written from these tables."""
    folder = tmp_path_factory.mktemp("found")
    held: set[int] = set()
    for kind in KINDS:
        (folder / kind / "in").mkdir(parents=True)
    for number, (rows, table) in enumerate(tables(RECORDS)):
        pq.write_table(table, folder / "tables" / "in" / f"{number}.parquet")
        write_jsonl(folder / "lines of tables" / "in" / f"{number}.jsonl", table.to_pylist())
        held |= {row["id"] for row in rows}
    lines = [record for record in RECORDS if record["id"] in held]
    write_jsonl(folder / "lines" / "in" / "records.jsonl", lines)
    # Arrow cannot hold contents that are texts in one message and lists in another.
    assert len(lines) > 0.9 * len(RECORDS) > 80
    return {kind: outcomes(folder / kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_same_is_trained_on_and_rejected_whether_records_are_lines_or_rows(found, kind):
    (of_lines, in_lines), (of_others, in_others) = found["lines"], found[kind]
    assert of_others == of_lines
    assert in_others["records"] == in_lines["records"] and in_lines["records"]["kept"] > 50
    for name in ("schemas", "unread", "roles"):
        assert in_others["statistics"][name] == in_lines["statistics"][name]


@pytest.mark.parametrize("kind", KINDS)
def test_summary_of_reasoning_is_counted_and_not_trained_on(found, kind):
    rows, manifest = found[kind]
    begin = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    assert [rows[str(number)] for number in range(4)] == [
        f"{begin}⟦4.<|im_end|>\n⟧",
        f"{begin}⟦(It is a sum.)4.<|im_end|>\n⟧",
        (
            "bad_content",
            "an answer in completion[0] has reasoning after text; expected reasoning, then text, then calls and their "
            "results",
        ),
        f"{begin}⟦4.<|im_end|>\n⟧",
    ]
    assert rows["4"][0] == "not_printed"
    unread = manifest["statistics"]["unread"]
    assert unread["messages[].summary"] == {"records": 4, "characters": len(3 * "Adding two." + "Adding.")}
    assert unread["messages[].encrypted_content"]["records"] == 1


def test_nulls_that_are_left_out_of_the_arguments_of_calls_in_tables_are_counted(tmp_path):
    """A model may have written them: a table does not say so, under whatever name the calls have their arguments."""

    def chat(call: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "Book it."}, {"role": "assistant", "content": "", "tool_calls": [call]}]

    parts = [{"role": "model", "parts": [{"functionCall": {"name": "book", "args": {"at": 3, "for": None}}}]}]
    records = [
        {"id": 0, "messages": chat({"name": "book", "args": {"at": 3, "for": None}})},
        {"id": 1, "messages": chat({"name": "book", "input": {"at": 3, "for": None}})},
        {"id": 2, "messages": chat({"function": {"name": "book", "arguments": {"at": 3, "for": None}}})},
        {"id": 3, "contents": [{"role": "user", "parts": [{"text": "Book it."}]}, *parts]},
    ]
    (tmp_path / "in").mkdir()
    for record in records:
        pq.write_table(pa.Table.from_pylist([record]), tmp_path / "in" / f"{record['id']}.parquet")
    rows, manifest = outcomes(tmp_path)
    assert manifest["notes"]["null_arguments_left_out"] == 4
    begin = "<|im_start|>user\nBook it.<|im_end|>\n<|im_start|>assistant\n"
    call = '⟦<tool_call>\n{"name": "book", "arguments": {"at": 3}}\n</tool_call><|im_end|>\n⟧'
    assert rows == dict.fromkeys("0123", begin + call)


MESSAGES = [{"role": "user", "content": "2+2?"}]
COMPLETION = [{"role": "assistant", "content": "4."}]
BLOCKS = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
def test_cells_that_are_the_json_of_messages_or_of_blocks_are_these(suffix, tmp_path):
    """A table that has messages in one row and a text in another has both as texts."""
    records = [
        {"prompt": json.dumps(MESSAGES), "completion": json.dumps(COMPLETION)},
        {"prompt": json.dumps(MESSAGES), "completion": "4."},
        {"prompt": " " + json.dumps(MESSAGES), "completion": json.dumps(COMPLETION)},
        {"system": json.dumps(BLOCKS), "messages": json.dumps([*MESSAGES, *COMPLETION])},
        {"system": json.dumps(BLOCKS), "instruction": "2+2?", "output": "4."},
        {"prompt": "2+2?", "completion": json.dumps(COMPLETION)},
        {"prompt": "[2, 2]", "completion": "[4]"},
    ]
    if suffix != "csv":
        records[3]["messages"] = [*MESSAGES, *COMPLETION]  # type: ignore[assignment]
    (tmp_path / "in").mkdir()
    for number, record in enumerate(records):
        path, row = tmp_path / "in" / f"{number}.{suffix}", {"id": str(number), **record}
        if suffix == "jsonl":
            write_jsonl(path, [row])
        elif suffix == "parquet":
            pq.write_table(pa.Table.from_pylist([row]), path)
        else:
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([row.keys(), row.values()])
    chat = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n⟦4.<|im_end|>\n⟧"
    rows, _ = outcomes(tmp_path)
    assert {id: row if isinstance(row, str) else row[0] for id, row in rows.items()} == {
        **dict.fromkeys("012", chat),
        "3": "bad_message",
        "4": "bad_message",
        "5": "bad_prompt_completion",
        "6": "[2, 2]⟦[4]<|im_end|>⟧",
    }
