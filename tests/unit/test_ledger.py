"""The exceptions: records that are not plainly kept, line by line, as the shards, rejects and receipts say it too."""

from __future__ import annotations

from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from support.chats import assistant, render_config, user
from support.datasets import write_jsonl
from support.paths import TOKENIZER
from support.templates import DROPS_REASONING
from transforms import Slice, Split
from transforms.catalog.description import Description
from transforms.catalog.manifest import check_ledger
from transforms.catalog.snapshot import Increment
from transforms.model.receipts import Receipt
from transforms.steps import ledger_writer as ledger
from transforms.steps.custom import _Filter
from transforms.steps.label import build_labels
from transforms.steps.pack import Packer
from transforms.steps.parity import ParityChecker
from transforms.steps.parse import Parser
from transforms.steps.read import read_split
from transforms.steps.render import Renderer
from transforms.steps.tokenize import Encoder
from transforms.steps.write import ShardWriter

INCREMENT = "0123456789abcdef"
FORMATTER = """
def several(record):
    if record.get("several"):
        return [{"messages": messages} for messages in record["several"]]
    return record if record.get("messages") else None
"""


def thinking(content: str) -> dict[str, Any]:
    return assistant(content, reasoning_content="because")


RECORDS: list[Any] = [
    {"id": "plain", "messages": [user("Hi"), assistant("Hello there")]},
    {"id": "long", "messages": [user("Tell me a story"), assistant("Once upon a time " * 12)]},
    {"id": "long prompt", "messages": [user("Once upon a time " * 12), assistant("Yes")]},
    {"id": "untrained", "messages": [user("Hi"), assistant("Hello", train=False)]},
    {"id": "role", "messages": [{"role": "narrator", "content": "x"}]},
    ["not an object"],
    {"id": "none", "messages": []},
    {"id": "rude", "messages": [user("Hi"), assistant("Go away")]},
    {"id": "several", "several": [[user("a"), assistant("b")], [user("c"), assistant("d " * 70)]]},
    {"id": "contexts", "messages": [user("a"), thinking("b"), user("c"), thinking("d")]},
    {"id": "plain too", "messages": [user("How are you?"), assistant("Well")]},
]
PACKERS = [
    Packer(),
    Packer(max_length=48),
    Packer(max_length=48, truncation="keep_end", shift_labels=True),
    Packer(max_length=48, truncation="drop"),
    Packer(max_length=24, truncation="turns"),
    Packer(max_length=24, truncation="windows"),
    Packer(max_length=32, truncation="windows", packing="ffd", window_overlap=3, shift_labels=True),
    Packer(max_length=64, packing="bfd"),
    Packer(max_length=48, packing="ffd", truncation="drop"),
    *(Packer(max_length=most, packing=cut, shift_labels=shift) for most, cut, shift in [
        (32, "bfd_split", False), (5, "bfd_split", True), (32, "wrapped", False), (4, "wrapped", True)
    ]),
]  # fmt: skip


def receipt_of(folder: Path, packer: Packer, part_bytes: int = 400) -> Receipt:
    """Write the records as a shard in a folder, in several parts."""
    folder.mkdir()
    corpus = write_jsonl(folder.parent / "corpus.jsonl", RECORDS)
    (folder.parent / "formatter.py").write_text(FORMATTER)
    config = render_config(DROPS_REASONING)
    parse = Parser(
        formatter=f"{folder.parent}/formatter.py:several", keep_columns=("id",), validation_fraction=0.4, seed=3
    )
    keep = _Filter(lambda example: "Go away" not in str(example.content), "rude")
    render, compare, encode = Renderer(config), ParityChecker(config, "expand"), Encoder(str(TOKENIZER))
    write = ShardWriter(str(folder), provenance=True)
    split = Split(0, (Slice(str(corpus), "jsonl", None, 0, corpus.stat().st_size),), increment=INCREMENT)
    receipts = [
        write(packer(build_labels(encode(compare(render(keep(parse(part))))))))
        for part in read_split(split, part_bytes)
    ]
    assert len(receipts) > 2 or part_bytes > 400
    assert receipts[:-1] == [None] * (len(receipts) - 1)
    return receipts[-1]


def lines_of(folder: Path, receipt: Receipt) -> list[dict[str, Any]]:
    return pq.read_table(folder / receipt.ledger.path).to_pylist() if receipt.ledger else []


