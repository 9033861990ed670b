"""The lock of a folder: one process holds it, and no process that this one has started."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import signal
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from transforms import ParameterError, StoreError
from transforms.storage.lock import locked

FORK = get_context("fork")


def lock(folder: Path, *when_held: Any) -> Any:
    return locked(str(folder / "_chatmill" / "lock"), "out", *when_held)


def test_who_waits_holds_it_after_the_one_before_and_is_told_once_for_whom_it_waits(tmp_path):
    told = []

    def hold(path: Path, ready: Any) -> None:
        with lock(path):
            ready.set()
            time.sleep(0.5)

    ready = FORK.Event()
    process = FORK.Process(target=hold, args=(tmp_path, ready))
    process.start()
    ready.wait()
    with lock(tmp_path, told.append) as was_held:
        process.join()
        assert was_held and len(told) == 1
        assert told[0].startswith(f"process {process.pid} on {platform.node()}, since 2")
        assert (tmp_path / "_chatmill" / "lock").read_text().startswith(f"process {os.getpid()} on ")
    with lock(tmp_path) as was_held:
        assert not was_held


def test_the_lock_of_a_process_that_was_killed_is_free_at_once_although_what_it_started_lives_on(tmp_path):
    read, write = os.pipe()
    if not (owner := os.fork()):
        with lock(tmp_path):
            if not os.fork():
                os.write(write, f"{os.getpid()}\n".encode())
            time.sleep(600)
    child = int(os.read(read, 100))
    with pytest.raises(ParameterError, match=f"process {owner} on "), lock(tmp_path):
        pass
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    try:
        os.kill(child, 0)  # it is there
        with lock(tmp_path) as was_held:
            assert not was_held
            with pytest.raises(ParameterError, match=f"process {os.getpid()} on "), lock(tmp_path):
                pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_fork_that_ends_the_context_does_not_release_the_lock(tmp_path):
    held = lock(tmp_path)
    held.__enter__()
    if not (child := os.fork()):
        held.__exit__(None, None, None)
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "_chatmill" / "lock").exists()
    with pytest.raises(ParameterError), lock(tmp_path):
        pass
    held.__exit__(None, None, None)
    assert not (tmp_path / "_chatmill").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_disk_that_has_no_locks_goes_on_without(tmp_path, monkeypatch, number):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock(tmp_path) as first, lock(tmp_path) as second:
        assert first is second is False


def test_nothing_is_written_through_a_link_of_that_name(tmp_path):
    (tmp_path / "_chatmill").mkdir()
    (tmp_path / "precious").write_text("of somebody else")
    (tmp_path / "_chatmill" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError, match=r"lock: it cannot be written"), lock(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "of somebody else"


def test_a_store_has_no_lock():
    with locked("memory://out/lock", "out") as first, locked("memory://out/lock", "out") as second:
        assert first is second is False
