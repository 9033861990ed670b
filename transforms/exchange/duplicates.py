"""Duplicates: of records whose examples have the same tokens, the first one of the input stays.

Each split writes the digests of its records next to its examples, in order. Judges, each of a range of digests, read
those of all splits and write down which records are duplicates, and of what. Digests are those of tokens, so they say
the same of two records if these are rendered alike: with the same roles, contents, calls and tools. Records that the
dataset, or another one, had before come before all others: a judge reads their digests in the ledgers.
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
from transforms.exchange.known import KnownRecords, decode_known, known_records
from transforms.exchange.ranges import Range
from transforms.inputs.plan_file import decode_plan
from transforms.inputs.splits import splits_of
from transforms.model.batches import Labels, Split
from transforms.model.receipts import work_of
from transforms.rows.ragged import joined
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join, read_bytes
from transforms.storage.writing import write_atomically

# Of a record: the digest, of 128 bits in two numbers, its position in its split, and how many trained tokens it has.
ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("position", "<i8"), ("trained", "<u8")])
# In the place of the number of a split, for records that are known.
KNOWN = -1
# A judge holds so many records at most, in 500 MB, unless there are more than 64 times as many.
_RECORDS_OF_JUDGE = 4 << 20


class Verdict(msgspec.Struct, frozen=True):
    """Which records of a split are duplicates, in the order of their positions.

    Attributes:
        positions: int64, as bytes: of the duplicates, in their split.
        kept: what each is a duplicate of: the url of its file, and its position there.
        kept_sources: the number of the source of the same, as text; of a record that was there before, `earlier`, or
            the name of the other dataset that has it.
        similarities: float64, as bytes: how similar each is to it; empty if all have the same tokens.
    """

    positions: bytes
    kept: list[tuple[str, int]]
    kept_sources: list[str]
    similarities: bytes = b""


class Found(NamedTuple):
    """The bytes of a verdict in its file, and how many records it has, and trained tokens of these."""

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


def digests_of(batch: Labels) -> np.ndarray:
    """Return the digest of the record of each row of a batch: uint64, shape (rows, 2)."""
    entries = entries_of(batch)[batch.source.record_numbers()]
    return np.stack([entries["high"], entries["low"]], 1)


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
        known: the url of the file that lists the ledgers of records that are known; None if there are none.
    """

    def __init__(self, output: str, increment: str, plan: str, split_bytes: int, known: str | None):
        super().__init__()
        self._judge = _Judge(output, increment, plan, split_bytes, known)

    def expand(self, gathered: beam.PCollection) -> beam.PCollection:
        return gathered | beam.FlatMap(_tasks) | beam.Reshuffle() | beam.ParDo(self._judge).with_output_types(Judged)


def _tasks(gathered: tuple[int, Sequence[SentBy]]) -> Iterator[tuple[int, Splits]]:
    splits = [(each.split, each.sent.path, each.sent.index) for each in gathered[1] if each.sent]
    return judges_of(splits, _RECORDS_OF_JUDGE * ENTRY.itemsize)


class _Judge(beam.DoFn):
    def __init__(self, output: str, increment: str, plan: str, split_bytes: int, known: str | None):
        self._output, self._increment = output, increment
        self._plan, self._split_bytes = plan, split_bytes
        self._known = known
        self._failures = FailureWriter()

    def process(self, task: tuple[int, Splits]) -> Iterator[Judged]:
        with self._failures:
            judged = self._judged(*task)
        yield judged

    def _judged(self, judge: int, splits: Splits) -> Judged:
        entries, numbers = read_entries(self._output, splits, ENTRY)
        known = self._known_records(entries["high"])
        before = np.zeros(len(known.records), ENTRY)
        before["high"], before["low"] = known.digests.T
        before["position"] = np.arange(len(before))  # among the records that are known, which come first
        entries, numbers = np.concatenate([before, entries]), np.concatenate([np.full(len(before), KNOWN), numbers])
        order = np.lexsort((entries["position"], numbers, entries["low"], entries["high"]))
        entries, numbers = entries[order], numbers[order]
        is_same = np.zeros(len(entries), bool)
        is_same[1:] = (entries["high"][1:] == entries["high"][:-1]) & (entries["low"][1:] == entries["low"][:-1])
        kept = np.maximum.accumulate(np.where(is_same, 0, np.arange(len(entries))))
        duplicates = np.flatnonzero(is_same & (numbers != KNOWN))
        in_order = duplicates[np.lexsort((entries["position"][duplicates], numbers[duplicates]))]
        path = join(work_of("", self._increment), "judged", f"{judge:02d}")
        origins = Origins(self._plan, self._split_bytes, known)
        positions, kept = entries["position"], kept[in_order]
        own = numbers[in_order], positions[in_order], entries["trained"][in_order]
        return write_verdicts(self._output, path, origins, *own, numbers[kept], positions[kept])

    def _known_records(self, wanted: np.ndarray) -> KnownRecords:
        ledgers = decode_known(read_bytes(self._known)) if self._known else []
        return known_records(ledgers, self._output, wanted)


class Origins:
    """Where records come from.

    Args:
        plan: the url of the plan of their splits.
        split_bytes: of the splits.
        known: the records that are none of these.
    """

    def __init__(self, plan: str, split_bytes: int, known: KnownRecords | None = None):
        self._plan, self._split_bytes, self._known = plan, split_bytes, known

    def of(self, split: int, position: int) -> tuple[tuple[str, int], str]:
        """Return the url of the file of a record and its position there, and its source, as Verdict has it.

        Args:
            split: the number of its split; KNOWN if it is one of those that are known.
            position: in the split, or among those.
        """
        if split == KNOWN and self._known:
            return self._known.records[position], self._known.datasets[position] or "earlier"
        piece, position = self._splits[split].origin(position)
        return (piece.url, position), str(self._splits[split].source)

    @functools.cached_property
    def _splits(self) -> list[Split]:
        return list(splits_of(decode_plan(read_bytes(self._plan)), self._split_bytes))


def write_verdicts(
    output: str,
    path: str,
    origins: Origins,
    numbers: np.ndarray,
    positions: np.ndarray,
    trained: np.ndarray,
    kept_numbers: np.ndarray,
    kept_positions: np.ndarray,
    similarities: np.ndarray | None = None,
) -> Judged:
    """Write down which records are duplicates, and of what.

    Args:
        output: the folder of the dataset.
        path: of the file of verdicts, relative to it.
        origins: of the records.
        numbers, positions, trained: int64, shape (duplicates,): of each the number of its split, its position there and
            how many trained tokens it has; in the order of the first two.
        kept_numbers, kept_positions: the same of the record that is kept.
        similarities: float64, shape (duplicates,): to that record; None if all have the same tokens.
    """
    pieces, verdicts, at = list[bytes](), dict[int, Found](), 0
    for of_split in np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1):
        if not len(of_split):
            continue
        kept = [*map(origins.of, kept_numbers[of_split].tolist(), kept_positions[of_split].tolist())]
        verdict = Verdict(
            positions=positions[of_split].tobytes(),
            kept=[record for record, _ in kept],
            kept_sources=[source for _, source in kept],
            similarities=b"" if similarities is None else similarities[of_split].tobytes(),
        )
        pieces.append(encode_verdict(verdict))
        start, at = at, at + len(pieces[-1])
        verdicts[int(numbers[of_split[0]])] = Found(start, at, len(of_split), int(trained[of_split].sum()))
    write_atomically(join(output, path), b"".join(pieces))
    return Judged(path, verdicts)
