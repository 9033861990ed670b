"""Ranges: a store's file, read by byte ranges that are complete and, if the store can, all of one version."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

from transforms.storage.retries import with_retries


class RangeReader(io.RawIOBase):
    """Reads a store's file by byte ranges, and checks that each is complete.

    s3fs and gcsfs notice a connection that ends early, but not an answer that holds less than the requested range.

    Args:
        url: of the file, for errors.
        system: the file system of the store.
        path: of the file in it.

    Attributes:
        entry: what the store says of the file, as fsspec's `info` returns it. It is asked once.
        is_pinned: whether each request names that version, so that the store answers with no other.
    """

    def __init__(self, url: str, system: Any, path: str):
        self._url = url
        self._position = 0
        self._file: Any = None
        self._read_range: Callable[[int, int], bytes] = self._read_file
        if "http" in system.protocol:
            self.entry = system.info(path)
            etag = self.entry.get("ETag", "")
            self.is_pinned = etag.startswith('"')  # a weak one matches no condition
            headers = system.kwargs.get("headers", {}) | ({"If-Match": etag} if self.is_pinned else {})
            self._file = system.open(path, "rb", cache_type="none", size=self.entry["size"], headers=headers)
        elif "gs" in system.protocol:  # gcsfs's own file does not name the generation in its requests
            self.entry = system.info(path)
            self.is_pinned = True
            self._read_range = functools.partial(system.cat_file, path, generation=self.entry["generation"])
        else:
            self._file = system.open(path, "rb", cache_type="none")
            self.entry = getattr(self._file, "details", None) or system.info(path)
            self.is_pinned = "IfMatch" in getattr(self._file, "read_kw", {})  # of s3fs's own file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.entry["size"]}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        return self._read(self.entry["size"])  # in one request; RawIOBase.readall makes one for each 8 KiB

    def _read(self, size: int) -> bytes:
        stop = min(self._position + size, self.entry["size"])
        content = _read_range(self._url, self._read_range, self._position, stop) if stop > self._position else b""
        self._position += len(content)
        return content

    def _read_file(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        return self._file.read(stop - start)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


@with_retries("read")
def _read_range(url: str, read: Callable[[int, int], bytes], start: int, stop: int) -> bytes:
    return complete(read(start, stop), start, stop - start)


def complete(content: bytes, start: int, size: int) -> bytes:
    """Return the content of a range. Raises ConnectionError, with which it is read again, if it is not all of it."""
    if len(content) != size:
        raise ConnectionError(f"the store returned {len(content)} bytes of the {size} from byte {start}")
    return content
