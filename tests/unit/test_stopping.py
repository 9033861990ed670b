"""A process that is stopped ends at once, whatever the store or the cluster does that it asks to clean up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from support.paths import ROOT
from support.processes import wait_until

PROGRAM = """
import subprocess, sys, time
from pipeline import stopping
from transforms.base.errors import Unavailable

stopping._SECONDS_TO_CANCEL = 1.0

def cancel():
    {cancel}

child = subprocess.Popen(["sleep", "600"])
with stopping.stopping_all_processes() as handle_signals:
    handle_signals(cancel, None)
    print(child.pid, flush=True)
    time.sleep(600)
"""


def stop(cancel: str) -> tuple[int, str]:
    """Stop a process, and wait until its child has ended as well. Returns its exit code and its message."""
    command = [sys.executable, "-c", PROGRAM.format(cancel=cancel)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        try:
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)  # a scheduler may send it again
            _, message = process.communicate(timeout=30)
            wait_until(lambda: not is_alive(child), seconds=30)
        finally:
            process.kill()
            if is_alive(child):
                psutil.Process(child).kill()
    return process.returncode, message


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cancel", "error"),
    [
        ("time.sleep(600)", "no answer within 1 seconds."),
        ("raise Unavailable('no cluster answers there.')", "no cluster answers there."),
    ],
)
def test_a_job_that_cannot_be_cancelled_in_time_is_named(cancel, error):
    assert stop(cancel) == (
        143, f"chatmill: stopped. Only this launcher: the job could not be cancelled: {error}\n"
    )  # fmt: skip
