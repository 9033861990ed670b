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
        repeated: int64, shape (segments,): how many of its first tokens are context, which an earlier segment of the
            same row has, too. Their labels are ignored. None if there are none.
    """

    source: np.ndarray
    start: np.ndarray
    length: np.ndarray
    repeated: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, which: np.ndarray) -> Segments:
        """Return some of the segments, by their numbers or by a mask."""
        repeated = None if self.repeated is None else self.repeated[which]
        return Segments(self.source[which], self.start[which], self.length[which], repeated)

    def cut(self, inner: Segments) -> Segments:
        """Return segments of these segments, as segments of the rows that these are of.

        Args:
            inner: segments whose sources are numbers of these segments; whole ones, if these have context.
        """
        repeated = None if self.repeated is None else self.repeated[inner.source]
        return Segments(self.source[inner.source], self.start[inner.source] + inner.start, inner.length, repeated)

    def new(self, rows: int) -> np.ndarray:
        """Return how many tokens of each row are in the segments, each token counted once: int64, shape (rows,)."""
        length = self.length if self.repeated is None else self.length - self.repeated
        return np.bincount(self.source, length, rows).astype(np.int64)


def whole(lengths: np.ndarray) -> Segments:
    """Return one segment for each row, which is all of it. lengths: int64, shape (rows,)."""
    return Segments(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), lengths)
