"""The ledger: what became of each record, line by line, as the shards, the rejects and the receipts say it too."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from support.chats import assistant, render_config, user
from support.datasets import write_jsonl
from support.paths import TOKENIZER
from support.templates import DROPS_REASONING
from transforms.catalog.description import Description
from transforms.catalog.manifest import check_ledger
from transforms.catalog.snapshot import Increment
from transforms.model.batches import Slice, Split
from transforms.model.examples import Conversation, PlainText, content_digest
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


def receipt_of(folder: Path, packer: Packer, kind: str, part_bytes: int = 400) -> Receipt:
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
    write = ShardWriter(str(folder), provenance=True, ledger=kind, keep_columns=("id",))
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


@pytest.mark.parametrize("packer", PACKERS, ids=str)
def test_each_segment_has_a_line_and_the_sums_are_those_of_the_receipt(tmp_path, packer):
    receipt = receipt_of(tmp_path / "out", packer, "all")
    lines = lines_of(tmp_path / "out", receipt)
    records = by_record(lines)

    offsets = [0]
    for line in (tmp_path / "corpus.jsonl").read_bytes().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    assert [record[0]["position"] for record in records] == offsets[:-1]  # all of them, each once, in their order
    placed = {}
    for line in lines:
        assert line["source"] == str(tmp_path / "corpus.jsonl")
        if line["split"]:
            placed[line["split"], line["row"], line["segment"]] = line
    expected = set()
    for shard in receipt.shards:
        for number, row in enumerate(pq.read_table(tmp_path / "out" / shard.path).to_pylist()):
            packed = packer.packing != "none"
            lengths = row["seq_lengths"] if packed else [len(row["input_ids"])]
            positions = row["source_position"] if packed else [row["source_position"]]
            for segment, (length, position) in enumerate(zip(lengths, positions, strict=True)):
                start = sum(lengths[:segment])
                trained = sum(label != -100 for label in row["labels"][start : start + length])
                line = placed[shard.split, number, segment]
                assert (line["position"], line["tokens"], line["trained_tokens"]) == (position, length, trained)
                expected.add((shard.split, number, segment))
    assert placed.keys() == expected
    assert sum(line["trained_tokens_lost"] or 0 for line in lines) == receipt.trained_tokens_lost
    assert sum(record[0]["outcome"] == "kept" for record in records) == receipt.kept
    assert sum(record[0]["outcome"] == "truncated" for record in records) == receipt.truncated
    check_ledger("all", [receipt])


@pytest.mark.parametrize("packer", PACKERS, ids=str)
def test_exceptions_are_the_lines_of_records_that_are_not_plainly_kept(tmp_path, packer):
    everything = lines_of(tmp_path / "all", receipt_of(tmp_path / "all", packer, "all"))
    receipt = receipt_of(tmp_path / "some", packer, "exceptions")
    plain = [
        record
        for record in by_record(everything)
        if record[0]["outcome"] == "kept" and not record[0]["tokens_lost"] and not record[0]["trained_tokens_lost"]
    ]
    left = [record for record in by_record(everything) if record not in plain]
    assert by_record(lines_of(tmp_path / "some", receipt)) == left
    check_ledger("exceptions", [receipt])


@pytest.mark.parametrize("packing", ["none", "bfd"])
def test_a_record_has_one_outcome_a_reason_its_columns_and_a_digest_of_its_content(tmp_path, packing):
    packer = Packer(max_length=48, packing=packing)
    receipt = receipt_of(tmp_path / "out", packer, "all")
    found = [
        (line["kept_columns"]["id"], line["outcome"], line["reason"], line["example"])
        for line in lines_of(tmp_path / "out", receipt)
    ]
    assert found == [
        ("plain", "kept", None, 0),
        ("long", "truncated", None, 0),
        ("long prompt", "dropped", "no_trained_tokens_left", 0),
        ("untrained", "dropped", "no_trained_tokens", 0),
        ("role", "rejected", "unknown_role", 0),
        (None, "rejected", "not_an_object", 0),
        ("none", "dropped", "filtered", 0),
        ("rude", "dropped", "rude", 0),
        ("several", "truncated", None, 0),
        ("several", "truncated", None, 1),
        ("contexts", "kept", None, 0),
        ("contexts", "kept", None, 1),
        ("plain too", "kept", None, 0),
    ]
    contents = [line["content"] for line in lines_of(tmp_path / "out", receipt)]
    assert contents[0] == content_digest(Conversation(RECORDS[0]["messages"]))
    assert contents[7] == content_digest(Conversation(RECORDS[7]["messages"]))  # dropped by a filter, as an example
    assert contents[9] == content_digest(Conversation(RECORDS[8]["several"][1]))
    assert contents[10] == contents[11]  # two contexts of one example
    assert contents[4:7] == [None] * 3  # none of them became an example


def test_a_ledger_is_the_same_whatever_the_size_of_parts_and_row_groups(tmp_path, monkeypatch):
    packer = Packer(max_length=48)
    lines = [
        lines_of(tmp_path / str(size), receipt_of(tmp_path / str(size), packer, "all", part_bytes=size))
        for size in (1, 400, 1 << 20)
    ]
    assert lines[0] == lines[1] == lines[2]
    monkeypatch.setattr(ledger, "_LINES_IN_ROW_GROUP", 2)
    receipt = receipt_of(tmp_path / "groups", packer, "all", part_bytes=1)
    assert pq.ParquetFile(tmp_path / "groups" / receipt.ledger.path).num_row_groups > 3
    assert lines_of(tmp_path / "groups", receipt) == lines[0]
    check_ledger("all", [receipt])


def test_without_a_ledger_there_is_no_file(tmp_path):
    receipt = receipt_of(tmp_path / "out", Packer(max_length=48), "none")
    assert receipt.ledger is None and not (tmp_path / "out" / "ledger").exists()
    check_ledger("none", [receipt])


def test_a_ledger_that_does_not_say_what_is_counted_stops_the_commit(tmp_path):
    receipt = receipt_of(tmp_path / "out", Packer(max_length=48), "all")
    job = Description(options={"ledger": "all"}, splits=1, tokenizer_name="t", versions={})
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
        {"ledger": msgspec.structs.replace(receipt.ledger, tokens=receipt.ledger.tokens - 1)},
        {"ledger": msgspec.structs.replace(receipt.ledger, trained_tokens=receipt.ledger.trained_tokens + 1)},
    ]
    for change in planted:
        with pytest.raises(ValueError, match="split 0: the ledger has "):
            Increment.of(INCREMENT, job, [msgspec.structs.replace(receipt, **change)], [])


def test_duplicates_have_one_digest_and_others_have_another():
    messages = [user("Hi"), assistant("Hello")]
    call = {"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}
    called = [user("Hi"), assistant("", tool_calls=[{**call, "id": "1"}])]
    again = [user("Hi"), {"tool_calls": [{"id": "2", **call}], "content": "", "role": "assistant"}]
    same = [Conversation(messages), Conversation([{**message, "name": "x"} for message in messages], tools=[call])]
    assert len({content_digest(content) for content in same}) == 1
    assert content_digest(Conversation(called)) == content_digest(Conversation(again))
    others = [
        *same[:1], Conversation(called), Conversation(messages[:1]), Conversation(messages[::-1]), PlainText("Hi"),
        Conversation([user("H"), assistant("iHello")]),
        Conversation([user("Hi"), assistant("Hello", tool_calls=[call])]),
    ]  # fmt: skip
    assert len({content_digest(content) for content in others}) == len(others)


@pytest.mark.parametrize("content", [PlainText("\ud800"), Conversation([{}]), Conversation([{"role": "user"}, 7])])
def test_what_has_no_digest_stops_nothing(content):
    assert content_digest(content) is None
