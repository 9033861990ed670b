"""A dataset of an earlier build inside the input is not read as input, and a folder that is one gives its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from support.reading import paths_of, urls_of
from transforms import ParameterError, UserError

RECORDS = b'{"text": "a"}\n'
MANIFEST = {"format": 1, "records": {"read": 2}, "shards": [], "rejects": [], "job": {}}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def manifest_of(folder: Path, *shards: str, **more: Any) -> bytes:
    entries = [
        {"path": shard, "bytes": (folder / shard).stat().st_size, "split": shard.split("/")[1].split("-")[0]}
        for shard in shards
    ]
    return encoded(MANIFEST | {"shards": entries} | more)


def write_dataset(folder: Path, parts: str = "job manifest") -> Path:
    for path in (folder / "data" / "train-00000-of-00001.parquet", folder / "rejects" / "00000.parquet"):
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"input_ids": [[1, 2]]}), path)
    if "job" in parts:
        (folder / "_chatmill").mkdir()
        (folder / "_chatmill" / "job.json").write_text("{}")
    if "manifest" in parts:
        (folder / "manifest.json").write_bytes(manifest_of(folder, "data/train-00000-of-00001.parquet"))
    (folder / "README.md").write_text("# A dataset")
    return folder


@pytest.fixture
def corpus(tmp_path) -> Path:
    (tmp_path / "more").mkdir()
    for name in ("a.jsonl", "more/b.jsonl"):
        (tmp_path / name).write_bytes(RECORDS)
    return tmp_path


def listed(pattern: Path | str, folder: Path) -> list[str]:
    return [str(Path(url).relative_to(folder)) for url in urls_of(pattern)]


@pytest.mark.parametrize("parts", ["job manifest", "job"])
@pytest.mark.parametrize("place", ["out", "more/out", "out/2026/11"])
def test_a_dataset_below_a_folder_is_not_read_and_logged(corpus, caplog, place, parts):
    write_dataset(corpus / place, parts)
    assert listed(corpus, corpus) == ["a.jsonl", "more/b.jsonl"]
    [line] = caplog.messages
    assert (
        line
        == f"{corpus}: {place} is a dataset of an earlier build and is not read. To read its rows, name its folder."
    )


def test_a_dataset_that_is_named_gives_its_rows_and_not_its_rejects(corpus):
    out = write_dataset(corpus / "out")
    write_dataset(out / "data" / "nested")
    assert listed(out, out) == ["data/train-00000-of-00001.parquet"]


def test_files_of_a_dataset_that_are_named_are_read(corpus):
    out = write_dataset(corpus / "out")
    for pattern in (out / "rejects" / "00000.parquet", out / "rejects" / "*.parquet", out / "rejects"):
        assert listed(pattern, out) == ["rejects/00000.parquet"]


@pytest.mark.parametrize("pattern", ["**/*", "*/*.json*", "**/*.[jp]*", "*/*"])
def test_a_glob_does_not_read_a_dataset_that_only_its_signs_match(corpus, caplog, pattern):
    write_dataset(corpus / "out")
    assert [name for name in listed(corpus / pattern, corpus) if name != "a.jsonl"] == ["more/b.jsonl"]
    assert "out is a dataset of an earlier build" in caplog.text


def test_a_folder_that_has_only_the_names_of_a_dataset_is_read(corpus):
    other = corpus / "other"
    write_dataset(other, "")
    (other / "manifest.json").write_text('{"files": 3}')
    assert "other/data/train-00000-of-00001.parquet" in listed(corpus, corpus)


def test_a_folder_of_datasets_alone_has_no_file_of_records(tmp_path):
    write_dataset(tmp_path / "one")
    with pytest.raises(ParameterError, match="it has no file of records"):
        urls_of(tmp_path)


def test_a_dataset_in_a_bucket_is_not_read(caplog):
    for name, content in (
        ("a.jsonl", RECORDS),
        ("out/_chatmill/versions/00000001.json", b"{}"),
        ("out/data/b.jsonl", RECORDS),
    ):
        MemoryFileSystem().pipe_file(f"/earlier/{name}", content)
    for pattern in ("memory://earlier", "memory://earlier/**/*.jsonl"):
        assert urls_of(pattern) == ["memory:///earlier/a.jsonl"]
    with pytest.raises(UserError, match=r"it is a dataset that is not finished, or its manifest\.json is damaged"):
        urls_of("memory://earlier/out")


def test_a_dataset_that_grows_gives_the_rows_of_its_newest_version(corpus):
    write_dataset(corpus / "out")
    pq.write_table(pa.table({"input_ids": [[3]]}), corpus / "out" / "data" / "train-00001-of-00001.parquet")
    manifest = manifest_of(corpus / "out", "data/train-00001-of-00001.parquet", snapshot={"version": 2})
    (corpus / "out" / "manifest.json").write_bytes(manifest)
    assert listed(corpus / "out", corpus) == ["out/data/train-00001-of-00001.parquet"]


def test_a_dataset_with_a_shard_that_is_missing_or_cut_or_whose_shards_are_not_known_is_not_read(corpus):
    out = write_dataset(corpus / "out")
    shard = out / "data" / "train-00000-of-00001.parquet"
    shard.write_bytes(content := shard.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"out': data/{shard.name} has {len(content)} bytes; expected "):
        listed(out, out)
    shard.write_bytes(b"")
    with pytest.raises(UserError, match=rf"data/{shard.name} has 0 bytes"):
        listed(out, out)
    shard.unlink()
    with pytest.raises(UserError, match=rf"data/{shard.name} is in a split, and not there"):
        listed(out, out)
    (out / "_chatmill" / "versions").mkdir()
    (out / "_chatmill" / "versions" / "00000001.json").touch()
    (out / "manifest.json").unlink()
    with pytest.raises(
        UserError, match=r"out': it is a dataset that is not finished, or its manifest\.json is damaged"
    ):
        listed(out, out)


def test_splits_of_a_dataset_are_chosen_as_on_the_hub(corpus):
    out = write_dataset(corpus / "out")
    train, validation = "data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"
    pq.write_table(pa.table({"input_ids": [[3]]}), out / validation)
    (out / "manifest.json").write_bytes(manifest_of(out, train, validation))
    for splits, expected in (
        (("train",), [train]),
        (("validation",), [validation]),
        (("validation", "train"), [train, validation]),
    ):
        assert paths_of(out, *splits) == expected
    sizes = rf"train \({(out / train).stat().st_size} bytes\), validation \({(out / validation).stat().st_size} bytes\)"
    with pytest.raises(ParameterError, match=rf"it has several splits: {sizes}\. Choose with split, such as train"):
        urls_of(out)
    with pytest.raises(ParameterError, match=rf"split='test': {out} has no split test; it has {sizes}"):
        urls_of(out, "test")
    (out / validation).write_bytes(b"")
    with pytest.raises(UserError, match=rf"out': {validation} has 0 bytes"):
        urls_of(out, "validation")
    assert len(urls_of(out, "train")) == 1
    (out / "manifest.json").write_bytes(manifest_of(out, train))
    assert listed(out, out) == [train]


@pytest.mark.parametrize("named", ["a.jsonl", "*.jsonl"])
def test_files_that_are_named_have_no_splits(corpus, named):
    with pytest.raises(ParameterError, match="is not a dataset, and has no splits"):
        urls_of(corpus / named, "train")


@pytest.mark.parametrize(
    "layout",
    [
        {"packing": "bfd", "max_length": 8},
        {"packing": "none", "shift_labels": True},
    ],
)
def test_a_dataset_whose_rows_are_no_records_is_refused(corpus, layout):
    out = write_dataset(corpus / "out")
    (out / "manifest.json").write_bytes(manifest_of(out, "data/train-00000-of-00001.parquet", layout=layout))
    with pytest.raises(UserError, match="out': its rows are packed, so that one has several ex"):
        listed(out, out)


def test_a_dataset_whose_rows_are_in_tfrecord_alone_is_refused_and_next_to_parquet_they_are_not_read(corpus):
    out = write_dataset(corpus / "out")
    (out / "tfrecord").mkdir()
    (out / "tfrecord/train-00000-of-00001.tfrecord").write_bytes(b"x")
    both = json.loads(manifest_of(out, "data/train-00000-of-00001.parquet", "tfrecord/train-00000-of-00001.tfrecord"))
    for shard in both["shards"]:
        shard["format"] = shard["path"].rpartition(".")[2]
    (out / "manifest.json").write_bytes(encoded(both))
    assert listed(out, out) == ["data/train-00000-of-00001.parquet"]
    (out / "manifest.json").write_bytes(encoded(both | {"shards": both["shards"][1:]}))
    with pytest.raises(UserError, match=r"out': its rows are not in parquet, which is read\. Build it again with"):
        listed(out, out)


@pytest.mark.parametrize(
    ("records", "loss"),
    [
        ({"truncated": 1, "dropped": {}}, "1 record cut or dropped"),
        ({"truncated": 0, "dropped": {"too_long": 2, "filtered": 5}}, "2 records cut or dropped"),
        ({"truncated": 3, "dropped": {"too_long": 1}}, "4 records cut or dropped"),
        ({"truncated": 0, "dropped": {"filtered": 5}}, ""),
    ],
)
def test_what_a_dataset_lost_of_its_records_is_logged(corpus, caplog, records, loss):
    out = write_dataset(corpus / "out")
    content = manifest_of(out, "data/train-00000-of-00001.parquet", layout={"max_length": 1024}, records=records)
    (out / "manifest.json").write_bytes(content)
    assert len(listed(out, out)) == 1
    line = f"{out}: what is read are its rows: {loss} at its max_length of 1,024 tokens."
    assert caplog.messages == ([line] if loss else [])
