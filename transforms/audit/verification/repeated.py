"""Find records that are in a dataset twice, by the hashes of their sources and positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from transforms.audit.verification.row_check import Checked, Fault


def repeated_faults(shards: Sequence[tuple[str, int, Checked]], has_several: bool) -> Iterator[Fault]:
    """Yield the shards with records that an earlier shard, or an earlier row, has already.

    Args:
        shards: of each its path, the number of its source, since two sources may read the same files, and its rows.
        has_several: whether a record may have several examples. They are in one shard.
    """
    parts = []
    for number, (_, source, checked) in enumerate(shards):
        if checked.records:
            hashes, rows = (np.concatenate(arrays) for arrays in zip(*checked.records, strict=True))
            if has_several:
                hashes, first = np.unique(hashes, return_index=True)
                rows = rows[first]
            parts.append((hashes + np.uint64(source), rows, np.full(len(hashes), number, np.int32)))
    if not parts:
        return
    hashes, rows, numbers = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")
    repeated = np.flatnonzero(np.diff(hashes[order]) == 0)
    firsts, again = order[repeated], order[repeated + 1]
    for number in np.unique(numbers[again]):
        is_here = numbers[again] == number
        before = firsts[is_here][0]
        problem = f"its record is in row {rows[before]:,} of {shards[numbers[before]][0]} already"
        yield Fault.of_rows(shards[number][0], problem, rows[again[is_here]])
