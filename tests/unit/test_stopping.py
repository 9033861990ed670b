"""A process that is stopped ends at once, whatever the store or the cluster does that it asks to clean up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from support.paths import ROOT
from transforms.storage.processes import start_of_process

PROGRAM = """
import subprocess, sys, threading, time
from pathlib import Path
from pipeline.job import run
from transforms.base.errors import Unavailable
from transforms.storage.claim import Claim

run._SECONDS_TO_CANCEL = 1.0
held = threading.Lock()

class SlowClaim(Claim):
    def release(self):
        with held:  # as the client of a store waits for what the interrupted code holds
            super().release()
        {release}

def cancel():
    {cancel}

claim = SlowClaim(sys.argv[1] + "/claims", sys.argv[1])
claim.take()
child = subprocess.Popen(["sleep", "600"])
with run.stopping_all_processes(claim) as handle_signals:
    handle_signals({job}, None)
    {lock}
    print(child.pid, flush=True)
    time.sleep(600)
"""


def stop(folder, **code: str) -> tuple[int, str, float, bool]:
    """Stop a process. Returns its exit code, its message, how long it took, and whether its child is running."""
    program = PROGRAM.format(**{"release": "pass", "cancel": "pass", "job": "None", "lock": "pass"} | code)
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)  # a scheduler may send it again
            _, message = process.communicate(timeout=30)
        finally:
            seconds, is_running = time.monotonic() - began, start_of_process(child) is not None
            process.kill()
            if is_running:
                psutil.Process(child).kill()
    return process.returncode, message, seconds, is_running


def test_a_stopped_process_releases_its_claim(tmp_path):
    code, message, _, is_running = stop(tmp_path)
    assert (code, is_running) == (143, False)
    assert message == "chatmill: stopped. Run the same command again, without --overwrite, to go on from here.\n"
    assert not (tmp_path / "claims").exists()


@pytest.mark.parametrize(
    "code",
    [{"release": "time.sleep(600)"}, {"lock": "held.acquire()"}, {"release": "raise ValueError"}],
    ids=["slow", "locked", "fails"],
)
def test_a_stopped_process_ends_although_its_store_does_not_answer(tmp_path, code):
    exit_code, message, seconds, is_running = stop(tmp_path, **code)
    assert (exit_code, is_running) == (143, False) and seconds < 5
    assert message.startswith("chatmill: stopped. Run the same command again") and "Traceback" not in message


@pytest.mark.parametrize(
    ("cancel", "error"),
    [
        ("time.sleep(600)", "no answer within 1 seconds."),
        ("raise Unavailable('no cluster answers there.')", "no cluster answers there."),
    ],
)
def test_a_job_that_cannot_be_cancelled_in_time_keeps_the_claim(tmp_path, cancel, error):
    code, message, seconds, is_running = stop(tmp_path, cancel=cancel, job="cancel")
    assert (code, is_running) == (143, False) and seconds < 5
    assert message == f"chatmill: stopped. Only this launcher: the job could not be cancelled: {error}\n"
    assert (tmp_path / "claims" / "1.json").exists()
