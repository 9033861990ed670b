"""Append: what it says and decides. That each record is in the dataset once, tests/integration/test_growth.py shows."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import forks
from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import digests, read_manifest, write_jsonl
from support.drawn import AT_LENGTH
from support.paths import TOKENIZER
from transforms import Dataset

OPTIONS = [f"--tokenizer={TOKENIZER}", "--packing=bfd", "--max_length=256", "--validation_fraction=0.2"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def arrive(corpus: Path, number: int, records: int = 40, more: tuple[Any, ...] = ()) -> Path:
    """Let the file of a day arrive."""
    lines = [
        {"messages": [user(f"What is {number} plus {i}?"), assistant(f"It is {number + i}. " * (i % 7 + 1))]}
        for i in range(records)
    ]
    return write_jsonl(corpus / f"day-{number:02d}.jsonl", [*lines, *more])


def append_to(output: Path, corpus: Path) -> list[str]:
    return ["--append", f"--input={corpus}", f"--output={output}", *OPTIONS]


def test_overwrite_warns_how_many_records_are_lost_since_their_files_are_gone(build, corpus, tmp_path):
    output = tmp_path / "out"
    for days in ((0, 1), (2,)):
        for number in days:
            arrive(corpus, number, 10)
        assert build(*append_to(output, corpus)).code == 0
    overwrite = ["--overwrite", *append_to(output, corpus)[1:]]
    for gone, version, warning in (
        ((1, 2), 2, "up to 30 records of version 2 will not be in the new one: 2 input files of it are no longer "
         f"listed, such as {corpus}/day-01.jsonl. {output}@2 can be read until it expires."),
        ((), 3, None),
        ((0,), 4, "10 records of version 4 will not be in the new one: 1 input file of it is no longer listed, "
         f"such as {corpus}/day-00.jsonl. {output}@4 can be read until it expires."),
    ):  # fmt: skip
        for number in gone:
            (corpus / f"day-{number:02d}.jsonl").unlink()
        if gone == (0,):
            arrive(corpus, 3)
        ended = build(*overwrite)
        assert ended.code == 0 and Dataset(str(output)).version == version + 1
        found = [line for line in ended.err.splitlines() if "will not be in the new one" in line]
        assert found == ([f"chatmill: warning: {warning}"] if warning else [])


def test_what_is_new_is_said_by_a_dry_run_and_an_append(build, corpus, tmp_path):
    output = tmp_path / "out"

    def run(*more: str) -> tuple[str, dict[str, Any], str]:
        ended = build(*append_to(output, corpus), "--json", *more)
        assert ended.code == 0, ended.err
        return ended.out, json.loads(ended.out.splitlines()[-1]), ended.err

    first = arrive(corpus, 1)
    out, found, err = run("--dry_run=True")
    assert (found["status"], err) == (
        "dry_run", f"chatmill: a dry run: 1 file would be added, the first of them {first}\n"
    )  # fmt: skip
    assert not output.exists()
    out, found, _ = run()
    assert found["status"] == "done" and found["appended"]["files"] == 1 and found["appended"]["records"] == 40
    write_jsonl(corpus / "day-02.jsonl", [{"messages": [user("Hi")]}])  # without an answer
    assert "Version 2: 1 file with 1 record was added: 0 rows, 0 tokens." in run()[0]
    (output / "README.md").unlink()  # as if it was killed after its commit; another append writes it
    before = digests(output)
    assert run("--dry_run=True")[1]["status"] == "nothing_new"
    assert digests(output) == before
    out, found, _ = run()
    assert "nothing is new" in out and (output / "README.md").exists()
    assert found["status"] == "nothing_new" and found["appended"]["files"] == 0 and found["version"] == 2
    built = build(*append_to(output, corpus)[1:])
    assert built.code == 2 or "--append to add what is new" in built.err


def test_another_version_of_a_library_is_refused_once_there_is_something_new(build, corpus, tmp_path, monkeypatch):
    output, version = tmp_path / "out", importlib.metadata.version
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)).code == 0
    installed = version("jinja2")
    distribution = importlib.metadata.distribution

    def newer(name: str) -> Any:
        found = distribution(name)
        return type("Newer", (), {"version": "99.0"}) if name == "jinja2" else found

    monkeypatch.setattr(importlib.metadata, "distribution", newer)
    assert build(*append_to(output, corpus)).code == 0
    before = digests(output)
    arrive(corpus, 2)
    ended = build(*append_to(output, corpus))
    assert ended.code == 2 and ended.err.count("\n") == 1, ended.err
    assert f"options or libraries: jinja2 was {installed} and is 99.0. All of it has the same" in ended.err
    assert digests(output) == before


@pytest.mark.parametrize(("begun", "finished"), [(0, 1), (1, 0)])
def test_what_was_begun_with_or_without_append_is_finished_by_the_other(build, corpus, tmp_path, begun, finished):
    arrive(corpus, 1, 40, ({"messages": "?"},))
    expected, output = tmp_path / "expected", tmp_path / "out"
    assert build(*append_to(expected, corpus), "--max_reject_fraction=1").code == 0
    command = append_to(output, corpus)
    assert build(*command[begun:], "--max_reject_fraction=0").code == 1
    before = digests(output)
    other = build(*command[1:], "--seed=1")
    assert other.code == 2 and "was begun with other options or inputs" in other.err and other.err.count("\n") == 1
    assert digests(output) == before
    ended = build(*command[finished:], "--max_reject_fraction=1")
    assert ended.code == 0 and "resuming: 1 of 1 tasks" in ended.err
    assert digests(output) == digests(expected) and not (output / "_chatmill/building").exists()


def test_rejects_over_the_budget_are_shown_and_finished_before_what_is_new_since(build, corpus, tmp_path, capfd):
    output = tmp_path / "out"
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)).code == 0
    arrive(corpus, 2, 40, ({"messages": "?"},))
    ended = build(*append_to(output, corpus), "--max_reject_fraction=0")
    assert ended.code == 1 and "1 of 41 records were rejected" in ended.err and "Traceback" not in ended.err
    [rejects] = (output / "records").iterdir()
    prefix = str(rejects).removesuffix("-000000-000.parquet")
    assert f"They are in {prefix}-*." in ended.err
    for url in (prefix, f"{prefix}-*", rejects):
        assert chatmill("inspect", url, "--reject=0") == 0
        assert f"reject 0: bad_message; {corpus}/day-02.jsonl" in capfd.readouterr().out
    arrive(corpus, 3)
    ended = build(*append_to(output, corpus), "--max_reject_fraction=0.1")
    assert ended.code == 0 and "resuming: 1 of 1 tasks" in ended.err
    assert [read_manifest(output)[name] for name in ("version", "increments")] == [3, 3]


def test_append_to_a_dataset_with_a_damaged_shard_is_committed_and_derived_without_a_report(
    build: Callable[..., Any], corpus, tmp_path, caplog, capfd
):
    output = tmp_path / "out"
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)).code == 0
    assert (output / "report.html").exists()
    damaged = output / read_manifest(output)["shards"][0]["path"]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    arrive(corpus, 2)

    ended = build(*append_to(output, corpus))

    assert ended.code == 1  # the summary shows the first example
    assert ended.err.startswith(f"chatmill: {damaged}: the file is damaged") and ended.err.count("\n") == 1
    assert f"version 2 is complete, and has no report: {damaged}: the file is damaged" in caplog.text
    assert (read_manifest(output)["version"], read_manifest(output)["records"]["read"]) == (2, 80)
    assert not (output / "report.html").exists()
    capfd.readouterr()
    assert chatmill("verify", output, "--json") == 1
    faults = json.loads(capfd.readouterr().out)["faults"]
    assert {fault["path"] for fault in faults} == {str(damaged.relative_to(output))}
    [again] = forks.race(["build", *append_to(output, corpus)])
    assert again.code == 0 and "nothing is new" in again.printed


@pytest.mark.parametrize("day", range(30 if AT_LENGTH else 2))
def test_of_two_that_append_at_once_one_adds_what_is_new_and_the_other_finds_nothing(corpus, tmp_path, day):
    arrive(corpus, day)
    command = ["build", *append_to(tmp_path / "out", corpus)]
    ended = forks.race(command, command)
    printed = "".join(each.printed for each in ended)
    assert [each.code for each in ended] == [0, 0], printed
    assert printed.count("nothing is new") == 1 and printed.count("waiting: the output is locked by") <= 1
    assert read_manifest(tmp_path / "out")["records"]["kept"] == 40


BUILDS = 20
REFUSED = (
    "another run is writing to it: ",
    "holds an unfinished dataset that was begun with other options",
    "holds a finished dataset that was built with other options",
    "another build has just finished it",
)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(50 if AT_LENGTH else 1))
def test_of_twenty_builds_with_other_options_one_writes_the_dataset(corpus, tmp_path, number):
    arrive(corpus, number, 300)
    output = tmp_path / "out"
    command = ["build", *append_to(output, corpus)[1:], "--split_bytes=10000", "--direct_num_workers=2"]
    ended = forks.race(*([*command, f"--seed={seed}"] for seed in range(BUILDS)))
    codes = [each.code for each in ended]
    assert codes.count(0) == 1, ended
    for each in ended:
        if each.code:
            assert each.code == (1 if REFUSED[3] in each.printed else 2) and each.printed.count("\n") == 1, each
            assert any(why in each.printed for why in REFUSED), each
    manifest = read_manifest(output)
    assert manifest["job"]["options"]["seed"] == codes.index(0) and manifest["records"]["kept"] == 300
    assert chatmill("verify", output) == 0
    assert not (output / "_chatmill" / "lock").exists() and not (output / "_chatmill" / "building").exists()


def test_on_a_disk_without_locks_a_build_of_which_another_one_finished_the_work_ends_well(build, corpus, tmp_path):
    output = tmp_path / "out"
    arrive(corpus, 1)
    command = [*append_to(output, corpus), "--direct_num_workers=1"]
    first = forks.stop("/receipts", "build", *command)
    assert isinstance(first, forks.Stopped), first
    assert build(*command).code == 0
    before = digests(output)
    ended = first.go_on()
    assert ended.code == 0 and "Traceback" not in ended.printed, ended.printed
    assert digests(output) == before
    # What it has written in vain goes.
    assert build(*command).code == 0 and not (output / "_chatmill" / "building").exists()


def test_on_a_disk_without_locks_a_folder_that_another_build_removes_while_it_is_empty_is_made_again(
    build, corpus, tmp_path
):
    output = tmp_path / "out"
    arrive(corpus, 1, 9)
    overwrite = ["--overwrite", *append_to(output, corpus)[1:], "--direct_num_workers=1"]
    assert build(*overwrite).code == 0
    first = forks.stop(f"mkdir {output}/_chatmill/building/", "build", *overwrite)
    assert isinstance(first, forks.Stopped), first
    assert build(*overwrite, "--seed=1").code == 0
    ended = first.go_on()
    assert ended.code == 3 and "version 2 was committed meanwhile" in ended.printed


@pytest.mark.parametrize("how", ["--overwrite", "--append"])
def test_on_a_disk_without_locks_who_commits_second_fails_with_3_and_its_work_stays(build, corpus, tmp_path, how):
    output = tmp_path / "out"

    def options(number: int) -> list[str]:
        lengths = [f"--max_length={256 + number}"] if how == "--overwrite" else []
        one_file = f"--input={corpus}/day-{number:02d}.jsonl"
        return [*append_to(output, corpus)[2:], "--direct_num_workers=1", one_file, *lengths]

    for number in range(3):
        arrive(corpus, number, 9)
    assert build(*options(0)).code == 0
    second = forks.stop("link /", "build", *options(1), how)
    assert isinstance(second, forks.Stopped), second
    assert build(*options(2), how).code == 0
    ended = second.go_on()
    assert ended.code == 3
    assert ended.printed.splitlines()[-1] == (
        f"chatmill: {output}: version 2 was committed meanwhile. What this run has built stays: run the same command "
        "again."
    )
    assert read_manifest(output)["version"] == 2
    again = build(*options(1), how)
    assert again.code == 0 and "resuming: 1 of 1 tasks" in again.err
    assert read_manifest(output)["version"] == 3
    assert read_manifest(output)["records"]["kept"] == (27 if how == "--append" else 9)
