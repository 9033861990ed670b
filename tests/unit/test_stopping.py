"""A process that is stopped ends at once, whatever the store or the cluster does that it asks to clean up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from support.paths import ROOT

PROGRAM = """
import subprocess, sys, time
from pipeline import stopping
from transforms.base.errors import Unavailable

stopping._SECONDS_TO_CANCEL = 1.0

def cancel():
    {cancel}

child = subprocess.Popen(["sleep", "600"])
with stopping.stopping_all_processes() as handle_signals:
    handle_signals({job}, None)
    print(child.pid, flush=True)
    time.sleep(600)
"""


def stop(**code: str) -> tuple[int, str, float, bool]:
    """Stop a process. Returns its exit code, its message, how long it took, and whether its child is running."""
    program = PROGRAM.format(**{"cancel": "pass", "job": "None"} | code)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)  # a scheduler may send it again
            _, message = process.communicate(timeout=30)
        finally:
            seconds, is_running = time.monotonic() - began, is_alive(child)
            process.kill()
            if is_running:
                psutil.Process(child).kill()
    return process.returncode, message, seconds, is_running


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
    code, message, seconds, is_running = stop(cancel=cancel, job="cancel")
    assert (code, is_running) == (143, False) and seconds < 5
    assert message == f"chatmill: stopped. Only this launcher: the job could not be cancelled: {error}\n"
