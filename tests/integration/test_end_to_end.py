"""From input files of every format and schema to a dataset that trainers load."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from pathlib import Path

import datasets
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from support.chats import assistant, system, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rejects, read_rows
from support.paths import TOKENIZER

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


def chat(name: str) -> list[dict[str, object]]:
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    asked = [system("You add numbers."), user(f"What is 2 + 3, {name}?"), assistant("", tool_calls=[call])]
    return [*asked, {"role": "tool", "content": "5"}, assistant(f"It is 5, {name}.")]


FORMATS = ("lines", "gz", "bz2", "xz", "zst", "array", "pretty", "deep")


def records_by_schema(name: str) -> list[dict[str, object]]:
    """One record of each schema; all conversations have the same content."""
    turns = [
        {"from": "human", "value": f"What is 2 + 3, {name}?"},
        {"from": "function_call", "value": json.dumps({"name": "add", "arguments": {"a": 2, "b": 3}})},
        {"from": "observation", "value": "5"},
        {"from": "gpt", "value": f"It is 5, {name}."},
    ]
    return [
        {"id": f"{name}-messages", "messages": chat(name), "tools": TOOLS},
        {"id": f"{name}-sharegpt", "conversations": turns, "system": "You add numbers.", "tools": json.dumps(TOOLS)},
        {"id": f"{name}-prompt", "prompt": chat(name)[:2], "completion": chat(name)[2:], "tools": TOOLS},
        {"id": f"{name}-plain", "prompt": f"{name}: 2 + 3 =", "completion": " 5"},
        {"id": f"{name}-alpaca", "instruction": "Add.", "input": f"2 + 3, {name}", "output": "5", "system": ""},
        {"id": f"{name}-text", "text": f"{name} says that 2 + 3 = 5."},
        {"id": f"{name}-tokens", "input_ids": [5, 6, 7, 8], "labels": [-100, -100, 7, 8]},
    ]


def write_every_format(folder: Path) -> list[str]:
    """Write a file in each format, with a record of each schema in each. Returns the ids of the records."""
    by_format = {name: records_by_schema(name) for name in FORMATS}
    lines = {name: b"".join(msgspec.json.encode(record) + b"\n" for record in by_format[name]) for name in by_format}
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines["lines"].replace(b"\n", b"\r\n").rstrip())
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines["gz"]))
    (folder / "c.jsonl.bz2").write_bytes(bz2.compress(lines["bz2"]))
    (folder / "d.jsonl.xz").write_bytes(lzma.compress(lines["xz"]))
    half = len(lines["zst"]) // 2
    compress = zstandard.ZstdCompressor().compress
    (folder / "e.jsonl.zst").write_bytes(compress(lines["zst"][:half]) + compress(lines["zst"][half:]))
    (folder / "f.json").write_text(json.dumps(by_format["array"], indent=2))
    (folder / "g.jsonl").write_text("\n".join(json.dumps(record, indent=1) for record in by_format["pretty"]))
    (folder / "below").mkdir()
    (folder / "below" / "g.ndjson").write_bytes(lines["deep"])
    (folder / "malformed.txt").write_text("{no record")
    (folder / ".hidden.jsonl").write_text("{}")
    names = [record["id"] for records in by_format.values() for record in records]
    # A column has one type, so a columnar file holds records of one schema.
    messages = [{"id": f"parquet-{i}", "messages": chat(f"p{i}"), "tools": json.dumps(TOOLS)} for i in range(5)]
    pq.write_table(pa.Table.from_pylist(messages), folder / "h.parquet", row_group_size=2)
    sharegpt = [{**records_by_schema(f"a{i}")[1], "id": f"arrow-{i}", "tools": None} for i in range(5)]
    rows = [{"id": f"csv-{i}", "messages": json.dumps(chat(f"c{i}")), "tools": json.dumps(TOOLS)} for i in range(5)]
    with open(folder / "i.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    datasets.Dataset.from_list(sharegpt).save_to_disk(str(folder / "saved"))
    return [*names, *(row["id"] for row in [*messages, *rows]), *(row["id"] for row in sharegpt)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> tuple[Path, list[str]]:
    """A dataset of all input formats and schemas, in both output formats, with columns and provenance."""
    folder = tmp_path_factory.mktemp("mixed")
    names = write_every_format(folder / "corpus")
    inputs = [f"--input={folder}/corpus/*,{folder}/corpus/below", f"--input={folder}/corpus/saved"]
    columns = ["--write_columns=input_ids,labels,attention_mask,position_ids,loss_mask", "--keep_columns=id"]
    options = [
        "--output_format=parquet,tfrecord",
        "--provenance",
        "--validation_fraction=0.2",
        "--direct_num_workers=1",
    ]
    # The glob matches malformed.txt, so it is read, and its line is not valid JSON.
    options += [f"--tokenizer={TOKENIZER}", f"--output={folder}/out", "--max_reject_fraction=0.02"]
    assert chatmill(*inputs, *columns, *options) == 0
    return folder / "out", names


def test_each_record_of_each_format_and_schema_becomes_a_row(mixed):
    output, names = mixed
    rows = read_rows(output) + read_rows(output, "validation")
    assert sorted(row["id"] for row in rows) == sorted(names)
    manifest = read_manifest(output)
    assert manifest["records"]["read"] == len(names) + 1
    assert manifest["records"]["kept"] == manifest["rows"] == len(names)
    assert [(Path(reject["origin_file"]).name, reject["reason"]) for reject in read_rejects(output)] == [
        ("malformed.txt", "invalid_json")
    ]


def test_one_conversation_gives_the_same_row_in_every_format_and_schema(mixed):
    output, _ = mixed
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    rows = {row["id"]: row for row in read_rows(output) + read_rows(output, "validation")}
    masks = {"return_dict": True, "return_assistant_tokens_mask": True}
    for name in FORMATS:
        encoded = tokenizer.apply_chat_template(chat(name), tools=TOOLS, **masks)
        labels = [i if mask else -100 for i, mask in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True)]
        for schema in ("messages", "sharegpt"):
            assert rows[f"{name}-{schema}"]["input_ids"] == encoded["input_ids"]
            assert rows[f"{name}-{schema}"]["labels"] == labels
        assert rows[f"{name}-prompt"]["input_ids"] == encoded["input_ids"]
        assert rows[f"{name}-tokens"]["labels"] == [-100, -100, 7, 8]
        plain = rows[f"{name}-plain"]
        assert tokenizer.decode(plain["input_ids"]) == f"{name}: 2 + 3 = 5<|im_end|>"
        assert tokenizer.decode([label for label in plain["labels"] if label != -100]) == " 5<|im_end|>"


def test_datasets_loads_the_output_and_a_collator_pads_it(mixed, tmp_path):
    output, _ = mixed
    loaded = datasets.load_dataset(str(output), cache_dir=str(tmp_path))
    assert set(loaded) == {"train", "validation"}
    assert loaded["train"].num_rows == len(read_rows(output))
    collate = DataCollatorForSeq2Seq(AutoTokenizer.from_pretrained(TOKENIZER), return_tensors="np")
    columns = ["input_ids", "labels", "attention_mask"]
    batch = collate([{name: row[name] for name in columns} for row in loaded["train"].select(range(8))])
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape
    for i, row in enumerate(loaded["train"].select(range(8))):
        length = len(row["input_ids"])
        assert batch["labels"][i][:length].tolist() == row["labels"]
        assert (batch["labels"][i][length:] == -100).all()
