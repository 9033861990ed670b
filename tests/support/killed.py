"""Run a command in a process that is killed at a certain moment, or that a test kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support.paths import ROOT
from support.signals import with_default_signals

_KILLED = 137
_PROGRAM = f"""
import os, sys

left, part = int(sys.argv[1]), sys.argv[2]

def counted(change):
    def counting(*arguments, **options):
        global left
        left -= part in str(arguments)
        if left == 0:
            os._exit({_KILLED})
        return change(*arguments, **options)
    return counting

for name in ("link", "replace", "remove", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))

from pipeline import main

code = main(sys.argv[3:])
print("changes:", int(sys.argv[1]) - left)
sys.exit(code)
"""

_KILLED_AT = """
import importlib, os, sys
import pipeline.job.launch, pipeline.job.run
from pipeline import main

module, name, moment, *arguments = sys.argv[1:]
module = importlib.import_module(module)
function = getattr(module, name)

def last(*values, **named):
    if moment == "after":
        function(*values, **named)
    os.kill(os.getpid(), 9)

setattr(module, name, last)
main(["build", *arguments, "--direct_num_workers=1"])
"""


def changes_of(*command: str) -> int:
    """Run a command. Return how many changes of the disk it made."""
    done = _run(1 << 30, "", command)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.rpartition("changes: ")[2])


def kill_before(change: int, *command: str, of: str = "") -> bool:
    """Run a command, and kill it before one of its changes of the disk, counted from 1.

    of: only changes of paths that contain it are counted; the command may end before.

    Returns:
        Whether it was killed.
    """
    done = _run(change, of, command)
    assert done.returncode == _KILLED or (of and not done.returncode), done.stderr
    return done.returncode == _KILLED


def _run(change: int, of: str, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", _PROGRAM, str(change), of, *command]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)


def kill_at(module: str, name: str, moment: str, *options: str) -> None:
    """Build a dataset, and kill the build `before` or `after` its first call of a function, by one of its names."""
    program = [sys.executable, "-c", _KILLED_AT, module, name, moment, *options]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def kill_before_the_commit(*options: str) -> None:
    """Build a dataset by one worker, and kill the build when all is written, before its entry of the log."""
    assert kill_before(1, "build", *options, "--direct_num_workers=1", of="/_chatmill/log/")


def start_and_wait_for_receipts(
    options: Sequence[str], output: Path, count: int, **environment: str
) -> subprocess.Popen[str]:
    """Start a build by two workers in a new session, and wait until it has written some receipts."""
    build = subprocess.Popen(
        [sys.executable, "-m", "pipeline", *options, f"--output={output}", "--direct_num_workers=2"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=with_default_signals, env=os.environ | environment,
    )  # fmt: skip
    increments = output / "_chatmill" / "increments"
    deadline = time.monotonic() + 120
    while len(list(increments.glob("*/receipts/*.json"))) < count:
        assert build.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return build
