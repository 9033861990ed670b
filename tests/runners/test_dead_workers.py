"""Workers that die: the run ends at once, with one line that says how and at which record, and never with 0."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.datasets import build_in_process
from support.paths import CHATS, ROOT, TOKENIZER

FORMATTER = """
import glob, os, re, shutil, signal
def {name}(record):
    if glob.glob({job!r}):  # not while the job is planned
        {action}
    return record
"""


def options_for(folder: Path, action: str = "pass", workers: int = 2) -> list[str]:
    """The options of a build whose formatter does something in a worker."""
    job = folder / "out" / "_chatmill" / "building" / "*" / "job.json"
    (folder / "formatter.py").write_text(FORMATTER.format(name="f", job=str(job), action=action))
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={folder}/out", "--as_chat=true"]
    return [*options, f"--formatter={folder}/formatter.py:f", f"--direct_num_workers={workers}", "--split_bytes=60000"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("action", "how"),
    [("os._exit(0)", "ended by itself with exit code 0"), ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV")],
)
def test_worker_that_dies_is_reported_in_one_line_with_its_task_and_its_position(action, how, workers, tmp_path):
    done = build_in_process(*options_for(tmp_path, action, workers), timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("chatmill: a worker ") and f"{how} in task " in done.stderr
    assert f", {CHATS}/" in done.stderr and ", from byte " in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(("how", "code"), [("os.abort()", -signal.SIGABRT), ("ctypes.string_at(0)", -signal.SIGSEGV)])
def test_formatter_that_crashes_while_the_job_is_planned_leaves_its_place_on_standard_error(how, code, tmp_path):
    options = options_for(tmp_path)
    (tmp_path / "formatter.py").write_text(f"import ctypes, os\ndef f(record):\n    {how}\n")
    done = build_in_process(*options, timeout=120)
    assert done.returncode == code
    assert f'File "{tmp_path}/formatter.py", line 3 in f' in done.stderr


def test_worker_that_is_killed_before_it_has_work_ends_the_run(tmp_path):
    options = options_for(tmp_path)
    build = subprocess.Popen([sys.executable, "-m", "pipeline", *options], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        deadline, command = time.monotonic() + 60, psutil.Process(build.pid)
        while not (workers := [child for child in command.children(recursive=True) if child.ppid() != build.pid]):
            assert build.poll() is None and time.monotonic() < deadline
        workers[0].kill()
        _, err = build.communicate(timeout=60)
    finally:
        build.kill()
        build.wait()
    assert build.returncode == 1
    assert err.startswith("chatmill: a worker was ended"), err  # by what is not known of one that ends as it begins
    assert err.count("\n") == 1


def test_output_that_is_removed_during_the_build_is_reported_in_one_line(tmp_path):
    remove = f"shutil.rmtree({str(tmp_path / 'out')!r}, ignore_errors=True)"
    for workers in (1, 2):
        done = build_in_process(*options_for(tmp_path, remove, workers), timeout=120)
        assert done.returncode == 2, done.stderr
        assert (
            done.stderr == f"chatmill: {tmp_path}/out: it was removed during the build. Run the same command again.\n"
        )
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
