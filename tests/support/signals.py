"""Signals that tests send to programs: those that started the tests may have changed what they do."""

from __future__ import annotations

import signal
import time
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
        while not all(_has_stopped(thread) for thread in Path(f"/proc/{process.pid}/task").glob("*/stat")):
            time.sleep(0.01)


def _has_stopped(stat: Path) -> bool:
    return stat.read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"Z", b"X")
