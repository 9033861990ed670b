"""Claims: of all that try to hold a folder one does, and a holder that is gone is replaced."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from transforms.base.errors import ParameterError, Unavailable
from transforms.storage import claim as claims
from transforms.storage.claim import Claim, ClaimKeeper, kept_by_steps

FORK: Any = multiprocessing.get_context("fork")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out" / "_chatmill" / "claims"


def claim_of(folder: Path, job: str | None = None) -> Claim:
    return Claim(str(folder), "out", job)


def in_process(function: Any, *arguments: Any) -> Any:
    """Start a process that calls a function."""
    process = FORK.Process(target=function, args=arguments)
    process.start()
    return process


def take_and_die(folder: Path, job: str | None = None) -> None:
    """Leave the claim of a process that was killed."""
    process = in_process(lambda: (claim_of(folder, job).take(), os._exit(9)))
    process.join()
    assert list(folder.glob("*.json"))


def elsewhere(folder: Path) -> Path:
    """Let the holder of the claim be on another machine. Returns the file of its signs."""
    (file,) = folder.glob("*.json")
    holder = json.loads(file.read_text())
    file.write_text(json.dumps(holder | {"machine": "another", "host": "another.example"}))
    return folder / f"{holder['token']}.sign"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"BETWEEN_SIGNS": 0.05, "WITHOUT_SIGN": 0.6, "BETWEEN_LOOKS": 0.02, "TO_BEGIN": 1.5}
    for name, seconds in limits.items():
        monkeypatch.setattr(claims, f"_SECONDS_{name}", seconds)


def race(folder: Path, racers: int) -> list[str]:
    """Let processes try at the same moment. Returns for each whether it holds the folder, or why not."""
    start, tried, results = FORK.Barrier(racers), FORK.Barrier(racers), FORK.SimpleQueue()

    def run() -> None:
        claim, result = claim_of(folder), "holds"
        start.wait()
        try:
            claim.take()
        except ParameterError as error:
            result = error.problem
        except BaseException as error:
            result = repr(error)
        results.put(result)
        tried.wait()
        if result == "holds":
            claim.check()
            claim.release()

    processes = [in_process(run) for _ in range(racers)]
    found = [results.get() for _ in range(racers)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return found


@pytest.mark.parametrize("before", [None, "dead"])
def test_of_twenty_that_try_at_once_one_holds_the_folder_and_the_others_learn_who(folder: Path, before: str | None):
    for _ in range(50 if os.environ.get("TEST_SLOW") else 2):
        if before:
            take_and_die(folder)
        found = race(folder, 20)
        assert found.count("holds") == 1
        others = [result for result in found if result != "holds"]
        assert all(result.startswith("another run is writing to it: process ") for result in others), others
        assert not folder.exists()


def test_holders_never_overlap_however_they_come_and_go(folder: Path, tmp_path: Path):
    """The folder that a holder makes is not there: nobody else holds the claim at the same time."""
    alone = tmp_path / "alone"

    def run() -> None:
        held = 0
        while held < 5:
            claim = claim_of(folder)
            try:
                claim.take()
            except ParameterError:
                continue
            alone.mkdir()
            claim.check()
            alone.rmdir()
            held += 1
            if held == 5:
                os._exit(0)  # without release
            claim.release()

    processes = [in_process(run) for _ in range(8)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8


def test_the_claim_of_a_process_that_was_killed_is_taken_over_at_once(folder: Path):
    take_and_die(folder)
    claim = claim_of(folder)
    before = claim.take()
    assert before and before.pid != os.getpid()
    assert [file.name for file in folder.glob("*.json")] == ["2.json"]


def test_a_holder_that_was_killed_before_it_removed_the_claim_before_its_own_is_replaced(folder: Path):
    take_and_die(folder)
    (first,) = folder.glob("*.json")
    content = first.read_bytes()
    take_and_die(folder)
    first.write_bytes(content)
    assert [path.name for path in sorted(folder.glob("*.json"))] == ["1.json", "2.json"]
    claim = claim_of(folder)
    assert claim.take() is not None
    assert [path.name for path in folder.glob("*.json")] == ["3.json"]
    claim.release()


def test_a_process_that_has_the_id_of_the_holder_is_not_taken_for_it(folder: Path):
    claim_of(folder).take()
    (file,) = folder.glob("*.json")
    with pytest.raises(ParameterError, match=f"process {os.getpid()} on "):
        claim_of(folder).take()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"started": "12345"}))
    claim_of(folder).take()


def test_a_holder_elsewhere_that_shows_work_is_not_replaced(folder: Path, quick: None):
    claim = claim_of(folder)
    claim.take()
    claim.show_work()
    sign = elsewhere(folder)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.1):
            sign.write_text(json.dumps({"time": time.time()}))

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(ParameterError, match=r"on another\.example, since 20"):
        claim_of(folder).take()
    ended.set()
    thread.join()


@pytest.mark.parametrize("content", [None, "", "{}", "\0\0"], ids=["whole", "empty", "no_holder", "zeros"])
def test_a_holder_elsewhere_without_a_sign_is_replaced_after_a_while(folder: Path, quick: None, content: str | None):
    claim_of(folder).take()
    elsewhere(folder)
    if content is not None:  # as after a power cut
        (folder / "1.json").write_text(content)
    began = time.monotonic()
    claim_of(folder).take()
    assert time.monotonic() - began >= 0.6


def test_a_holder_that_was_replaced_learns_it(folder: Path, quick: None):
    claim = claim_of(folder)
    claim.take()
    lost: list[Exception] = []
    with claim.kept(lost.append):
        (folder / "1.json").rename(folder / "2.json")
        (folder / "2.json").write_text((folder / "2.json").read_text().replace('"token":"', '"token":"x'))
        end = time.monotonic() + 20
        while not lost and time.monotonic() < end:
            time.sleep(0.01)
    assert "another one took over its output: process" in str(lost[0])
    with pytest.raises(Unavailable, match="took over its output"):
        claim.check()
    claim.release()
    assert (folder / "2.json").exists()


def test_a_step_keeps_the_claim_that_it_was_made_in_and_the_job_removes_it(folder: Path, quick: None):
    claim = claim_of(folder, "FlinkRunner job a")
    claim.take()
    claim.leave_to_job()
    with kept_by_steps(claim, is_left=True):
        keeper = pickle.loads(pickle.dumps(ClaimKeeper()))
    (sign,) = folder.glob("*.sign")
    assert json.loads(sign.read_text())["waits"]
    with keeper.keeping():
        end = time.monotonic() + 20
        while json.loads(sign.read_text())["waits"] and time.monotonic() < end:
            time.sleep(0.01)
    assert not json.loads(sign.read_text())["waits"]
    keeper.check()
    keeper.release()
    assert not folder.exists()


def test_a_step_of_a_job_whose_claim_was_taken_over_fails(folder: Path, quick: None):
    claim = claim_of(folder, "FlinkRunner job a")
    claim.take()
    with kept_by_steps(claim, is_left=True):
        keeper = ClaimKeeper()
    (folder / "1.json").unlink()
    with pytest.raises(Unavailable, match="took over its output"), keeper.keeping():
        time.sleep(4)


def take_for_job_and_leave(folder: Path) -> None:
    claim = claim_of(folder, "FlinkRunner job a")
    claim.take()
    claim.leave_to_job()
    os._exit(0)


@pytest.fixture(params=["here", "elsewhere"])
def waiting(request: pytest.FixtureRequest, folder: Path, quick: None) -> Path:
    """A claim that was left to a job, which has not begun. Returns the file of its signs."""
    in_process(take_for_job_and_leave, folder).join()
    return elsewhere(folder) if request.param == "elsewhere" else next(folder.glob("*.sign"))


def begin(waiting: Path) -> threading.Timer:
    """Let the job begin a while after somebody has begun to look."""
    timer = threading.Timer(0.9, lambda: waiting.write_text(json.dumps({"time": time.time()})))
    timer.start()
    return timer


def test_a_job_that_begins_after_a_while_is_not_replaced(folder: Path, waiting: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claims, "_SECONDS_TO_BEGIN", 30.0)
    for job, has_ended in ((None, False), ("FlinkRunner job a", False), ("FlinkRunner job b", True)):
        waiting.write_text(json.dumps({"time": time.time(), "waits": True}))
        begins = begin(waiting)
        with pytest.raises(ParameterError, match=r"since .*, FlinkRunner job a"):
            claim_of(folder, job).take(job_has_ended=has_ended)
        begins.join()


@pytest.mark.parametrize("skew", [-700, 0, 700])
def test_a_job_is_waited_for_whatever_the_clock_of_its_launcher_showed(folder: Path, waiting: Path, skew: int, caplog):
    waiting.write_text(json.dumps({"time": time.time() + skew, "waits": True}))
    began = time.monotonic()
    assert claim_of(folder).take()
    assert 1.5 <= time.monotonic() - began < 20
    (message,) = caplog.messages
    assert "waiting for up to 0 minutes for a submitted job to begin: process" in message


def test_a_job_that_waits_is_replaced_at_once_if_its_cluster_does_not_have_it(
    folder: Path, waiting: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claims, "_SECONDS_TO_BEGIN", 30.0)
    began = time.monotonic()
    assert claim_of(folder, "FlinkRunner job a").take(job_has_ended=True)
    assert time.monotonic() - began < 20


def test_of_workers_whose_clocks_differ_one_shows_work_for_all(folder: Path, monkeypatch: pytest.MonkeyPatch):
    claim, shown = claim_of(folder, "FlinkRunner job a"), []
    claim.take()
    workers = [pickle.loads(pickle.dumps(claim)) for _ in range(4)]
    for tick in range(240):
        now, number = tick * 2.5, tick % 4
        clocks = {"time": [1e9 + now + 700 * number].pop, "monotonic": [5e5 * number + now].pop}
        monkeypatch.setattr(claims, "time", SimpleNamespace(**vars(time) | clocks))
        before = list(map(Path.read_text, folder.glob("*.sign")))
        workers[number].show_work()
        if list(map(Path.read_text, folder.glob("*.sign"))) != before:
            shown.append(now)
    assert shown == [10.0 * number for number in range(60)]


def test_a_step_that_keeps_a_claim_for_moments_shows_work_as_well(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claims, "_SECONDS_BETWEEN_SIGNS", 2.0)
    claim = claim_of(folder, "FlinkRunner job a")
    claim.take()
    with claim.kept(list[Exception]().append), kept_by_steps(claim, is_left=True):
        claim._next_look = time.monotonic() + 1e6  # the launcher's clock says nothing to workers
        keeper = pickle.loads(pickle.dumps(ClaimKeeper()))
    claim.leave_to_job()
    (sign,) = folder.glob("*.sign")
    end = time.monotonic() + 20
    while json.loads(sign.read_text())["waits"] and time.monotonic() < end:
        with keeper.keeping():
            time.sleep(0.005)
    assert not json.loads(sign.read_text())["waits"]


def test_a_job_whose_launcher_was_killed_is_replaced_only_if_it_gives_no_sign(folder: Path, quick: None):
    take_and_die(folder, "FlinkRunner job a")
    began = time.monotonic()
    claim_of(folder).take()
    assert time.monotonic() - began >= 0.6


class PlainStore(MemoryFileSystem):
    """A store without exclusive create, for which fsspec looks first and then writes."""

    protocol = "plain"


def test_a_store_without_exclusive_create_is_refused(monkeypatch: pytest.MonkeyPatch):
    fsspec.register_implementation("plain", PlainStore, clobber=True)
    with pytest.raises(ParameterError, match="cannot create a file only if there is none") as error:
        Claim("plain://out/claims", "plain://out").take()
    assert error.value.parameter == "output"
    # As a server of S3's protocol may ignore the condition.
    ignoring = MemoryFileSystem.pipe_file
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda self, path, value, mode=None: ignoring(self, path, value))
    with pytest.raises(ParameterError, match="cannot create a file only if there is none"):
        Claim("memory://out/claims", "memory://out").take()
    assert not MemoryFileSystem().find("/out")


def test_one_that_waits_says_once_for_whom_and_holds_the_folder_when_that_one_has_released_it(
    folder: Path, quick: None
):
    first, second, held = claim_of(folder), claim_of(folder), []
    first.take()

    def release_later() -> None:
        while not held:
            time.sleep(0.01)
        time.sleep(0.2)
        first.release()

    thread = threading.Thread(target=release_later)
    thread.start()
    assert second.take(when_held=held.append) is None
    thread.join()
    assert [holder.pid for holder in held] == [os.getpid()]
    second.check()
