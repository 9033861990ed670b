"""The examples in the rows of a dataset: of a packed row each one apart, and with labels that are not shifted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.rows import IGNORED
from transforms.rows.ragged import indices_of, offsets_of, sums_of

# The columns that say what the examples of a row are, as far as they were written.
EXAMPLE_COLUMNS = ("input_ids", "labels", "loss_mask", "seq_lengths", "position_ids")


@dataclass(frozen=True)
class RowExamples:
    """The examples of some rows.

    Attributes:
        ids: int32, shape (tokens,).
        labels: int32, shape (tokens,): the label of each token, as before a shift.
        offsets: int64, shape (examples + 1,): example i has the tokens offsets[i]:offsets[i + 1].
        counts: int64, shape (rows,): how many examples each row has.
        are_known: whether the columns say where the examples of packed rows begin. Otherwise each row is taken for one.
    """

    ids: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    are_known: bool = True

    @property
    def trained(self) -> np.ndarray:
        """Whether each token is trained on: bool, shape (tokens,)."""
        return self.labels != IGNORED


def examples_of(rows: pa.RecordBatch, packed: bool, shift_labels: bool) -> RowExamples:
    """Find the examples of rows.

    Args:
        rows: with the columns input_ids, and labels or loss_mask if they were written. If they are packed, also
            seq_lengths or position_ids if they were written.
        packed: whether a row may have several examples.
        shift_labels: whether labels are shifted. Then what was the last token of a row is in its labels alone; it
            is there again, if it was trained on.

    Returns:
        The examples. Without labels or a loss_mask, no token has a label.
    """
    ids, offsets = _values(rows, "input_ids")
    names = rows.schema.names
    if "labels" in names:
        labels = _values(rows, "labels")[0]
    elif "loss_mask" in names and not shift_labels:
        labels = np.where(_values(rows, "loss_mask")[0] != 0, ids, IGNORED).astype(np.int32)
    else:
        labels = np.full(len(ids), IGNORED, np.int32)
    counts, lengths, are_known = _segments(rows, offsets, packed)
    if shift_labels and len(ids):
        ends = offsets[1:][np.diff(offsets) > 0]
        has_last = labels[ends - 1] != IGNORED
        last = (np.cumsum(counts) - 1)[np.diff(offsets) > 0]
        labels, ids = _unshifted(labels, ids, ends, has_last)
        lengths[last[has_last]] += 1
    return RowExamples(ids, labels, offsets_of(lengths), counts, are_known)


def _segments(rows: pa.RecordBatch, offsets: np.ndarray, packed: bool) -> tuple[np.ndarray, np.ndarray, bool]:
    """The number of examples of each row, the length of each example, and whether that is known."""
    names = rows.schema.names
    if packed and "seq_lengths" in names:
        lengths, segment_offsets = _values(rows, "seq_lengths")
        return np.diff(segment_offsets), lengths.astype(np.int64), True
    if packed and "position_ids" in names:
        begins = _values(rows, "position_ids")[0] == 0
        return sums_of(begins, offsets), np.diff(np.append(np.flatnonzero(begins), len(begins))), True
    return np.ones(len(rows), np.int64), np.diff(offsets), not packed


def _unshifted(labels: np.ndarray, ids: np.ndarray, ends: np.ndarray, has_last: np.ndarray) -> tuple[Any, Any]:
    """Labels and ids before the shift. ends: of rows; has_last: bool, whether the last label of each is one."""
    starts = np.concatenate([[0], ends[:-1]])
    whole = np.insert(ids, ends[has_last], labels[ends[has_last] - 1])
    # Of each row: -100, its labels, and the last of them only if the row has a token for it.
    kept = np.diff(np.append(starts, len(ids))) - ~has_last
    with_first = np.insert(labels, starts, np.int32(IGNORED))
    return with_first[indices_of(starts + np.arange(len(starts)), kept + 1)], whole


def _values(rows: pa.RecordBatch, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of all rows of a list column, and the offsets of the rows in them."""
    column: Any = rows.column(name)
    offsets = _as_numpy(column.offsets).astype(np.int64)
    return _as_numpy(column.values)[offsets[0] : offsets[-1]], offsets - offsets[0]


def _as_numpy(numbers: pa.Array) -> np.ndarray:
    """The numbers of a column without nulls. Its own to_numpy imports pandas first, which takes 0.3 seconds."""
    buffer = numbers.buffers()[1]
    if buffer is None:
        return np.empty(0, str(numbers.type))
    return np.frombuffer(buffer, str(numbers.type))[numbers.offset : numbers.offset + len(numbers)]
