"""Receive: a bucket reads what was sent to it, and puts the examples in their order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import apache_beam as beam
import msgspec
import numpy as np
import pyarrow as pa

from transforms.corpus.examples import joined, labels_of, lengths_of
from transforms.corpus.files import read_tables
from transforms.corpus.keys import shuffle_keys
from transforms.corpus.select import BLOCKS, Block, selected_path
from transforms.model.batches import Labels, Origins, Rows, RowTable, Task
from transforms.model.outcomes import Drop, Outcomes
from transforms.model.parts import Parts
from transforms.model.statistics import Statistics
from transforms.steps.base import Step, StepCall
from transforms.steps.failures import FailureWriter

# About as many as the input of a part of a task has.
_TOKENS_IN_PART = 1 << 20


def read_bucket(task: Task, output: str, seed: int | None) -> Iterator[Labels]:
    """Read the examples of a bucket, in a pseudo-random order of their records, without those that are dropped.

    Args:
        task: the bucket.
        output: the folder of the dataset.
        seed: of the order; None for that of the input.

    Yields:
        Its parts; one without examples if nothing was sent to it.

    Raises:
        InputError: if a file is missing or damaged.
    """
    [selected] = read_tables(output, [(selected_path(task.increment, task.number), 0, None)])
    selected = selected.combine_chunks()
    blocks = [Block(*block) for block in msgspec.json.decode(selected.schema.metadata[BLOCKS])]
    task = _received(task, selected, blocks)
    examples = _examples(selected["number"].to_numpy(), blocks, output)
    positions, lengths = examples["position"].to_numpy(), lengths_of(examples)
    order = np.arange(len(positions))
    if seed is not None:
        order = np.lexsort((positions, shuffle_keys(seed, task.number, positions)))  # rows of one record stay together
    positions, tokens = positions[order], np.cumsum(lengths[order])
    begins = np.flatnonzero(np.diff(positions, prepend=-1))
    before = np.concatenate([[0], tokens])[begins] // _TOKENS_IN_PART
    first_rows = begins[np.flatnonzero(np.diff(before, prepend=-1))]
    pieces = np.split(order, first_rows[1:])
    for number, rows in enumerate(pieces):
        part = labels_of(examples.take(pa.array(rows)), task, number, number + 1 == len(pieces))
        yield _without_dropped(part, selected)


def _received(task: Task, selected: pa.Table, blocks: list[Block]) -> Task:
    """A bucket that knows where its records come from."""
    rows = [block.rows for block in blocks]
    sources = np.repeat(np.array([block.source for block in blocks], np.int64), rows)
    origins = Origins(
        urls=selected["url"].combine_chunks(),
        formats=selected["format"].combine_chunks(),
        positions=selected["position"].to_numpy(),
        sources=sources,
        copies=np.repeat(np.array([block.copy > 0 for block in blocks], bool), rows),
    )
    return dataclasses.replace(task, source=int(sources[0]) if len(sources) else 0, received=origins)


def _examples(numbers: np.ndarray, blocks: list[Block], output: str) -> pa.Table:
    """Read the blocks of a bucket. Positions are the numbers of records in the bucket.

    Args:
        numbers: int64, shape (records,): of its records, in their blocks.
        blocks: in the order of the records.
        output: the folder of the dataset.
    """
    found, first = list[pa.Table](), 0
    for block, rows in zip(
        blocks, read_tables(output, [(block.path, block.start, block.stop) for block in blocks]), strict=True
    ):
        of_block = numbers[first : first + block.rows]
        of_rows = np.cumsum(np.diff(rows["position"].to_numpy(), prepend=-1) != 0) - 1
        places = np.searchsorted(of_block, of_rows)
        taken = np.flatnonzero(of_block[np.minimum(places, len(of_block) - 1)] == of_rows)
        if len(taken) < len(rows):  # of further copies only some are there
            rows = rows.take(pa.array(taken))
        found.append(rows.set_column(0, "position", pa.array(first + places[taken])))
        first += block.rows
    return joined(found)


def _without_dropped(part: Labels, selected: pa.Table) -> Labels:
    """Drop the records of a part that are not in the dataset, and count all but further copies as read."""
    source = part.source
    records = source.positions[source.first_rows()]
    of_records = selected.take(pa.array(records))
    dropped = np.flatnonzero(of_records["reason"].is_valid().to_numpy())
    lost = of_records.take(pa.array(dropped)).to_pylist()
    drops = [
        Drop(position, one["reason"], detail=f"of {one['of_url']}:{one['of_position']}" if one["of_url"] else "")
        for position, one in zip(records[dropped].tolist(), lost, strict=True)
    ]
    own = part.task.sources_of(records[dropped]).tolist()
    pairs = Counter(f"{number} of {one['of_source']}" for number, one in zip(own, lost, strict=True) if one["of_url"])
    outcomes = Outcomes(read=int(np.count_nonzero(~part.task.are_copies(records))), drops=tuple(drops))
    outcomes = outcomes.count(Statistics(duplicates=dict(sorted(pairs.items()))))
    if not drops:
        return dataclasses.replace(part, outcomes=outcomes)
    return part.take(np.flatnonzero(~np.isin(source.record_numbers(), dropped)), outcomes)


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
        return table.take(np.argsort(shuffle_keys(self._seed, part.task.number, rows)))


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

    PCollection[Task] -> PCollection[Parts[Labels]].

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

    def process(self, task: Task) -> Iterator[Parts[Labels]]:
        call = StepCall(self._failures)

        def read() -> Iterator[Labels]:
            parts = read_bucket(task, self._output, self._seed)
            while (part := call(next, parts, None)) is not None:
                yield part

        yield Parts(task, read)
