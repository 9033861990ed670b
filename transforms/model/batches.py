"""What travels between the steps: a batch of records of one task, and the outcomes of its records so far.

Each step maps one type of batch to the next:

    Task -> Records -> Examples -> Texts (-> Texts) -> Tokens -> Labels -> Rows -> Receipt

Rows are in flat arrays with offsets, as in Arrow's list layout.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.model.examples import Example, Record, Text, attempt
from transforms.model.facts import RowFacts
from transforms.model.outcomes import Outcomes
from transforms.model.receipts import Sent
from transforms.rows import IGNORED
from transforms.rows.ragged import join_slices, lengths_to_offsets, slice_indices, sum_each_row

# A record's position in its task is that in its file, plus this for each slice before its own. No file has more bytes.
_SLICE = 1 << 44


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of one input file: the records that begin at a byte from start to stop.

    Attributes:
        url: of the file.
        format: of the file, one of INPUT_FORMATS.
        compression: gzip, bz2, xz, zstd or None.
        start, stop: bytes of the file; stop is exclusive.
        content: if the file can only be read from its start: the bytes of its decompressed content at which the records
            of this slice begin; None stands for its end. Then start and stop are only a share of the file.
        unpacked: about how many bytes it is when it is decompressed; 0 if it is not compressed.
        version: of the file, when the slice was planned; empty if any version is read.
    """

    url: str
    format: str
    compression: str | None
    start: int
    stop: int
    content: tuple[int, int | None] = (0, None)
    unpacked: int = 0
    version: str = ""

    @property
    def unpacked_bytes(self) -> int:
        """About how many bytes it is without compression."""
        return self.unpacked or self.stop - self.start


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one shard: a slice of a file, or several small files; or a bucket, which others have sent to.

    Attributes:
        number: of the task in the plan, from 0.
        slices: in the order in which they are read; none of a bucket.
        source: the number of the source that the files belong to, from 0. Steps may have other options for each source.
        input_bytes: about how many bytes the input of all tasks is without compression; 0 if that is not known.
        increment: the id of the increment of the dataset that it belongs to; empty if the dataset is built in one go.
        sends_to: the numbers of the buckets that its examples are sent to, if they are exchanged.
        received: of a bucket that was read: of each of its records, whose position is its number, the `url` and the
            `format` of its file, its `position` there, the number of its `source`, and `is_copy`: whether it is a
            further copy of a record that is elsewhere in the dataset.
    """

    number: int
    slices: tuple[Slice, ...]
    source: int = 0
    input_bytes: int = 0
    increment: str = ""
    sends_to: range = range(0)
    received: pa.Table | None = None

    @property
    def bytes(self) -> int:
        """The size of all slices."""
        return sum(piece.stop - piece.start for piece in self.slices)

    @property
    def unpacked_bytes(self) -> int:
        """About how many bytes all slices are without compression."""
        return sum(piece.unpacked_bytes for piece in self.slices)

    def position(self, slice_number: int, position: int) -> int:
        """Return the position in this task of a record that has a position in the file of a slice."""
        return slice_number * _SLICE + position

    def origin(self, position: int) -> tuple[Slice, int]:
        """Return the slice of a record and its position in that file, from its position in this task."""
        if self.received is None:
            number, position = divmod(position, _SLICE)
            return self.slices[number], position
        (record,) = self.received.slice(position, 1).to_pylist()
        return Slice(record["url"], record["format"], None, 0, 0), record["position"]

    def origins(self, positions: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Return the urls of records and their positions in those files.

        Args:
            positions: int64, shape (records,): in this task.

        Returns:
            Strings, shape (records,); int64, shape (records,).
        """
        if self.received is None:
            numbers, positions = slices_and_places(positions)
            return pa.array([piece.url for piece in self.slices], pa.string()).take(pa.array(numbers)), positions
        records = self.received.select(["url", "position"]).take(pa.array(positions))
        return records["url"].cast(pa.string()).combine_chunks(), records["position"].to_numpy()

    def find_sources(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers of the sources of records. positions: int64, shape (records,): in this task."""
        return self._received("source", positions, self.source)

    def are_copies(self, positions: np.ndarray) -> np.ndarray:
        """Return whether records are further copies of records that are elsewhere in the dataset, as find_sources."""
        return self._received("is_copy", positions, False)

    def _received(self, name: str, positions: np.ndarray, otherwise: int | bool) -> np.ndarray:
        if self.received is None:
            return np.full(len(positions), otherwise)
        return self.received[name].to_numpy()[positions]


def slices_and_places(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the slices of records, and their positions in those files. positions: in their task."""
    numbers, places = np.divmod(positions, _SLICE)
    return numbers, places


@dataclass(frozen=True)
class Batch:
    """What every batch has.

    Attributes:
        task: that its records come from.
        chunk: its number in the task, from 0. A task that is streamed, or larger than planned, has several chunks.
        last: whether it is the last chunk of the task.
        outcomes: of its records so far.
    """

    task: Task
    chunk: int
    last: bool
    outcomes: Outcomes

    def succeeded_by(self, kind: Callable[..., Any], outcomes: Outcomes | None = None, **fields: Any) -> Any:
        """Return the next step's batch of the same chunk of the same task.

        Args:
            kind: the class of the batch.
            outcomes: of its records; None if they have not changed.
            fields: the other fields of the class.
        """
        return kind(task=self.task, chunk=self.chunk, last=self.last, outcomes=outcomes or self.outcomes, **fields)


@dataclass(frozen=True)
class Records(Batch):
    """What `read` returns."""

    records: list[Record]


@dataclass(frozen=True)
class Examples(Batch):
    """What `parse` returns."""

    examples: list[Example]

    def attempt(self, kind: Callable[..., Any], name: str, function: Callable[[Example], Any]) -> Any:
        """Return the next step's batch, of what a function returns for each example.

        Args:
            kind: the class of the batch.
            name: of the field that takes what the function returns.
            function: takes an example. If it raises RecordError, the example's record is rejected.
        """
        results, rejects = attempt(self.examples, function)
        return self.succeeded_by(kind, self.outcomes.reject(rejects), **{name: results})


@dataclass(frozen=True)
class Texts(Batch):
    """What `render` returns, and `parity`, which may make several texts of one example. They are consecutive.

    Attributes:
        trained_parts: those of `rows.parts.PARTS` that are trained on; None if the parts of turns are not known.
    """

    texts: list[Text]
    trained_parts: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Tokens(Batch):
    """What `tokenize` returns.

    A token may have characters of several spans. Of those of the same part of the same turn, the first one counts.

    Attributes:
        ids: int32, shape (tokens,).
        offsets: int64, shape (rows + 1,): row i has the tokens offsets[i]:offsets[i + 1].
        trained: bool, shape (tokens,): whether the token has a character in a span.
        facts: of the rows.
        parts: int32, shape (tokens, spans): the codes of the parts of turns, see `rows.parts`, that the spans are which
            the token has a character in, in order, and 0 after the last one; None if the parts of turns are not known.
        trained_parts: as in Texts.
    """

    ids: np.ndarray
    offsets: np.ndarray
    trained: np.ndarray
    facts: RowFacts
    parts: np.ndarray | None = None
    trained_parts: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Labels(Batch):
    """What `label` returns.

    Attributes:
        ids: int32, shape (tokens,).
        labels: int32, shape (tokens,): the id if the token is trained on, otherwise -100.
        offsets: int64, shape (rows + 1,): row i has the tokens offsets[i]:offsets[i + 1].
        facts: of the rows.
        parts: int32, shape (tokens,): the code of the part of a turn that each token is, see `rows.parts`; None if the
            parts of turns are not known.
    """

    ids: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    facts: RowFacts
    parts: np.ndarray | None = None

    @functools.cached_property
    def trained_tokens(self) -> np.ndarray:
        """The number of tokens with a label in each row: int64, shape (rows,)."""
        return sum_each_row(self.labels != IGNORED, self.offsets)

    def take(self, rows: np.ndarray, outcomes: Outcomes) -> Labels:
        """Return some of the rows. rows: int64, shape (any,): their numbers. outcomes: of their records."""
        starts, lengths = self.offsets[rows], np.diff(self.offsets)[rows]
        return dataclasses.replace(
            self,
            outcomes=outcomes,
            ids=join_slices(self.ids, starts, lengths),
            labels=join_slices(self.labels, starts, lengths),
            offsets=lengths_to_offsets(lengths),
            facts=self.facts.take(rows),
            parts=None if self.parts is None else join_slices(self.parts, starts, lengths),
        )


@dataclass(frozen=True)
class RowTable:
    """Rows that are ready to be written. A row that is not packed is one segment.

    Attributes:
        ids, labels: int32, shape (tokens,).
        segment_lengths: int64, shape (segments,): the tokens of each segment.
        segment_offsets: int64, shape (rows + 1,): row i has the segments segment_offsets[i]:segment_offsets[i + 1].
        example_index: int64, shape (segments,): the labelled example that each segment is of.
        parts: as in Labels.
    """

    ids: np.ndarray
    labels: np.ndarray
    segment_lengths: np.ndarray
    segment_offsets: np.ndarray
    example_index: np.ndarray
    parts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.segment_offsets) - 1

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """Row i has the tokens offsets[i]:offsets[i + 1]: int64, shape (rows + 1,)."""
        return lengths_to_offsets(self.segment_lengths)[self.segment_offsets]

    @functools.cached_property
    def segment_trained_tokens(self) -> np.ndarray:
        """The number of tokens with a label in each segment: int64, shape (segments,)."""
        return sum_each_row(self.labels != IGNORED, lengths_to_offsets(self.segment_lengths))

    @functools.cached_property
    def trained_tokens(self) -> np.ndarray:
        """The number of tokens with a label in each row: int64, shape (rows,)."""
        return sum_each_row(self.segment_trained_tokens, self.segment_offsets)

    def take(self, rows: np.ndarray) -> RowTable:
        """Return some of the rows. rows: int64, shape (any,): their numbers."""
        lengths, segment_counts = np.diff(self.offsets)[rows], np.diff(self.segment_offsets)[rows]
        segments = slice_indices(self.segment_offsets[rows], segment_counts)
        return RowTable(
            ids=join_slices(self.ids, self.offsets[rows], lengths),
            labels=join_slices(self.labels, self.offsets[rows], lengths),
            segment_lengths=self.segment_lengths[segments],
            segment_offsets=lengths_to_offsets(segment_counts),
            example_index=self.example_index[segments],
            parts=None if self.parts is None else join_slices(self.parts, self.offsets[rows], lengths),
        )


@dataclass(frozen=True)
class Used:
    """What rows have of each record of the labelled examples.

    Attributes:
        is_used: bool, shape (records,): whether a row has something of it: it is kept or truncated.
        truncated: bool, shape (records,): whether it is truncated, if it is used.
        copies: bool, shape (records,): whether it is a further copy of a record that has its outcome elsewhere.
        tokens_lost, trained_tokens_lost: int64, shape (records,): how many of its tokens are in no row.
    """

    is_used: np.ndarray
    truncated: np.ndarray
    copies: np.ndarray
    tokens_lost: np.ndarray
    trained_tokens_lost: np.ndarray


@dataclass(frozen=True)
class Rows(Batch):
    """What `pack` returns.

    Attributes:
        train, validation: the rows of each split.
        packing: one of PACKINGS.
        facts: of the examples that the segments are of.
        used: the records that are kept or truncated.
        sent: what became of the examples of a task that sends them to buckets, and so has no rows; None if it is not
            its last chunk.
        tokens_sent: how many tokens the examples have that were sent.
    """

    train: RowTable
    validation: RowTable
    packing: str
    facts: RowFacts
    used: Used
    sent: Sent | None = None
    tokens_sent: int = 0
