"""The temporary files of a run on this machine: in one folder, which is removed at its end, or by a later run.

A run locks its folder (flock), so that another one knows whether it is still in use: also one in another container,
whose process ids say nothing here. The name has the boot of the machine: of a disk that several machines share, not all
may see the locks. A folder that cannot be known to be left stays.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transforms.base.errors import Unavailable
from transforms.storage.processes import this_boot

_FOLDER = re.compile(r"chatmill-[0-9a-f]{16}-\w+")


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Inside, temporary files of this process and of those that it starts are in a folder of their own.

    It is removed at the end, and so are the folders of runs that were killed.

    Yields:
        The path of the folder.

    Raises:
        Unavailable: if something failed inside, and somebody has removed the folder.
    """
    prefix = f"chatmill-{hashlib.sha256(this_boot().encode()).hexdigest()[:16]}-"
    _remove_left(prefix)
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    folder, lock = _locked_folder(prefix)
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield folder
    except Exception:
        if os.path.isdir(folder):
            raise
        raise Unavailable(
            f"{folder}: something removed this folder of temporary files while it was in use. Run the same command "
            "again; if a clean-up of temporary files does that, set TMPDIR to another folder."
        ) from None
    finally:
        tempfile.tempdir = before[0]
        os.environ.pop("TMPDIR")
        if before[1] is not None:
            os.environ["TMPDIR"] = before[1]
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_temporary_folder() -> None:
    """Remove the folder of this run, before its process ends without leaving `temporary_folder`."""
    folder = Path(tempfile.gettempdir())
    if _FOLDER.fullmatch(folder.name):
        shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(prefix: str) -> tuple[str, int]:
    """Make a folder and lock it: its path, and the descriptor that holds the lock until the process ends."""
    while True:
        folder = tempfile.mkdtemp(prefix=prefix)
        with suppress(FileNotFoundError):  # another run found it before it was locked, and removed it
            lock = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # a disk without locks, where no run removes the folder of another one
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.isdir(folder):
                return folder, lock
            os.close(lock)


def _remove_left(prefix: str) -> None:
    """Remove the folders that nobody has locked."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # somebody else has removed it, or has a lock on it
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
