"""Sums: those of increments add up to those of one build."""

from __future__ import annotations

import json

import msgspec

from support.manifests import manifest_by_hand
from transforms.dataset.description import Description, NamedSource
from transforms.dataset.manifest import build_manifest
from transforms.dataset.sums import add_sums, sums_of
from transforms.model.receipts import FirstExample, Receipt, Shard

SOURCES = ("chats", "code")
STATISTICS = manifest_by_hand()["statistics"]


def receipt(number: int) -> Receipt:
    """A receipt of which each count is another one."""
    statistics = json.loads(json.dumps(STATISTICS))
    statistics["histograms"]["turns"]["buckets"].append([number + 4, 1])
    statistics["roles"][f"role {number}"] = number
    first = {"not_json": FirstExample("a.jsonl", f"byte {number}", "-"), f"of {number}": FirstExample("b", "c", "d")}
    return Receipt(
        split=number, part=0, last=True, read=14 + number, kept=5 + number, truncated=2, dropped={"too_long": 3},
        rejected={"not_json": 3, f"reason {number}": 1}, notes={"unprinted": number}, trained_tokens_lost=number,
        rendered_by_reference={"not_followed": number}, tokenized_by_reference={},
        shards=[Shard(f"{number}.parquet", "parquet", "train", 7 + number, 70, 10 + number, 100, "0" * 64)],
        rejects_file=None, first_rejects=first, first_examples={f"name {number}": first["not_json"]},
        source=number % 2, special_tokens_in_content={"user <|im_end|>": number}, first_drops=first,
        statistics=msgspec.Raw(msgspec.json.encode(statistics)),
    )  # fmt: skip


def test_sums_of_increments_are_those_of_one_build():
    description = Description({}, 5, "-", {}, tuple(map(NamedSource, SOURCES)))
    receipts = [receipt(number) for number in range(5)]
    parts = [sums_of(build_manifest(description, part)) for part in (receipts[:2], receipts[2:3], receipts[3:])]
    parts = [json.loads(msgspec.json.encode(part)) for part in parts]  # as they are in the log
    whole = sums_of(build_manifest(description, receipts))
    assert json.dumps(add_sums(parts, SOURCES)) == json.dumps(whole | {"sources": whole["sources"]})
    assert whole["records"]["rejected"]["not_json"] == 15


def test_sums_of_nothing_are_zero():
    sums = add_sums([], SOURCES)
    assert (sums["rows"], sums["records"]["read"], sums["notes"]) == (0, 0, {})
    assert [source["name"] for source in sums["sources"]] == list(SOURCES)
