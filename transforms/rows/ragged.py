"""Rows of different lengths in one flat array: row i is flat[offsets[i]:offsets[i + 1]], as in Arrow's list layout."""

from __future__ import annotations

from typing import Any

import numpy as np


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """lengths: (rows,). Returns int64 (rows + 1,), where each row begins and the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def indices_of(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The positions starts[i], starts[i] + 1, … of each slice, one slice after the other: int64 (sum of lengths,)."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)


def sums_of(flags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """How many flags are set in each row: int64 (rows,), also for rows of no length. flags: bool (offsets[-1],)."""
    sums = np.zeros(len(offsets) - 1, np.int64)
    some = np.flatnonzero(np.diff(offsets))
    if len(some):
        sums[some] = np.add.reduceat(flags, offsets[some], dtype=np.int32)  # twice as fast as in 64 bits
    return sums


def slices_of(flat: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The slices flat[starts[i]:starts[i] + lengths[i]], one behind the other.

    Copied slice by slice where they are long, which is several times faster than by the positions of all values.
    """
    if len(starts) * 32 >= lengths.sum():
        return flat[indices_of(starts, lengths)]
    return np.concatenate([flat[a:b] for a, b in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)])


def joined(arrays: list[np.ndarray], dtype: Any) -> np.ndarray:
    """The arrays, one behind the other; there may be none."""
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)
