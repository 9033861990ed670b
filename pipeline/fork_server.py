"""Python's fork server: a process that has loaded what workers need, and nothing else, from which they are forked.

It loads while the launcher prepares the job, which sends it the folder of the tokenizer as soon as there is one.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import msgspec

# The environment variable that gives the server the id of the launcher, and the path of the pipe from which it reads
# the arguments of pipeline.workers.load, as JSON.
GIVEN = "CHATMILL_FORK_SERVER"
pid: int | None = None  # of the server, in it and in its workers
_pipe: int | None = None  # open for both, so that neither side waits for the other to open it
_is_sent = False


def start() -> None:
    """Start the fork server, if this process has not started it. It need not be used."""
    global _pipe
    if _pipe is None:
        path = Path(tempfile.mkdtemp(), "pipe")  # in the folder of this run, which is removed at its end
        os.mkfifo(path)
        _pipe = os.open(path, os.O_RDWR)
        os.environ[GIVEN] = msgspec.json.encode((os.getpid(), str(path))).decode()
        multiprocessing.set_forkserver_preload(["pipeline.preloaded"])
    forkserver.ensure_running()


def send(*what: Any) -> None:
    """Send the server what to load, in the first run of this process. Workers of later ones load what they lack."""
    global _is_sent
    if _pipe is not None and not _is_sent:
        os.write(_pipe, msgspec.json.encode(what) + b"\n")
        _is_sent = True
