"""Parts of a watch: what it says in an outage, how it ends, and which rewritten files can be replaced."""

from __future__ import annotations

import functools
import json
import os
import signal
import time

import pytest

from pipeline.append import append
from pipeline.increments import select
from pipeline.options import Options
from pipeline.sources import read_sources
from pipeline.watch import loop
from pipeline.watch.settings import Settings
from pipeline.watch.stop import Stop
from pipeline.watch.taking import replaceable
from support.arriving import lines
from support.paths import TOKENIZER
from transforms.dataset.snapshot import Files, Increment, Snapshot
from transforms.errors import StoreError, Unavailable, UserError
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
    loop.Loop(options, [], append, Settings(every=0)).run()
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
        loop.Loop(Options(output=str(tmp_path / "out")), [], append, Settings()).run()


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
    loop.Loop(options, sources, functools.partial(append, options, sources), settings).run()
    assert [(watch["files"], watch["files_waiting"]) for watch in written] == [(3, 0)]


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
