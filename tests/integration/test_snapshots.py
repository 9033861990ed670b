"""Snapshots: a reader of an appendable dataset has one version of it, the newest or an older one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import duckdb
import pytest

from support.command_line import chatmill
from support.datasets import read_manifest, write_jsonl
from support.paths import TOKENIZER
from transforms import Dataset, UserError, shards

DAYS = 4
OPTIONS = ["--validation_fraction=0.3", "--provenance", "--output_format=parquet,tfrecord"]
OPTIONS += [f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--direct_num_workers=1"]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of four days: that of the first one, to which the others were appended; `whole` is built at once."""
    folder = tmp_path_factory.mktemp("grown")
    for day in range(DAYS):
        texts = [{"text": f"text {number} of day {day}, which is {'long ' * number}"} for number in range(12)]
        write_jsonl(folder / f"day-{day}.jsonl", [*texts, {"text": day}])
        kind = ["--append"] if day else []
        assert chatmill("build", *OPTIONS, *kind, f"--input={folder}/*.jsonl", f"--output={folder}/out") == 0
    assert chatmill("build", *OPTIONS, f"--input={folder}/*.jsonl", f"--output={folder}/whole") == 0
    return folder / "out"


def read_ids(dataset: Dataset, split: str | None = None) -> list[list[int]]:
    return [ids for *_, batch in dataset.rows(split, ["input_ids"]) for ids in batch["input_ids"].to_pylist()]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_each_version_loads_with_datasets_and_the_newest_is_as_if_built_at_once(grown, split, tmp_path):
    whole = read_ids(Dataset(f"{grown.parent}/whole"), split)
    for version, name in [*((version, f"v{version}") for version in range(1, DAYS + 1)), (DAYS, None)]:
        dataset = Dataset(f"{grown}@{version}")
        expected = read_ids(dataset, split)
        assert expected == whole[: len(expected)] and (version < DAYS or len(expected) == len(whole))
        for streaming in (False, True):
            loaded = datasets.load_dataset(
                str(grown), name, split=split, streaming=streaming, cache_dir=str(tmp_path / "cache")
            )
            assert [row["input_ids"] for row in loaded] == expected
        urls = shards(str(grown), version, split)
        assert urls == [f"{grown}/{shard['path']}" for shard in dataset.shards(split, "parquet")]
        rows = duckdb.read_parquet(urls)  # noqa: F841
        found = duckdb.sql("select count(*), sum(len(input_ids)) from rows").fetchall()
        assert found == [(len(expected), sum(map(len, expected)))]


def test_manifest_of_the_newest_version_has_the_sums_of_one_build_of_all_days(grown):
    found, whole = read_manifest(grown), read_manifest(grown.parent / "whole")
    assert [found.pop(name) for name in ("version", "increments")] == [DAYS, DAYS]
    assert [whole.pop(name) for name in ("version", "increments")] == [1, 1]
    for name in ("shards", "exceptions", "job"):
        found.pop(name), whole.pop(name)
    assert found == whole
    assert found["records"]["rejected"] == {"malformed": DAYS}
    assert [Dataset(f"{grown}@2").manifest[name] for name in ("version", "increments")] == [2, 2]


def test_version_that_does_not_exist_is_a_user_error_and_a_folder_with_such_a_name_is_meant_itself(grown, tmp_path):
    with pytest.raises(UserError, match=f"there is no version 9; it has the versions 1 to {DAYS}"):
        Dataset(f"{grown}@9")
    with pytest.raises(UserError, match="there is no version 2; it has version 1"):
        Dataset(f"{grown.parent}/whole@2")
    shutil.copytree(grown, tmp_path / "out@7")
    assert Dataset(str(tmp_path / "out@7")).url == str(tmp_path / "out@7")


def test_commands_show_what_a_version_has(grown, capsys):
    def found(*command: object, code: int = 0) -> Any:
        assert chatmill(*command, "--json") == code
        return json.loads(capsys.readouterr().out)

    versions = found("snapshots", grown)
    assert [(each["version"], each["kind"]) for each in versions] == [
        (1, "build"), (2, "append"), (3, "append"), (4, "append")
    ]  # fmt: skip
    assert sum(each["rows"] for each in versions) == read_manifest(grown)["rows"]
    assert {(each["inputs"], each["records"]) for each in versions} == {(1, 13)}
    of_files = [{path.name.split("-")[1] for path in grown.glob(f"*/*-{each['increment']}-*")} for each in versions]
    assert of_files == [{each["increment"]} for each in versions]
    assert found("stats", f"{grown}@2")["histograms"]["row_tokens"]["count"] == 24
    differences = found("diff", f"{grown}@2", f"{grown}@3", code=1)
    assert differences["sums"]["rows"] == {"a": 24, "b": 36}
    assert differences["files"]["same"] == differences["files"]["a"]
    for day in range(DAYS):
        arguments = [f"--source=day-{day}.jsonl:0", "--json"]
        codes = [chatmill("inspect", grown, *arguments, f"--split={split}") for split in ("train", "validation")]
        assert 0 in codes and f"text 0 of day {day}" in capsys.readouterr().out
    assert chatmill("inspect", f"{grown}@2", f"--source=day-{DAYS - 1}.jsonl:0") == 2
    assert chatmill("snapshots", grown.parent / "none") == 2
    assert "there is no dataset" in capsys.readouterr().err
