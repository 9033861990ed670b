"""Packing: which segments share a row, so that rows are full and few.

Each strategy does what TRL does under the same name (trl.data_utils.pack_dataset of TRL 1.16; ffd as before it).
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from transforms.rows.ragged import offsets_of


def pack_bfd(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """Assign segments to rows by best fit decreasing, as TRL's `bfd` does.

    lengths: int64 (segments,), tokens in each segment, 1 <= length <= capacity.
    capacity: tokens in a row.
    Returns the segments of each row, longest first; rows in the order they were opened. Of rows with as much space
    left, the one that has had it longest is filled first; segments of one length go in as they come.
    Raises ValueError where a length is out of range.
    The free spaces are the bits of one integer, whose lowest one from a length on is the best fit (in place of the tree
    of Ding et al. 2024, arXiv 2404.10830): O(segments (log segments + capacity / 64)).
    """
    rows: list[list[int]] = []
    spaces = 0
    rows_with_space: dict[int, deque[int]] = defaultdict(deque)
    for segment, length in _decreasing(lengths, capacity):
        enough = spaces >> length
        if enough:
            space = length + (enough & -enough).bit_length() - 1
            row = rows_with_space[space].popleft()
            if not rows_with_space[space]:
                spaces ^= 1 << space
        else:
            row, space = len(rows), capacity
            rows.append([])
        rows[row].append(segment)
        rows_with_space[space - length].append(row)
        spaces |= 1 << (space - length)
    return rows


def pack_ffd(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """Assign segments to rows by first fit decreasing: the first row opened that has the space.

    Arguments, result and errors are those of pack_bfd. O(segments log segments), with a tree of maxima over the rows.
    """
    rows: list[list[int]] = []
    leaves = 1 << max(len(lengths) - 1, 0).bit_length()
    space = [capacity] * (2 * leaves)  # of the roomiest row below each node; a row that is not opened has it all
    for segment, length in _decreasing(lengths, capacity):
        node = 1
        while node < leaves:
            node = 2 * node if space[2 * node] >= length else 2 * node + 1
        row = node - leaves
        if row == len(rows):
            rows.append([])
        rows[row].append(segment)
        space[node] -= length
        while node > 1:
            node //= 2
            space[node] = max(space[2 * node], space[2 * node + 1])
    return rows


def cut_into_pieces(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut what is longer than a row into pieces of a row's length and a remainder, as TRL's `bfd_split` does.

    lengths: int64 (records,). Returns, for each piece, its record, where in the record it starts, and its length.
    """
    pieces = -(-lengths // capacity)
    records = np.repeat(np.arange(len(lengths)), pieces)
    starts = (np.arange(len(records)) - np.repeat(offsets_of(pieces)[:-1], pieces)) * capacity
    return records, starts, np.minimum(lengths[records] - starts, capacity)


def cut_stream(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut one stream of all records into rows, as TRL's `wrapped` does: every row is full but the last.

    lengths: int64 (records,), >= 1. Returns the stream's positions at which a segment starts, int64 (segments,), and
    the first segment of each row with the number of segments behind them, int64 (rows + 1,).
    """
    total = int(lengths.sum())
    row_starts = np.arange(0, total, capacity)
    segment_starts = np.union1d(offsets_of(lengths)[:-1], row_starts)
    return segment_starts, np.append(np.searchsorted(segment_starts, row_starts), len(segment_starts))


def _decreasing(lengths: np.ndarray, capacity: int) -> list[tuple[int, int]]:
    """(segment, length), longest first, in their own order where they are equal."""
    if len(lengths) and not (lengths.min() >= 1 and lengths.max() <= capacity):
        raise ValueError(f"lengths from {lengths.min()} to {lengths.max()}; expected 1 to the capacity of {capacity}")
    order = np.argsort(-lengths, kind="stable")
    return list(zip(order.tolist(), lengths[order].tolist(), strict=True))
