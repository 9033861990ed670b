"""kill -9 of the launcher alone, while all workers work: no process is left, and the same command goes on at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from support.datasets import build_in_process, read_manifest, write_jsonl
from support.paths import ROOT, TOKENIZER
from support.signals import with_default_signals

# While there is the folder, it does not end, and no thread of the worker runs: it holds the interpreter. The launcher
# looks at the first records.
FORMATTER = """
import os, re
from pathlib import Path

def read(record):
    folder = Path({folder!r})
    if folder.exists() and int(record["prompt"]) >= 100:
        (folder / str(os.getpid())).touch()
        re.match(r"(a+)+$", "a" * 60 + "b")
    return record
"""
RECORDS = 2_000


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """The folder in which each worker that does not end makes a file of its id."""
    (tmp_path / "stuck").mkdir()
    return tmp_path / "stuck"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[str]]:
    (tmp_path / "in").mkdir()
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"prompt": f"{i}", "completion": "yes"} for i in range(RECORDS)])

    def command(*more: str) -> list[str]:
        options = [f"--input={tmp_path}/in", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"]
        return [*options, "--split_bytes=20000", "--direct_num_workers=2", *more]

    return command


def started_by(launcher: subprocess.Popen[str], stuck: Path) -> list[psutil.Process]:
    """All processes that a launcher has started, once two workers do not end."""
    deadline = time.monotonic() + 120
    while len([*stuck.iterdir()]) < 2:
        assert launcher.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    processes = psutil.Process(launcher.pid).children(recursive=True)
    assert {int(path.name) for path in stuck.iterdir()} <= {process.pid for process in processes}
    return processes


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs. One that has ended may be a zombie for as long as nobody asks for its exit code."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--append", "--every=1"]], ids=["build", "every"])
def test_no_process_is_left_and_the_same_command_goes_on_within_a_second(command, tmp_path, stuck, more, request):
    (tmp_path / "formatter.py").write_text(FORMATTER.format(folder=str(stuck)))
    options, output = command(f"--formatter={tmp_path}/formatter.py:read", *more), tmp_path / "out"
    program = [sys.executable, "-m", "pipeline", "build", *options]

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            program, cwd=ROOT, stdout=-1, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            preexec_fn=with_default_signals,
        )  # fmt: skip
        request.addfinalizer(lambda: kill_group(process.pid))
        return process

    launcher = start()
    started = started_by(launcher, stuck)
    assert (output / "_chatmill" / "lock").exists()
    launcher.kill()
    launcher.wait()
    deadline = time.monotonic() + 1
    while any(map(is_alive, started)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    shutil.rmtree(stuck)

    if not more:
        done = build_in_process(*options)
        shown, code = done.stdout + done.stderr, done.returncode
    else:
        again = start()
        while not (output / "manifest.json").exists():
            assert again.poll() is None
            time.sleep(0.1)
        again.send_signal(signal.SIGTERM)
        shown, _ = again.communicate(timeout=60)
        code = again.returncode
    assert code == 0, shown
    assert "is writing to it" not in shown and "waiting" not in shown
    assert "resuming: 0 of" in shown or "resuming" not in shown
    assert read_manifest(output)["records"]["kept"] == RECORDS
    assert not (output / "_chatmill" / "lock").exists() and not (output / "_chatmill" / "building").exists()


@pytest.mark.parametrize("seconds", [0, 0.8, 1.6, 2.4])
def test_no_process_is_left_if_the_launcher_is_killed_while_workers_are_started(command, tmp_path, seconds, request):
    (tmp_path / "formatter.py").write_text(FORMATTER.format(folder=str(tmp_path / "none")))
    program = [sys.executable, "-m", "pipeline", "build", *command(f"--formatter={tmp_path}/formatter.py:read")]
    launcher = subprocess.Popen(program, cwd=ROOT, stdout=-1, stderr=subprocess.STDOUT, start_new_session=True)
    request.addfinalizer(lambda: kill_group(launcher.pid))
    deadline = time.monotonic() + 60
    while not [each for each in psutil.Process(launcher.pid).children() if "forkserver" in " ".join(each.cmdline())]:
        assert launcher.poll() is None and time.monotonic() < deadline
    time.sleep(seconds)
    launcher.kill()
    launcher.communicate(timeout=30)  # until nobody holds its output
