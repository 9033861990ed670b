"""Append: a dataset has each record once after each commit, and its bytes depend on the inputs alone."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import main
from pipeline.job import prepare
from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import age_work, build_in_process, digests, manifest_of, write_jsonl
from support.killed import kill_at
from support.paths import ROOT, TOKENIZER
from transforms import Dataset
from transforms.audit.verification import verify
from transforms.catalog.layout import Folder

DAYS, DAYS_OF_RACES = (30, 30) if "TEST_SLOW" in os.environ else (4, 2)
OPTIONS = [f"--tokenizer={TOKENIZER}", "--packing=bfd", "--max_length=256", "--validation_fraction=0.2"]


def day(number: int, records: int = 40) -> list[dict[str, Any]]:
    return [
        {"messages": [user(f"What is {number} plus {i}?"), assistant(f"It is {number + i}. " * (i % 7 + 1))]}
        for i in range(records)
    ]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def arrive(corpus: Path, number: int, records: list[dict[str, Any]] | None = None) -> Path:
    """Let the file of a day arrive. What the disk says of it is the same in each test."""
    file = write_jsonl(corpus / f"day-{number:02d}.jsonl", day(number) if records is None else records)
    os.utime(file, ns=(10**18 + number, 10**18 + number))
    return file


def append_to(output: Path, corpus: Path) -> list[str]:
    return ["--append", f"--input={corpus}", f"--output={output}", *OPTIONS]


def segments(output: Path | str) -> Counter[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """The examples of a dataset with their labels, in whichever rows they are."""
    found: Counter[Any] = Counter()
    dataset = Dataset(str(output))
    for split in ("train", "validation"):
        for _, _, batch in dataset.rows(split):
            for row in batch.to_pylist():
                start = 0
                for length in row["seq_lengths"]:
                    piece = slice(start, start + length)
                    found[split, tuple(row["input_ids"][piece]), tuple(row["labels"][piece])] += 1
                    start += length
    return found


def files_of(output: Path) -> dict[str, bytes]:
    """The content of each file of a dataset, but for the times of its commits, which the hash of an entry has, too."""
    files = {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}
    for name in [name for name in files if name.startswith("_chatmill/log/")]:
        files[name] = re.sub(rb'"(time|previous)":"[^"]*"', b"", files[name])
    return files


def test_a_dataset_that_grows_day_by_day_has_each_record_once_after_each_and_the_same_bytes_elsewhere(
    build: Callable[..., Any], corpus: Path, tmp_path: Path
):
    output, again = tmp_path / "out", tmp_path / "again"
    for number in range(DAYS):
        arrive(corpus, number)
        for folder in (output, again):
            ended = build(*append_to(folder, corpus))
            assert ended.code == 0, ended.err
        manifest = manifest_of(output)
        assert manifest["snapshot"]["version"] == manifest["snapshot"]["increments"] == number + 1
        assert manifest["records"]["read"] == manifest["records"]["kept"] == 40 * (number + 1)
        assert sum(segments(output).values()) == 40 * (number + 1)
        assert sum(shard["tokens"] for shard in manifest["shards"]) == manifest["tokens"]

    plain = build(f"--input={corpus}", f"--output={tmp_path}/plain", *OPTIONS)
    assert plain.code == 0, plain.err
    assert segments(output) == segments(tmp_path / "plain")
    assert files_of(output) == files_of(again)
    assert not (output / "_chatmill" / "increments").exists() and not (output / "_chatmill" / "lock").exists()


def test_overwrite_warns_how_many_records_are_lost_since_their_files_are_gone(
    build: Callable[..., Any], corpus: Path, tmp_path: Path
):
    output = tmp_path / "out"
    arrive(corpus, 0)
    assert build(*append_to(output, corpus)).code == 0
    for number in (1, 2):
        arrive(corpus, number, day(number, 10))
    assert build(*append_to(output, corpus)).code == 0
    overwrite, before = ["--overwrite", *append_to(output, corpus)[1:]], segments(output)
    for gone, version, warning in (
        ((), 2, None),
        ((1,), 3, f"up to 60 records of version 3 will not be in the new one: 1 input file of it is no longer listed, "
         f"such as {corpus}/day-01.jsonl. {output}@3 can be read until it expires."),
        ((0, 2), 4, f"50 records of version 4 will not be in the new one: 2 input files of it are no longer listed, "
         f"such as {corpus}/day-00.jsonl. {output}@4 can be read until it expires."),
    ):  # fmt: skip
        for number in gone:
            (corpus / f"day-{number:02d}.jsonl").unlink()
        if gone == (0, 2):
            arrive(corpus, 3)
        ended = build(*overwrite)
        assert ended.code == 0 and Dataset(str(output)).version == version + 1
        found = [line for line in ended.err.splitlines() if "will not be in the new one" in line]
        assert found == ([f"chatmill: warning: {warning}"] if warning else [])
    assert segments(f"{output}@2") == segments(f"{output}@3") == before


def test_each_version_loads_with_datasets_also_as_a_stream(build: Callable[..., Any], corpus: Path, tmp_path: Path):
    from datasets import load_dataset

    output = tmp_path / "out"
    for number in range(DAYS):
        arrive(corpus, number)
        assert build(*append_to(output, corpus)).code == 0
    versions = [(f"v{day}", 40 * day) for day in range(1, DAYS + 1)]
    for name, rows in [*versions, (None, 40 * DAYS)]:
        for streaming in (False, True):
            loaded = load_dataset(str(output), name, streaming=streaming, cache_dir=str(tmp_path / "cache"))
            assert sum(len(row["seq_lengths"]) for split in loaded.values() for row in split) == rows


def test_nothing_new_is_reported_and_writes_nothing(build: Callable[..., Any], corpus: Path, tmp_path: Path):
    output = tmp_path / "out"
    arrive(corpus, 1)
    ended = build(*append_to(output, corpus), "--json")
    assert ended.code == 0
    first = json.loads(ended.out.splitlines()[-1])
    assert first["status"] == "done" and first["appended"]["files"] == 1 and first["appended"]["records"] == 40
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}

    ended = build(*append_to(output, corpus), "--json")

    assert ended.code == 0 and "nothing is new" in ended.out
    again = json.loads(ended.out.splitlines()[-1])
    assert again["status"] == "nothing_new" and again["appended"]["files"] == 0
    assert again["records"] == first["records"] and again["snapshot"]["version"] == 1
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before


def test_a_dry_run_says_what_is_new_and_writes_nothing(build: Callable[..., Any], corpus: Path, tmp_path: Path):
    def dry_run() -> tuple[str, str]:
        ended = build(*append_to(tmp_path / "out", corpus), "--dry_run=True", "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out.splitlines()[-1])["status"], ended.err.splitlines()[-1] if ended.err else ""

    first = arrive(corpus, 1)
    assert dry_run() == ("dry_run", f"chatmill: a dry run: 1 file would be added, the first of them {first}")
    assert not (tmp_path / "out").exists()
    assert build(*append_to(tmp_path / "out", corpus)).code == 0
    before = files_of(tmp_path / "out")
    assert dry_run()[0] == "nothing_new"
    arrive(corpus, 2)
    (tmp_path / "out" / "README.md").unlink()  # as if it was killed after its commit; another append writes it
    del before["README.md"]
    assert dry_run()[0] == "dry_run"
    arrive(corpus, 2).unlink()
    assert dry_run()[0] == "nothing_new"
    assert files_of(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (["--max_length=128"], "--max_length was 256 and is 128"),
        (["--chat_template={{ messages[0].content }}"], "--chat_template was not given"),
        (["--tokenizer={other}"], "--tokenizer was"),
        (["--overwrite"], "--append adds to a dataset, and --overwrite replaces it"),
    ],
)
def test_other_options_are_refused_in_one_line(build, corpus, tmp_path, changed, found):
    output, other = tmp_path / "out", tmp_path / "tokenizer"
    other.mkdir()
    for file in TOKENIZER.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    config = json.loads((other / "tokenizer.json").read_bytes())
    config["added_tokens"].append(config["added_tokens"][-1] | {"id": 10_000, "content": "<|new|>"})
    (other / "tokenizer.json").write_text(json.dumps(config))
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)).code == 0
    before = files_of(output)
    for is_new in (False, True):
        if is_new:
            arrive(corpus, 2)
        ended = build(
            *append_to(output, corpus),
            *(option.format(other=other) if "other" in option else option for option in changed),
        )
        assert ended.code == 2 and found in ended.err and ended.err.count("\n") == 1, ended.err
    assert files_of(output) == before
    assert build(*append_to(output, corpus)).code == 0


def test_another_version_of_a_library_is_refused_once_there_is_something_new(build, corpus, tmp_path, monkeypatch):
    output = tmp_path / "out"
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)).code == 0
    versions = prepare.library_versions()
    monkeypatch.setattr(prepare, "library_versions", lambda: versions | {"jinja2": "99.0"})
    assert build(*append_to(output, corpus)).code == 0
    before = files_of(output)
    arrive(corpus, 2)
    ended = build(*append_to(output, corpus))
    assert ended.code == 2 and ended.err.count("\n") == 1, ended.err
    assert f"options or libraries: jinja2 was {versions['jinja2']} and is 99.0. All of it has the same" in ended.err
    assert files_of(output) == before


def test_a_dataset_that_was_built_without_append_grows(build, corpus, tmp_path):
    output = tmp_path / "out"
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)[1:]).code == 0
    before, log = (
        digests(output, "README.md", "manifest.json", "report.html", "recipe.yaml", "SHA256SUMS"),
        Folder(str(output)).log,
    )
    nothing = build(*append_to(output, corpus))
    assert nothing.code == 0 and "nothing is new" in nothing.out and os.listdir(log) == ["00000001.json"]
    arrive(corpus, 2)

    ended = build(*append_to(output, corpus))

    assert ended.code == 0, ended.err
    assert before.items() <= digests(output).items()
    manifest = manifest_of(output)
    assert manifest["snapshot"]["version"] == 2 and manifest["records"]["kept"] == 80
    assert sum(segments(output).values()) == 80 and sum(segments(f"{output}@1").values()) == 40
    # The build command itself finds a finished dataset.
    ended = build(*append_to(output, corpus)[1:])
    assert ended.code == 0 and "--append to add what is new" in ended.err


def test_a_dataset_of_which_it_is_not_known_what_it_has_does_not_grow(build, corpus, tmp_path):
    output = tmp_path / "out"
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)[1:]).code == 0
    arrive(corpus, 2)
    entry = output / "_chatmill/log/00000001.json"
    content = entry.read_bytes()
    for damaged in (b"", content[:-20]):
        entry.write_bytes(damaged)
        ended = build(*append_to(output, corpus))
        assert ended.code == 1 and f"{entry}: it is damaged" in ended.err and ended.err.count("\n") == 1
    shutil.rmtree(output / "_chatmill")
    ended = build(*append_to(output, corpus))
    assert ended.code == 2 and "its log is missing" in ended.err and ended.err.count("\n") == 1


def test_what_was_begun_with_or_without_append_is_finished_by_the_other(build, corpus, tmp_path):
    arrive(corpus, 1, [*day(1), {"messages": "?"}])
    command = append_to(tmp_path / "out", corpus)
    assert build(*command, "--max_reject_fraction=1").code == 0
    expected = files_of(tmp_path / "out")
    for begun, finished in ((0, 1), (1, 0)):
        output = tmp_path / f"out-{begun}"
        command = append_to(output, corpus)
        assert build(*command[begun:], "--max_reject_fraction=0").code == 1
        ended = build(*command[finished:], "--max_reject_fraction=1")
        assert ended.code == 0 and "resuming: 1 of 1 splits" in ended.err
        assert files_of(output) == expected and not (output / "_chatmill/increments").exists()


def test_a_first_append_that_was_begun_is_replaced_by_another_build_only_with_overwrite(build, corpus, tmp_path):
    output = tmp_path / "out"
    arrive(corpus, 1, [*day(1), {"messages": "?"}])
    assert build(*append_to(output, corpus), "--max_reject_fraction=0").code == 1
    before = files_of(output)
    arrive(corpus, 2)
    ended = build(*append_to(output, corpus)[1:])
    assert ended.code == 2 and "was begun with other options or inputs" in ended.err and ended.err.count("\n") == 1
    assert files_of(output) == before
    assert build(*append_to(output, corpus)[1:], "--overwrite", "--max_reject_fraction=1").code == 0
    assert manifest_of(output)["records"]["read"] == 81
    # What was given up stays until it expires, and for a day.
    assert chatmill("expire", output, "--older_than=0s") == 0
    assert before.keys() - files_of(output).keys() == set()
    assert [path in manifest_of(output)["rejects"] for path in sorted(files_of(output)) if "rejects/" in path].count(
        False
    ) == 1
    age_work(output)
    assert chatmill("expire", output, "--older_than=0s") == 0
    assert not (output / "_chatmill/increments").exists()
    assert [path for path in files_of(output) if "rejects/" in path] == manifest_of(output)["rejects"]


def test_a_file_that_changed_is_an_error_or_is_added_again(build, corpus, tmp_path):
    output = tmp_path / "out"
    arrive(corpus, 1)
    arrive(corpus, 2)
    assert build(*append_to(output, corpus)).code == 0
    before = files_of(output)
    write_jsonl(corpus / "day-01.jsonl", day(50, 30))
    changed = write_jsonl(corpus / "day-02.jsonl", day(51, 30))
    arrive(corpus, 4)

    ended = build(*append_to(output, corpus))
    assert ended.code == 2
    assert ended.err == (
        f"chatmill: --input {corpus}/day-01.jsonl: it changed since it was added, and so did 1 other. "
        "--on_changed_file append adds it again; --overwrite builds all inputs again.\n"
    )
    assert files_of(output) == before

    ended = build(*append_to(output, corpus), "--on_changed_file=append")
    assert ended.code == 0, ended.err
    assert "3 files with 100 records were added: " in ended.out
    assert manifest_of(output)["records"]["kept"] == 80 + 30 + 30 + 40
    assert sum(segments(output).values()) == 180 and sum(segments(f"{output}@1").values()) == 80

    write_jsonl(changed, day(60, 20))
    assert build(*append_to(output, corpus)).code == 2


def built(build: Callable[..., Any], corpus: Path, output: Path) -> Path:
    assert build(f"--input={corpus}", f"--output={output}", *OPTIONS).code == 0
    return output


def test_an_append_over_its_budget_adds_nothing_and_goes_on_with_a_larger_one(build, corpus, tmp_path, capfd):
    output = tmp_path / "out"
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)).code == 0
    before = files_of(output)
    arrive(corpus, 2, [*day(2), {"messages": "?"}])

    ended = build(*append_to(output, corpus), "--max_reject_fraction=0")

    assert ended.code == 1 and "1 of 41 records were rejected" in ended.err and "Traceback" not in ended.err
    after = files_of(output)
    assert before.items() <= after.items()
    [rejects] = {name for name in after.keys() - before.keys() if name.startswith("rejects/")}
    prefix = str(output / rejects).removesuffix("-000000-000.parquet")
    assert f"They are in {prefix}-*." in ended.err
    assert manifest_of(output)["records"]["read"] == 40
    for url in (prefix, f"{prefix}-*", str(output / rejects)):
        assert chatmill("inspect", url, "--reject=0") == 0
        assert f"reject 0: bad_message; {corpus}/day-02.jsonl" in capfd.readouterr().out

    # What is new since is added after it; its splits are not processed again.
    arrive(corpus, 3)
    ended = build(*append_to(output, corpus), "--max_reject_fraction=0.1")
    assert ended.code == 0, ended.err
    manifest = manifest_of(output)
    assert manifest["snapshot"]["increments"] == 3 and sum(manifest["records"]["rejected"].values()) == 1
    assert "resuming: 1 of 1 splits" in ended.err
    assert manifest["records"]["kept"] == 120 and manifest["rejects"] == [rejects]


# Before or after a call of each of these, an append is killed.
MOMENTS = [
    ("pipeline.job.run", "build_graph", "before"),
    ("transforms.steps.write", "write_receipt", "after"),
    ("transforms.publish.commit", "commit_increment", "before"),
    ("transforms.catalog.log_files", "create", "before"),
    ("transforms.catalog.log_files", "create", "after"),
    ("transforms.publish.derived", "dataset_card", "after"),
    ("transforms.publish.increment_commit", "derive", "after"),
    ("transforms.publish.increment_commit", "remove", "after"),
]


def test_killed_at_any_moment_the_same_command_goes_on(build, corpus, tmp_path):
    expected, output = tmp_path / "expected", tmp_path / "out"
    for number, (module, name, moment) in enumerate(MOMENTS):
        arrive(corpus, number)
        assert build(*append_to(expected, corpus)).code == 0
        kill_at(module, name, moment, *append_to(output, corpus))
        if number:  # a reader sees the version before, or this one
            assert Dataset(str(output)).manifest["snapshot"]["version"] in (number, number + 1)
        ended = build(*append_to(output, corpus))
        assert ended.code == 0, ended.err
        assert files_of(output) == files_of(expected), (module, name, moment)


RACE = """
import json, os, sys
from multiprocessing import get_context
import pipeline.job.launch, pipeline.job.prepare, pipeline.job.run, pipeline.local.worker_processes
from apache_beam.runners.portability.fn_api_runner import fn_runner
from pipeline import main

