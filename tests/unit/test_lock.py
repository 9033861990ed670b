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
from transforms.storage.lock import Lock

FORK = get_context("fork")


def lock_of(folder: Path) -> Lock:
    return Lock(str(folder / "_chatmill" / "lock"), "out")


def test_who_waits_holds_it_after_the_one_before_and_is_told_once_for_whom_it_waits(tmp_path):
    first, told = lock_of(tmp_path), []

    def hold(path: Path, ready: Any) -> None:
        with lock_of(path) as held:
            held.take()
            ready.set()
            time.sleep(0.5)

    ready = FORK.Event()
    process = FORK.Process(target=hold, args=(tmp_path, ready))
    process.start()
    ready.wait()
    assert first.take(told.append) is True
    process.join()
    assert len(told) == 1 and told[0].startswith(f"process {process.pid} on {platform.node()}, since 2")
    assert (tmp_path / "_chatmill" / "lock").read_text().startswith(f"process {os.getpid()} on ")
    first.release()
    assert lock_of(tmp_path).take() is False


def test_the_lock_of_a_process_that_was_killed_is_free_at_once_although_what_it_started_lives_on(tmp_path):
    read, write = os.pipe()
    if not (owner := os.fork()):
        lock_of(tmp_path).take()
        if not os.fork():
            os.write(write, f"{os.getpid()}\n".encode())
        time.sleep(600)
    child = int(os.read(read, 100))
    with pytest.raises(ParameterError, match=f"process {owner} on "):
        lock_of(tmp_path).take()
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    try:
        os.kill(child, 0)  # it is there
        with lock_of(tmp_path) as lock:
            assert lock.take() is False
            with pytest.raises(ParameterError, match=f"process {os.getpid()} on "):
                lock_of(tmp_path).take()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_fork_that_ends_the_context_does_not_release_the_lock(tmp_path):
    with lock_of(tmp_path) as lock:
        lock.take()
        if not (child := os.fork()):
            lock.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert (tmp_path / "_chatmill" / "lock").exists()
        with pytest.raises(ParameterError):
            lock_of(tmp_path).take()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_disk_that_has_no_locks_goes_on_without(tmp_path, monkeypatch, number):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = lock_of(tmp_path), lock_of(tmp_path)
    assert first.take() is second.take() is False
    first.release()
    second.release()


def test_nothing_is_written_through_a_link_of_that_name(tmp_path):
    (tmp_path / "_chatmill").mkdir()
    (tmp_path / "precious").write_text("of somebody else")
    (tmp_path / "_chatmill" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError, match=r"lock: it cannot be written"):
        lock_of(tmp_path).take()
    assert (tmp_path / "precious").read_text() == "of somebody else"


def test_a_store_has_no_lock(monkeypatch):
    first, second = (Lock("memory://out/lock", "out") for _ in range(2))
    assert first.take() is second.take() is False
