"""A watch in one process: what it says, how it ends, which files it blames, and which it can replace."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cli.options import Options
from pipeline.cli.sources import read_sources
from pipeline.growth.increments import select
from pipeline.watching import attempts, loop
from pipeline.watching.settings import Settings
from pipeline.watching.stop import Stop
from pipeline.watching.wanted import replaceable
from support.arriving import lines, taken, watch_here
from support.paths import TOKENIZER
from transforms.base.errors import InputError, StoreError, Unavailable, UserError, WorkerDied
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Files, Increment, Snapshot
from transforms.inputs.listing import InputFile


def test_an_outage_of_any_length_is_two_lines(tmp_path, monkeypatch, capsys):
    looks = [Unavailable("s3://in: it does not answer"), StoreError("s3://in", "listed", "503", True)] * 20

    def find(_):
        if not looks:
            os.kill(os.getpid(), signal.SIGTERM)
            return {}
        raise looks.pop()

    monkeypatch.setattr(loop, "find_arriving", find)
    options = Options(input=("s3://in/*",), output=str(tmp_path / "out"))
    loop.Loop(options, [], [], None, Settings(every=0)).run()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "chatmill: waiting: s3://in: it cannot be listed (503).",
        "chatmill: going on after 0 s",
        "chatmill: stopped; 0 files, 0 records, 0 increments",
    ]


@pytest.mark.parametrize("error", [UserError("it is wrong."), StoreError("s3://in", "listed", "denied", False)])
def test_what_cannot_succeed_later_ends_a_watch_that_has_committed_nothing(tmp_path, monkeypatch, error):
    def find(_):
        raise error

    monkeypatch.setattr(loop, "find_arriving", find)
    with pytest.raises(type(error)):
        loop.Loop(Options(output=str(tmp_path / "out")), [], [], None, Settings()).run()


def test_files_that_were_taken_do_not_wait_any_more(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(name, 2))
    options = Options(
        input=(f"{tmp_path}/*.jsonl",),
        tokenizer=str(TOKENIZER),
        output=str(tmp_path / "out"),
        summary_json=str(tmp_path / "summary.json"),
    )
    sources, find, written = read_sources(options), loop.find_arriving, []

    def find_and_end(_):
        watch = json.loads((tmp_path / "summary.json").read_bytes())["watch"]
        if watch["increments"]:
            written.append(watch)
            os.kill(os.getpid(), signal.SIGTERM)
        return find(sources)

    monkeypatch.setattr(loop, "find_arriving", find_and_end)
    settings = Settings(every=0, settle=0, min_records=1, max_delay=0)
    loop.Loop(options, sources, [], None, settings).run()
    assert [(watch["files"], watch["files_waiting"]) for watch in written] == [(3, 0)]


class Watched:
    """A watch in this process, whose attempts to build an increment can fail. A file is called by a letter.

    tried: the files of each attempt.
    """

    def __init__(self, tmp_path: Path):
        self.input = tmp_path / "in"
        self.input.mkdir()
        self.options = Options(input=(f"{self.input}/*.jsonl",), tokenizer=str(TOKENIZER), output=f"{tmp_path}/out")
        self.tried: list[str] = []

    def write(self, name: str, content: bytes | None = None) -> None:
        (self.input / f"{name}.jsonl").write_bytes(lines(name, 2) if content is None else content)

    def run(self, error_of: Callable[[str], Exception | None], attempts: int | None = None) -> None:
        self.tried += watch_here(self.options, error_of, attempts)

    def taken(self) -> list[tuple[str, str]]:
        return taken(Path(self.options.output))


@pytest.fixture
def watched(tmp_path) -> Watched:
    return Watched(tmp_path)


def died(times: int) -> Callable[[str], Exception | None]:
    """A machine that has no memory for the first attempts, whatever they build."""
    errors: Iterator[Exception] = iter([WorkerDied("a worker was ended by SIGKILL") for _ in range(times)])
    return lambda _: next(errors, None)


def test_no_file_is_blamed_for_what_was_built_with_it(watched):
    for name in "abcd":
        watched.write(name)
    watched.run(died(5))
    assert watched.tried == ["abcd", "abcd", "abcd", "ab", "ab", "ab", "cd"]
    assert watched.taken() == [("ab", "done"), ("cd", "done")]


@pytest.mark.parametrize("error", [WorkerDied("a worker was ended by SIGKILL"), InputError("it cannot be read")])
def test_a_file_is_blamed_after_three_failures_of_its_own(watched, capsys, error):
    for name in "abc":
        watched.write(name)
    watched.run(lambda files: error if "b" in files else None)
    assert watched.tried == ["abc", "abc", "abc", "a", "bc", "bc", "bc", "b", "b", "b", "c"]
    assert watched.taken() == [("a", "done"), ("b", "failed"), ("c", "done")]
    assert capsys.readouterr().err.count(f"{error} (try 3 of 3)") == 3


def test_the_machine_has_time_before_a_file_is_blamed(watched, monkeypatch):
    def error_of(files):
        tried.append(files)
        return WorkerDied("a worker was ended by SIGKILL") if "b" in files else None

    tried: list[str] = []
    waits: list[int] = []
    monkeypatch.setattr(loop.Stop, "wait", lambda *_: waits.append(len(tried)))
    for name in "abc":
        watched.write(name)
    watched.run(error_of)
    assert [tried[number - 1] for number in waits] == ["b", "b", "b", "c", "c"]  # the last ones are of idle looks


def test_failures_of_an_earlier_version_do_not_count_for_a_file(watched):
    def rewritten_at_the_third_try(files):
        if len(tried) == 2:
            watched.write("a", lines("a", 3))
        tried.append(files)
        return WorkerDied("a worker was ended by SIGKILL") if len(tried) < 6 else None

    tried: list[str] = []
    watched.write("a")
    watched.run(rewritten_at_the_third_try)
    assert watched.taken() == [("a", "done")]
    assert tried == ["a"] * 6


def test_a_watch_that_begins_again_goes_on_counting(watched):
    watched.write("a")
    for _ in range(3):
        watched.run(died(1), attempts=1)
    watched.run(died(1))
    assert watched.tried == ["a", "a", "a"]
    assert watched.taken() == [("a", "failed")]


def test_an_outage_while_files_are_built_blames_none(watched, monkeypatch, capsys):
    def build(_):
        outages.append("build")
        return error if len(outages) < 18 else None

    def remove_or_fail(url):
        """The store of the output takes no note of the outage before the next look."""
        if outages[-1:] == ["build"] and "attempts" in url:
            outages.append("note")
            raise error
        remove(url)

    outages: list[str] = []
    error, remove = StoreError("s3://out", "written", "503", True), attempts.remove
    monkeypatch.setattr(attempts, "remove", remove_or_fail)
    for name in "ab":
        watched.write(name)
    watched.run(build)
    assert outages == ["build", "note"] * 9 + ["build"]
    assert watched.taken() == [("ab", "done")]
    shown = capsys.readouterr().err
    assert shown.count(f"chatmill: waiting: {error}") == shown.count("chatmill: going on after") == 1
    assert "try" not in shown


def test_files_with_too_many_rejects_are_found_by_halves_without_a_second_try(watched):
    for name in "abcd":
        watched.write(name, b'{"neither": 1}\n' if name == "c" else None)
    watched.run(died(0))
    assert watched.tried == ["abcd", "ab", "cd", "c", "d"]
    assert watched.taken() == [("ab", "done"), ("c", "failed"), ("d", "done")]
    [failed] = [each for each in Log(Folder(watched.options.output)).newest().increments if each.status == "failed"]
    assert failed.files.rejects


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_wait_and_is_noted_once(number, request):
    # In the background of a shell, SIGINT is ignored.
    request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, signal.SIG_DFL)))
    before = signal.getsignal(number)
    with Stop() as stop:
        signal.raise_signal(number)
        signal.raise_signal(number)  # that of the supervisor
        began = time.monotonic()
        stop.wait(60)
    assert stop.is_asked and time.monotonic() - began < 30
    assert signal.getsignal(number) == before


def file_of(name: str, version: int = 1) -> InputFile:
    return InputFile(name, "jsonl", None, 10, str(version))


def snapshot_of(*increments: str) -> Snapshot:
    """A snapshot of increments, each of some files whose names are one letter; those in capitals have failed."""
    made = (
        Increment(
            names,
            Files([], [], []),
            [file_of(name.lower()) for name in names],
            {},
            "failed" if names.isupper() else "done",
        )
        for names in increments
    )
    return Snapshot(len(increments), tuple(made))


@pytest.mark.parametrize(
    ("rewritten", "gone", "expected"),
    [
        ("a", "", "a"),  # b is there as it was
        ("ab", "", "ab"),
        ("a", "b", ""),
        ("ac", "b", "c"),
        ("ab", "c", "ab"),
        ("ce", "f", ""),  # c waits for d, and d for e, which waits for f
    ],
)
def test_a_rewritten_file_is_replaced_if_all_that_was_built_with_it_is_there(rewritten, gone, expected):
    snapshot = snapshot_of("ab", "cd", "ef") if rewritten != "ce" else snapshot_of("cde", "ef")
    listed = {(0, name): "2" if name in rewritten else "1" for name in "abcdef" if name not in gone}
    ready = replaceable([file_of(name, 2) for name in rewritten], listed, snapshot)
    assert "".join(file.url for file in ready) == expected


@pytest.mark.parametrize(
    ("listed", "rewritten", "files", "replaces"),
    [
        ("abc", "", "b", ("B",)),
        ("abcd", "", "bd", ("B",)),
        ("ac", "", "", ()),  # it is not there any more
        ("abc", "b", "b", ("B",)),  # no record of its earlier version is in the dataset
        ("abcef", "", "bef", ("B", "EF")),
        ("abce", "", "be", ("B", "EF")),
    ],
)
def test_files_of_failed_increments_are_taken_again_in_the_place_of_these(listed, rewritten, files, replaces):
    snapshot = snapshot_of("a", "B", "c", "EF")
    now = [file_of(name, 2 if name in rewritten else 1) for name in listed]
    selected = select(now, snapshot, "refuse", [], retry_failed=True)
    assert ("".join(file.url for file in selected.files), selected.replaces) == (files, replaces)
    if not rewritten:
        assert select(now, snapshot, "refuse", []).files == [file for file in now if file.url == "d"]
