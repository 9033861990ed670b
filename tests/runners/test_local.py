"""Beam's local runner: its errors, and the same bytes if Beam lacks an internal that our workers need."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.datasets import build_in_process, digests, work_in
from support.paths import CHATS, ROOT, TOKENIZER

JOB = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=200000"]

# A build in a Beam that does not have one of the internals.
OTHER_BEAM = """
import sys
from apache_beam.runners.portability.fn_api_runner import worker_handlers
del worker_handlers.GrpcWorkerHandler
from pipeline import main
sys.exit(main(sys.argv[1:]))
"""


def build_with_other_beam(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", OTHER_BEAM, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def test_beams_own_workers_write_the_same_bytes_and_one_line_gives_the_reason(tmp_path):
    forked = build_in_process(*JOB, f"--output={tmp_path}/forked", "--direct_num_workers=2")
    assert forked.returncode == 0, forked.stderr
    fallback = build_with_other_beam(*JOB, f"--output={tmp_path}/fallback", "--direct_num_workers=2")
    assert fallback.returncode == 0, fallback.stderr
    (warning,) = (line for line in fallback.stderr.splitlines() if "warning" in line)
    assert warning.startswith("chatmill: warning: Beam ")
    assert "has no apache_beam.runners.portability.fn_api_runner.worker_handlers.GrpcWorkerHandler" in warning
    assert digests(tmp_path / "fallback") == digests(tmp_path / "forked")


def test_one_worker_needs_no_internals_and_gives_no_warning(tmp_path):
    done = build_with_other_beam(*JOB, f"--output={tmp_path}/out", "--direct_num_workers=1")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


def test_builds_in_one_process_follow_each_other_with_several_workers(tmp_path):
    """A fork would have the first build's idle threads in Beam's pool, and wait for them for ever."""
    arguments = [["build", *JOB, f"--output={tmp_path}/{name}", "--direct_num_workers=2"] for name in ("a", "b")]
    calls = "from pipeline import main\nif __name__ == '__main__':\n"
    calls += f"    print([main(a) for a in {arguments!r}])"
    script = tmp_path / "builds.py"
    script.write_text(calls)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and done.stdout.endswith("[0, 0]\n"), done.stderr
    assert digests(tmp_path / "a") == digests(tmp_path / "b")


def test_the_garbage_of_a_build_is_collected_in_the_process_that_goes_on(tmp_path):
    """What is frozen is never collected: each build froze the graph, and what was read, of the ones before it."""
    script = f"""
import gc
from pipeline import main
for name in "ab":
    assert main(["build", *{JOB!r}, f"--output={tmp_path}/{{name}}", "--direct_num_workers=1"]) == 0
    print("frozen", gc.get_freeze_count())
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    first, second = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("frozen ")]
    assert second <= first


def test_handler_of_thread_errors_is_restored_after_a_run():
    from pipeline.local.local_workers import LocalWorkers

    before = threading.excepthook
    with pytest.raises(ZeroDivisionError), LocalWorkers(0, "fork", "").runner():
        assert threading.excepthook is not before
        raise ZeroDivisionError
    assert threading.excepthook is before


NO_FAILURE_FILES = """
import sys
import transforms.steps.failures
transforms.steps.failures.write_atomically = None
from pipeline import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def corrupt_file(tmp_path) -> Path:
    """A stream that is cut short. A regular expression could take its name for the end of a traceback."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    shutil.copy(CHATS / "arithmetic.jsonl", folder / "a.jsonl")  # the launcher itself reads the first file's beginning
    file = folder / "cut\n\nshort [while running it].jsonl.gz"
    # Its first bytes are whole: the launcher looks at those of each file.
    file.write_bytes(gzip.compress((CHATS / "arithmetic.jsonl").read_bytes() * 100)[:-100])
    return file


def options_for(corrupt_file: Path) -> list[str]:
    output = f"--output={corrupt_file.parents[1]}/out"
    inputs = f"--input={corrupt_file.parent}"
    return [inputs, f"--tokenizer={TOKENIZER}", output, "--as_chat=true", "--direct_num_workers=2"]


def test_error_of_a_worker_is_read_from_its_file_and_shown_once(corrupt_file):
    done = build_in_process(*options_for(corrupt_file))
    assert done.returncode == 1
    assert done.stderr.startswith(f"chatmill: {corrupt_file}: the gzip stream is corrupt or cut short")
    assert done.stderr.count("chatmill: ") == 1 and "Traceback" not in done.stderr
    failures = work_in(corrupt_file.parents[1] / "out") / "failures"
    (failure,) = (json.loads(file.read_text()) for file in failures.iterdir())
    assert failure["kind"] == "InputError" and done.stderr == f"chatmill: {failure['message']}\n"


def test_next_run_removes_the_failures_of_the_previous_run(corrupt_file):
    assert build_in_process(*options_for(corrupt_file)).returncode == 1
    failures = work_in(corrupt_file.parents[1] / "out") / "failures"
    (earlier,) = failures.iterdir()
    earlier.rename(failures / "earlier.json")
    assert build_in_process(*options_for(corrupt_file)).returncode == 1
    (later,) = failures.iterdir()
    assert later.name != "earlier.json"


def test_error_of_a_worker_is_found_in_the_traceback_if_there_is_no_file(corrupt_file):
    plain = corrupt_file.rename(corrupt_file.with_name("cut-short.jsonl.gz"))
    command = [sys.executable, "-c", NO_FAILURE_FILES, *options_for(plain)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert done.stderr.startswith(f"chatmill: {plain}: the gzip stream is corrupt or cut short")
    assert done.stderr.count("\n") == 1
    assert not (work_in(plain.parents[1] / "out") / "failures").exists()


def test_beams_own_worker_also_reports_its_error_by_a_file(corrupt_file):
    done = build_with_other_beam(*options_for(corrupt_file))
    assert done.returncode == 1
    shown = done.stderr[done.stderr.rindex("chatmill: ") :]  # after the tracebacks that Beam's worker prints
    assert shown.startswith(f"chatmill: {corrupt_file}: the gzip stream is corrupt or cut short")
