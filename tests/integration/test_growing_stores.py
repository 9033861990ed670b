"""Appendable datasets in buckets: appends that race, are killed or meet failed requests; expiry; every."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from support.command_line import chatmill
from support.faulty_proxy import FAULTS, seeded
from support.paths import ROOT, TOKENIZER
from support.stores import Store, gs, running, s3
from transforms import Dataset, UserError, shards


@pytest.fixture(scope="module", params=[s3, gs], ids=["s3", "gs"])
def store(request) -> Iterator[Store]:
    with running(request.param) as store:
        store.files.mkdir("grows")
        yield store


@pytest.fixture
def folder() -> str:
    """Has the folder `in`, in which files arrive, and the dataset `out`."""
    return f"grows/{uuid.uuid4().hex}"


def make_options(store: Store, folder: str) -> list[str]:
    places = [f"--input={store.url(folder)}/in/*.jsonl", f"--output={store.url(folder)}/out"]
    return [*places, f"--tokenizer={TOKENIZER}", "--packing=bfd", "--max_length=256"]


def arrive(store: Store, folder: str, day: int) -> None:
    """Let a file of forty records arrive."""
    records = [{"prompt": f"What is {day} plus {i}?", "completion": f"{day + i}"} for i in range(40)]
    content = "".join(f"{json.dumps(each)}\n" for each in records).encode()
    store.files.pipe_file(f"{folder}/in/day-{day}.jsonl", content)


def read_records(output: str) -> int:
    """The number of records of the newest version, which must be sound."""
    assert chatmill("verify", output) == 0
    return Dataset(output).manifest["records"]["kept"]


def read_examples(output: str) -> Counter[tuple[int, ...]]:
    """The ids of the examples of a dataset, in whichever rows they are."""
    found: Counter[tuple[int, ...]] = Counter()
    for *_, batch in Dataset(output).rows():
        for row in batch.to_pylist():
            ends = [0, *itertools.accumulate(row["seq_lengths"])]
            found.update(tuple(row["input_ids"][start:end]) for start, end in itertools.pairwise(ends))
    return found


@pytest.mark.slow
def test_dataset_grows_in_a_bucket_next_to_another_append_and_after_a_failed_commit(build, store, folder):
    options, output = make_options(store, folder), store.url(f"{folder}/out")
    arrive(store, folder, 0)
    command = [sys.executable, "-m", "pipeline", "build", "--append", *options]
    racers = [subprocess.Popen(command, cwd=ROOT, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    ended = [racer.communicate() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], ended
    assert read_records(output) == 40

    arrive(store, folder, 1)
    store.proxy.refused = {r"(PUT|POST) .*versions/00000002\.json": "AccessDenied"}
    failed = build("--append", *options)
    store.proxy.reset()
    assert failed.code == 1 and "AccessDenied" in failed.err and read_records(output) == 40, failed.err
    arrive(store, folder, 2)
    resumed = build("--append", *options)
    assert resumed.code == 0 and "resuming: 1 of 1 tasks" in resumed.err, resumed.err
    assert read_records(output) == 120
    assert not [name for name in store.names(f"{folder}/out/_chatmill") if "/building/" in name]


@pytest.mark.slow
def test_failed_requests_do_not_change_a_dataset_that_grows_is_built_again_and_expires(build, store, folder, hurried):
    options, output = [*make_options(store, folder), "--direct_num_workers=1"], store.url(f"{folder}/out")
    for day in range(2):
        arrive(store, folder, day)
        store.proxy.faults = seeded(FAULTS, 0.05, seed=day)
        ended = build("--append", *options)
        store.proxy.reset()
        assert ended.code == 0, ended.err
        assert read_records(output) == 40 * (day + 1)
    before = read_examples(output)

    store.proxy.faults = seeded(FAULTS, 0.05, seed=2)
    ended = build("--overwrite", *options)
    store.proxy.reset()
    assert ended.code == 0, ended.err

    assert [len(shards(output, version)) for version in (1, 2, 3)] == [1, 2, 1]
    assert read_records(output) == 80 and read_examples(output) == before
    assert chatmill("expire", output, "--older_than=0s") == 0
    for version in (1, 2):
        with pytest.raises(UserError, match=f"there is no version {version}; it has version 3"):
            shards(output, version)
    assert len(store.digests_of_shards(f"{folder}/out")) == 1
    assert read_records(output) == 80 and read_examples(output) == before
