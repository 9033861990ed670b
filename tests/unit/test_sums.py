"""Sums: those of increments add up to those of one build."""

from __future__ import annotations

import json

import msgspec
import pytest

from support.manifests import manifest_by_hand
from transforms.dataset.description import Description, NamedSource
from transforms.dataset.manifest import check_complete, sums_of_receipts
from transforms.dataset.sums import Sums
from transforms.model.receipts import File, FirstExample, Receipt

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
        shards=[File(f"data/a/{number}.parquet", 100, "0" * 64, "parquet", "train", 7 + number, 70, 10 + number)],
        rejects=None, first_rejects=first, first_examples={f"name {number}": first["not_json"]},
        source=number % 2, special_tokens_in_content={"user <|im_end|>": number}, first_drops=first,
        statistics=msgspec.Raw(msgspec.json.encode(statistics)),
    )  # fmt: skip


def test_sums_of_increments_are_those_of_one_build():
    description = Description({}, 5, "-", {}, tuple(map(NamedSource, SOURCES)))
    receipts = [receipt(number) for number in range(5)]
    parts = [sums_of_receipts(description, part) for part in (receipts[:2], receipts[2:3], receipts[3:])]
    parts = [msgspec.convert(json.loads(msgspec.json.encode(part)), Sums) for part in parts]  # as in a version
    whole = sums_of_receipts(description, receipts).as_json(SOURCES)
    assert json.dumps(Sums.total(parts).as_json(SOURCES)) == json.dumps(whole)
    assert whole["records"]["rejected"]["not_json"] == 15


def test_sums_of_nothing_are_zero():
    sums = Sums.total([]).as_json(SOURCES)
    assert (sums["rows"], sums["records"]["read"], sums["notes"]) == (0, 0, {})
    assert [source["name"] for source in sums["sources"]] == list(SOURCES)


def test_receipts_of_which_one_is_missing_or_twice_or_lost_a_record_are_not_committed():
    receipts = [receipt(number) for number in range(3)]
    check_complete(3, receipts)
    parts = [msgspec.structs.replace(receipts[0], last=False), msgspec.structs.replace(receipts[0], part=1)]
    check_complete(3, [*parts, *receipts[1:]])
    planted = [
        (receipts[:2], "2 splits have receipts, of 3 that were planned"),
        ([*receipts, receipt(3)], "4 splits have receipts, of 3 that were planned"),
        ([receipts[0], *receipts], "split 0 has the receipts .*; expected each of its parts once"),
        (receipts[1:], "split 0 has the receipts .*; expected each of its parts once"),
        ([parts[0], *receipts[1:]], "split 0 has the receipts .*; expected each of its parts once"),
        ([*parts[1:], *receipts[1:]], "split 0 has the receipts .*; expected each of its parts once"),
        ([receipts[0], msgspec.structs.replace(receipts[0], part=1), *receipts[1:]], "expected each of its parts once"),
        ([*receipts[:2], msgspec.structs.replace(receipts[2], read=9)], "split 2: 9 records were read, and 16 have an"),
    ]
    for found, problem in planted:
        with pytest.raises(ValueError, match=problem):
            check_complete(3, found)
