"""A dataset of an earlier build inside the input is not read as input, and a folder that is one gives its rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from support.reading import list_paths, list_urls
from transforms import ParameterError, UserError

RECORDS = b'{"text": "a"}\n'
SHARD, VALIDATION = "data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"
TFRECORD = "tfrecord/train-00000-of-00001.tfrecord"
SPLITS = {"train": [SHARD], "validation": [VALIDATION], "validation,train": [SHARD, VALIDATION]}


def write_manifest(folder: Path, *shards: str, **more: Any) -> None:
    entries = [
        {
            "path": shard,
            "bytes": (folder / shard).stat().st_size,
            "split": shard.split("/")[1].split("-")[0],
            "format": shard.rpartition(".")[2],
        }
        for shard in shards
    ]
    manifest = {"format": 1, "records": {"read": 2}, "shards": entries, "rejects": [], "job": {}, **more}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_dataset(folder: Path, parts: str = "job manifest", *shards: str, **more: Any) -> Path:
    for name in (SHARD, "rejects/00000.parquet", *shards):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"input_ids": [[1, 2]]}), folder / name)
    if "job" in parts:
        (folder / "_chatmill").mkdir()
        (folder / "_chatmill" / "job.json").write_text("{}")
    if "manifest" in parts:
        write_manifest(folder, SHARD, *shards, **more)
    (folder / "README.md").write_text("# A dataset")
    return folder


@pytest.fixture
def corpus(tmp_path) -> Path:
    (tmp_path / "more").mkdir()
    for name in ("a.jsonl", "more/b.jsonl"):
        (tmp_path / name).write_bytes(RECORDS)
    return tmp_path


def listed(pattern: Path | str, folder: Path) -> list[str]:
    return [str(Path(url).relative_to(folder)) for url in list_urls(pattern)]


@pytest.mark.parametrize("parts", ["job manifest", "job"])
@pytest.mark.parametrize("place", ["out", "more/out", "out/2026/11"])
def test_a_dataset_below_a_folder_is_not_read_and_logged(corpus, caplog, place, parts):
    write_dataset(corpus / place, parts)
    assert listed(corpus, corpus) == ["a.jsonl", "more/b.jsonl"]
    line = f"{place} is a dataset of an earlier build and is not read. To read its rows, name its folder."
    assert caplog.messages == [f"{corpus}: {line}"]


def test_of_a_dataset_that_is_named_the_rows_of_its_manifest_are_read_and_of_its_files_those_that_are_named(corpus):
    out = write_dataset(corpus / "out")
    write_dataset(out / "data" / "nested")
    pq.write_table(pa.table({"input_ids": [[3]]}), out / VALIDATION)
    assert listed(out, out) == [SHARD]
    for pattern in ("rejects/00000.parquet", "rejects/*.parquet", "rejects"):
        assert listed(out / pattern, out) == ["rejects/00000.parquet"]
    write_manifest(out, VALIDATION, snapshot={"version": 2})  # as it grows, it has other shards
    assert listed(out, out) == [VALIDATION]


@pytest.mark.parametrize("pattern", ["**", "**/*", "*/*.json*", "**/*.[jp]*", "*/*"])
def test_a_glob_does_not_read_a_dataset_that_only_its_signs_match(corpus, caplog, pattern):
    write_dataset(corpus / "out")
    assert [name for name in listed(corpus / pattern, corpus) if name != "a.jsonl"] == ["more/b.jsonl"]
    assert "out is a dataset of an earlier build" in caplog.text


def test_a_folder_that_has_only_the_names_of_a_dataset_is_read(corpus):
    write_dataset(corpus / "other", "")
    (corpus / "other" / "manifest.json").write_text('{"files": 3}')
    assert f"other/{SHARD}" in listed(corpus, corpus)


def test_a_folder_of_datasets_alone_has_no_file_of_records(tmp_path):
    write_dataset(tmp_path / "one")
    with pytest.raises(ParameterError, match="it has no file of records"):
        list_urls(tmp_path)


def test_a_dataset_in_a_bucket_is_not_read():
    for name in ("a.jsonl", "out/_chatmill/versions/00000001.json", "out/data/b.jsonl"):
        MemoryFileSystem().pipe_file(f"/earlier/{name}", RECORDS)
    for pattern in ("memory://earlier", "memory://earlier/**/*.jsonl"):
        assert list_urls(pattern) == ["memory:///earlier/a.jsonl"]
    with pytest.raises(UserError, match=r"it is a dataset that is not finished, or its manifest\.json is damaged"):
        list_urls("memory://earlier/out")


PACKED = "its rows are packed, so that one has several ex"
# What is done to a dataset with two splits, and why it is not read.
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda out: os.truncate(out / SHARD, 9), f"{SHARD} has 9 bytes; expected "),
    "empty": (lambda out: os.truncate(out / SHARD, 0), f"{SHARD} has 0 bytes"),
    "missing": (lambda out: (out / SHARD).unlink(), f"{SHARD} is in a split, and not there"),
    "not finished": (
        lambda out: (out / "manifest.json").unlink(),
        "it is a dataset that is not finished, or its manifest.json is damaged",
    ),
    "packed": (lambda out: write_manifest(out, SHARD, layout={"packing": "bfd", "max_length": 8}), PACKED),
    "shifted": (lambda out: write_manifest(out, SHARD, layout={"packing": "none", "shift_labels": True}), PACKED),
    "in TFRecord": (
        lambda out: write_manifest(out, TFRECORD, layout=None),
        "its rows are not in parquet, which is read. Build it again with",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_dataset_of_which_rows_are_missing_or_no_records_is_refused(corpus, case):
    change, words = REFUSED[case]
    out = write_dataset(corpus / "out", "job manifest", TFRECORD)
    assert listed(out, out) == [SHARD]  # those in TFRecord are the same again
    change(out)
    with pytest.raises(UserError, match=f"out': {re.escape(words)}"):
        listed(out, out)


def test_splits_of_a_dataset_are_chosen_as_on_the_hub(corpus):
    out = write_dataset(corpus / "out", "job manifest", VALIDATION)
    for splits, expected in SPLITS.items():
        assert list_paths(out, *splits.split(",")) == expected
    sizes = rf"train \({(out / SHARD).stat().st_size} bytes\), validation \({(out / VALIDATION).stat().st_size} bytes\)"
    with pytest.raises(ParameterError, match=rf"it has several splits: {sizes}\. Choose with split, such as train"):
        list_urls(out)
    with pytest.raises(ParameterError, match=rf"split='test': {out} has no split test; it has {sizes}"):
        list_urls(out, "test")
    os.truncate(out / VALIDATION, 0)
    with pytest.raises(UserError, match=rf"out': {VALIDATION} has 0 bytes"):
        list_urls(out, "validation")
    assert len(list_urls(out, "train")) == 1


@pytest.mark.parametrize(
    ("truncated", "dropped", "lost"),
    [
        (1, {}, "1 record cut or dropped"),
        (0, {"too_long": 2, "filtered": 5}, "2 records cut or dropped"),
        (3, {"too_long": 1}, "4 records cut or dropped"),
        (0, {"filtered": 5}, ""),
    ],
)
def test_what_a_dataset_lost_of_its_records_is_logged(corpus, caplog, truncated, dropped, lost):
    records = {"truncated": truncated, "dropped": dropped}
    out = write_dataset(corpus / "out", layout={"max_length": 1024}, records=records)
    assert listed(out, out) == [SHARD]
    line = f"{out}: what is read are its rows: {lost} at its max_length of 1,024 tokens."
    assert caplog.messages == ([line] if lost else [])
