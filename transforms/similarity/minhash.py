"""MinHash: hashes of sets that are the same for similar sets, so that pairs of these are found without comparing all.

The smallest member of a set after a pseudo-random permutation is that of another set with a probability that is their
Jaccard similarity (Broder 1997). A band is several of these: two sets of similarity s have one of b bands of r in
common with the probability 1 - (1 - s^r)^b (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_MOST_PERMUTATIONS, _RECALL = 128, 0.99
# About as many members are permuted at once: they stay in the cache of a core.
_AT_ONCE = 1 << 16
_BASE, _MIXER, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)
# Of permutations x * factor + term modulo 2^32: odd factors.
_NUMBERS = np.array([pow(int(_BASE), 2 * each + 3, 1 << 64) >> 32 for each in range(2 * _MOST_PERMUTATIONS)], np.uint32)
_FACTORS, _TERMS = _NUMBERS[::2] | np.uint32(1), _NUMBERS[1::2]


class Bands(NamedTuple):
    """How many bands a set has, and how many permutations each of them is of."""

    bands: int
    rows: int

    def recall(self, similarity: float) -> float:
        """Return the probability that two sets have a band in common."""
        return 1 - (1 - similarity**self.rows) ** self.bands


def bands_for(similarity: float) -> Bands:
    """Return the bands that find 99% of the pairs of a similarity, and the more the more similar they are.

    They have as many rows as 128 permutations allow, so that few pairs of other sets have a band in common.
    """
    found = Bands(_MOST_PERMUTATIONS, 1)
    for rows in range(1, _MOST_PERMUTATIONS + 1):
        share = similarity**rows
        bands = 1 if share >= _RECALL else math.ceil(math.log(1 - _RECALL) / math.log1p(-share))
        if bands * rows <= _MOST_PERMUTATIONS:
            found = Bands(bands, rows)
    return found


def band_hashes(values: np.ndarray, offsets: np.ndarray, bands: Bands) -> np.ndarray:
    """Return the hashes of the bands of sets.

    Args:
        values: uint32, shape (members,): of all sets, pseudo-random.
        offsets: int64, shape (sets + 1,): where each begins. None is empty.
        bands: of `bands_for`.

    Returns:
        uint64, shape (sets, bands).
    """
    hashes = np.zeros((bands.bands, len(offsets) - 1), np.uint64)
    first = 0
    while first < len(offsets) - 1:
        stop = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _AT_ONCE, "right")) - 1)
        members, starts = values[offsets[first] : offsets[stop]], offsets[first:stop] - offsets[first]
        permuted = np.empty_like(members)
        for number in range(bands.bands * bands.rows):
            np.multiply(members, _FACTORS[number], out=permuted)
            permuted += _TERMS[number]
            band = hashes[number // bands.rows, first:stop]
            band += np.minimum.reduceat(permuted, starts)
            band *= _BASE
        first = stop
    hashes += np.arange(bands.bands, dtype=np.uint64)[:, None] * _MIXER
    hashes = (hashes ^ (hashes >> _32)) * _MIXER
    return (hashes ^ (hashes >> _32)).T
