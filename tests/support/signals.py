"""Signals that tests send to programs: those that started the tests may have changed what they do."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

_SENT = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGVTALRM)


def with_default_signals() -> None:
    """Undo what a program would inherit: the preexec_fn of one that a test signals.

    nohup ignores SIGHUP, a shell SIGINT in its background jobs, and child processes inherit that.
    """
    for number in _SENT:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SENT)


def wait_until_stopped(pid: int) -> None:
    """Wait until a process and those that it started have stopped, after SIGSTOP: each thread ends its system call."""
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        while not {*_states(process.pid)} <= {b"T", b"Z", b"X"}:
            time.sleep(0.01)


def wait_until_zombie(pid: int) -> None:
    """Wait until all threads of a process that was killed have ended, and so its locks are released."""
    while _states(pid) != [b"Z"]:
        time.sleep(0.01)


def _states(pid: int) -> list[bytes]:
    """The state of each thread of a process."""
    found = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it has ended since
            found.append(stat.read_bytes().rpartition(b")")[2].split()[0])
    return found
