"""Packing: which segments share a row, so that rows are full and few.

A packing is one function here, in `_PACKINGS`. Each does what TRL does under the same name (trl.data_utils.pack_dataset
of TRL 1.16; ffd as before it).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from transforms.rows.ragged import lengths_to_offsets
from transforms.rows.segments import Segments


class Packed(NamedTuple):
    """Packed rows.

    segments: the segments of all rows, row by row; their examples are numbers of the segments that were packed.
    offsets: int64, shape (rows + 1,): the first segment of each row, and the number of segments.
    """

    segments: Segments
    offsets: np.ndarray


def pack_bfd(lengths: np.ndarray, capacity: int) -> Packed:
    """Assign segments to rows by best fit decreasing, as TRL's `bfd` does.

    Args:
        lengths: int64, shape (segments,): tokens of each segment, each in [1, capacity].
        capacity: tokens of a row.

    Returns:
        The segments of each row, longest first; rows in the order in which they were opened. Of rows with the same
        space left, the one that has had it longest is filled first; segments of one length are taken in their order.

    Raises:
        ValueError: if a length is out of range.

    The rows are in a sorted list (in place of the tree of Ding et al. 2024, arXiv 2404.10830), in which the best fit is
    found by bisection: O(segments log segments), but for moving a part of that list, which the processor does fast.
    """
    order = _decreasing(lengths, capacity)
    rows = 0
    row_of: list[int] = []  # the row of each segment, in this order
    # Of each row with space left: that space, and the number in this order of its last segment, in one integer.
    spaces: list[int] = []
    for number, length in enumerate(lengths[order].tolist()):
        best = bisect_left(spaces, length * len(order))
        if best < len(spaces):
            space, last = divmod(spaces.pop(best), len(order))
            row = row_of[last]
        else:
            space, row = capacity, rows
            rows += 1
        row_of.append(row)
        if space > length:
            insort(spaces, (space - length) * len(order) + number)
    return _whole_segments(order, row_of, lengths)


def pack_ffd(lengths: np.ndarray, capacity: int) -> Packed:
    """Assign segments to rows by first fit decreasing: the first row opened that has the space.

    Arguments, result and errors are those of pack_bfd. O(segments log segments), with a tree of maxima over the rows.
    """
    order = _decreasing(lengths, capacity)
    row_of: list[int] = []
    leaves = 1 << max(len(lengths) - 1, 0).bit_length()
    space = [capacity] * (2 * leaves)  # the most that a row below each node has; a row that is not opened has it all
    for length in lengths[order].tolist():
        node = 1
        while node < leaves:
            node = 2 * node if space[2 * node] >= length else 2 * node + 1
        row_of.append(node - leaves)
        space[node] -= length
        while node > 1:
            node //= 2
            space[node] = max(space[2 * node], space[2 * node + 1])
    return _whole_segments(order, row_of, lengths)


def pack_wrapped(lengths: np.ndarray, capacity: int) -> Packed:
    """Cut one stream of all segments into rows, as TRL's `wrapped` does: every row is full but the last.

    Args:
        lengths: int64, shape (segments,): tokens of each segment, each at least 1.
        capacity: tokens of a row.

    Returns:
        Pieces of the segments in their order: a segment is cut where a row ends.
    """
    begins = lengths_to_offsets(lengths)
    row_starts = np.arange(0, int(begins[-1]), capacity)
    starts = np.union1d(begins[:-1], row_starts)
    example_index = np.searchsorted(begins, starts, side="right") - 1
    pieces = Segments(example_index, starts - begins[example_index], np.diff(starts, append=begins[-1]))
    return Packed(pieces, np.append(np.searchsorted(starts, row_starts), len(starts)))


# By name the function, and what happens before to segments that are longer than a row: they are truncated, split into
# pieces as long as a row and a remainder, or kept for the packing to cut.
_PACKINGS: dict[str, tuple[Callable[[np.ndarray, int], Packed], Literal["truncate", "split", "keep"]]] = {
    "bfd": (pack_bfd, "truncate"),
    "bfd_split": (pack_bfd, "split"),
    "ffd": (pack_ffd, "truncate"),
    "wrapped": (pack_wrapped, "keep"),
}
PACKINGS = ("none", *_PACKINGS)


def pack_segments(name: str, lengths: np.ndarray, capacity: int) -> Packed:
    """Pack segments by their lengths, as pack_bfd does. name: one of PACKINGS but `none`."""
    return _PACKINGS[name][0](lengths, capacity)


def longer_segments(name: str) -> str:
    """Return what happens to segments that are longer than a row. name: one of PACKINGS."""
    return "truncate" if name == "none" else _PACKINGS[name][1]


def _whole_segments(order: np.ndarray, row_of: list[int], lengths: np.ndarray) -> Packed:
    """Make packed rows of segments in an order; each segment has a row."""
    rows = np.array(row_of, np.int64)
    example_index = order[np.argsort(rows, kind="stable")]
    segments = Segments(example_index, np.zeros(len(example_index), np.int64), lengths[example_index])
    return Packed(segments, lengths_to_offsets(np.bincount(rows)))


def _decreasing(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The numbers of the segments, longest first; equal ones in their own order."""
    if len(lengths) and not (lengths.min() >= 1 and lengths.max() <= capacity):
        raise ValueError(f"lengths from {lengths.min()} to {lengths.max()}; expected 1 to the capacity of {capacity}")
    return np.argsort(-lengths, kind="stable")
