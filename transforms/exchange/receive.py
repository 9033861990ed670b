"""Receive: a bucket reads what was sent to it, and puts the examples in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.base.errors import InputError
from transforms.exchange.buckets import buckets_of
from transforms.exchange.places import places_of
from transforms.exchange.send import LENGTH_BYTES
from transforms.model.batches import Labels, Rows, RowSource, RowTable, Split
from transforms.model.kept_examples import decode_examples
from transforms.model.outcomes import Outcomes
from transforms.model.parts import Parts
from transforms.model.receipts import FirstExample, Receipt, Sent
from transforms.rows.ragged import joined, offsets_of
from transforms.steps.base import Step, StepCall
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join, read_range

# About as many as the input of a part of a split has.
_TOKENS_IN_PART = 1 << 20
_READERS = 16


def read_bucket(split: Split, output: str, seed: int) -> Iterator[Labels]:
    """Read the examples that were sent to a bucket, in a pseudo-random order of their records.

    Args:
        split: the bucket, with its blocks.
        output: the folder of the dataset.
        seed: of the order.

    Yields:
        Its parts; one without examples if nothing was sent to it.

    Raises:
        InputError: if a file is missing or damaged.
    """
    batches = list(_batches(split, output))
    batch = _joined(batches, split)
    positions = batch.source.positions
    order = np.lexsort((positions, places_of(seed, split.number, positions)))  # rows of one record stay together
    positions, tokens = positions[order], np.cumsum(np.diff(batch.offsets)[order])
    begins = np.flatnonzero(np.diff(positions, prepend=-1))
    before = np.concatenate([[0], tokens])[begins] // _TOKENS_IN_PART
    first_rows = begins[np.flatnonzero(np.diff(before, prepend=-1))]
    pieces = np.split(order, first_rows[1:])
    for number, rows in enumerate(pieces):
        records = int(np.count_nonzero(np.diff(batch.source.positions[rows], prepend=-1)))
        part = batch.take(rows, Outcomes(read=records))
        yield dataclasses.replace(part, part=number, last=number + 1 == len(pieces))


def _batches(split: Split, output: str) -> Iterator[Labels]:
    """Read the blocks of a bucket, and yield the examples of each part of each split that sent some, in order."""
    urls = [join(output, block.path) for block in split.blocks]
    with ThreadPoolExecutor(_READERS) as pool:
        try:
            starts, stops = ([getattr(block, end) for block in split.blocks] for end in ("start", "stop"))
            contents = [*pool.map(read_range, urls, starts, stops)]
        except FileNotFoundError as error:
            raise InputError(f"{error}: examples that were sent are missing. Run the same command again.") from None
    for block, url, content in zip(split.blocks, urls, contents, strict=True):
        at = 0
        while at < len(content):
            begin = at + LENGTH_BYTES
            at = begin + int.from_bytes(content[at:begin], "little")
            batch = decode_examples(content[begin:at], split, url)
            positions = split.position(block.first_slice, 0) + batch.source.positions
            yield dataclasses.replace(batch, source=dataclasses.replace(batch.source, positions=positions))


def _joined(batches: Sequence[Labels], split: Split) -> Labels:
    """Join examples to one batch."""
    lengths = [len(batch.ids) for batch in batches]
    sources = [batch.source for batch in batches]
    rows = [len(source.positions) for source in sources]
    columns = [source.columns for source in sources if source.columns is not None]
    contents = _filled([source.contents for source in sources], rows, lambda count: [None] * count)
    return Labels(
        split=split,
        part=0,
        last=True,
        outcomes=Outcomes(),
        ids=joined([batch.ids for batch in batches], np.int32),
        labels=joined([batch.labels for batch in batches], np.int32),
        offsets=offsets_of(joined([np.diff(batch.offsets) for batch in batches], np.int64)),
        weights=_joined_or_none([batch.weights for batch in batches], lengths, np.ones, np.float32),
        parts=_joined_or_none([batch.parts for batch in batches], lengths, np.zeros, np.int32),
        source=RowSource(
            positions=joined([source.positions for source in sources], np.int64),
            validation=joined([source.validation for source in sources], bool),
            columns=pa.concat_tables(columns) if columns else None,
            numbers=_joined_or_none([source.numbers for source in sources], rows, np.zeros, np.int64),
            contents=None if contents is None else [*chain.from_iterable(contents)],
            desirable=_joined_or_none([source.desirable for source in sources], rows, np.zeros, bool),
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
        seed: of the order of the examples.
    """

    def __init__(self, output: str, seed: int):
        super().__init__()
        self._read = _ReadBucket(output, seed)

    def expand(self, buckets: beam.PCollection) -> beam.PCollection:
        return buckets | beam.ParDo(self._read).with_output_types(Parts[Labels])


class _ReadBucket(beam.DoFn):
    def __init__(self, output: str, seed: int):
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

    (PCollection[Split], PCollection[Receipt] of them) -> PCollection[Split], the buckets.
    """

    def expand(self, sent: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        splits, receipts = sent
        found = {
            "splits": splits | beam.WithKeys(0),
            "sent": receipts | beam.Map(_sent_of) | "one key" >> beam.WithKeys(0),
        }
        return found | beam.CoGroupByKey() | beam.FlatMap(_planned).with_output_types(Split)


# Of a receipt: the number of the split, its increment, what it sent, and whether the engines differ.
_OfReceipt = tuple[int, str, Sent | None, FirstExample | None]


def _sent_of(receipt: Receipt) -> _OfReceipt:
    return receipt.split, receipt.increment, receipt.sent, receipt.differing


def _planned(group: tuple[int, dict[str, Iterable[Any]]]) -> Iterator[Split]:
    found: list[_OfReceipt] = sorted(group[1]["sent"], key=lambda each: each[0])
    sent = {number: file for number, _, file, _ in found if file}
    differing = next((each[3] for each in found if each[3]), None)
    yield from buckets_of(group[1]["splits"], sent, differing, found[0][1])
