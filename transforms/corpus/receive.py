"""Receive: a bucket reads what was sent to it, and puts the examples in their order."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.corpus.examples import count_row_tokens, joined_examples, read_labels
from transforms.corpus.files import read_tables
from transforms.corpus.keys import shuffle_keys
from transforms.corpus.select import selected_path
from transforms.model.batches import Labels, Rows, RowTable, Task, slices_and_places
from transforms.model.chunks import Chunks
from transforms.model.counts import Statistics
from transforms.model.outcomes import Drop, Outcomes
from transforms.steps.base import Step, StepCall
from transforms.steps.failures import FailureWriter

# About as many as the input of a chunk of a task has.
_TOKENS_IN_CHUNK = 1 << 20


def read_bucket(task: Task, output: str, seed: int | None) -> Iterator[Labels]:
    """Read the examples of a bucket, in a pseudo-random order of their records, without those that are dropped.

    Args:
        task: the bucket.
        output: the folder of the dataset.
        seed: of the order; None for that of the input.

    Yields:
        Its chunks; one without examples if nothing was sent to it.

    Raises:
        InputError: if a file is missing or damaged.
    """
    [selected] = read_tables(output, [(selected_path(task.increment, task.number), 0, None)])
    selected = selected.combine_chunks()
    task = _received(task, selected)
    examples = _examples(selected, output)
    positions, lengths = examples["position"].to_numpy(), count_row_tokens(examples)
    order = np.arange(len(positions))
    if seed is not None:
        order = np.lexsort((positions, shuffle_keys(seed, task.number, positions)))  # rows of one record stay together
    positions, tokens = positions[order], np.cumsum(lengths[order])
    begins = np.flatnonzero(np.diff(positions, prepend=-1))
    before = np.concatenate([[0], tokens])[begins] // _TOKENS_IN_CHUNK
    first_rows = begins[np.flatnonzero(np.diff(before, prepend=-1))]
    pieces = np.split(order, first_rows[1:])
    for number, rows in enumerate(pieces):
        chunk = read_labels(examples.take(pa.array(rows)), task, number, number + 1 == len(pieces))
        yield _without_dropped(chunk, selected)


def _received(task: Task, selected: pa.Table) -> Task:
    """A bucket that knows where its records come from."""
    places = slices_and_places(selected["position"].to_numpy())[1]
    received = selected.select(["position", "url", "format", "source", "is_copy"])
    received = received.set_column(0, "position", pa.array(places))
    source = received["source"][0].as_py() if len(received) else 0
    return dataclasses.replace(task, source=source, received=received)


def _examples(selected: pa.Table, output: str) -> pa.Table:
    """Read the blocks of a bucket. Positions are the numbers of records in the bucket.

    Args:
        selected: the table of the bucket.
        output: the folder of the dataset.
    """
    files, starts = selected["path"].combine_chunks().indices.to_numpy(), selected["start"].to_numpy()
    begins = np.flatnonzero((np.diff(files, prepend=-1) != 0) | (np.diff(starts, prepend=-1) != 0))
    blocks = selected.take(pa.array(begins)).select(["path", "start", "stop"]).to_pylist()
    tables = read_tables(output, [tuple(block.values()) for block in blocks])
    examples, positions = list[pa.Table](), selected["position"].to_numpy()
    for (first, stop), rows in zip(pairwise([*begins.tolist(), len(selected)]), tables, strict=True):
        in_block, in_table = positions[first:stop], rows["position"].to_numpy()
        places = np.searchsorted(in_block, in_table)
        taken = np.flatnonzero(in_block[np.minimum(places, len(in_block) - 1)] == in_table)
        if len(taken) < len(rows):  # of further copies only some are there
            rows = rows.take(pa.array(taken))
        examples.append(rows.set_column(0, "position", pa.array(first + places[taken])))
    return joined_examples(examples)


def _without_dropped(chunk: Labels, selected: pa.Table) -> Labels:
    """Drop the records of a chunk that are not in the dataset, and count all but further copies as read."""
    facts, first_rows = chunk.facts, chunk.facts.first_rows()
    records = facts.positions[first_rows]
    decisions = selected.take(pa.array(records))
    dropped = np.flatnonzero(decisions["reason"].is_valid().to_numpy())
    lost = decisions.take(pa.array(dropped)).to_pylist()
    details = [f"of {one['of_url']}:{one['of_position']}" if one["of_url"] else "" for one in lost]
    drops = [
        Drop(position, one["reason"], detail, columns=columns)
        for position, one, detail, columns in zip(
            records[dropped].tolist(), lost, details, facts.carried_columns(first_rows[dropped]), strict=True
        )
    ]
    own = chunk.task.find_sources(records[dropped]).tolist()
    pairs = Counter(f"{number} of {one['of_source']}" for number, one in zip(own, lost, strict=True) if one["of_url"])
    outcomes = Outcomes(read=int(np.count_nonzero(~chunk.task.are_copies(records))), drops=tuple(drops))
    outcomes = outcomes.plus(statistics=Statistics(duplicates=pairs))
    if not drops:
        return dataclasses.replace(chunk, outcomes=outcomes)
    return chunk.take(np.flatnonzero(~np.isin(facts.record_numbers(), dropped)), outcomes)


class RowShuffler:
    """Puts the rows of a chunk in a pseudo-random order, since packing puts them in that of their longest example."""

    def __init__(self, *, seed: int):
        self._seed = seed

    def __call__(self, chunk: Rows) -> Rows:
        train, validation = (self._shuffled(chunk, *each) for each in enumerate((chunk.train, chunk.validation)))
        return dataclasses.replace(chunk, train=train, validation=validation)

    def _shuffled(self, chunk: Rows, number: int, table: RowTable) -> RowTable:
        rows = (chunk.chunk << 33) + (number << 32) + np.arange(len(table))
        return table.take(np.argsort(shuffle_keys(self._seed, chunk.task.number, rows)))


class ShuffleRows(Step):
    """Put the rows of each chunk of a bucket in a pseudo-random order.

    PCollection[Chunks[Rows]] -> PCollection[Chunks[Rows]].

    Args:
        seed: of the order.
    """

    input, output = Rows, Rows

    def __init__(self, seed: int):
        super().__init__(RowShuffler, seed=seed)


class ReadBuckets(beam.PTransform):
    """Read the examples of each bucket.

    PCollection[Task] -> PCollection[Chunks[Labels]].

    Args:
        output: the folder of the dataset.
        seed: of the order of the examples; None for that of the input.
    """

    def __init__(self, output: str, seed: int | None):
        super().__init__()
        self._arguments = FailureWriter(), output, seed

    def expand(self, buckets: beam.PCollection) -> beam.PCollection:
        return buckets | beam.Map(_read_chunks, *self._arguments).with_output_types(Chunks[Labels])


def _read_chunks(bucket: Task, failures: FailureWriter, output: str, seed: int | None) -> Chunks[Labels]:
    return Chunks(bucket, functools.partial(_read, StepCall(failures), output, seed))


def _read(call: StepCall, output: str, seed: int | None, bucket: Task) -> Iterator[Labels]:
    chunks = read_bucket(bucket, output, seed)
    while (chunk := call(next, chunks, None)) is not None:
        yield chunk
