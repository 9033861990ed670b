"""Temporary folders: a run removes those of runs that were killed, and none that somebody may still use."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.job.temporary import remove_temporary_folder, temporary_folder
from support.paths import ROOT
from transforms.base.errors import Unavailable, UserError

_RUN = """
import sys
from pipeline.job.temporary import temporary_folder

with temporary_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""
_IN_CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def _containers_work() -> bool:
    try:
        return subprocess.run([*_IN_CONTAINER, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(params=[(), _IN_CONTAINER], ids=["process", "container"])
def another_run(request, tmp_path, monkeypatch) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run that shares TMPDIR with this process, next to it or in another namespace of process ids; and its folder."""
    if request.param and not _containers_work():
        pytest.skip("needs `unshare --pid --fork --mount-proc`, which is not allowed here")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [*request.param, sys.executable, "-c", _RUN]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())
        if process.poll() is None:
            process.communicate("")


def test_the_folder_of_a_run_that_goes_on_stays(another_run):
    process, folder = another_run
    with temporary_folder() as own:
        assert Path(own).parent == folder.parent and folder.is_dir()
    process.communicate("")
    assert (process.returncode, list(folder.parent.iterdir())) == (0, [])


def test_a_run_in_another_container_leaves_the_folder_of_this_one(another_run, tmp_path):
    process, folder = another_run
    with temporary_folder() as own:
        command = [*process.args[:-3], sys.executable, "-c", _RUN]
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        assert Path(own).is_dir() and folder.is_dir()


def test_the_folder_of_a_run_that_was_killed_is_removed(another_run):
    process, folder = another_run
    (folder / "left").touch()
    process.kill()
    process.wait()
    _wait_for_the_lock(folder)
    with temporary_folder():
        assert not folder.exists()


def _wait_for_the_lock(folder: Path) -> None:
    """Wait until the processes of a killed container have ended, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)


@pytest.fixture
def folders(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_of_another_machine_or_of_unknown_origin_stays(folders, monkeypatch):
    others = [folders / name for name in ("chatmill-1234-5678-abc", "chatmill-kinds-x", f"chatmill-{'0' * 16}-abc")]
    for other in others:
        other.mkdir()
    with temporary_folder() as own:
        assert {*folders.iterdir()} == {*others, Path(own)}
    assert {*folders.iterdir()} == {*others}


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(folders, monkeypatch):
    made, mkdtemp = [], tempfile.mkdtemp

    def removed_at_once(**options: str) -> str:
        made.append(mkdtemp(**options))
        if len(made) == 1:
            shutil.rmtree(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", removed_at_once)
    with temporary_folder() as own:
        assert own == made[1] and Path(own).is_dir()


def test_a_folder_that_is_removed_while_it_is_in_use_is_named(folders):
    with (
        pytest.raises(Unavailable, match=r"chatmill-.*: something removed this folder"),
        temporary_folder() as own,
    ):
        shutil.rmtree(own)
        raise UserError("--output out: it cannot be written.")
    with pytest.raises(UserError, match="another"), temporary_folder():
        raise UserError("another error")


def test_a_process_that_ends_at_once_removes_its_folder(folders):
    with temporary_folder() as own:
        remove_temporary_folder()
        assert not Path(own).exists()
