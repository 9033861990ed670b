"""The temporary files of a run on this machine: in one folder, which is removed at its end, or by the next run."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transforms.storage.processes import is_running, start_of_process

_FOLDER = re.compile(r"chatmill-(\d+)-(\d+)-\w+")


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Inside, temporary files of this process and of those that it starts are in a folder of their own.

    It is removed at the end, and so are the folders of runs that were killed.

    Yields:
        The path of the folder.
    """
    for left in Path(tempfile.gettempdir()).glob("chatmill-*"):
        found = _FOLDER.fullmatch(left.name)
        if found and not is_running(int(found[1]), found[2]):
            shutil.rmtree(left, ignore_errors=True)
    pid, before = os.getpid(), (tempfile.tempdir, os.environ.get("TMPDIR"))
    folder = tempfile.mkdtemp(prefix=f"chatmill-{pid}-{start_of_process(pid)}-")
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield folder
    finally:
        tempfile.tempdir = before[0]
        os.environ.pop("TMPDIR")
        if before[1] is not None:
            os.environ["TMPDIR"] = before[1]
        shutil.rmtree(folder, ignore_errors=True)


def remove_temporary_folder() -> None:
    """Remove the folder of this run, before its process ends without leaving `temporary_folder`."""
    folder = Path(tempfile.gettempdir())
    if _FOLDER.fullmatch(folder.name):
        shutil.rmtree(folder, ignore_errors=True)
