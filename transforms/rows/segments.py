"""Segments: the slices of examples that truncation and packing make of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Segments:
    """Slices of examples.

    Args:
        example_index: int64, shape (segments,): the example that each segment is of.
        start: int64, shape (segments,): its first token, counted from the start of that example.
        length: int64, shape (segments,): its tokens.
        repeated: int64, shape (segments,): how many of its first tokens are context, which an earlier segment of the
            same example has, too. Their labels are ignored. None if there are none.
    """

    example_index: np.ndarray
    start: np.ndarray
    length: np.ndarray
    repeated: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.example_index)

    def take(self, which: np.ndarray) -> Segments:
        """Return some of the segments, by their numbers or by a mask."""
        repeated = None if self.repeated is None else self.repeated[which]
        return Segments(self.example_index[which], self.start[which], self.length[which], repeated)

    def cut(self, inner: Segments) -> Segments:
        """Return segments of these segments, as segments of the examples that these are of.

        Args:
            inner: segments whose examples are numbers of these segments; whole ones, if these have context.
        """
        outer = inner.example_index
        repeated = None if self.repeated is None else self.repeated[outer]
        return Segments(self.example_index[outer], self.start[outer] + inner.start, inner.length, repeated)

    def new(self, examples: int) -> np.ndarray:
        """Return how many tokens of each example are in the segments, each counted once: int64, shape (examples,)."""
        length = self.length if self.repeated is None else self.length - self.repeated
        return np.bincount(self.example_index, length, examples).astype(np.int64)


def whole(lengths: np.ndarray) -> Segments:
    """Return one segment for each example, which is all of it. lengths: int64, shape (examples,)."""
    return Segments(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), lengths)
