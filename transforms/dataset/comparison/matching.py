"""Matches the entries of two datasets by a key, in bounded memory: entries are kept in files, and matched in parts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transforms.dataset.comparison.hashing import ENTRY, columns_of, mixed

# Entries of both datasets that are matched at once: some 300 MB. Of hundreds of millions more, since parts are files.
_AT_ONCE, _MOST_PARTS = 1 << 20, 256


class EntryFile:
    """Entries in a temporary file, in the order in which they were added."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="chatmill-")  # noqa: SIM115, closed with this object
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, entries: np.ndarray) -> None:
        """Add entries: ENTRY, shape (any,)."""
        self._file.write(entries.tobytes())
        self._count += len(entries)

    def parts(self) -> Iterator[np.ndarray]:
        """Read all entries, in parts."""
        self._file.seek(0)
        while content := self._file.read((_AT_ONCE >> 2) * ENTRY.itemsize):
            yield np.frombuffer(content, ENTRY)

    def all(self) -> np.ndarray:
        """Read all entries at once."""
        self._file.seek(0)
        return np.frombuffer(self._file.read(), ENTRY)


@dataclass(frozen=True)
class Matched:
    """Entries of two datasets that have the same key, in pairs, and the others of each.

    Attributes:
        a, b: ENTRY, shape (pairs,).
        rest_a, rest_b: ENTRY, shape (any,).
    """

    a: np.ndarray
    b: np.ndarray
    rest_a: np.ndarray
    rest_b: np.ndarray


def match(a: EntryFile, b: EntryFile, fields: Sequence[str]) -> Iterator[Matched]:
    """Match entries of two datasets.

    Args:
        a, b: the entries.
        fields: those that entries of a pair have in common, the key. Entries in which the first of them is 0 have none.

    Yields:
        The entries of a part of the keys. If several entries of a dataset have the same key, they are matched in order,
        as often as the other dataset has it.
    """
    parts = min(-(-(len(a) + len(b)) // _AT_ONCE), _MOST_PARTS)
    if parts <= 1:
        yield _matched(a.all(), b.all(), fields)
        return
    for of_a, of_b in zip(*(_partitioned(entries, fields, parts) for entries in (a, b)), strict=True):
        yield _matched(of_a.all(), of_b.all(), fields)


def _partitioned(entries: EntryFile, fields: Sequence[str], parts: int) -> list[EntryFile]:
    files = [EntryFile() for _ in range(parts)]
    for part in entries.parts():
        number = mixed(_keys(part, fields)[0]) % np.uint64(parts)
        for i, file in enumerate(files):
            file.add(part[number == i])
    return files


def _keys(entries: np.ndarray, fields: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Two hashes of the key of each entry: uint64, shape (entries,)."""
    keys = np.zeros((2, len(entries)), np.uint64)
    for name in fields:
        for column in columns_of(entries, name):
            keys[0] = mixed(keys[0] ^ column)
            keys[1] = mixed(keys[1] + column)
    return keys[0], keys[1]


def _matched(a: np.ndarray, b: np.ndarray, fields: Sequence[str]) -> Matched:
    keys = [np.concatenate(of_both) for of_both in zip(_keys(a, fields), _keys(b, fields), strict=True)]
    order = np.lexsort(keys[::-1])  # stable: of equal keys, those of a come first, each in order
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[0][order][1:] != keys[0][order][:-1]) | (keys[1][order][1:] != keys[1][order][:-1])
    group = np.cumsum(begins) - 1
    is_a = order < len(a)
    first = np.flatnonzero(begins)
    of_a = np.bincount(group, is_a, len(first)).astype(np.int64)
    rank = np.arange(len(order)) - first[group]
    rank[~is_a] -= of_a[group[~is_a]]
    # The n-th of a key in a, and the n-th of it in b.
    of_b = np.diff(np.append(first, len(order))) - of_a
    paired = rank < np.minimum(of_a, of_b)[group]
    has_key = np.concatenate([np.logical_or.reduce(columns_of(side, fields[0])) for side in (a, b)])
    paired &= has_key[order]
    left, right = order[paired & is_a], order[paired & ~is_a] - len(a)
    rest_a, rest_b = np.sort(order[~paired & is_a]), np.sort(order[~paired & ~is_a]) - len(a)
    return Matched(a[left], b[right], a[rest_a], b[rest_b])
