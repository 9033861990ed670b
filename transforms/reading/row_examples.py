"""The examples in the rows of a dataset: of a packed row each one apart, and with labels that are not shifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.rows import IGNORED
from transforms.rows.parts import PART_COLUMNS, codes_of_tokens
from transforms.rows.ragged import indices_of, offsets_of, sums_of

# The columns that say what the examples of a row are, as far as they were written.
EXAMPLE_COLUMNS = ("input_ids", "labels", "loss_mask", "seq_lengths", "position_ids", *PART_COLUMNS)


@dataclass(frozen=True)
class RowExamples:
    """The examples of some rows.

    Attributes:
        ids: int32, shape (tokens,).
        labels: int32, shape (tokens,): the label of each token, as before a shift.
        offsets: int64, shape (examples + 1,): example i has the tokens offsets[i]:offsets[i + 1].
        counts: int64, shape (rows,): how many examples each row has.
        parts: int32, shape (tokens,): the code of the part of a turn that each token is, see `rows.parts`; None without
            the columns.
        are_known: whether the columns say where the examples of packed rows begin. Otherwise each row is taken for one.
    """

    ids: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    are_known: bool = True
    parts: np.ndarray | None = None

    @property
    def trained(self) -> np.ndarray:
        """Whether each token is trained on: bool, shape (tokens,)."""
        return self.labels != IGNORED


class Segments(NamedTuple):
    """The segments of rows: of a packed row each of its examples, as far as they are in it; otherwise the row.

    lengths: tokens of each segment, int64, shape (segments,).
    offsets: row i has the segments offsets[i]:offsets[i + 1], int64, shape (rows + 1,).
    """

    lengths: np.ndarray
    offsets: np.ndarray


def segments_of(values: Mapping[str, tuple[np.ndarray, np.ndarray]], packed: bool) -> Segments | None:
    """Find the segments of rows.

    Args:
        values: of some of their columns, by name: as flat_values returns them.
        packed: whether a row may have several segments.

    Returns:
        The segments; None if the columns do not say where those of packed rows begin.
    """
    of_tokens = [offsets for name, (_, offsets) in values.items() if name != "seq_lengths"]
    if of_tokens and not packed:
        return Segments(np.diff(of_tokens[0]), np.arange(len(of_tokens[0])))
    if "seq_lengths" in values:
        lengths, offsets = values["seq_lengths"]
        return Segments(lengths.astype(np.int64), offsets)
    if "position_ids" in values:
        positions, offsets = values["position_ids"]
        begins = positions == 0
        begins[offsets[:-1][np.diff(offsets) > 0]] = True
        return Segments(np.diff(np.flatnonzero(begins), append=len(begins)), offsets_of(sums_of(begins, offsets)))
    return None


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
    values = {name: flat_values(rows, name) for name in EXAMPLE_COLUMNS if name in rows.schema.names}
    of_runs = [values.pop(name)[0] for name in PART_COLUMNS if name in values]
    parts = codes_of_tokens(*of_runs) if of_runs else None
    ids, offsets = values["input_ids"]
    if "labels" in values:
        labels = values["labels"][0]
    elif "loss_mask" in values and not shift_labels:
        labels = np.where(values["loss_mask"][0] != 0, ids, IGNORED).astype(np.int32)
    else:
        labels = np.full(len(ids), IGNORED, np.int32)
    known = segments_of(values, packed)
    lengths, of_rows = known or Segments(np.diff(offsets), np.arange(len(offsets)))
    if shift_labels and len(ids):
        is_not_empty = np.diff(offsets) > 0
        ends = offsets[1:][is_not_empty]
        has_last = labels[ends - 1] != IGNORED
        if parts is not None:
            parts = _values_unshifted(parts, ends, has_last, 0)
        labels, ids = _unshifted(labels, ids, ends, has_last)
        lengths[of_rows[1:][is_not_empty][has_last] - 1] += 1
    return RowExamples(ids, labels, offsets_of(lengths), np.diff(of_rows), known is not None, parts)


def _unshifted(labels: np.ndarray, ids: np.ndarray, ends: np.ndarray, has_last: np.ndarray) -> tuple[Any, Any]:
    """Labels and ids before the shift. ends: of rows; has_last: bool, whether the last label of each is one."""
    whole = np.insert(ids, ends[has_last], labels[ends[has_last] - 1])
    return _values_unshifted(labels, ends, has_last, IGNORED), whole


def _values_unshifted(values: np.ndarray, ends: np.ndarray, has_last: np.ndarray, first: int) -> np.ndarray:
    """What is shifted with the labels, before the shift. first: the value of the first token of each row."""
    starts = np.concatenate([[0], ends[:-1]])
    # Of each row: the first value, those it has, and the last of them only if the row has a token for it.
    kept = np.diff(np.append(starts, len(values))) - ~has_last
    with_first = np.insert(values, starts, np.int32(first))
    return with_first[indices_of(starts + np.arange(len(starts)), kept + 1)]


def flat_values(rows: pa.Table | pa.RecordBatch, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of all rows of a list column, and the offsets of the rows in them, int64, shape (rows + 1,)."""
    column = whole_column(rows, name)
    offsets = _as_numpy(column.offsets).astype(np.int64)
    return _as_numpy(column.values)[offsets[0] : offsets[-1]], offsets - offsets[0]


def whole_column(rows: pa.Table | pa.RecordBatch, name: str) -> Any:
    """Return a column of rows as one array."""
    column = rows.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _as_numpy(numbers: pa.Array) -> np.ndarray:
    """The numbers of a column without nulls. Methods of Arrow import pandas first, which takes 0.3 seconds."""
    kind, buffer = str(numbers.type), numbers.buffers()[1]
    if buffer is None:
        return np.zeros(len(numbers), kind)
    return np.frombuffer(buffer, kind)[numbers.offset : numbers.offset + len(numbers)]
