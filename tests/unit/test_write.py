"""What a build writes: shards in each format, and the rejects, each read by other libraries than ours."""

from __future__ import annotations

import csv
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rejects, read_rows, stopped_before_the_commit, work_in, write_jsonl
from support.kinds import ALL_COLUMNS, build_dataset
from support.models import DEEPSEEK
from support.paths import TOKENIZER
from support.tfrecords import rows_of_tfrecord

GOOD = {"messages": [user("2+2?"), assistant("4")]}


@cache
def edges(folder: Path) -> Path:
    """A dataset of integers and of lengths about 128, 128² and so on, which have one byte more in a varint."""
    powers = [128**n + d for n in range(3) for d in (-1, 0) if 128**n + d < 128_000]
    rows = [{"input_ids": [*powers, 127_999, *[7] * n], "note": "é" * n, "position": 0} for n in range(0, 140)]
    # Padded, so that positions have up to four bytes, and that the task has two chunks.
    lines = [json.dumps(row).ljust(5_000_000 if at == 1 else 0) + "\n" for at, row in enumerate(rows)]
    (folder / "rows.jsonl").write_text("".join(lines))
    options = [f"--input={folder}/rows.jsonl", f"--output={folder}/out", f"--tokenizer={DEEPSEEK}", "--provenance"]
    formats = "--output_format=parquet,tfrecord"
    assert chatmill("build", *options, "--keep_columns=note", "--split_bytes=9000000", formats) == 0
    assert pq.read_metadata(next(folder.glob("out/data/*"))).num_row_groups == 2
    return folder / "out"


