"""Rows of different lengths in one flat array: row i is flat[offsets[i]:offsets[i + 1]], as in Arrow's list layout."""

from __future__ import annotations

from typing import Any

import numpy as np


def lengths_to_offsets(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets of rows.

    Args:
        lengths: of the rows, shape (rows,).

    Returns:
        int64, shape (rows + 1,): where each row begins, and where the last one ends.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def slice_indices(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the indices starts[i], starts[i] + 1, ... of each slice, one slice after the other.

    Args:
        starts, lengths: of the slices, int64, shape (slices,).

    Returns:
        int64, shape (sum of lengths,).
    """
    offsets = lengths_to_offsets(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)


def sum_each_row(flags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Add up the values of each row, or count its flags that are set.

    Args:
        flags: bool or int64, shape (offsets[-1],). A sum is below 2**31.
        offsets: int64, shape (rows + 1,).

    Returns:
        int64, shape (rows,); 0 for a row of no length.
    """
    sums = np.zeros(len(offsets) - 1, np.int64)
    not_empty = np.flatnonzero(np.diff(offsets))
    if len(not_empty):
        sums[not_empty] = np.add.reduceat(flags, offsets[not_empty], dtype=np.int32)  # twice as fast as int64
    return sums


def join_slices(flat: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the slices flat[starts[i]:starts[i] + lengths[i]], concatenated.

    Args:
        flat: shape (values,).
        starts, lengths: of the slices, int64, shape (slices,).

    Returns:
        Shape (sum of lengths,), which is not to be changed: slices that follow each other are not copied.
    """
    stops = starts + lengths
    if np.array_equal(starts[1:], stops[:-1]):
        return flat[starts[0] : stops[-1]] if len(starts) else flat[:0]
    if len(starts) * 32 >= lengths.sum():
        return flat[slice_indices(starts, lengths)]
    # Long slices one by one, and by bytes.join: five times as fast as by index or by np.concatenate.
    content = flat.data
    pieces = [content[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return np.frombuffer(b"".join(pieces), flat.dtype)


def joined(arrays: list[np.ndarray], dtype: Any) -> np.ndarray:
    """Return arrays concatenated, with a dtype; an empty array if there are none."""
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)
