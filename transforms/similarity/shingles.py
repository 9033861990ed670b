"""Shingles: runs of the words of a record, as sorted sets of 32-bit hashes.

The first bit of a hash says whether the run is of an assistant. So a set is two: what was asked, and what was answered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transforms.contamination.words import words_of
from transforms.rows.ragged import indices_of, offsets_of

# The words of a shingle. A text that has fewer is one shingle.
WORDS = 5
ANSWERED = np.uint32(1 << 31)
_MIXER, _32, _33 = np.uint64(0xD6E8FEB86659FD93), np.uint64(32), np.uint64(33)


def shingles_of(texts: Sequence[tuple[bytes, bytes]]) -> tuple[np.ndarray, np.ndarray]:
    """Find the shingles of records.

    Args:
        texts: of each record what was asked and what was answered, both of `normalized`.

    Returns:
        uint32, shape (shingles,): the set of each record, sorted; int64, shape (records + 1,): where each begins.
    """
    pieces = [text for of_record in texts for text in of_record]
    found = words_of(b" ".join(pieces))
    before = np.searchsorted(found.starts, offsets_of(np.array([len(text) + 1 for text in pieces], np.int64)))
    words = np.diff(before)
    counts = np.maximum(words - (WORDS - 1), np.minimum(words, 1))
    begins = indices_of(before[:-1], counts)
    hashes = found.hashes(np.repeat(np.minimum(words, WORDS), counts), begins)
    hashes = (hashes ^ (hashes >> _32)) * _MIXER >> _33
    # The record, then whether it is answered, then the hash.
    keys = np.sort(np.repeat(np.arange(len(pieces), dtype=np.uint64) << np.uint64(31), counts) | hashes)
    keys = keys[np.diff(keys, prepend=~keys[:1]) != 0]
    offsets = np.searchsorted(keys, np.arange(len(texts) + 1, dtype=np.uint64) << _32)
    return keys.astype(np.uint32), offsets
