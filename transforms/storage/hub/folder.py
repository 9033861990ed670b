"""The folder in which the processes of one machine share what they know of the Hub, and what they downloaded."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from transforms.base.errors import UserError


def shared_folder() -> str:
    """Return the folder, which is made if it is not there: in that of temporary files, and for this user alone.

    A local build has a folder of temporary files of its own, and removes it at its end.

    Raises:
        UserError: if somebody else made it.
    """
    folder = os.path.join(tempfile.gettempdir(), f"chatmill-hub-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UserError(f"{folder}: another user made it. Remove it, or set TMPDIR to a folder of your own.")
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Inside, no other process of this machine has the lock of this name. It is free when its process ends."""
    lock = os.open(os.path.join(shared_folder(), f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