def by_record(lines: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [[*of_record] for _, of_record in groupby(lines, key=lambda line: line["position"])]


def segments_of(folder: Path, receipt: Receipt, packed: bool) -> dict[tuple[str, int, int], tuple[int, int, int]]:
    """The position, the tokens and the trained tokens of each segment, by its split, row and number in it."""
    found = {}
    for shard in receipt.shards:
        for number, row in enumerate(pq.read_table(folder / shard.path).to_pylist()):
            lengths = row["seq_lengths"] if packed else [len(row["input_ids"])]
            positions = row["source_position"] if packed else [row["source_position"]]
            for segment, (length, position) in enumerate(zip(lengths, positions, strict=True)):
                start = sum(lengths[:segment])
                trained = sum(label != -100 for label in row["labels"][start : start + length])
                found[shard.split, number, segment] = position, length, trained
    return found


@pytest.mark.parametrize("packer", PACKERS, ids=str)
def test_records_that_are_not_plainly_kept_have_lines_that_name_all_their_segments(tmp_path, packer):
    receipt = receipt_of(tmp_path / "out", packer)
    lines = lines_of(tmp_path / "out", receipt)
    records = by_record(lines)
    segments = segments_of(tmp_path / "out", receipt, packer.packing != "none")

    positions = [record[0]["position"] for record in records]
    assert positions == sorted({*positions})  # each once, in their order
    placed = {
        (line["split"], line["row"], line["segment"]): (line["position"], line["tokens"], line["trained_tokens"])
        for line in lines
        if line["split"]
    }
    assert placed == {place: of for place, of in segments.items() if of[0] in positions}
    assert {line["source"] for line in lines} == {str(tmp_path / "corpus.jsonl")}
    assert sum(line["trained_tokens_lost"] or 0 for line in lines) == receipt.trained_tokens_lost
    assert sum(record[0]["outcome"] == "truncated" for record in records) == receipt.truncated
    assert all(record[0]["tokens_lost"] for record in records if record[0]["outcome"] == "kept")
    check_ledger([receipt])


@pytest.mark.parametrize("packing", ["none", "bfd"])
def test_a_record_has_one_outcome_and_a_reason(tmp_path, packing):
    receipt = receipt_of(tmp_path / "out", Packer(max_length=48, packing=packing))
    lengths = map(len, (tmp_path / "corpus.jsonl").read_bytes().splitlines(keepends=True))
    names = dict(zip(accumulate(lengths, initial=0), RECORDS, strict=False))
    found = [
        (names[line["position"]], line["outcome"], line["reason"], line["example"])
        for line in lines_of(tmp_path / "out", receipt)
    ]
    assert [(record["id"] if isinstance(record, dict) else None, *of) for record, *of in found] == [
        ("long", "truncated", None, 0),
        ("long prompt", "dropped", "no_trained_tokens_left", 0),
        ("untrained", "dropped", "no_trained_tokens", 0),
        ("role", "rejected", "unknown_role", 0),
        (None, "rejected", "not_an_object", 0),
        ("none", "dropped", "filtered", 0),
        ("rude", "dropped", "rude", 0),
        ("several", "truncated", None, 0),
        ("several", "truncated", None, 1),
    ]
    details = {line["reason"]: line["detail"] for line in lines_of(tmp_path / "out", receipt) if line["detail"]}
    assert details.keys() == {"unknown_role", "not_an_object"}


def test_exceptions_are_the_same_whatever_the_size_of_parts_and_row_groups(tmp_path, monkeypatch):
    packer = Packer(max_length=48)
    lines = [
        lines_of(tmp_path / str(size), receipt_of(tmp_path / str(size), packer, part_bytes=size))
        for size in (1, 400, 1 << 20)
    ]
    assert lines[0] == lines[1] == lines[2]
    monkeypatch.setattr(ledger, "_LINES_IN_ROW_GROUP", 2)
    receipt = receipt_of(tmp_path / "groups", packer, part_bytes=1)
    assert pq.ParquetFile(tmp_path / "groups" / receipt.ledger.path).num_row_groups > 3
    assert lines_of(tmp_path / "groups", receipt) == lines[0]
    check_ledger([receipt])


def test_a_ledger_that_does_not_say_what_is_counted_stops_the_commit(tmp_path):
    receipt = receipt_of(tmp_path / "out", Packer(max_length=48))
    job = Description(options={}, splits=1, tokenizer_name="t", versions={})
    increment = Increment.of(INCREMENT, job, [receipt], [])
    assert [(file["path"], file["entries"]) for file in increment.files.ledger] == [
        (f"ledger/ledger-{INCREMENT}-000000-000.parquet", receipt.ledger.entries)
    ]
    planted = [
        {"truncated": receipt.truncated + 1, "kept": receipt.kept - 1},
        {"dropped": {**receipt.dropped, "rude": 0, "filtered": 2}},
        {"rejected": {"unknown_role": 2}},
        {"trained_tokens_lost": receipt.trained_tokens_lost + 1},
        {"ledger": None},
        {"ledger": msgspec.structs.replace(receipt.ledger, records={**receipt.ledger.records, "truncated": 9})},
    ]
    for change in planted:
        with pytest.raises(ValueError, match="split 0: ledger/ has "):
            Increment.of(INCREMENT, job, [msgspec.structs.replace(receipt, **change)], [])
