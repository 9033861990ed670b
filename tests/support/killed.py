"""Run a command in a process that ends, as if it were killed, before a certain change of the disk."""

from __future__ import annotations

import subprocess
import sys

from support.paths import ROOT

_KILLED = 137
_PROGRAM = f"""
import os, sys

left = int(sys.argv[1])

def counted(change):
    def counting(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os._exit({_KILLED})
        return change(*arguments, **options)
    return counting

for name in ("link", "replace", "remove", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))

from pipeline.cli import main

code = main(sys.argv[2:])
print("changes:", int(sys.argv[1]) - left)
sys.exit(code)
"""


def changes_of(*command: str) -> int:
    """Run a command. Return how many changes it made."""
    return int(_run(1 << 30, command).rpartition("changes: ")[2])


def kill_before(change: int, *command: str) -> None:
    """Run a command, and kill it before one of its changes, counted from 1."""
    _run(change, command, _KILLED)


def _run(change: int, command: tuple[str, ...], code: int = 0) -> str:
    program = [sys.executable, "-c", _PROGRAM, str(change), *command]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout
