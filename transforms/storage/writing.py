"""Writing files at any url that fsspec opens: completely or not at all, so that they survive a power cut.

StoreError is raised if the store, which may be a disk, refuses or fails for good.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import re
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from transforms.base.errors import StoreError
from transforms.storage.files import exists, file_system
from transforms.storage.retries import RETRYING, store_errors, url_protocol, with_retries

# For so long after its newest file was written, a build may be alive.
SECONDS_ALIVE = 86_400.0
# Of a file that does not have its final name yet.
_ATTEMPT = re.compile(r".+\.[0-9a-f]{32}")


@with_retries("written")
def write_atomically(url: str, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it, and that it survives a power cut.

    Object stores do so by themselves; on a disk a file is synced, renamed, and its folder synced.
    """
    system, path = file_system(url)
    if not isinstance(system, LocalFileSystem):
        system.pipe_file(path, content)
        return
    with _attempt(path, content) as attempt:
        os.replace(attempt, path)
        _sync_folder(posixpath.dirname(path))


@with_retries("written")
def create(url: str, content: bytes) -> bool:
    """Create a file, if there is none, so that no reader ever sees a part of it. Return whether it was created.

    If a store's answer was lost and its client tried again, this may be False although it was: the content shows it.
    """
    system, path = file_system(url)
    if not isinstance(system, LocalFileSystem):
        try:
            system.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        return True
    # If it exists, or the folder was removed in between.
    with _attempt(path, content) as attempt, suppress(FileExistsError, FileNotFoundError):
        try:
            os.link(attempt, path)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:
            with open(path, "xb") as file:  # a disk without links, where a kill now leaves a part of the file
                _write_synced(file, content)
        _sync_folder(posixpath.dirname(path))
        return True
    return False


@contextmanager
def _attempt(path: str, content: bytes) -> Iterator[str]:
    """Write a file next to a path, yield its name, and remove it in the end if it still has this name."""
    file = _open_attempt(path)
    try:
        with file:
            _write_synced(file, content)
        yield file.name
    finally:
        with suppress(OSError):
            os.remove(file.name)


def _open_attempt(path: str) -> Any:
    """Open a file next to a path, in a folder that is made, also if another process removes this while it is empty."""
    for _ in range(3):
        with suppress(FileNotFoundError):
            make_folder(posixpath.dirname(path))
            return open(f"{path}.{uuid.uuid4().hex}", "wb")  # remove_attempts knows these names
    raise StoreError(path, "written", "its folder cannot be made", is_transient=False)


def _write_synced(file: Any, content: bytes = b"") -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


# Stores whose clients create an object only if there is none. fsspec's default for others first looks, and then writes.
_CREATES_EXCLUSIVELY = {"s3", "s3a", "gs", "gcs", "memory"}


def creates_exclusively(url: str) -> bool:
    """Return whether a store creates a file only if there is none, and its server does, as a trial next to it shows."""
    if url_protocol(url) not in _CREATES_EXCLUSIVELY:
        return False
    trial = f"{url}.{uuid.uuid4().hex}"
    create(trial, b"")
    is_exclusive = not create(trial, b"")
    remove(trial)
    return is_exclusive


class NewFile(io.RawIOBase):
    """A file that is written piece by piece, and has its name when it is complete: no reader ever sees a part of it.

    What a store gets is written to a temporary file on this machine first: so the upload can be repeated as a whole,
    and memory is bounded. On a disk a file is renamed when it is complete, and replaces one of the same name.

    Attributes:
        bytes: how many were written.
        sha256: of what was written, in hexadecimal, if it is complete.
    """

    def __init__(self, url: str):
        self.bytes, self.sha256 = 0, ""
        self._digest = hashlib.sha256()
        self._url = url
        self._system, self._path = file_system(url)
        self._is_local = isinstance(self._system, LocalFileSystem)
        with store_errors(url, "written"):
            self._file = _open_attempt(self._path) if self._is_local else tempfile.NamedTemporaryFile()  # noqa: SIM115

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._digest.update(content)
        with store_errors(self._url, "written"):
            written = self._file.write(content)
        self.bytes += written
        return written

    def complete(self) -> None:
        """Close the file, which is there from now on."""
        self.sha256 = self._digest.hexdigest()
        with store_errors(self._url, "written"), self._file:
            if self._is_local:
                _write_synced(self._file)
                os.replace(self._file.name, self._path)
                _sync_folder(posixpath.dirname(self._path))
            else:
                self._file.flush()
                RETRYING(self._system.put_file, self._file.name, self._path)
        self.close()


def _sync_folder(path: str) -> None:
    with suppress(OSError):  # some file systems cannot do it
        folder = os.open(path or ".", os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def make_folder(path: str) -> None:
    """Make a folder with those above it, if they do not exist, so that they survive a power cut."""
    if path and not os.path.isdir(path):
        parent = posixpath.dirname(path)
        make_folder(parent)
        os.makedirs(path, exist_ok=True)
        _sync_folder(parent)


@with_retries("removed")
def remove(url: str) -> None:
    """Remove a file, or a folder with all that is in it, if it exists."""
    system, path = file_system(url)
    with suppress(FileNotFoundError, NotADirectoryError):  # or an earlier attempt removed it, and its answer was lost
        system.rm(path, recursive=True)
    if exists(url):  # s3fs does not report files that it could not remove
        raise ConnectionError("some of it still exists")


def remove_if_empty(folder: str) -> None:
    """Remove a folder of a disk if it is empty. Stores have no folders."""
    system, path = file_system(folder)
    if isinstance(system, LocalFileSystem):
        with suppress(OSError):
            os.rmdir(path)


@with_retries("removed")
def remove_attempts(folder: str) -> None:
    """Remove what killed processes left of files that were being written, in a folder of a disk and those in it.

    Those that are younger than a day stay: somebody may be writing them.
    """
    system, path = file_system(folder)
    for parent, _, names in os.walk(path) if isinstance(system, LocalFileSystem) else ():
        for attempt in (posixpath.join(parent, name) for name in names if _ATTEMPT.fullmatch(name)):
            with suppress(FileNotFoundError):
                if os.stat(attempt).st_mtime < time.time() - SECONDS_ALIVE:
                    os.remove(attempt)
