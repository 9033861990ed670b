"""Readers of a dataset that is appended to or replaced: each sees one version, whatever is committed meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from support.command_line import chatmill
from support.datasets import digests, write_jsonl
from support.increments import commit_and_overwrite, commit_numbers
from support.laws import broken_laws
from support.paths import TOKENIZER
from support.stores import gs, running, s3
from transforms import Dataset, shards
from transforms.audit.verification import verify

COMMITS = 50
COMMITS_IN_BUCKET = COMMITS if "TEST_SLOW" in os.environ else 12  # with one overwrite or more
SPAWN: Any = multiprocessing.get_context("spawn")


def read_while_it_grows(output: str, readers: list[Callable[[], list[int]]], commits: int = COMMITS) -> None:
    """Append and overwrite in another process, and read here: each reading has the rows of one version, none older."""
    commit_numbers(output, "build", 0, 0)
    seen: list[list[int]] = [[] for _ in readers]
    writer = SPAWN.Process(target=commit_and_overwrite, args=(output, 1, commits))
    writer.start()
    grows = True
    while grows:
        grows = writer.is_alive()  # after its end, all is read once more
        for read, versions in zip(readers, seen, strict=True):
            numbers = read()
            assert numbers == [*range(len(numbers))]
            versions.append(len(numbers))
    writer.join()
    assert writer.exitcode == 0
    for versions in seen:
        assert versions == sorted(versions) and versions[-1] == commits
        assert len({*versions}) > 2, versions


def numbers_of(loaded: Any) -> list[int]:
    return [row["input_ids"][0] for row in loaded]


def of_files(output: str) -> list[int]:
    """What `datasets` streams from the files of the newest version."""
    return numbers_of(datasets.load_dataset("parquet", data_files=shards(output), split="train", streaming=True))


def of_dataset(output: str) -> list[int]:
    rows = Dataset(output).rows("train", ["input_ids"])
    return [ids[0] for *_, batch in rows for ids in batch["input_ids"].to_pylist()]


def test_loop_of_readers_next_to_commits_and_overwrites_never_sees_a_missing_file_or_two_versions(tmp_path: Path):
    output = str(tmp_path / "out")

    def loaded(streaming: bool) -> list[int]:
        cache = str(tmp_path / "cache")
        return numbers_of(datasets.load_dataset(output, split="train", streaming=streaming, cache_dir=cache))

    readers = [lambda: loaded(True), lambda: loaded(False), lambda: of_files(output), lambda: of_dataset(output)]
    read_while_it_grows(output, readers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [s3, gs])
def test_loop_of_readers_next_to_commits_in_a_bucket_never_sees_a_missing_file_or_two_versions(kind: Any):
    with running(kind) as store:
        store.files.mkdir("grows")
        output = store.url("grows/out")
        read_while_it_grows(output, [lambda: of_files(output), lambda: of_dataset(output)], COMMITS_IN_BUCKET)


OVERWRITES = 20 if "TEST_SLOW" in os.environ else 4


def build_of(folder: Path, texts: int, *more: str) -> list[str]:
    """A build of a corpus with so many texts, each of which is a row."""
    corpus = write_jsonl(folder / f"{texts}.jsonl", [{"text": f"text {number} of {texts}"} for number in range(texts)])
    options = [f"--tokenizer={TOKENIZER}", "--direct_num_workers=1", "--split_bytes=1000", f"--output={folder}/out"]
    return ["build", f"--input={corpus}", *options, *more]


def overwrite(folder: Path, first: int, last: int) -> None:
    for texts in range(first, last + 1):
        assert chatmill(*build_of(folder, texts, "--overwrite")) == 0


def texts_of(loaded: Any) -> list[list[int]]:
    return [row["input_ids"] for row in loaded]


def test_loop_of_readers_next_to_overwrites_always_has_one_whole_version(tmp_path: Path):
    output, texts = str(tmp_path / "out"), 100

    def of_reader() -> list[list[int]]:
        return [ids for *_, batch in Dataset(output).rows() for ids in batch["input_ids"].to_pylist()]

    def of_card() -> list[list[int]]:
        return texts_of(datasets.load_dataset(output, split="train", streaming=True))

    assert chatmill(*build_of(tmp_path, texts)) == 0
    seen: list[list[Any]] = [[], []]
    writer = SPAWN.Process(target=overwrite, args=(tmp_path, texts + 1, texts + OVERWRITES))
    writer.start()
    goes_on = True
    while goes_on:
        goes_on = writer.is_alive()
        for read, found in zip((of_reader, of_card), seen, strict=True):
            found.append(read())
    writer.join()
    assert writer.exitcode == 0
    whole = {
        version: [ids for *_, batch in Dataset(f"{output}@{version}").rows() for ids in batch["input_ids"].to_pylist()]
        for version in range(1, OVERWRITES + 2)
    }
    assert [len(rows) for rows in whole.values()] == [*range(texts, texts + OVERWRITES + 1)]
    for found in seen:
        versions = [len(rows) - texts + 1 for rows in found]
        assert all(rows == whole[version] for rows, version in zip(found, versions, strict=True))
        assert versions == sorted(versions) and versions[-1] == OVERWRITES + 1 and len({*versions}) > 2


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
    assert {name.partition("/")[0] for name in after.keys() - before.keys()} <= {"data", "rejects", "ledger"}
    assert (output / "_SUCCESS").exists() and Dataset(str(output)).version == 1
    assert verify(str(output)).faults == broken_laws(output) == []
    loaded = datasets.load_dataset(str(output), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(loaded) == rows == 20
    # To whoever repeats the first build, or appends, nothing has happened.
    again = build(*command[1:])
    assert again.code == 0 and "is finished already" in again.err
    appended = build(*command[1:], "--append")
    assert appended.code == 0 and "Version 1: nothing is new" in appended.out
    assert digests(output).items() >= before.items() and verify(str(output)).faults == broken_laws(output) == []
