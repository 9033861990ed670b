"""The folder in which the processes of one machine share what they know of the Hub, and what they downloaded.

It is removed when the last process that uses it ends. What killed processes leave, a later one removes.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from transforms.base.errors import UserError

_USERS = "users.lock"


def shared_folder() -> str:
    """Return the folder, which is made if it is not there: in that of temporary files, and for this user alone.

    Raises:
        UserError: if somebody else made it.
    """
    folder = os.path.join(tempfile.gettempdir(), f"chatmill-hub-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{folder}: another user made it. Remove it, or set TMPDIR to a folder of your own.")
    _use(folder)
    return folder


@functools.cache
def _use(folder: str) -> None:
    """Hold the folder, and leave it when this process ends."""
    lock = os.open(os.path.join(folder, _USERS), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    atexit.register(_leave, folder, lock)


def _leave(folder: str, lock: int) -> None:
    """Remove the folder if no other process holds it; a process that was forked from another has the same lock."""
    with suppress(OSError):
        os.close(lock)
        others = os.open(os.path.join(folder, _USERS), os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(others, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(others)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Inside, no other process of this machine has the lock of this name. It is free when its process ends."""
    lock = os.open(os.path.join(shared_folder(), f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
