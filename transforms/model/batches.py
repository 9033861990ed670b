"""What travels between the steps: one batch of records of one split, and the outcome of each record so far.

Each step maps one type of batch to the next:

    Split -> Records -> Examples -> Texts (-> Texts) -> Tokens -> Labels -> Rows -> Receipt

A batch carries its split, its part (0 for the first; a split that is streamed, or that is larger than was planned, has
several), whether it is the last part, and the outcomes so far. Rows lie in flat arrays with offsets, as in Arrow's list
layout.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from typing_extensions import Self

from transforms.model.examples import Example, Record, Text, attempt
from transforms.model.outcomes import Outcomes
from transforms.rows.ragged import indices_of, offsets_of, slices_of


@dataclass(frozen=True, slots=True)
class Split:
    """A slice of one input file: the records that begin at bytes start <= position < stop.

    format: jsonl, json, parquet or arrow. compression: gzip, bz2, xz, zstd or None; what is compressed is one split.
    """

    number: int
    url: str
    format: str
    compression: str | None
    start: int
    stop: int


@dataclass(frozen=True)
class RowSource:
    """Where each row comes from, and what it carries along.

    positions: int64 (rows,), of each row's record; rows of one record follow each other. validation: bool (rows,).
    columns: one string array of (rows,) for each kept column.
    """

    positions: np.ndarray
    validation: np.ndarray
    columns: pa.Table | None

    def record_numbers(self) -> np.ndarray:
        """For each row the number of its record among those of the batch: int64 (rows,), from 0."""
        return np.cumsum(np.diff(self.positions, prepend=self.positions[:1]) != 0)

    def records(self) -> int:
        """How many records the rows come from."""
        return int(self.record_numbers()[-1]) + 1 if len(self.positions) else 0

    def take(self, rows: np.ndarray) -> RowSource:
        columns = None if self.columns is None else self.columns.take(pa.array(rows))
        return RowSource(self.positions[rows], self.validation[rows], columns)


@dataclass(frozen=True)
class Batch:
    """What every batch has."""

    split: Split
    part: int
    last: bool
    outcomes: Outcomes

    def succeeded_by(self, kind: Callable[..., Any], outcomes: Outcomes | None = None, **fields: Any) -> Any:
        """The next step's batch of the same part of the same split."""
        return kind(split=self.split, part=self.part, last=self.last, outcomes=outcomes or self.outcomes, **fields)


@dataclass(frozen=True)
class Records(Batch):
    """What `read` yields."""

    records: list[Record]


@dataclass(frozen=True)
class Examples(Batch):
    """What `parse` yields."""

    examples: list[Example]

    def drop(self, reason: str, unwanted: Callable[[Example], bool]) -> Self:
        """This batch without the examples that are unwanted, each counted as dropped for the reason."""
        wanted = [example for example in self.examples if not unwanted(example)]
        outcomes = self.outcomes.drop(reason, len(self.examples) - len(wanted))
        return dataclasses.replace(self, examples=wanted, outcomes=outcomes)

    def map(self, function: Callable[[Example], Example]) -> Self:
        """This batch with each example replaced. A RecordError that the function raises rejects its record."""
        return self.attempt(Examples, "examples", function)

    def attempt(self, kind: Callable[..., Any], name: str, function: Callable[[Example], Any]) -> Any:
        """The next batch, of what the function makes of each example; where it raises RecordError, rejects."""
        made, rejects = attempt(self.examples, function)
        return self.succeeded_by(kind, self.outcomes.reject(rejects), **{name: made})


@dataclass(frozen=True)
class Texts(Batch):
    """What `render` yields, and `parity`, which may make several texts of one example; they follow each other."""

    texts: list[Text]


@dataclass(frozen=True)
class Tokens(Batch):
    """What `tokenize` yields.

    ids: int32 (tokens,). offsets: int64 (rows + 1,), row i has the tokens offsets[i]:offsets[i + 1].
    starts, stops: int64 (tokens,), where each token lies. spans: int64 (spans, 2), what is trained on. All three count
    characters, or bytes, of the whole batch, so that no two rows share one.
    """

    ids: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    spans: np.ndarray
    source: RowSource


@dataclass(frozen=True)
class Labels(Batch):
    """What `label` yields. ids, labels: int32 (tokens,). offsets: int64 (rows + 1,)."""

    ids: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    source: RowSource


@dataclass(frozen=True)
class RowTable:
    """Rows that are ready to be written.

    ids, labels: int32 (tokens,). offsets: int64 (rows + 1,).
    segment_lengths: int64 (segments,). segment_offsets: int64 (rows + 1,). A row that is not packed is one segment.
    positions: int64 (segments,), the record that each segment comes from. columns: as in RowSource, None when packed.
    """

    ids: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    segment_lengths: np.ndarray
    segment_offsets: np.ndarray
    positions: np.ndarray
    columns: pa.Table | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: np.ndarray) -> RowTable:
        lengths, segments = np.diff(self.offsets)[rows], np.diff(self.segment_offsets)[rows]
        of_segments = indices_of(self.segment_offsets[rows], segments)
        return RowTable(
            ids=slices_of(self.ids, self.offsets[rows], lengths),
            labels=slices_of(self.labels, self.offsets[rows], lengths),
            offsets=offsets_of(lengths),
            segment_lengths=self.segment_lengths[of_segments],
            segment_offsets=offsets_of(segments),
            positions=self.positions[of_segments],
            columns=None if self.columns is None else self.columns.take(pa.array(rows)),
        )


@dataclass(frozen=True)
class Rows(Batch):
    """What `fit` yields. packed: whether a row may hold several segments."""

    train: RowTable
    validation: RowTable
    packed: bool


class BatchCoder(beam.coders.Coder):
    """Beam samples the size of what passes between steps by encoding it, which for a batch costs more than a step.

    Batches never leave a fused stage, so they are only ever encoded where a runner breaks fusion by itself.
    """

    def encode(self, value: Batch) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Batch:
        return pickle.loads(encoded)

    def estimate_size(self, value: Batch) -> int:
        return value.split.stop - value.split.start

    def is_deterministic(self) -> bool:
        return False


for _kind in (Records, Examples, Texts, Tokens, Labels, Rows):
    beam.coders.registry.register_coder(_kind, BatchCoder)
