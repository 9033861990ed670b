"""Ranges: a store's file, read by byte ranges that are complete and, if the store can, all of one version."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from typing import Any

from transforms.storage.retries import with_retries


class RangeReader(io.RawIOBase):
    """Reads a store's file by byte ranges, and checks that each is complete.

    Args:
        url: of the file, for errors.
        entry: what the store says of the file, as fsspec's `info` returns it.
        read_range: reads the bytes from a start to a stop.
        is_pinned: whether it reads no other version than that of the entry.
    """

    def __init__(self, url: str, entry: Mapping[str, Any], read_range: Callable[[int, int], bytes], is_pinned: bool):
        self.entry, self.is_pinned = entry, is_pinned
        self._url, self._read_range, self._position = url, read_range, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self.entry["size"])[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        return self._read(self.entry["size"])  # in one request; RawIOBase.readall makes one for each 8 KiB

    def _read(self, size: int) -> bytes:
        start, stop = self._position, min(self._position + size, self.entry["size"])
        if stop <= start:
            return b""
        content = _read_range(self._url, self._read_range, start, stop)
        self._position = stop
        return content


def range_reader(url: str, system: Any, path: str) -> RangeReader:
    """Return the reader of a file in a store that fsspec opens, which asks the store once for what it says of it.

    s3fs and gcsfs notice a connection that ends early, but not an answer that holds less than the requested range.
    """
    if "gs" in system.protocol:  # gcsfs's own file does not name the generation in its requests
        entry = system.info(path)
        read = functools.partial(system.cat_file, path, generation=entry["generation"])
        return RangeReader(url, entry, read, is_pinned=True)
    file = system.open(path, "rb", cache_type="none")
    entry = getattr(file, "details", None) or system.info(path)
    is_pinned = "IfMatch" in getattr(file, "read_kw", {})  # of s3fs's own file

    def read_range(start: int, stop: int) -> bytes:
        file.seek(start)
        return file.read(stop - start)

    return RangeReader(url, entry, read_range, is_pinned)


@with_retries("read")
def _read_range(url: str, read: Callable[[int, int], bytes], start: int, stop: int) -> bytes:
    return complete(read(start, stop), start, stop - start)


def complete(content: bytes, start: int, size: int) -> bytes:
    """Return the content of a range.

    Raises ConnectionError, with which it is read again, if it is not all of it; ValueError if it is more.
    """
    if len(content) > size:
        raise ValueError("its server does not give parts of files: copy it to a disk or a bucket")
    if len(content) < size:
        raise ConnectionError(f"the store returned {len(content)} bytes of the {size} from byte {start}")
    return content
