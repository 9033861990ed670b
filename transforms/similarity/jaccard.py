"""Jaccard: how similar sets of shingles are, exactly."""

from __future__ import annotations

import numpy as np

from transforms.rows.ragged import indices_of, offsets_of, sums_of
from transforms.similarity.shingles import ANSWERED

# About as many members are looked up at once.
_AT_ONCE = 1 << 20
_32 = np.uint64(32)


def similarities(values: np.ndarray, offsets: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compare pairs of sets of shingles.

    Args:
        values: uint32, shape (members,): of all sets, each sorted.
        offsets: int64, shape (sets + 1,): where each begins.
        first, second: int64, shape (pairs,): the numbers of the sets of each pair.

    Returns:
        float64, shape (pairs,): of the Jaccard similarities of what was asked and of what was answered, the lower one;
        1 if both sets are the same. A side that both sets do not have does not count.
    """
    sizes = np.diff(offsets)
    answered = sums_of(values >= ANSWERED, offsets)
    keys = values | np.repeat(np.arange(len(sizes), dtype=np.uint64) << _32, sizes)
    found = np.empty(len(first))
    totals = offsets_of(sizes[first])
    begin = 0
    while begin < len(first):
        end = max(begin + 1, int(np.searchsorted(totals, totals[begin] + _AT_ONCE, "right")) - 1)
        one, other = first[begin:end], second[begin:end]
        members = values[indices_of(offsets[one], sizes[one])]
        wanted = members | np.repeat(other.astype(np.uint64) << _32, sizes[one])
        is_shared = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
        within = offsets_of(sizes[one])
        shared = sums_of(is_shared, within)
        shared_answered = sums_of(is_shared & (members >= ANSWERED), within)
        of_answered = _jaccard(shared_answered, answered[one], answered[other])
        of_asked = _jaccard(shared - shared_answered, sizes[one] - answered[one], sizes[other] - answered[other])
        found[begin:end] = np.minimum(of_asked, of_answered)
        begin = end
    return found


def _jaccard(shared: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    union = one + other - shared
    return np.where(union == 0, 1.0, shared / np.maximum(union, 1))