fork = get_context("fork")
start = fork.Barrier(2)

def build():
    start.wait()
    os._exit(main(["build", *sys.argv[1:]]))

processes = [fork.Process(target=build) for _ in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
print(json.dumps([process.exitcode for process in processes]))
"""


def test_of_two_that_append_at_once_one_adds_what_is_new_and_the_other_finds_nothing(build, corpus, tmp_path):
    expected, output = tmp_path / "expected", tmp_path / "out"
    for number in range(DAYS_OF_RACES):
        arrive(corpus, number)
        assert build(*append_to(expected, corpus)).code == 0
        done = subprocess.run(
            [sys.executable, "-c", RACE, *append_to(output, corpus)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert json.loads(done.stdout.splitlines()[-1]) == [0, 0], done.stderr
        assert done.stdout.count("nothing is new") == 1 and done.stderr.count("waiting: the output is locked by") <= 1
        assert files_of(output) == files_of(expected)


@pytest.mark.slow
@pytest.mark.skipif("TEST_SLOW" not in os.environ, reason="takes many minutes; TEST_SLOW=1")
def test_after_sixty_random_kills_the_dataset_is_as_without_them(build, corpus, tmp_path):
    expected, output, kills, chance = tmp_path / "expected", tmp_path / "out", 0, random.Random(0)
    for number in range(DAYS):
        arrive(corpus, number, day(number, 400))
        began = time.monotonic()
        assert build_in_process("build", *append_to(expected, corpus)).returncode == 0
        seconds = time.monotonic() - began
        for _ in range(2):
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline", "build", *append_to(output, corpus)],
                cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            time.sleep(chance.uniform(0, 1.1 * seconds))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
            process.wait()
        ended = build_in_process("build", *append_to(output, corpus))
        assert ended.returncode == 0, ended.stderr
        assert files_of(output) == files_of(expected)
    assert kills >= 40


def test_append_without_a_row_is_committed_and_shown(corpus, tmp_path, capfd):
    options = [
        f"--input={corpus}",
        f"--tokenizer={TOKENIZER}",
        f"--output={tmp_path / 'out'}",
        "--direct_num_workers=1",
    ]
    arrive(corpus, 1)
    assert chatmill(*options, "--append") == 0
    rows = manifest_of(tmp_path / "out")["rows"]
    write_jsonl(corpus / "day-02.jsonl", [{"messages": [user("Hi")]}])  # without an answer
    capfd.readouterr()
    assert chatmill(*options, "--append") == 0
    assert (manifest_of(tmp_path / "out")["rows"], Dataset(str(tmp_path / "out")).version) == (rows, 2)
    assert "Version 2: 1 file with 1 record was added: 0 rows, 0 tokens." in capfd.readouterr().out


def test_append_to_a_dataset_with_a_damaged_shard_is_committed_and_derived_without_a_report(
    build, corpus, tmp_path, caplog, capfd
):
    output = tmp_path / "out"
    arrive(corpus, 1)
    assert build(*append_to(output, corpus)).code == 0
    assert (output / "report.html").exists()
    damaged = output / manifest_of(output)["shards"][0]["path"]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    arrive(corpus, 2)

    ended = build(*append_to(output, corpus))

    assert ended.code == 1  # the summary shows the first example
    assert ended.err.startswith(f"chatmill: {damaged}: the file is damaged") and ended.err.count("\n") == 1
    assert f"version 2 is complete, and has no report: {damaged}: the file is damaged" in caplog.text
    assert (manifest_of(output)["snapshot"]["version"], manifest_of(output)["records"]["read"]) == (2, 80)
    assert not (output / "report.html").exists()
    assert {fault.path for fault in verify(str(output)).faults} == {str(damaged.relative_to(output))}
    capfd.readouterr()  # the laws would find the damage
    assert main(["build", *append_to(output, corpus)]) == 0 and "nothing is new" in capfd.readouterr().out
