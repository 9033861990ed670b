"""Find records that are in a dataset twice, by the hashes of their sources and positions, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from transforms.dataset.verification.rows import Checked, Fault

_MOST_RECORDS = 16 << 20


class RepeatedRecords:
    """Finds records that are there twice.

    Of more than 16 Mi records it keeps a sample, by their hashes: what is found is a shard, or a share of one, that is
    there twice, and no longer each single record.

    Args:
        has_several: whether a record may have several examples. They are in one shard.
    """

    def __init__(self, has_several: bool):
        self._has_several = has_several
        self._paths: list[str] = []
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._count, self._sampled = 0, np.uint64(0)

    def add(self, path: str, checked: Checked, source: int = 0) -> None:
        """Add the records of a shard. source: the number of its source; two of them may read the same files."""
        if not checked.records:
            return
        hashes, rows = (np.concatenate(arrays) for arrays in zip(*checked.records, strict=True))
        if self._has_several:
            hashes, first = np.unique(hashes, return_index=True)
            rows = rows[first]
        hashes = hashes + np.uint64(source)
        self._parts.append(self._sample(hashes, rows, np.full(len(hashes), len(self._paths), np.int32)))
        self._count += len(self._parts[-1][0])
        self._paths.append(path)
        while self._count > _MOST_RECORDS:
            self._sampled = self._sampled * np.uint64(2) + np.uint64(1)
            self._parts = [self._sample(*part) for part in self._parts]
            self._count = sum(len(part[0]) for part in self._parts)

    def _sample(self, hashes: np.ndarray, rows: np.ndarray, shards: np.ndarray) -> tuple[np.ndarray, ...]:
        kept = (hashes >> np.uint64(32)) & self._sampled == 0
        return hashes[kept], rows[kept], shards[kept]

    def faults(self) -> Iterator[Fault]:
        """Yield the shards with records that an earlier shard, or an earlier row, has already."""
        if not self._parts:
            return
        hashes, rows, shards = (np.concatenate(arrays) for arrays in zip(*self._parts, strict=True))
        order = np.argsort(hashes, kind="stable")
        repeated = np.flatnonzero(np.diff(hashes[order]) == 0)
        firsts, again = order[repeated], order[repeated + 1]
        for shard in np.unique(shards[again]):
            here = again[shards[again] == shard]
            before = firsts[shards[again] == shard][0]
            problem = f"its record is in row {rows[before]:,} of {self._paths[shards[before]]} already"
            yield Fault.of_rows(self._paths[shard], problem, rows[here])
