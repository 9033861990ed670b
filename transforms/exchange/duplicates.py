"""Duplicates: of records whose examples have the same tokens, the first one of the input stays.

Each split writes the digests of its records next to its examples, in order. Judges, each of a range of digests, read
those of all splits and write down which records are duplicates, and of what. Digests are those of tokens, so they say
the same of two records if these are rendered alike: with the same roles, contents, calls and tools.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import apache_beam as beam
import msgspec
import numpy as np

from transforms.exchange.gather import SentBy
from transforms.exchange.judges import Splits, judges_of, range_starts, read_entries
from transforms.exchange.ranges import Range
from transforms.inputs.plan_file import decode_plan
from transforms.inputs.splits import splits_of
from transforms.model.batches import Labels, Split
from transforms.model.receipts import work_of
from transforms.rows.ragged import joined
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join, read_bytes
from transforms.storage.writing import write_atomically

# Of a record: the digest, of 128 bits in two numbers, its position in its split, how many trained tokens it has, and
# whether it is for validation, which no mix repeats or samples.
ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("position", "<i8"), ("trained", "<u8"), ("validation", "?")])
# A judge holds so many records at most, in 500 MB, unless there are more than 64 times as many.
_RECORDS_OF_JUDGE = 4 << 20


class Verdict(msgspec.Struct, frozen=True):
    """Which records of a split are duplicates, in the order of their positions.

    Attributes:
        positions: int64, as bytes: of the duplicates, in their split.
        kept: what each is a duplicate of: the url of its file, and its position there.
        kept_sources: the number of the source of the same.
    """

    positions: bytes
    kept: list[tuple[str, int]]
    kept_sources: list[int]


class Found(NamedTuple):
    """The bytes of a verdict in its file, how many records for training it has, and the trained tokens of these."""

    start: int
    stop: int
    records: int
    trained_tokens: int


@dataclass(frozen=True)
class Judged:
    """A file of verdicts.

    Attributes:
        path: relative to the folder of the dataset.
        verdicts: by the number of the split.
    """

    path: str
    verdicts: Mapping[int, Found]


def ranges_by_split(judged: Iterable[Judged]) -> dict[int, list[tuple[Range, Found]]]:
    """Return where the verdicts of each split are, by its number, in the order of the files."""
    found = defaultdict[int, list[tuple[Range, Found]]](list)
    for file in sorted(judged, key=lambda each: each.path):
        for number, of_split in file.verdicts.items():
            found[number].append(((file.path, of_split.start, of_split.stop), of_split))
    return found


encode_verdict = msgspec.msgpack.Encoder().encode
decode_verdict = msgspec.msgpack.Decoder(Verdict).decode


def entries_of(batch: Labels) -> np.ndarray:
    """Return an entry for each record of a batch: ENTRY, shape (records,)."""
    source = batch.source
    firsts = source.first_rows()
    bounds = [*firsts.tolist(), len(source.positions)]
    entries = np.zeros(len(firsts), ENTRY)
    entries["position"] = source.positions[firsts]
    entries["validation"] = source.validation[firsts]
    entries["trained"] = np.bincount(source.record_numbers(), batch.trained_tokens, len(firsts))
    ids, offsets = batch.ids.astype("<i4", copy=False), batch.offsets
    digests = list[bytes]()
    for first, stop in pairwise(bounds):
        digest = hashlib.blake2b(ids[offsets[first] : offsets[stop]].data, digest_size=16)
        if stop > first + 1:  # several examples: where they end counts, too
            digest.update(np.diff(offsets[first : stop + 1]).tobytes())
        digests.append(digest.digest())
    entries["high"], entries["low"] = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T
    return entries


def amount_of(entries: np.ndarray) -> tuple[int, int]:
    """Return how many records for training have these entries, and how many trained tokens they have."""
    in_training = entries[~entries["validation"]]
    return len(in_training), int(in_training["trained"].sum())


def sorted_entries(entries: Sequence[np.ndarray]) -> tuple[bytes, list[int]]:
    """Return the entries of a split as bytes, in order, and the bytes at which each range begins and the last ends."""
    every = joined(list(entries), ENTRY)
    every = every[np.lexsort((every["position"], every["low"], every["high"]))]
    return every.tobytes(), range_starts(every["high"], ENTRY.itemsize)


class JudgeDuplicates(beam.PTransform):
    """Find the duplicates among all records that were sent.

    PCollection[tuple[int, list[SentBy]]] of Gather -> PCollection[Judged].

    Args:
        output: the folder of the dataset.
        increment: the id of the increment that is built.
        plan: the url of its plan.
        split_bytes: of its splits.
    """

    def __init__(self, output: str, increment: str, plan: str, split_bytes: int):
        super().__init__()
        self._judge = _Judge(output, increment, plan, split_bytes)

    def expand(self, gathered: beam.PCollection) -> beam.PCollection:
        return gathered | beam.FlatMap(_tasks) | beam.Reshuffle() | beam.ParDo(self._judge).with_output_types(Judged)


def _tasks(gathered: tuple[int, Sequence[SentBy]]) -> Iterator[tuple[int, Splits]]:
    splits = [(each.split, each.sent.path, each.sent.index) for each in gathered[1] if each.sent]
    return judges_of(splits, _RECORDS_OF_JUDGE * ENTRY.itemsize)


class _Judge(beam.DoFn):
    def __init__(self, output: str, increment: str, plan: str, split_bytes: int):
        self._output, self._increment = output, increment
        self._plan, self._split_bytes = plan, split_bytes
        self._failures = FailureWriter()

    def process(self, task: tuple[int, Splits]) -> Iterator[Judged]:
        with self._failures:
            judged = self._judged(*task)
        yield judged

    def _judged(self, judge: int, splits: Splits) -> Judged:
        entries, numbers = read_entries(self._output, splits, ENTRY)
        order = np.lexsort((entries["position"], numbers, entries["low"], entries["high"]))
        entries, numbers = entries[order], numbers[order]
        is_same = np.zeros(len(entries), bool)
        is_same[1:] = (entries["high"][1:] == entries["high"][:-1]) & (entries["low"][1:] == entries["low"][:-1])
        kept = np.maximum.accumulate(np.where(is_same, 0, np.arange(len(entries))))
        duplicates = np.flatnonzero(is_same)
        in_order = duplicates[np.lexsort((entries["position"][duplicates], numbers[duplicates]))]
        return self._write(judge, entries, numbers, in_order, kept[in_order])

    def _write(
        self, judge: int, entries: np.ndarray, numbers: np.ndarray, duplicates: np.ndarray, kept: np.ndarray
    ) -> Judged:
        """Write down which records are duplicates, in their order, and of what.

        Args:
            judge: its number.
            entries, numbers: of all its records, and the numbers of their splits.
            duplicates, kept: int64, shape (duplicates,): which of these are duplicates, and what each is one of.
        """
        pieces, verdicts, at = list[bytes](), dict[int, Found](), 0
        for of_split in np.split(np.arange(len(duplicates)), np.flatnonzero(np.diff(numbers[duplicates])) + 1):
            if not len(of_split):
                continue
            own, others = entries[duplicates[of_split]], kept[of_split]
            origins = [*map(self._origin, numbers[others].tolist(), entries["position"][others].tolist())]
            verdict = Verdict(
                positions=own["position"].tobytes(),
                kept=[record for record, _ in origins],
                kept_sources=[source for _, source in origins],
            )
            pieces.append(encode_verdict(verdict))
            start, at = at, at + len(pieces[-1])
            verdicts[int(numbers[duplicates[of_split[0]]])] = Found(start, at, *amount_of(own))
        path = join(work_of("", self._increment), "judged", f"{judge:02d}")
        write_atomically(join(self._output, path), b"".join(pieces))
        return Judged(path, verdicts)

    def _origin(self, split: int, position: int) -> tuple[tuple[str, int], int]:
        """The url of the file of a record, by the number of its split, its position there, and its source."""
        piece, position = self._splits[split].origin(position)
        return (piece.url, position), self._splits[split].source

    @functools.cached_property
    def _splits(self) -> list[Split]:
        return list(splits_of(decode_plan(read_bytes(self._plan)), self._split_bytes))