def as_features(row: dict[str, Any]) -> dict[str, list[Any]]:
    """Of a tf.train.Example each value is a list, a string is bytes, and a null is an empty list."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in row.items()}
    return {
        name: [each.encode() if isinstance(each, str) else each for each in values if each is not None]
        for name, values in lists.items()
    }


@pytest.mark.parametrize("kind", ["packed", "shifted", "edges"])
def test_tfrecord_has_each_row_and_column_of_parquet(kind: str, tmp_path: Path):
    folder = edges(tmp_path) if kind == "edges" else build_dataset(kind)
    shards = [shard["path"] for shard in read_manifest(folder)["shards"]]
    parquet = [path for path in shards if path.endswith(".parquet")]
    assert len(shards) == 2 * len(parquet)
    for path in parquet:
        (other,) = (folder / "tfrecord").glob(f"{Path(path).stem}.*")
        content = other.read_bytes()
        if other.suffix == ".gz":
            assert content[4:8] == b"\0\0\0\0"  # MTIME of RFC 1952: the bytes must not depend on the clock
            content = gzip.decompress(content)
        assert rows_of_tfrecord(content) == [as_features(row) for row in pq.read_table(folder / path).to_pylist()]


def test_tfrecord_is_loaded_as_it_is_compressed_from_all_versions(tmp_path: Path):
    options = [f"--input={tmp_path}/*.jsonl", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"]
    for number in range(2):
        write_jsonl(tmp_path / f"{number}.jsonl", [{"messages": [user(f"{number}?"), assistant("4")]}])
        assert chatmill("build", *options, "--append", "--output_format=tfrecord.gz") == 0
        names = [f'"{tmp_path}/out/{path.rsplit("-", 2)[0]}-*.tfrecord.gz"' for path in list_shards(tmp_path / "out")]
        code = (tmp_path / "out" / "README.md").read_text().replace("PATH OF THIS FOLDER", f"{tmp_path}/out")
        shown = names[0] if number == 0 else f"[{', '.join(names)}]"
        assert f'TFRecordDataset(tf.io.gfile.glob({shown}), compression_type="GZIP")' in code


def list_shards(folder: Path) -> list[str]:
    return [shard["path"] for shard in read_manifest(folder)["shards"]]


@pytest.mark.parametrize("kind", ["packed", "shifted"])
def test_datasets_loads_the_rows_with_their_features_and_only_kept_columns_may_have_nulls(kind: str, tmp_path: Path):
    loaded = datasets.load_dataset(str(build_dataset(kind)), split="train", cache_dir=str(tmp_path))
    assert loaded.to_list() == read_rows(build_dataset(kind))
    narrow = dict.fromkeys(("attention_mask", "loss_mask", "part_kinds"), "int8")
    features: dict[str, Any] = {
        name: datasets.List(datasets.Value(narrow.get(name, "int32"))) for name in ALL_COLUMNS.split(",")
    }
    source = {"origin_file": datasets.Value("string"), "origin_position": datasets.Value("int64")}
    features |= {name: datasets.List(value) for name, value in source.items()} if kind == "packed" else source
    features |= {} if kind == "packed" else dict.fromkeys(("id", "topic"), datasets.Value("string"))
    assert loaded.features == datasets.Features(features)
    schema = pq.read_schema(build_dataset(kind) / list_shards(build_dataset(kind))[0])
    assert [field.name for field in schema if field.nullable] == ([] if kind == "packed" else ["id", "topic"])
    assert not any(field.type.value_field.nullable for field in schema if pa.types.is_list(field.type))


def test_row_groups_have_a_bounded_number_of_values(tmp_path: Path):
    row = 'row = {"input_ids": [7] * 1000, "labels": [7] * 1000}'
    (tmp_path / "rows.py").write_text(f"{row}\ndef rows(record):\n    return [row] * 1000\n")
    given = [f"--input={write_jsonl(tmp_path / 'a.jsonl', [{}])}", f"--formatter={tmp_path}/rows.py:rows"]
    given += [f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", "--report=none"]
    columns = "--write_columns=input_ids,labels,attention_mask,position_ids,loss_mask"
    assert chatmill("build", *given, columns) == 0
    metadata = pq.read_metadata(tmp_path / "out" / list_shards(tmp_path / "out")[0])
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert rows == [838, 162]  # 4 Mi values of five columns


@pytest.mark.nightly
def test_task_of_very_many_tokens_is_several_shards_and_is_built_again_if_one_is_missing(tmp_path: Path):
    """A compressed file may hold more than its size lets expect."""
    offsets, ids = np.arange(8601, dtype=np.int32) * 8192, np.full(8600 * 8192, 7, np.int32)
    rows = pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=100)
    options = [f"--input={tmp_path}/rows.parquet", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"]
    options += ["--write_columns=input_ids", "--split_bytes=67108864", "--report=none"]
    with stopped_before_the_commit():
        assert chatmill("build", *options) == 0, "stopped before the commit"
    _, last = sorted((work_in(tmp_path / "out") / "receipts").iterdir())
    last.unlink()
    assert chatmill("build", *options) == 0
    shards = read_manifest(tmp_path / "out")["shards"]
    assert [(shard["path"][-11:], shard["rows"]) for shard in shards] == [("000.parquet", 8200), ("001.parquet", 400)]


def test_each_record_of_a_task_of_several_files_is_found_in_its_own(tmp_path: Path):
    """Rows, rejects and the first record of each reason, with positions as the format of the file has them."""
    good, none, odd = (
        json.dumps({**GOOD, "source": "wiki"}),
        json.dumps({"messages": []}),
        json.dumps({"messages": "no"}),
    )
    (tmp_path / "a.jsonl").write_bytes(f"{good}\n{none}\n".encode() + b'{"messages": [\xff\n' + f"{none}\n".encode())
    (tmp_path / "b.json").write_text(f"[{good}, {none}, {odd}]")
    with open(tmp_path / "c.csv", "w", newline="") as file:
        csv.writer(file).writerows([["messages"], [json.dumps(GOOD["messages"])]])
    pq.write_table(pa.table({"text": pa.array(["a", None])}), tmp_path / "d.parquet")
    options = [f"--input={tmp_path}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", "--provenance"]
    assert chatmill("build", *options, "--keep_columns=source", "--max_reject_fraction=0.9") == 0
    after_good, after_none = len(good) + 1, len(good) + len(none) + 2
    assert [(row["origin_file"], row["origin_position"]) for row in read_rows(tmp_path / "out")] == [
        (f"{tmp_path}/a.jsonl", 0), (f"{tmp_path}/b.json", 0), (f"{tmp_path}/c.csv", 0), (f"{tmp_path}/d.parquet", 0),
    ]  # fmt: skip
    assert [row["source"] for row in read_rows(tmp_path / "out")] == ["wiki", "wiki", None, None]
    rejects = [
        (each["origin_file"].rpartition("/")[2], each["origin_position"], each["reason"])
        for each in read_rejects(tmp_path / "out")
    ]
    assert rejects == [
        ("a.jsonl", after_good, "empty"), ("a.jsonl", after_none, "invalid_json"),
        ("a.jsonl", after_none + 16, "empty"), ("b.json", 1, "empty"), ("b.json", 2, "bad_message"),
        ("d.parquet", 1, "unknown_schema"),
    ]  # fmt: skip
    assert [each["record"] for each in read_rejects(tmp_path / "out")][:3] == [
        none.encode(), b'{"messages": [\xff', none.encode(),
    ]  # fmt: skip
    firsts = read_manifest(tmp_path / "out")["first_rejects"]
    assert {reason: (first["file"], first["position"]) for reason, first in firsts.items()} == {
        "empty": (f"{tmp_path}/a.jsonl", f"byte {after_good:,}"),
        "invalid_json": (f"{tmp_path}/a.jsonl", f"byte {after_none:,}"),
        "bad_message": (f"{tmp_path}/b.json", "record 2"),
        "unknown_schema": (f"{tmp_path}/d.parquet", "row 1"),
    }
    assert firsts["invalid_json"]["detail"] in {each["detail"] for each in read_rejects(tmp_path / "out")}


def test_columns_of_any_name_are_read_and_kept(tmp_path: Path):
    name = 'a "\\ \x07`|'
    corpus = write_jsonl(
        tmp_path / "a.jsonl", [{name: GOOD["messages"], f"{name}2": str(number)} for number in range(3)]
    )
    recipe = {"input": str(corpus), "columns": {"messages": name}, "keep_columns": [f"{name}2"]}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    options = [tmp_path / "recipe.yaml", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"]
    assert chatmill("build", *options) == 0
    assert [row[f"{name}2"] for row in read_rows(tmp_path / "out")] == ["0", "1", "2"]
