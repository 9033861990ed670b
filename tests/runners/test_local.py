"""The workers of this machine, on which Beam's in-memory runner runs a build: their errors, and how they die."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.datasets import build_in_process, read_manifest, work_in, write_jsonl
from support.paths import CHATS, ROOT, TOKENIZER
from support.programs import PRISM, go_program, why_no_program

JOB = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=200000"]

# A worker waits at its first record until the other one has come, too. The launcher looks at the first records alone.
MEETING = """
import os, time
from pathlib import Path
import psutil

def meet(record):
    folder, end = Path({folder!r}), time.monotonic() + 60
    if int(record["prompt"]) >= 1000:
        (folder / str(os.getpid())).touch()
        while len([*folder.iterdir()]) < 2:
            if time.monotonic() > end:
                os._exit(9)
            time.sleep(0.01)
        for process in (psutil.Process(), *psutil.Process().parents()[:2]):
            assert not [each for each in process.net_connections("inet") if each.status == "LISTEN"]
    return record
"""


def test_as_many_tasks_run_at_once_as_there_are_workers_and_no_process_of_a_build_is_a_server(tmp_path):
    """That Beam's in-memory runner gives all tasks to the workers at once is no contract of Beam's."""
    (tmp_path / "workers").mkdir()
    (tmp_path / "formatter.py").write_text(MEETING.format(folder=f"{tmp_path}/workers"))
    write_jsonl(tmp_path / "in.jsonl", [{"prompt": f"{i}", "completion": "yes"} for i in range(2_000)])
    options = [f"--input={tmp_path}/in.jsonl", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"]
    options += [f"--formatter={tmp_path}/formatter.py:meet", "--direct_num_workers=2", "--split_bytes=10000"]
    done = build_in_process(*options)
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "workers").iterdir()]) == 2
    assert read_manifest(tmp_path / "out")["records"]["kept"] == 2_000


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


NO_FAILURE_FILES = """
import os, sys
replace = os.replace

def full(source, path):
    if "/failures/" in path:
        raise OSError(28, "No space left on device")
    replace(source, path)

os.replace = full
from pipeline import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def corrupt_file(tmp_path) -> Path:
    """A stream that is cut short, with a name like the end of a traceback."""
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


def test_error_of_a_worker_is_shown_once_and_is_in_a_file_for_launchers_elsewhere(corrupt_file):
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


def test_error_of_a_worker_on_this_machine_needs_no_file(corrupt_file):
    plain = corrupt_file.rename(corrupt_file.with_name("cut-short.jsonl.gz"))
    command = [sys.executable, "-c", NO_FAILURE_FILES, *options_for(plain)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert done.stderr.startswith(f"chatmill: {plain}: the gzip stream is corrupt or cut short")
    assert done.stderr.count("\n") == 1
    assert not [*(work_in(plain.parents[1] / "out") / "failures").iterdir()]


def test_error_of_a_worker_elsewhere_is_in_the_text_of_the_runner_if_there_is_no_file(corrupt_file):
    program = go_program(PRISM)
    if program is None:
        pytest.skip(why_no_program(PRISM))
    plain = corrupt_file.rename(corrupt_file.with_name("cut-short.jsonl.gz"))
    *options, _ = options_for(plain)
    runner = ["--runner=PrismRunner", f"--prism_location={program}"]
    command = [sys.executable, "-c", NO_FAILURE_FILES, *options, *runner]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()  # before it is what Prism says itself
    assert line.startswith(f"chatmill: {plain}: the gzip stream is corrupt or cut short") and "running" not in line


# Workers that die: the run ends at once, with one line that says how and at which record, and never with 0.

DYING = """
import glob, os, re, shutil, signal
def {name}(record):
    if glob.glob({job!r}):  # not while the job is planned
        {action}
    return record
"""


def options_of_dying(folder: Path, action: str = "pass", workers: int = 2) -> list[str]:
    """The options of a build whose formatter does something in a worker."""
    job = folder / "out" / "_chatmill" / "building" / "*" / "job.json"
    (folder / "formatter.py").write_text(DYING.format(name="f", job=str(job), action=action))
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={folder}/out", "--as_chat=true"]
    return [*options, f"--formatter={folder}/formatter.py:f", f"--direct_num_workers={workers}", "--split_bytes=60000"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("action", "how"),
    [("os._exit(0)", "ended by itself with exit code 0"), ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV")],
)
def test_worker_that_dies_is_reported_in_one_line_with_its_task_and_its_position(action, how, workers, tmp_path):
    done = build_in_process(*options_of_dying(tmp_path, action, workers), timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("chatmill: a worker ") and f"{how} in task " in done.stderr
    assert f", {CHATS}/" in done.stderr and ", from byte " in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(("how", "code"), [("os.abort()", -signal.SIGABRT), ("ctypes.string_at(0)", -signal.SIGSEGV)])
def test_formatter_that_crashes_while_the_job_is_planned_leaves_its_place_on_standard_error(how, code, tmp_path):
    options = options_of_dying(tmp_path)
    (tmp_path / "formatter.py").write_text(f"import ctypes, os\ndef f(record):\n    {how}\n")
    done = build_in_process(*options, timeout=120)
    assert done.returncode == code
    assert f'File "{tmp_path}/formatter.py", line 3 in f' in done.stderr


def test_worker_that_is_killed_before_it_has_work_ends_the_run(tmp_path):
    options = options_of_dying(tmp_path)
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
        done = build_in_process(*options_of_dying(tmp_path, remove, workers), timeout=120)
        assert done.returncode == 2, done.stderr
        assert (
            done.stderr == f"chatmill: {tmp_path}/out: it was removed during the build. Run the same command again.\n"
        )
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
