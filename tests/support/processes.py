"""Commands in processes of their own, which tests wait for, signal and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from support.paths import ROOT

_SENT = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGVTALRM)


def with_default_signals() -> None:
    """Undo what a program would inherit: the preexec_fn of one that a test signals.

    nohup ignores SIGHUP, a shell SIGINT in its background jobs, and child processes inherit that.
    """
    for number in _SENT:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SENT)


def start(*options: object, log: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start a command in a session of its own. log: the file that gets what it prints; if none, stderr is a pipe."""
    out, err = (log.open("w"), subprocess.STDOUT) if log else (subprocess.DEVNULL, subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", *map(str, options)], cwd=ROOT, stdout=out, stderr=err, text=True,
        start_new_session=True, preexec_fn=with_default_signals, env=os.environ | environment,
    )  # fmt: skip


@contextmanager
def running_command(*options: object, log: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command that runs meanwhile. In the end it and what it started are killed, if they still run."""
    process = start(*options, log=log)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[str] | None = None, seconds: float = 120
) -> None:
    """Wait until something holds, while a process runs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(process: subprocess.Popen[str]) -> None:
    """End a process that stops after what it is doing."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def start_and_wait_for_receipts(
    options: Sequence[str], output: Path, count: int, **environment: str
) -> subprocess.Popen[str]:
    """Start a build by two workers, and wait until it has written some receipts."""
    build = start(*options, f"--output={output}", "--direct_num_workers=2", **environment)
    wait_until(lambda: len([*output.glob("_chatmill/building/*/receipts/*.json")]) >= count, build)
    return build


def wait_until_stopped(pid: int) -> None:
    """Wait until a process and those that it started have stopped, after SIGSTOP: each thread ends its system call."""
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        wait_until(lambda of=process.pid: {*_states(of)} <= {b"T", b"Z", b"X"})


def wait_until_zombie(pid: int) -> None:
    """Wait until all threads of a process that was killed have ended, and so its locks are released."""
    wait_until(lambda: _states(pid) == [b"Z"])


def _states(pid: int) -> list[bytes]:
    """The state of each thread of a process."""
    found = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it has ended since
            found.append(stat.read_bytes().rpartition(b")")[2].split()[0])
    return found
