"""Readers of a dataset that is appended to or replaced: each sees one version, whatever is committed meanwhile."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from support.command_line import chatmill
from support.datasets import digests, write_jsonl
from support.drawn import AT_LENGTH
from support.laws import broken_laws
from support.paths import TOKENIZER
from support.stores import gs, running, s3
from transforms import Dataset, shards

COMMITS = 20 if AT_LENGTH else 6
SPAWN: Any = multiprocessing.get_context("spawn")


def build_of(folder: Path, texts: int, *more: str) -> list[str]:
    """A build of a corpus with so many texts, each of which is a row."""
    corpus = write_jsonl(folder / f"{texts}.jsonl", [{"text": f"text {number} of {texts}"} for number in range(texts)])
    options = [f"--tokenizer={TOKENIZER}", "--direct_num_workers=1", "--split_bytes=1000", f"--output={folder}/out"]
    return ["build", f"--input={corpus}", *options, *more]


def append_and_overwrite(folder: Path, output: str, first: int, last: int) -> None:
    """Commit versions: each third one is an overwrite, with one row more than the version before; others append one."""
    for number in range(first, last + 1):
        write_jsonl(folder / f"{number:02d}.jsonl", [{"text": f"text {number}"}])
        kind = "--append" if number % 3 else "--overwrite"
        options = [f"--tokenizer={TOKENIZER}", "--direct_num_workers=1", "--report=none", f"--output={output}"]
        assert chatmill("build", kind, f"--input={folder}/??.jsonl", *options) == 0


def read_ids(loaded: Any) -> list[list[int]]:
    return [row["input_ids"] for row in loaded]


def of_dataset(output: str) -> list[list[int]]:
    """What the reader of rows has of a version."""
    return [ids for *_, batch in Dataset(output).rows() for ids in batch["input_ids"].to_pylist()]


def of_files(output: str) -> list[list[int]]:
    """What `datasets` streams from the files of the newest version."""
    return read_ids(datasets.load_dataset("parquet", data_files=shards(output), split="train", streaming=True))


def read_next_to_commits(folder: Path, output: str, readers: list[Callable[[], list[list[int]]]]) -> None:
    """Append and overwrite in another process, and read here: each reading has the rows of one version, none older."""
    append_and_overwrite(folder, output, 1, 1)
    seen: list[list[list[list[int]]]] = [[] for _ in readers]
    writer = SPAWN.Process(target=append_and_overwrite, args=(folder, output, 2, COMMITS))
    writer.start()
    goes_on = True
    while goes_on:
        goes_on = writer.is_alive()  # after its end, all is read once more
        for read, found in zip(readers, seen, strict=True):
            found.append(read())
    writer.join()
    assert writer.exitcode == 0
    whole = {version: of_dataset(f"{output}@{version}") for version in range(1, COMMITS + 1)}
    assert [len(rows) for rows in whole.values()] == [*range(1, COMMITS + 1)]
    for found in seen:
        versions = [len(rows) for rows in found]
        assert all(rows == whole[version] for rows, version in zip(found, versions, strict=True))
        assert versions == sorted(versions) and versions[-1] == COMMITS and len({*versions}) > 2


def test_reader_next_to_appends_and_overwrites_never_sees_a_missing_file_or_two_versions(tmp_path: Path):
    output = str(tmp_path / "out")

    def loaded(streaming: bool) -> list[list[int]]:
        cache = str(tmp_path / "cache")
        return read_ids(datasets.load_dataset(output, split="train", streaming=streaming, cache_dir=cache))

    readers = [lambda: loaded(True), lambda: loaded(False), lambda: of_files(output), lambda: of_dataset(output)]
    read_next_to_commits(tmp_path, output, readers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [s3, gs])
def test_reader_next_to_commits_in_a_bucket_never_sees_a_missing_file_or_two_versions(kind: Any, tmp_path: Path):
    with running(kind) as store:
        store.files.mkdir("grows")
        output = store.url("grows/out")
        read_next_to_commits(tmp_path, output, [lambda: of_files(output), lambda: of_dataset(output)])


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (0, ["--max_reject_fraction=1"], "dropped or rejected"),
        (0, [], "9 of 9 records were rejected"),
        (8, [], "9 of 17 records were rejected"),
        (8, ["--max_reject_fraction=1", "--max_length=2", "--max_lost_fraction=0"], "max_lost_fraction"),
    ],
)
def test_overwrite_that_fails_leaves_the_version_that_was_there(
    build: Callable[..., Any], tmp_path: Path, texts: int, options: list[str], message: str
):
    output, command = tmp_path / "out", build_of(tmp_path, 20)
    assert chatmill(*command) == 0
    before, rows = digests(output), Dataset(str(output)).manifest["rows"]
    corpus = write_jsonl(tmp_path / "new.jsonl", [*({"text": "?" * 9} for _ in range(texts)), *[{"text": 5}] * 9])

    ended = build(f"--input={corpus}", *command[2:], "--overwrite", *options)

    assert ended.code == 1 and message in ended.err and "Traceback" not in ended.err, ended.err
    after = digests(output)
    assert before.items() <= after.items()
    assert {name.partition("/")[0] for name in after.keys() - before.keys()} <= {"data", "records"}
    assert Dataset(str(output)).version == 1
    assert chatmill("verify", output) == 0 and broken_laws(output) == []
    loaded = datasets.load_dataset(str(output), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(loaded) == rows == 20
    # To whoever repeats the first build, or appends, nothing has happened.
    again = build(*command[1:])
    assert again.code == 0 and "is finished already" in again.err
    appended = build(*command[1:], "--append")
    assert appended.code == 0 and "Version 1: nothing is new" in appended.out
    assert digests(output).items() >= before.items() and chatmill("verify", output) == 0
