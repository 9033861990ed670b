"""The index of near duplicates that each split writes: the shingles of its records, and the hashes of their bands.

The shingles are at the start of its file, so that the bytes of a set are known by the entry of any of its bands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transforms.exchange.judges import range_starts
from transforms.exchange.ranges import Range, read_ranges
from transforms.model.batches import RowSource
from transforms.rows.ragged import indices_of, joined, offsets_of
from transforms.similarity.minhash import band_hashes, bands_for

# Of a band of a record: its hash; a hash of the whole set; where the set is in the file, in numbers of 4 bytes, and how
# many shingles it has.
NEAR_ENTRY = np.dtype([("hash", "<u8"), ("set", "<u4"), ("at", "<u4"), ("size", "<u4")])
# Before the shingles of a record: its position in the split, and how many trained tokens it has.
_HEADER = np.dtype([("position", "<i8"), ("trained", "<i8")])
_UNIT = np.dtype("<u4")
_HEADER_UNITS = _HEADER.itemsize // _UNIT.itemsize
# Sets that are not further from each other are read by one request.
_GAP_UNITS = 1 << 16
_MIXER, _32 = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


class Sets(NamedTuple):
    """Records and their shingles.

    Attributes:
        positions, trained: int64, shape (records,): of each record in its split, and how many trained tokens it has.
        values: uint32, shape (shingles,).
        offsets: int64, shape (records + 1,): where the shingles of each record begin.
    """

    positions: np.ndarray
    trained: np.ndarray
    values: np.ndarray
    offsets: np.ndarray


class NearIndex:
    """Collects the records of a split, part by part.

    Args:
        similarity: of near duplicates.
    """

    def __init__(self, similarity: float):
        self._bands = bands_for(similarity)
        self._units = 0
        self._sets: list[bytes] = []
        self._entries: list[np.ndarray] = []

    def add(self, source: RowSource, trained_tokens: np.ndarray) -> None:
        """Add the records of a part, without those that have no shingles.

        Args:
            source: of its rows.
            trained_tokens: int64, shape (records,).
        """
        rows = source.first_rows()
        of_records = [source.shingles[row] for row in rows.tolist()] if source.shingles else []
        sizes = np.array([len(each) for each in of_records], np.int64) // _UNIT.itemsize
        some = np.flatnonzero(sizes)
        if not len(some):
            return
        headers = np.zeros(len(some), _HEADER)
        headers["position"], headers["trained"] = source.positions[rows[some]], trained_tokens[some]
        values, sizes = np.frombuffer(b"".join(of_records), _UNIT), sizes[some]
        offsets, begins = offsets_of(sizes), offsets_of(sizes + _HEADER_UNITS)
        units = np.empty(begins[-1], _UNIT)
        units[begins[:-1, None] + np.arange(_HEADER_UNITS)] = headers.view(_UNIT).reshape(len(some), -1)
        units[indices_of(begins[:-1] + _HEADER_UNITS, sizes)] = values
        entries = np.zeros((len(some), self._bands.bands), NEAR_ENTRY)
        entries["hash"] = band_hashes(values, offsets, self._bands)
        sums = np.add.reduceat(values.astype(np.uint64) * _MIXER, offsets[:-1])
        entries["set"] = ((sums ^ (sums >> _32)) * _MIXER >> _32).astype(np.uint32)[:, None]
        entries["at"], entries["size"] = self._units + begins[:-1, None], sizes[:, None]
        self._units += int(begins[-1])
        self._sets.append(units.tobytes())
        self._entries.append(entries.ravel())

    def content(self) -> tuple[bytes, bytes, list[int]]:
        """Return the bytes of the sets and of the entries, and the bytes at which each range of the entries begins and
        the last one ends.
        """
        every = joined(self._entries, NEAR_ENTRY)
        every = every[np.lexsort((every["at"], every["hash"]))]
        return b"".join(self._sets), every.tobytes(), range_starts(every["hash"], NEAR_ENTRY.itemsize)


def path_beside(path: str, split: int) -> str:
    """Return the path of the file of another split, from that of one. All of a build are by the same engine."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{split:07d}{name.lstrip('0123456789')}"


def read_sets(output: str, wanted: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> Sets:
    """Read records from the files of splits, side by side, and those that are close to each other by one request.

    Args:
        output: the folder of the dataset.
        wanted: the path of each file, and of each of the records in it, ascending, the fields `at` and `size`.

    Returns:
        The records, file after file.

    Raises:
        InputError: if a file is missing.
    """
    ranges, numbers, before = list[Range](), list[np.ndarray](), 0
    for path, at, sizes in wanted:
        begins, ends = at.astype(np.int64), at.astype(np.int64) + _HEADER_UNITS + sizes
        is_first = np.append(True, begins[1:] - ends[:-1] > _GAP_UNITS)
        firsts, stops = begins[is_first], ends[np.append(np.flatnonzero(is_first)[1:] - 1, len(ends) - 1)]
        ranges += [(path, first * 4, stop * 4) for first, stop in zip(firsts.tolist(), stops.tolist(), strict=True)]
        shift = (offsets_of(stops - firsts)[:-1] - firsts)[np.cumsum(is_first) - 1]
        numbers.append(begins + shift + before)
        before += int((stops - firsts).sum())
    units = np.frombuffer(b"".join(read_ranges(output, ranges)), _UNIT)
    begins, sizes = joined(numbers, np.int64), joined([each.astype(np.int64) for *_, each in wanted], np.int64)
    headers = units[begins[:, None] + np.arange(_HEADER_UNITS)].view(_HEADER).reshape(-1)
    return Sets(
        headers["position"], headers["trained"], units[indices_of(begins + _HEADER_UNITS, sizes)], offsets_of(sizes)
    )
