"""Truncation: what is kept of a row that is too long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from transforms.rows import IGNORED
from transforms.rows.ragged import join_slices, lengths_to_offsets
from transforms.rows.segments import Segments

TRUNCATIONS = ("keep_start", "keep_end", "turns", "windows", "drop")


class Turns(NamedTuple):
    """Runs of trained tokens: what a model writes without an interruption, up to its end of turn.

    Attributes:
        row: int64, shape (turns,): the row that each is in, ascending.
        start, stop: int64, shape (turns,): its first token, and the one after its last, counted from the start of the
            row.
    """

    row: np.ndarray
    start: np.ndarray
    stop: np.ndarray


def find_turns(labels: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> Turns:
    """Find the turns of some rows.

    Args:
        labels: int32, shape (tokens,): -100 if a token is not trained on.
        offsets: int64, shape (all rows + 1,): row i has the labels offsets[i]:offsets[i + 1].
        rows: int64, shape (rows,): the numbers of the rows, ascending.

    Returns:
        The turns; their rows are numbers of all rows.
    """
    lengths = np.diff(offsets)[rows]
    within = lengths_to_offsets(lengths)
    # A token that is not trained on is put after each row, so that no turn goes on in the next one.
    trained = np.insert(join_slices(labels, offsets[rows], lengths) != IGNORED, within[1:], False)
    edges = np.flatnonzero(np.diff(trained, prepend=False)).reshape(-1, 2)
    begins = within[:-1] + np.arange(len(rows))
    of = np.searchsorted(begins, edges[:, 0], side="right") - 1
    return Turns(rows[of], edges[:, 0] - begins[of], edges[:, 1] - begins[of])


def truncate(lengths: np.ndarray, max_length: int, truncation: str) -> Segments:
    """Return the part that is kept of each row.

    Args:
        lengths: int64, shape (rows,): tokens of each row.
        max_length: the tokens that are kept at most.
        truncation: `keep_start` and `keep_end` keep max_length tokens of a longer row; `drop` keeps none.

    Returns:
        One segment for each row, in the order of the rows.
    """
    kept = np.minimum(lengths, max_length)
    if truncation == "drop":
        kept[kept < lengths] = 0
    start = lengths - kept if truncation == "keep_end" else np.zeros(len(lengths), np.int64)
    return Segments(np.arange(len(lengths)), start, kept)


def truncate_after_turns(lengths: np.ndarray, max_length: int, turns: Turns) -> Segments:
    """Cut each longer row after the last turn that fits as a whole; nothing is kept of it if none does.

    Args:
        lengths, max_length: as of truncate.
        turns: of the longer rows.

    Returns:
        One segment for each row, in the order of the rows.
    """
    kept = np.where(lengths > max_length, 0, lengths)
    fits = turns.stop <= max_length
    np.maximum.at(kept, turns.row[fits], turns.stop[fits])
    return Segments(np.arange(len(lengths)), np.zeros(len(lengths), np.int64), kept)


def windows(lengths: np.ndarray, max_length: int, overlap: int, turns: Turns) -> Segments:
    """Cut each longer row into windows, so that each trained token is trained on in exactly one of them.

    A window ends after a turn, and has as many turns as fit. It begins with turns of the window before as context, of
    at most `overlap` tokens; with fewer, if the next turn would not fit otherwise. A turn that is longer than a window
    is continued in the next one, after the last `overlap` tokens.

    Args:
        lengths, max_length: as of truncate.
        overlap: tokens of context at most, from 1 to max_length - 1.
        turns: of the longer rows.

    Returns:
        The segments of all rows, in order; a row without a turn has none if it is longer.
    """
    short = np.flatnonzero(lengths <= max_length)
    none = np.zeros(len(short), np.int64)
    rows, segments = [short], [np.stack([none, lengths[short], none], axis=1)]
    firsts = np.flatnonzero(np.diff(turns.row, prepend=-1))
    for first, last in pairwise([*firsts.tolist(), len(turns.row)]):
        row = int(turns.row[first])
        row_turns = [*zip(turns.start[first:last].tolist(), turns.stop[first:last].tolist(), strict=True)]
        segments.append(np.array([*_list_windows(int(lengths[row]), row_turns, max_length, overlap)], np.int64))
        rows.append(np.full(len(segments[-1]), row))
    segment_rows = np.concatenate(rows)
    order = np.argsort(segment_rows, kind="stable")
    begin, end, repeated = np.concatenate(segments)[order].T
    return Segments(segment_rows[order], begin, end - begin, repeated)


def _list_windows(
    length: int, turns: Sequence[tuple[int, int]], max_length: int, overlap: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the windows of a row: where each begins and ends, and how many tokens the window before has, too."""
    ends = [0, *(stop for _, stop in turns)]
    number = done = 0  # the turn that is next; what is before `done` is in earlier windows
    while number < len(turns):
        start, stop = turns[number]
        if start < done:  # the rest of a turn
            begin = done - overlap
        else:
            least = max(done - overlap, stop - max_length)
            begin = ends[bisect_left(ends, least)]
            if begin > done:  # the text before the turn is too long to be there from the end of a turn on
                begin = least if least < start else max(start - overlap, 0)
        if stop - begin > max_length:
            end = begin + max_length
        else:
            while number + 1 < len(turns) and turns[number + 1][1] - begin <= max_length:
                number += 1
            number += 1
            end = length if number == len(turns) and length - begin <= max_length else ends[number]
        yield begin, end, max(done - begin, 0)
        done = end


def split(lengths: np.ndarray, max_length: int) -> Segments:
    """Cut each row into pieces of max_length and a remainder, as TRL's `bfd_split` does.

    Args:
        lengths: int64, shape (rows,): tokens of each row.
        max_length: the tokens of a piece at most.

    Returns:
        The pieces of all rows, in order.
    """
    pieces = -(-lengths // max_length)
    example_index = np.repeat(np.arange(len(lengths)), pieces)
    first = np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = (np.arange(len(example_index)) - first) * max_length
    return Segments(example_index, start, np.minimum(lengths[example_index] - start, max_length))
