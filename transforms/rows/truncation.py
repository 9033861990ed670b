"""Truncation: what is kept of a row that is too long."""

from __future__ import annotations

import numpy as np

from transforms.rows.segments import Segments

TRUNCATIONS = ("keep_start", "keep_end", "drop")


def truncate(lengths: np.ndarray, max_length: int, truncation: str) -> Segments:
    """Return the part that is kept of each row.

    Args:
        lengths: int64, shape (rows,): tokens of each row.
        max_length: the tokens that are kept at most.
        truncation: one of TRUNCATIONS. `keep_start` and `keep_end` keep max_length tokens of a longer row; `drop` keeps
            none.

    Returns:
        One segment for each row, in the order of the rows.
    """
    kept = np.minimum(lengths, max_length)
    if truncation == "drop":
        kept[kept < lengths] = 0
    start = lengths - kept if truncation == "keep_end" else np.zeros(len(lengths), np.int64)
    return Segments(np.arange(len(lengths)), start, kept)


def split(lengths: np.ndarray, max_length: int) -> Segments:
    """Cut each row into pieces of max_length and a remainder, as TRL's `bfd_split` does.

    Args:
        lengths: int64, shape (rows,): tokens of each row.
        max_length: the tokens of a piece at most.

    Returns:
        The pieces of all rows, in order.
    """
    pieces = -(-lengths // max_length)
    source = np.repeat(np.arange(len(lengths)), pieces)
    first = np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = (np.arange(len(source)) - first) * max_length
    return Segments(source, start, np.minimum(lengths[source] - start, max_length))
