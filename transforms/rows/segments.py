"""Segments: the slices of rows that truncation and packing make of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Segments:
    """Slices of rows.

    Args:
        source: int64, shape (segments,): the row that each segment is of.
        start: int64, shape (segments,): its first token, counted from the start of that row.
        length: int64, shape (segments,): its tokens.
    """

    source: np.ndarray
    start: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.source)

    def take(self, which: np.ndarray) -> Segments:
        """Return some of the segments, by their numbers or by a mask."""
        return Segments(self.source[which], self.start[which], self.length[which])

    def cut(self, inner: Segments) -> Segments:
        """Return segments of these segments, as segments of the rows that these are of.

        Args:
            inner: segments whose sources are numbers of these segments.
        """
        return Segments(self.source[inner.source], self.start[inner.source] + inner.start, inner.length)


def whole(lengths: np.ndarray) -> Segments:
    """Return one segment for each row, which is all of it. lengths: int64, shape (rows,)."""
    return Segments(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), lengths)
