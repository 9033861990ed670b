"""Arrivals: which of the files that are listed again and again have settled, and when they are worth an increment.

The time is given with each listing, and nothing is read: a test says what is listed when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from transforms.inputs.listing import InputFile
from transforms.storage.hub.urls import without_commit

Key = tuple[int, str]


class FoundFile(NamedTuple):
    """A file as a listing shows it.

    source: the number of the source that lists it. version: of listed_version. entry: what its store says of it.
    """

    source: int
    url: str
    bytes: int
    version: str
    entry: Mapping[str, Any]

    @property
    def key(self) -> Key:
        return self.source, without_commit(self.url)


class Arrival(NamedTuple):
    """A file that waits. since: when it was first seen as it is now."""

    file: FoundFile
    since: float


class Arrivals:
    """The files that wait for their increment.

    Args:
        settle: seconds for which the size and the version of a file have to stand still.
        min_records: how many records are worth an increment.
        max_delay: seconds after which fewer are, too.
    """

    def __init__(self, settle: float, min_records: int, max_delay: float):
        self._settle = settle
        self._min_records = min_records
        self._max_delay = max_delay
        self._waiting: dict[Key, Arrival] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def look(self, files: Mapping[Key, FoundFile], now: float) -> None:
        """Take note of a listing.

        Args:
            files: that are to be taken, and are not. Those that waited and are not listed now do not wait any more.
            now: the time of the listing, in seconds.
        """
        before = self._waiting
        self._waiting = {
            key: before[key] if key in before and before[key].file.version == file.version else Arrival(file, now)
            for key, file in files.items()
        }

    def drop(self, files: Iterable[InputFile]) -> None:
        """Let files that were committed wait no longer."""
        for file in files:
            self._waiting.pop(file.key, None)

    def due(self, now: float, bytes_per_record: float) -> list[Arrival]:
        """Return the files to take now, in the order of the listing: all that have settled, or none.

        Args:
            now: the time of the last listing.
            bytes_per_record: the mean of the dataset.
        """
        settled = [arrival for arrival in self._waiting.values() if now - arrival.since >= self._settle]
        records = sum(arrival.file.bytes for arrival in settled) / bytes_per_record
        oldest = min((arrival.since for arrival in settled), default=now)
        return settled if records >= self._min_records or now - oldest >= self._max_delay else []
