"""The temporary files of a run on this machine: in one folder, which is removed at its end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir

_PREFIX = "chatmill-run-"
# The path of a socket, which is in such a folder, has 107 bytes at most.
_LONG = 60


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Inside, temporary files of this process and of those that it starts are in a folder of their own.

    Yields:
        The path of the folder, which is removed at the end.
    """
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    if len(tempfile.gettempdir()) > _LONG:
        tempfile.tempdir = "/tmp"
    get_temp_dir()  # of multiprocessing, for all runs of this process
    tempfile.tempdir = before[0]
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before[0]
            os.environ.pop("TMPDIR")
            if before[1] is not None:
                os.environ["TMPDIR"] = before[1]


def remove_temporary_folder() -> None:
    """Remove the folder of this run, before its process ends without leaving `temporary_folder`."""
    folder = tempfile.gettempdir()
    if os.path.basename(folder).startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(get_temp_dir(), ignore_errors=True)
