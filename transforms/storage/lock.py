"""The lock of a dataset's folder: on a disk, one process at a time writes to it.

It is flock(2), so the system releases it when the process ends, however that ends. A bucket has none, and a disk may
have none: then the versions decide, and who commits second fails.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from posixpath import dirname

from fsspec.implementations.local import LocalFileSystem

from transforms.base.errors import ParameterError
from transforms.storage.files import file_system
from transforms.storage.retries import store_errors
from transforms.storage.writing import creates_exclusively, make_folder, remove_if_empty

# The descriptors of this process. A fork has copies, and the lock would last for as long as one of them is open.
_held: set[int] = set()


def _close_in_fork() -> None:
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_close_in_fork)


@contextmanager
def locked(url: str, output: str, when_held: Callable[[str], None] | None = None) -> Iterator[bool]:
    """Lock a folder inside, if its store has locks. No process that this one starts holds the lock.

    Args:
        url: of the lock's file, which is there while the lock is held.
        output: the folder that is locked, as errors name it.
        when_held: is called if another process holds it, with what is known of that; then this waits.

    Yields:
        Whether another process held it until now.

    Raises:
        ParameterError: if another process holds it, and this does not wait; or if versions on this store cannot decide.
        StoreError: if the file cannot be written.
    """
    system, path = file_system(url)
    if not isinstance(system, LocalFileSystem):
        if not creates_exclusively(url):
            problem = "its store cannot create a file only if there is none, so that two builds might write to it"
            raise ParameterError("output", output, f"{problem}. Expected a disk, or a store that can: s3:// or gs://.")
        yield False
        return
    descriptor, was_held = _lock(url, path, output, when_held)
    try:
        yield was_held
    finally:
        if descriptor in _held:  # not in a fork
            if _is_at(path, descriptor):  # not if the folder was removed
                os.remove(path)
                remove_if_empty(dirname(path))
            _held.remove(descriptor)
            os.close(descriptor)


def _lock(url: str, path: str, output: str, when_held: Callable[[str], None] | None) -> tuple[int, bool]:
    """Return the descriptor of the file when it is locked, or -1 if the disk has no locks; and whether it was held."""
    was_held = False
    while True:
        with store_errors(url, "written"):
            make_folder(dirname(path))
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 1_000, 0).decode(errors="replace") or "another process"
            if when_held is None:
                os.close(descriptor)
                problem = f"another run is writing to it: {owner}. Wait until it has ended, or give another folder."
                raise ParameterError("output", output, problem) from None
            if not was_held:
                when_held(owner)
            was_held = True
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            return -1, was_held
        if _is_at(path, descriptor):
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}, since {now}".encode(), 0)
            _held.add(descriptor)
            return descriptor, was_held
        os.close(descriptor)  # who held it has removed it


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
