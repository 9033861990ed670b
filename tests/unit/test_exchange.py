"""The exchange: each example that a split sends is in one bucket, in an order that the seed and its place decide."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms import InputError, Slice, Split
from transforms.exchange.buckets import bucket_count, buckets_of, with_buckets
from transforms.exchange.places import bucket_of, places_of
from transforms.exchange.receive import read_bucket
from transforms.exchange.send import Sender
from transforms.model.batches import Labels, RowSource
from transforms.model.outcomes import Drop, Outcomes

INCREMENT = "0123456789abcdef"


def planned(sources: list[int]) -> list[Split]:
    """Splits of files, one for each number of a source."""
    return [
        Split(number, (Slice(f"{number}.jsonl", "jsonl", None, 0, 100),), source, increment=INCREMENT)
        for number, source in enumerate(sources)
    ]


def labels_of(split: Split, records: list[int], part: int = 0, last: bool = True, dropped: int = 0) -> Labels:
    """A part of a split with a record for each number, which is how many examples it has. An example tells its place:
    it is (split, position, number in the record).
    """
    rows = [(split.number, 100 * part + i, number) for i, count in enumerate(records) for number in range(count)]
    ids = np.array(rows, np.int32).reshape(-1)
    positions = np.array([position for _, position, _ in rows], np.int64)
    outcomes = Outcomes(
        read=len(records) + dropped, drops=tuple(Drop(900 + i, "filtered") for i in range(dropped)), notes={"n": 1}
    )
    return Labels(
        split=split,
        part=part,
        last=last,
        outcomes=outcomes,
        ids=ids,
        labels=np.where(np.arange(len(ids)) % 3 == 0, -100, ids).astype(np.int32),
        offsets=np.arange(len(rows) + 1) * 3,
        source=RowSource(
            positions=positions,
            validation=positions % 2 == 0,
            columns=pa.table({"at": [str(row) for row in rows]}),
            numbers=np.array([number for *_, number in rows], np.int64),
        ),
    )


def exchanged(
    folder: Path, batches: list[list[Labels]], shards: int | None = None, seed: int = 0
) -> list[list[Labels]]:
    """Send the parts of splits, and return those of the buckets."""
    sender = Sender(output=str(folder), seed=seed, packing="none", index=False)
    splits = [parts[0].split for parts in batches]
    sent = {
        split.number: [sender(part) for part in parts][-1].sent for split, parts in zip(splits, batches, strict=True)
    }
    buckets = buckets_of(splits, {number: file for number, file in sent.items() if file}, {}, None, INCREMENT)
    return [list(read_bucket(bucket, str(folder), seed)) for bucket in buckets]


def rows_of(part: Labels) -> list[tuple[int, ...]]:
    return [tuple(row) for row in part.ids.reshape(-1, 3).tolist()]


@given(
    st.lists(st.lists(st.lists(st.integers(1, 3), max_size=9), min_size=1, max_size=3), min_size=1, max_size=5),
    st.none() | st.integers(1, 7),
)
def test_each_example_is_in_one_bucket_with_all_that_belongs_to_it(tmp_path_factory, counts, shards):
    splits = with_buckets(planned([number % 2 for number in range(len(counts))]), shards, seed=3)
    batches = [
        [labels_of(split, records, part, part + 1 == len(parts)) for part, records in enumerate(parts)]
        for split, parts in zip(splits, counts, strict=True)
    ]
    buckets = exchanged(tmp_path_factory.mktemp("out"), batches, shards, seed=3)
    assert len(buckets) == bucket_count(len(splits), shards)
    expected = Counter(row for parts in batches for part in parts for row in rows_of(part))
    assert Counter(row for parts in buckets for part in parts for row in rows_of(part)) == expected
    for number, parts in enumerate(buckets):
        assert [part.split.number for part in parts] == [len(splits) + number] * len(parts)
        assert [(part.part, part.last) for part in parts] == [(i, i + 1 == len(parts)) for i in range(len(parts))]
        for part in parts:
            rows, source = rows_of(part), part.source
            origins = [part.split.origin(position) for position in source.positions.tolist()]
            assert [(int(piece.url.removesuffix(".jsonl")), at) for piece, at in origins] == [row[:2] for row in rows]
            assert part.split.sources_of(source.positions).tolist() == [row[0] % 2 for row in rows]
            assert source.validation.tolist() == [row[1] % 2 == 0 for row in rows]
            if rows:
                assert source.columns["at"].to_pylist() == [str(row) for row in rows]
                assert source.numbers.tolist() == [row[2] for row in rows]
            assert ((part.labels == part.ids) | (part.labels == -100)).all()
            # The examples of a record follow each other, in their order.
            assert rows == [row for _, of in itertools.groupby(rows, lambda row: row[:2]) for row in sorted(of)]
            assert len({row[:2] for row in rows}) == part.outcomes.read == source.records()


def test_records_that_are_dropped_before_the_exchange_have_their_outcome_in_their_split(tmp_path):
    [split] = with_buckets(planned([0]), None, seed=0)
    batch = labels_of(split, [1, 1], dropped=3)
    rows = Sender(output=str(tmp_path), seed=0, packing="bfd", index=False)(batch)
    assert rows.outcomes == Outcomes(read=3, drops=batch.outcomes.drops, notes={"n": 1})
    assert (len(rows.train), len(rows.validation), rows.outcomes.unaccounted()) == (0, 0, 0)
    nothing = Sender(output=str(tmp_path), seed=0, packing="bfd", index=False)(labels_of(split, []))
    assert nothing.sent is None


def test_places_are_pinned_and_even():
    places = places_of(7, 2, np.arange(100_000))
    assert [hex(place) for place in places[:2].tolist()] == ["0x48bc72b1ff4f8707", "0xf8de7600f5b5afc4"]
    assert len(np.unique(places)) == 100_000
    counts = np.bincount(bucket_of(places, 10))
    assert abs(counts - 10_000).max() < 5 * 95  # five deviations
    assert (bucket_of(np.array([0, 2**64 - 1], np.uint64), 2**31 - 1) == [0, 2**31 - 2]).all()


def test_large_plan_is_exchanged_in_groups_with_a_share_of_each_source():
    """160,000 splits, 10 TB: a bucket reads 256 blocks at most, and its group has of each source what the plan has."""
    shares = (100_000, 50_000, 9_000, 1_000)
    splits = with_buckets(planned([source for source, count in enumerate(shares) for _ in range(count)]), None, seed=0)
    senders = Counter(split.sends_to for split in splits)
    assert len(senders) == 625 and {*senders.values()} == {256}
    assert sorted(number for buckets in senders for number in buckets) == [*range(160_000, 320_000)]
    of_sources = Counter((split.sends_to, split.source) for split in splits)
    for buckets in senders:
        found = [of_sources[buckets, source] for source in range(len(shares))]
        assert np.abs(np.array(found) - np.array(shares) * 256 / 160_000).max() < 2


def test_examples_that_are_missing_or_damaged_are_an_error_that_says_what_to_do(tmp_path):
    splits = with_buckets(planned([0]), None, seed=0)
    exchanged(tmp_path, [[labels_of(splits[0], [1])]])
    [file] = (tmp_path / "_chatmill/building" / INCREMENT / "sent").iterdir()
    content = file.read_bytes()
    sent = Sender(output=str(tmp_path), seed=0, packing="none", index=False)(labels_of(splits[0], [1])).sent
    [bucket] = buckets_of(splits, {0: sent}, {}, None, INCREMENT)
    file.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    with pytest.raises(InputError, match="damaged"):
        list(read_bucket(bucket, str(tmp_path), 0))
    file.unlink()
    with pytest.raises(InputError, match="sent are missing"):
        list(read_bucket(bucket, str(tmp_path), 0))


def test_bucket_to_which_nothing_was_sent_has_an_empty_part(tmp_path):
    [bucket] = buckets_of(with_buckets(planned([0]), None, 0), {}, {}, None, INCREMENT)
    [part] = read_bucket(bucket, str(tmp_path), 0)
    assert (len(part.ids), part.last, part.outcomes) == (0, True, Outcomes())


def test_parts_of_turns_of_some_batches_are_filled_with_zeros(tmp_path):
    splits = with_buckets(planned([0, 0]), 1, seed=0)
    batches = [labels_of(split, [1]) for split in splits]
    batches[1] = dataclasses.replace(batches[1], parts=np.array([0, 9, 17], np.int32))
    [[part]] = exchanged(tmp_path, [[batch] for batch in batches], 1)
    codes = part.parts.reshape(-1, 3).tolist()
    assert dict(zip([row[0] for row in rows_of(part)], codes, strict=True)) == {0: [0, 0, 0], 1: [0, 9, 17]}
