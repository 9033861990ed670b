"""The lock of a dataset's folder: on a disk, one process at a time writes to it.

It is flock(2), so the system releases it when the process ends, however that ends. A bucket has none, and a disk may
have none: then the versions decide, and who commits second fails.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Callable
from datetime import datetime, timezone
from posixpath import dirname
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from transforms.base.errors import ParameterError
from transforms.storage.files import file_system
from transforms.storage.writing import check_exclusive_create, disk_errors, make_folder, remove_if_empty

# The descriptors of this process. A fork has copies, and the lock would last for as long as one of them is open.
_held: set[int] = set()


def _close_in_fork() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_fork)


class Lock:
    """The lock of a folder, which is released at the end of the context. No process that this one starts holds it.

    Args:
        url: of the lock's file, which is there while the lock is held.
        output: the folder that is locked, as errors name it.
    """

    def __init__(self, url: str, output: str):
        self._url = url
        system, self._path = file_system(url)
        self._has_lock = isinstance(system, LocalFileSystem)
        self._output = output
        self._descriptor: int | None = None

    def take(self, when_held: Callable[[str], None] | None = None) -> bool:
        """Lock the folder, if its store has locks.

        Args:
            when_held: is called if another process holds it, with what is known of that; then this waits.

        Returns:
            Whether another process held it until now.

        Raises:
            ParameterError: if another process holds it, and this does not wait; or as check_exclusive_create does.
            StoreError: if the file cannot be written.
        """
        was_held = False
        if not self._has_lock:
            check_exclusive_create(self._url, self._output)
        while self._has_lock and self._descriptor is None:
            with disk_errors(self._url):
                make_folder(dirname(self._path))
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(descriptor, 1_000, 0).decode(errors="replace") or "another process"
                if when_held is None:
                    os.close(descriptor)
                    problem = f"another run is writing to it: {owner}. Wait until it has ended, or give another folder."
                    raise ParameterError("output", self._output, problem) from None
                if not was_held:
                    when_held(owner)
                was_held = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:  # the disk has no locks
                os.close(descriptor)
                self._has_lock = False
                break
            if self._is_at_path(descriptor):
                now = datetime.now(timezone.utc).isoformat(timespec="seconds")
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}, since {now}".encode(), 0)
                self._descriptor = descriptor
                _held.add(descriptor)
            else:  # who held it has removed it
                os.close(descriptor)
        return was_held

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock, if this process holds it."""
        if self._descriptor in _held:
            if self._is_at_path(self._descriptor):  # not if the folder was removed
                os.remove(self._path)
                remove_if_empty(dirname(self._path))
            _held.remove(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()
