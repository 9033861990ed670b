"""Records of many forms, of which one value after another is missing or has another type: each is read or rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import chatmill
from support.datasets import manifest_of, rejects_of, write_jsonl
from support.laws import broken_laws
from support.paths import TOKENIZER
from support.records import malformed

DATA = Path(__file__).parents[1] / "data"
FORMS, SESSIONS = DATA / "forms.jsonl", DATA / "traces"


@pytest.fixture(scope="module")
def records() -> list[Any]:
    forms = [json.loads(line) for line in FORMS.read_text().splitlines()]
    return [record for form in forms for record in malformed(form)]


def in_cells(record: dict[str, Any]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in record.items()}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_each_malformed_record_is_read_or_rejected_and_costs_no_other(records, tmp_path, kind):
    if kind == "jsonl":
        write_jsonl(tmp_path / "records.jsonl", records)
    else:
        records = [record for record in records if isinstance(record, dict)]
        names = dict.fromkeys(name for record in records for name in record if name)
        rows = [in_cells(record) for record in records]
        columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in names}
        pq.write_table(pa.table(columns), tmp_path / "records.parquet", row_group_size=500)
    out = tmp_path / "out"
    options = ["--tokenizer", TOKENIZER, "--max_reject_fraction=1", "--direct_num_workers=1"]
    assert chatmill("build", "--input", tmp_path, "--output", out, *options) == 0
    manifest = manifest_of(out)
    of = manifest["records"]
    assert of["read"] == len(records) > 2000
    assert of["read"] == of["kept"] + of["truncated"] + sum({**of["dropped"], **of["rejected"]}.values())
    assert sum(of["rejected"].values()) == len(rejects_of(out))
    assert not {"formatter"} & of["rejected"].keys() and of["kept"] > 200
    assert broken_laws(out) == []


@pytest.mark.parametrize("name", [["get_weather"], {"a": 1}, 7, True])
def test_name_of_a_tool_that_is_no_text_does_not_end_the_build(name, tmp_path):
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {}}}
    answered = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "15 C"}]
    turns = [{"role": "user", "content": "Hi"}, *answered, {"role": "assistant", "content": "15 C."}]
    named = [turn | {"name": name} if turn["role"] == "tool" else turn for turn in turns]
    write_jsonl(tmp_path / "records.jsonl", [{"messages": turns}, {"messages": named}])
    options = ["--tokenizer", TOKENIZER, "--max_reject_fraction=1", "--direct_num_workers=1"]
    assert chatmill("build", "--input", tmp_path, "--output", tmp_path / "out", *options) == 0
    of = manifest_of(tmp_path / "out")["records"]
    assert (of["read"], of["kept"]) == (2, 2)


@pytest.mark.parametrize("kind", ["claude_code", "codex", "atif"])
def test_each_malformed_event_of_a_session_costs_no_other_session(tmp_path, kind):
    (sample,) = (path for path in SESSIONS.iterdir() if path.name.startswith(kind))
    is_lines = sample.suffix == ".jsonl"
    lines = sample.read_text().splitlines()
    session = [json.loads(line) for line in lines if line.endswith("}")] if is_lines else json.loads(sample.read_text())
    (tmp_path / "in").mkdir()
    count = 0
    for count, other in enumerate(malformed(session), 1):
        events = other if is_lines else [other]
        (tmp_path / "in" / f"{count:05d}{sample.suffix}").write_text("".join(json.dumps(of) + "\n" for of in events))
    out = tmp_path / "out"
    options = ["--tokenizer", TOKENIZER, "--max_reject_fraction=1", "--direct_num_workers=1"]
    options += [f"--input_format={kind}", "--unprinted=report", "--trace_branches=examples"]
    assert chatmill("build", "--input", tmp_path / "in", "--output", out, *options) == 0
    of = manifest_of(out)["records"]
    assert of["read"] >= count > 100 and of["kept"] > 10  # events of another session are one of their own
    assert of["read"] == of["kept"] + of["truncated"] + sum({**of["dropped"], **of["rejected"]}.values())
