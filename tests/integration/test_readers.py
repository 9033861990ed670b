"""Readers of a dataset that grows: each sees one version, whatever is committed meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pytest

from pipeline.snapshots import shards
from support.increments import begin, commit_and_compact, commit_numbers
from support.programs import free_port, serving
from support.stores import gs, s3
from transforms import Dataset

COMMITS = 50
SPAWN: Any = multiprocessing.get_context("spawn")


def read_while_it_grows(output: str, readers: list[Callable[[], list[int]]]) -> None:
    """Append and compact in another process, and read here: each reading has the rows of one version, no older one."""
    begin(output)
    commit_numbers(output, "append", 0, 0)
    seen: list[list[int]] = [[] for _ in readers]
    writer = SPAWN.Process(target=commit_and_compact, args=(output, 1, COMMITS))
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
        assert versions == sorted(versions) and versions[-1] == COMMITS
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


@pytest.fixture(params=[s3, gs], ids=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port = free_port()
    command, environment = request.param(port, port)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(fsspec.config.conf)
    fsspec.config.set_conf_env(fsspec.config.conf)
    with serving(command, port):
        protocol = request.param.__name__
        fsspec.filesystem(protocol, skip_instance_cache=True).mkdir("grows")
        yield f"{protocol}://grows/out"
    fsspec.config.conf.clear()
    fsspec.config.conf.update(before)


@pytest.mark.slow
@pytest.mark.skipif("TEST_SLOW" not in os.environ, reason="takes minutes")
def test_loop_of_readers_next_to_commits_in_a_bucket_never_sees_a_missing_file_or_two_versions(bucket: str):
    read_while_it_grows(bucket, [lambda: of_files(bucket), lambda: of_dataset(bucket)])
