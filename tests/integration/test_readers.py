"""Readers of a dataset that grows: each sees one version, whatever is committed meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from pipeline.snapshots import shards
from support.increments import begin, commit_and_compact, commit_numbers
from support.stores import gs, running, s3
from transforms import Dataset

COMMITS = 50
COMMITS_IN_BUCKET = COMMITS if "TEST_SLOW" in os.environ else 12  # with one compaction or more
SPAWN: Any = multiprocessing.get_context("spawn")


def read_while_it_grows(output: str, readers: list[Callable[[], list[int]]], commits: int = COMMITS) -> None:
    """Append and compact in another process, and read here: each reading has the rows of one version, no older one."""
    begin(output)
    commit_numbers(output, "append", 0, 0)
    seen: list[list[int]] = [[] for _ in readers]
    writer = SPAWN.Process(target=commit_and_compact, args=(output, 1, commits))
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


def test_loop_of_readers_next_to_commits_and_compactions_never_sees_a_missing_file_or_two_versions(tmp_path: Path):
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
