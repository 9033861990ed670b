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
    counted = offsets_of(flags)
    return counted[offsets[1:]] - counted[offsets[:-1]]


def joined(arrays: list[np.ndarray], dtype: Any) -> np.ndarray:
    """The arrays, one behind the other; there may be none."""
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)
