"""--table delta: a Delta table in the dataset has exactly the files of the newest snapshot, after each commit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from support.datasets import build_in_process, manifest_of
from support.paths import CHATS, ROOT, TOKENIZER

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (pip install '.[test]')")

OPTIONS = (
    f"--tokenizer={TOKENIZER}", "--max_length=512", "--packing=bfd", "--provenance", "--validation_fraction=0.3",
    "--max_reject_fraction=0.05",
)  # fmt: skip


def append(output: Path, file: str, *options: str) -> None:
    done = build_in_process("--append", f"--input={CHATS / file}", f"--output={output}", *OPTIONS, *options)
    assert done.returncode == 0, done.stderr


def rows_by_split(rows: object) -> list[tuple[str, int, int]]:
    """Query the rows: how many, and how many tokens, in each split."""
    return duckdb.sql("select split, count(*), sum(len(input_ids)) from rows group by split order by split").fetchall()


def assert_table_is_the_snapshot(output: Path) -> None:
    manifest, table = manifest_of(output), deltalake.DeltaTable(output)
    assert sorted(table.file_uris()) == sorted(str(output / shard["path"]) for shard in manifest["shards"])
    expected = []
    for split in ("train", "validation"):
        shards = [shard for shard in manifest["shards"] if shard["split"] == split]
        expected.append((split, sum(shard["rows"] for shard in shards), sum(shard["tokens"] for shard in shards)))
    assert rows_by_split(table.to_pyarrow_dataset()) == expected
    assert table.history(1)[0]["chatmill.snapshot"] == str(manifest["snapshot"]["version"])


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> Path:
    """A dataset of two increments, whose table was made with the first one."""
    output = tmp_path_factory.mktemp("delta") / "out"
    append(output, "support.jsonl", "--table=delta")
    assert_table_is_the_snapshot(output)
    append(output, "arithmetic.jsonl")
    assert_table_is_the_snapshot(output)
    return output


def test_each_commit_is_one_of_the_table_which_can_be_read_as_it_was_before(grown):
    before = deltalake.DeltaTable(grown, version=0)
    assert [commit["chatmill.snapshot"] for commit in deltalake.DeltaTable(grown).history()] == ["2", "1"]
    paths = [shard["path"] for shard in manifest_of(grown)["shards"]]
    assert 0 < len(before.file_uris()) < len(paths)


@pytest.fixture
def copied(grown, tmp_path) -> Path:
    return shutil.copytree(grown, tmp_path / "out")


def test_table_of_a_commit_that_was_killed_or_repeated_is_the_snapshot(copied):
    log = copied / "_delta_log"
    (log / "00000000000000000001.json").unlink()  # as after a kill between the two commits
    append(copied, "arithmetic.jsonl")  # finds nothing new
    assert_table_is_the_snapshot(copied)
    commits = sorted(log.iterdir())
    append(copied, "arithmetic.jsonl", "--table=delta")
    assert sorted(log.iterdir()) == commits


def test_compacted_dataset_has_the_table_of_its_files(copied):
    done = build_in_process("compact", copied)
    assert done.returncode == 0, done.stderr
    assert len(manifest_of(copied)["shards"]) < len(deltalake.DeltaTable(copied, version=1).file_uris())
    assert_table_is_the_snapshot(copied)


def test_a_vacuum_of_the_table_removes_nothing(copied):
    for path in copied.rglob("*"):
        os.utime(path, (0, 0))
    assert deltalake.DeltaTable(copied).vacuum(full=True, dry_run=False) == []
    assert (copied / "README.md").exists()


def test_a_table_that_cannot_be_written_is_refused_before_anything_is_built(tmp_path):
    (tmp_path / "deltalake.py").write_text("raise ImportError('not installed')\n")
    without = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    for options, environment, message in (
        (["--append", "--output_format=tfrecord"], None, "--table delta is of Parquet files"),
        (["--append", "--packing=none", "--keep_columns=split"], None, "has a column split of its own"),
        (["--append"], without, "needs deltalake, which is not installed"),
        ([], None, "--table delta needs --append"),
    ):
        done = build_in_process(
            f"--input={CHATS}", f"--output={tmp_path / 'out'}", *OPTIONS, "--table=delta", *options, env=environment
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert message in done.stderr
    assert not (tmp_path / "out" / "data").exists()


def test_dataset_that_replaces_one_has_no_table_of_the_other(copied):
    done = build_in_process(f"--input={CHATS}", f"--output={copied}", *OPTIONS, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert not (copied / "_delta_log").exists()
