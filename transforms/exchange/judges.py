"""Judges: the records of all splits, looked at together by their hashes; each judge takes a range of these.

Each split writes entries, in the order of their hashes, to its file. A judge reads its part of those of all splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from transforms.exchange.ranges import read_ranges
from transforms.rows.ragged import joined

# Hashes are in so many ranges, by their first bits; a judge takes some of them.
_RANGES, _SHIFT = 64, np.uint64(58)
# Of each split that a judge reads: its number, the path of its file, and the bytes of its entries there.
Splits = Sequence[tuple[int, str, int, int]]


def range_starts(hashes: np.ndarray, entry_bytes: int) -> list[int]:
    """Return the bytes at which the entries of each range begin, and the last ones end.

    Args:
        hashes: uint64, shape (entries,), ascending: of the entries of a split.
        entry_bytes: of each entry.
    """
    starts = np.searchsorted(hashes >> _SHIFT, np.arange(_RANGES + 1, dtype=np.uint64))
    found: list[int] = (starts * entry_bytes).tolist()
    return found


def judges_of(splits: Sequence[tuple[int, str, Sequence[int]]], most_bytes: int) -> Iterator[tuple[int, Splits]]:
    """Share out the entries of splits among judges. Yields the number of each judge, and what it reads.

    Args:
        splits: of each the number, the path of its file, and the bytes of range_starts there.
        most_bytes: of the entries of a judge, unless all have more than 64 times as many.
    """
    judges = min(_RANGES, 1 + sum(starts[-1] - starts[0] for *_, starts in splits) // most_bytes)
    for judge in range(judges):
        first, stop = (_RANGES * each // judges for each in (judge, judge + 1))
        yield judge, [(number, path, starts[first], starts[stop]) for number, path, starts in splits]


def read_entries(output: str, splits: Splits, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Read the entries of a judge.

    Args:
        output: the folder of the dataset.
        splits: of judges_of.
        dtype: of the entries.

    Returns:
        The entries, of the dtype, shape (entries,); int64, shape (entries,): the number of the split of each.

    Raises:
        InputError: if a file is missing.
    """
    contents = read_ranges(output, [(path, start, stop) for _, path, start, stop in splits])
    found = [np.frombuffer(content, dtype) for content in contents]
    numbers = np.array([number for number, *_ in splits], np.int64)
    return joined(found, dtype), np.repeat(numbers, [len(each) for each in found])
