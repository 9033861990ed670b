"""Beam's local runner, if Beam lacks what our own workers need: the same bytes with Beam's workers."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from support.datasets import build_apart, digests
from support.places import CHATS, ROOT, TOKENIZER

JOB = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=200000"]

# A build in a Beam that does not have one of the internals.
OTHER_BEAM = """
import sys
from apache_beam.runners.portability.fn_api_runner import worker_handlers
del worker_handlers.GrpcWorkerHandler
from pipeline.cli import build
sys.exit(build(sys.argv[1:]))
"""


def build_with_other_beam(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", OTHER_BEAM, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def test_beams_own_workers_write_the_same_bytes_and_one_line_says_why_they_are_used(tmp_path):
    forked = build_apart(*JOB, f"--output={tmp_path}/forked", "--direct_num_workers=2")
    assert forked.returncode == 0, forked.stderr
    fallback = build_with_other_beam(*JOB, f"--output={tmp_path}/fallback", "--direct_num_workers=2")
    assert fallback.returncode == 0, fallback.stderr
    (warning,) = (
        line for line in fallback.stderr.splitlines() if " of 6 splits, " not in line
    )  # progress, if it is slow
    assert warning.startswith("chatmill: WARNING: Beam ")
    assert "has no apache_beam.runners.portability.fn_api_runner.worker_handlers.GrpcWorkerHandler" in warning
    assert digests(tmp_path / "fallback") == digests(tmp_path / "forked")


def test_one_worker_needs_no_internals_and_gives_no_warning(tmp_path):
    done = build_with_other_beam(*JOB, f"--output={tmp_path}/out", "--direct_num_workers=1")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_handler_of_thread_errors_is_restored_after_a_run():
    from pipeline.runners.local_workers import LocalWorkers

    before = threading.excepthook
    with pytest.raises(ZeroDivisionError), LocalWorkers(0, "fork").runner():
        assert threading.excepthook is not before
        raise ZeroDivisionError
    assert threading.excepthook is before
