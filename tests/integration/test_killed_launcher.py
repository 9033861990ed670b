"""kill -9 of the launcher alone, while all workers work: no process is left, and the same command goes on at once."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.datasets import read_manifest, write_jsonl
from support.paths import TOKENIZER
from support.processes import end, running_command, wait_until

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
        return ["build", *options, "--split_bytes=20000", "--direct_num_workers=2", *more]

    return command


def started_by(launcher: subprocess.Popen[str], stuck: Path) -> list[psutil.Process]:
    """All processes that a launcher has started, once two workers do not end."""
    wait_until(lambda: len([*stuck.iterdir()]) == 2, launcher)
    processes = psutil.Process(launcher.pid).children(recursive=True)
    assert {int(path.name) for path in stuck.iterdir()} <= {process.pid for process in processes}
    return processes


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs. One that has ended may be a zombie for as long as nobody asks for its exit code."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--append", "--every=1"]], ids=["build", "every"])
def test_no_process_is_left_and_the_same_command_goes_on(command, tmp_path, stuck, more):
    (tmp_path / "formatter.py").write_text(FORMATTER.format(folder=str(stuck)))
    options, output = command(f"--formatter={tmp_path}/formatter.py:read", *more), tmp_path / "out"
    with running_command(*options, log=tmp_path / "log") as launcher:
        started = started_by(launcher, stuck)
        assert (output / "_chatmill" / "lock").exists()
        launcher.kill()
        launcher.wait()
        wait_until(lambda: not any(map(is_alive, started)))
    shutil.rmtree(stuck)

    with running_command(*options, log=tmp_path / "log") as again:
        if more:
            wait_until((output / "manifest.json").exists, again)
            end(again)
        assert again.wait(60) == 0
    shown = (tmp_path / "log").read_text()
    assert "is writing to it" not in shown and "waiting" not in shown
    assert "resuming: 0 of" in shown or "resuming" not in shown
    assert read_manifest(output)["records"]["kept"] == RECORDS
    assert not (output / "_chatmill" / "lock").exists() and not (output / "_chatmill" / "building").exists()


@pytest.mark.parametrize("seconds", [0, 0.8, 1.6, 2.4])
def test_no_process_is_left_if_the_launcher_is_killed_while_workers_are_started(command, tmp_path, seconds):
    (tmp_path / "formatter.py").write_text(FORMATTER.format(folder=str(tmp_path / "none")))
    with running_command(*command(f"--formatter={tmp_path}/formatter.py:read")) as launcher:
        children = psutil.Process(launcher.pid).children
        wait_until(lambda: any("forkserver" in " ".join(each.cmdline()) for each in children()), launcher)
        time.sleep(seconds)
        launcher.kill()
        launcher.communicate(timeout=30)  # until nobody holds its output
