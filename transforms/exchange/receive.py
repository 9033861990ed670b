"""Receive: a bucket reads what was sent to it, and puts the examples in their order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.exchange.buckets import buckets_of
from transforms.exchange.duplicates import decode_verdict, ranges_by_split
from transforms.exchange.gather import KEY, SentBy
from transforms.exchange.mix import mix_places_of
from transforms.exchange.places import places_of
from transforms.exchange.ranges import read_ranges
from transforms.exchange.send import LENGTH_BYTES
from transforms.model.batches import Block, Labels, Rows, RowSource, RowTable, Split
from transforms.model.outcomes import Drop, Known, Outcomes
from transforms.model.parts import Parts
from transforms.model.sent_examples import decode_examples
from transforms.model.statistics import Statistics
from transforms.rows.ragged import joined, offsets_of
from transforms.steps.base import Step, StepCall
from transforms.steps.failures import FailureWriter
from transforms.steps.label import build_labels
from transforms.storage.files import join

# About as many as the input of a part of a split has.
_TOKENS_IN_PART = 1 << 20
_NONE = np.zeros(0, np.int64)


def read_bucket(split: Split, output: str, seed: int | None) -> Iterator[Labels]:
    """Read the examples that were sent to a bucket, in a pseudo-random order of their records, without duplicates.

    Args:
        split: the bucket, with its blocks.
        output: the folder of the dataset.
        seed: of the order; None for that of the input.

    Yields:
        Its parts; one without examples if nothing was sent to it.

    Raises:
        InputError: if a file is missing or damaged.
    """
    left_out = _LeftOut()
    batch = _joined(list(_batches(split, output, seed, left_out)), split)
    positions = batch.source.positions
    order = np.arange(len(positions))
    if seed is not None:
        order = np.lexsort((positions, places_of(seed, split.number, positions)))  # rows of one record stay together
    positions, tokens = positions[order], np.cumsum(np.diff(batch.offsets)[order])
    begins = np.flatnonzero(np.diff(positions, prepend=-1))
    before = np.concatenate([[0], tokens])[begins] // _TOKENS_IN_PART
    first_rows = begins[np.flatnonzero(np.diff(before, prepend=-1))]
    pieces = np.split(order, first_rows[1:])
    for number, rows in enumerate(pieces):
        part = _without(batch.take(rows, Outcomes()), left_out)
        yield dataclasses.replace(part, part=number, last=number + 1 == len(pieces))


class _Kept(NamedTuple):
    """What a record is a duplicate of: the record, and the number of its source."""

    record: str
    source: int


# Records that are left out, by their positions: what each is a duplicate of; None if the mix does not have it.
_LeftOut = dict[int, _Kept | None]


def _batches(split: Split, output: str, seed: int | None, left_out: _LeftOut) -> Iterator[Labels]:
    """Read the blocks of a bucket, and yield the examples of each part of each split that sent some, in order.

    Args:
        split: the bucket.
        output: the folder of the dataset.
        seed: of the mix.
        left_out: to which the first copies that are not in the dataset are added, by their positions in the bucket.
            Further copies of them are not yielded.
    """
    contents = read_ranges(output, [(block.path, block.start, block.stop) for block in split.blocks])
    for block, content in zip(split.blocks, contents, strict=True):
        url, duplicates = join(output, block.path), _duplicates(block, output)
        base, at = split.position(block.first_slice, 0), 0
        of_block = _LeftOut()
        while at < len(content):
            begin = at + LENGTH_BYTES
            at = begin + int.from_bytes(content[at:begin], "little")
            batch = build_labels(decode_examples(content[begin:at], split, url))
            positions = batch.source.positions
            is_chosen = np.ones(len(positions), bool)
            if block.threshold <= np.iinfo(np.uint64).max:
                is_chosen = mix_places_of(seed or 0, block.split, positions) < np.uint64(block.threshold)
            is_chosen = ~batch.source.validation & is_chosen if block.copy else batch.source.validation | is_chosen
            if block.copy:
                is_chosen &= [position not in duplicates for position in positions.tolist()]
                batch = batch.take(np.flatnonzero(is_chosen), Outcomes())
            else:
                of_block |= dict.fromkeys((base + positions[~is_chosen]).tolist())
            source = dataclasses.replace(batch.source, positions=base + batch.source.positions)
            yield dataclasses.replace(batch, source=source)
        if not block.copy:
            left_out |= of_block | {base + position: kept for position, kept in duplicates.items()}


def _duplicates(block: Block, output: str) -> dict[int, _Kept]:
    """The duplicates among the records of a split, by their positions in it."""
    found = dict[int, _Kept]()
    for verdict in map(decode_verdict, read_ranges(output, block.verdicts) if block.verdicts else ()):
        records = zip(verdict.kept, verdict.kept_sources, strict=True)
        kept = [_Kept(f"{url}:{position}", source) for (url, position), source in records]
        found |= zip(np.frombuffer(verdict.positions, "<i8").tolist(), kept, strict=True)
    return found


def _without(part: Labels, left_out: _LeftOut) -> Labels:
    """Drop the records of a part that are left out, and count all but further copies as read."""
    source = part.source
    of_records = source.positions[source.first_rows()]
    outcomes = Outcomes(read=int(np.count_nonzero(~part.split.are_copies(of_records))))
    dropped = np.flatnonzero([position in left_out for position in of_records.tolist()]) if left_out else _NONE
    if not len(dropped):
        return dataclasses.replace(part, outcomes=outcomes)
    kept = [left_out[position] for position in of_records[dropped].tolist()]
    is_duplicate = np.array([record is not None for record in kept])
    tokens = np.diff(part.offsets), part.trained_tokens
    drops = source.drops(dropped[is_duplicate], "duplicate", *tokens)
    drops += source.drops(dropped[~is_duplicate], "not_in_mix", *tokens)
    drops = [_described(drop, left_out[drop.position]) for drop in drops]
    # Their tokens are not lost because of max_length.
    outcomes = outcomes.drop(dataclasses.replace(drop, known=Known()) for drop in drops)
    own = part.split.sources_of(of_records[dropped[is_duplicate]]).tolist()
    pairs = Counter(f"{number} of {of.source}" for number, of in zip(own, filter(None, kept), strict=True))
    outcomes = outcomes.count(Statistics(duplicates=dict(sorted(pairs.items()))))
    stays = ~np.isin(source.record_numbers(), dropped)
    return part.take(np.flatnonzero(stays), outcomes)


def _described(drop: Drop, kept: _Kept | None) -> Drop:
    """A drop with the record that it is a duplicate of."""
    return dataclasses.replace(drop, detail=f"of {kept.record}") if kept else drop


def _joined(batches: Sequence[Labels], split: Split) -> Labels:
    """Join examples to one batch."""
    lengths = [len(batch.ids) for batch in batches]
    sources = [batch.source for batch in batches]
    rows = [len(source.positions) for source in sources]
    columns = [source.columns for source in sources if source.columns is not None]
    found = _filled([source.found for source in sources], rows, lambda count: [None] * count)
    return Labels(
        split=split,
        part=0,
        last=True,
        outcomes=Outcomes(),
        ids=joined([batch.ids for batch in batches], np.int32),
        labels=joined([batch.labels for batch in batches], np.int32),
        offsets=offsets_of(joined([np.diff(batch.offsets) for batch in batches], np.int64)),
        parts=_joined_or_none([batch.parts for batch in batches], lengths, np.zeros, np.int32),
        source=RowSource(
            positions=joined([source.positions for source in sources], np.int64),
            validation=joined([source.validation for source in sources], bool),
            columns=pa.concat_tables(columns) if columns else None,
            numbers=_joined_or_none([source.numbers for source in sources], rows, np.zeros, np.int64),
            found=None if found is None else [*chain.from_iterable(found)],
        ),
    )


def _filled(values: Sequence[Any], lengths: Sequence[int], fill: Callable[[int], Any]) -> list[Any] | None:
    """Fill in the values of batches that have none, by their lengths. None if no batch has any."""
    if all(value is None for value in values):
        return None
    return [fill(length) if value is None else value for value, length in zip(values, lengths, strict=True)]


def _joined_or_none(values: Sequence[Any], lengths: Sequence[int], fill: Callable[[int], Any], dtype: Any) -> Any:
    """Join arrays, filled in as _filled does; None if there are none."""
    filled = _filled(values, lengths, fill)
    return None if filled is None else joined(filled, dtype)


class RowShuffler:
    """Puts the rows of a part in a pseudo-random order, since packing puts them in that of their longest example.

    Args:
        seed: of the order.
    """

    def __init__(self, *, seed: int):
        self._seed = seed

    def __call__(self, part: Rows) -> Rows:
        return dataclasses.replace(part, train=self._shuffled(part, 0), validation=self._shuffled(part, 1))

    def _shuffled(self, part: Rows, number: int) -> RowTable:
        """Shuffle one of the tables of a part: 0 is train, 1 is validation."""
        table = (part.train, part.validation)[number]
        rows = (part.part << 33) + (number << 32) + np.arange(len(table))
        return table.take(np.argsort(places_of(self._seed, part.split.number, rows)))


class ShuffleRows(Step):
    """Put the rows of each part of a bucket in a pseudo-random order.

    PCollection[Parts[Rows]] -> PCollection[Parts[Rows]].

    Args:
        seed: of the order.
    """

    input, output = Rows, Rows

    def __init__(self, seed: int):
        super().__init__(RowShuffler, seed=seed)


class ReadBuckets(beam.PTransform):
    """Read the examples of each bucket.

    PCollection[Split] -> PCollection[Parts[Labels]].

    Args:
        output: the folder of the dataset.
        seed: of the order of the examples; None for that of the input.
    """

    def __init__(self, output: str, seed: int | None):
        super().__init__()
        self._read = _ReadBucket(output, seed)

    def expand(self, buckets: beam.PCollection) -> beam.PCollection:
        return buckets | beam.ParDo(self._read).with_output_types(Parts[Labels])


class _ReadBucket(beam.DoFn):
    def __init__(self, output: str, seed: int | None):
        self._output, self._seed = output, seed
        self._failures = FailureWriter()

    def process(self, split: Split) -> Iterator[Parts[Labels]]:
        call = StepCall(self._failures)

        def read() -> Iterator[Labels]:
            parts = read_bucket(split, self._output, self._seed)
            while (part := call(next, parts, None)) is not None:
                yield part

        yield Parts(split, read)


class PlanBuckets(beam.PTransform):
    """Make buckets of all that was sent to them, once all splits of a plan have sent.

    {splits: PCollection[Split], sent: PCollection[tuple[int, list[SentBy]]] of Gather, judged: PCollection[Judged] if
    duplicates are dropped, mix: the PCollection of ChooseMix if there is a mix} -> PCollection[Split], the buckets.
    """

    def expand(self, found: dict[str, beam.PCollection]) -> beam.PCollection:
        keyed = {name: each | f"key {name}" >> beam.WithKeys(KEY) for name, each in found.items() if name != "sent"}
        every = keyed | {"sent": found["sent"]}
        return every | beam.CoGroupByKey() | beam.ParDo(_PlanBuckets()).with_output_types(Split)


class _PlanBuckets(beam.DoFn):
    def __init__(self) -> None:
        self._failures = FailureWriter()

    def process(self, group: tuple[int, Mapping[str, Iterable[Any]]]) -> Iterator[Split]:
        with self._failures:
            buckets = list(self._planned(group[1]))
        yield from buckets

    def _planned(self, group: Mapping[str, Iterable[Any]]) -> Iterator[Split]:
        found: list[SentBy]
        [found] = group["sent"]
        sent = {each.split: each.sent for each in found if each.sent}
        judged = ranges_by_split(group.get("judged", ()))
        verdicts = {number: [place for place, _ in places] for number, places in judged.items()}
        thresholds = dict(group["mix"]) if "mix" in group else None
        return buckets_of(group["splits"], sent, verdicts, thresholds, found[0].increment)
