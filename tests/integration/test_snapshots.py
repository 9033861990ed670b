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
from support.datasets import manifest_of, write_jsonl
from support.harms import edit_log
from support.increments import grow
from support.laws import broken_laws
from support.paths import TOKENIZER
from transforms import Dataset, UserError, shards

DAYS = 4
OPTIONS = ["--validation_fraction=0.3", "--provenance", "--output_format=parquet,tfrecord"]
OPTIONS += [f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--direct_num_workers=1"]


def build(output: Path, *corpora: Path) -> Path:
    assert chatmill("build", *OPTIONS, f"--input={','.join(map(str, corpora))}", f"--output={output}") == 0
    return output


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A corpus of each day."""
    folder = tmp_path_factory.mktemp("days")
    records: list[list[Any]] = [
        [{"text": f"text {number} of day {day}, which is {'long ' * number}"} for number in range(12)] + [{"text": day}]
        for day in range(DAYS)
    ]
    return [write_jsonl(folder / f"day-{day}.jsonl", of_day) for day, of_day in enumerate(records)]


@pytest.fixture(scope="module")
def built(days: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A dataset of each day."""
    folder = tmp_path_factory.mktemp("built")
    return [build(folder / day.stem, day) for day in days]


@pytest.fixture(scope="module")
def grown(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of all days: that of the first one, to which the others were appended."""
    output = tmp_path_factory.mktemp("grown") / "out"
    shutil.copytree(built[0], output)
    for day, of_day in enumerate(built[1:], 1):
        assert grow(output, of_day, f"{day:016x}").version == day + 1
    return output


def ids_of(dataset: Dataset, split: str) -> list[list[int]]:
    return [ids for *_, batch in dataset.rows(split, ["input_ids"]) for ids in batch["input_ids"].to_pylist()]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_each_version_has_the_rows_of_its_days_in_order_for_the_reader_and_for_datasets(grown, built, split, tmp_path):
    of_days = [ids_of(Dataset(str(day)), split) for day in built]
    for version in range(1, DAYS + 1):
        expected = [ids for of_day in of_days[:version] for ids in of_day]
        assert ids_of(Dataset(f"{grown}@{version}"), split) == expected
        for streaming in (False, True):
            loaded = datasets.load_dataset(
                str(grown), f"v{version}", split=split, streaming=streaming, cache_dir=str(tmp_path)
            )
            assert [row["input_ids"] for row in loaded] == expected
    newest = datasets.load_dataset(str(grown), split=split, cache_dir=str(tmp_path))
    assert newest["input_ids"] == ids_of(Dataset(str(grown)), split) == expected


def test_manifest_of_the_newest_version_has_the_sums_of_one_build_of_all_days(grown, days, tmp_path):
    found, whole = manifest_of(grown), manifest_of(build(tmp_path / "out", *days))
    assert found.pop("snapshot") == {"version": DAYS, "increments": DAYS}
    assert whole.pop("snapshot") == {"version": 1, "increments": 1}
    for name in ("shards", "rejects", "ledger", "job"):
        found.pop(name), whole.pop(name)
    assert found == whole
    assert found["records"]["rejected"] == {"bad_text": DAYS}


def test_manifest_of_an_older_version_is_not_the_file(grown):
    dataset = Dataset(f"{grown}@2")
    assert (dataset.version, dataset.url) == (2, str(grown))
    assert dataset.manifest["snapshot"]["version"] == 2 and manifest_of(grown)["snapshot"]["version"] == DAYS
    assert len(dataset.shards("train", "parquet")) == 2


def test_newest_version_is_that_of_the_log_if_a_process_was_killed_before_it_wrote_the_manifest(grown, tmp_path):
    copy = tmp_path / "out"
    shutil.copytree(grown, copy)
    for name in ("manifest.json", "README.md", "_SUCCESS"):
        (copy / name).unlink()
    assert json.dumps(Dataset(str(copy)).manifest) == json.dumps(manifest_of(grown))


def test_version_that_does_not_exist_is_a_user_error(grown, built):
    with pytest.raises(UserError, match=f"there is no version 9; it has the versions 1 to {DAYS}"):
        Dataset(f"{grown}@9")
    with pytest.raises(UserError, match="there is no version 2; it has version 1"):
        Dataset(f"{built[0]}@2")
    assert Dataset(f"{built[0]}@1").version == Dataset(str(built[0])).version == 1


def test_folder_whose_name_ends_like_a_version_is_meant_itself(built, tmp_path):
    shutil.copytree(built[0], tmp_path / "out@7")
    assert Dataset(str(tmp_path / "out@7")).url == str(tmp_path / "out@7")


def test_shards_of_a_version_are_listed_for_readers_that_take_files(grown, tmp_path):
    for version in (1, DAYS, None):
        dataset = Dataset(str(grown) if version is None else f"{grown}@{version}")
        urls = shards(str(grown), version, "train")
        assert urls == [f"{grown}/{shard['path']}" for shard in dataset.shards("train", "parquet")]
        loaded = datasets.load_dataset("parquet", data_files=urls, split="train", cache_dir=str(tmp_path))
        assert loaded["input_ids"] == ids_of(dataset, "train")
    assert len(shards(str(grown))) == 2 * len(shards(str(grown), split="validation"))


def test_snapshots_lists_the_versions(grown, built, tmp_path, capsys):
    def listed(output: Path) -> list[dict[str, Any]]:
        assert chatmill("snapshots", output, "--json") == 0
        return json.loads(capsys.readouterr().out)

    versions, (of_build,) = listed(grown), {path.name.split("-")[1] for path in (built[0] / "data").iterdir()}
    assert [(each["version"], each["increment"]) for each in versions] == [
        (1, of_build), (2, f"{1:016x}"), (3, f"{2:016x}"), (4, f"{3:016x}")
    ]  # fmt: skip
    assert sum(each["rows"] for each in versions) == manifest_of(grown)["rows"]
    assert {(each["inputs"], each["records"]) for each in versions} == {(1, 13)}
    assert [each["kind"] for each in versions] == ["build", "append", "append", "append"]
    assert listed(built[0]) == versions[:1]
    assert chatmill("snapshots", tmp_path / "none") == 2
    assert "there is no dataset" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["", f"@{DAYS}", "@2"])
def test_each_version_is_sound(grown, version, capsys):
    assert chatmill("verify", f"{grown}{version}", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    files = [*Dataset(f"{grown}{version}").snapshot.data_files()]
    assert (found["faults"], found["notes"], found["files"]) == ([], [], len(files))
    assert broken_laws(grown) == []


def test_verify_finds_what_is_wrong_in_the_version_that_it_reads_and_nothing_of_others(grown, tmp_path, capsys):
    copy = tmp_path / "out"
    shutil.copytree(grown, copy)
    stem = f"train-{DAYS - 1:016x}"
    (copy / "data" / f"{stem}-000000-000.parquet").write_bytes(b"damaged")
    (copy / "data" / f"{stem}-000001-000.parquet").write_bytes(b"")
    assert chatmill("verify", f"{copy}@{DAYS - 1}") == 0
    assert chatmill("verify", copy) == 1
    out = capsys.readouterr().out
    assert f"data/{stem}-000001-000.parquet: the manifest does not name this file" in out
    assert f"data/{stem}-000000-000.parquet" in out


def test_file_that_was_appended_again_after_a_change_has_its_records_in_two_increments(built, tmp_path, capsys):
    copy = tmp_path / "out"
    shutil.copytree(built[0], copy)
    changed = Path(shutil.copytree(built[0], tmp_path / "changed"))
    edit_log(changed, lambda entry: entry["add"]["inputs"][0].update(version="another"))
    grow(copy, changed, "aaaaaaaaaaaaaaaa")
    assert chatmill("verify", copy) == 0 and broken_laws(copy) == []


def test_record_is_found_by_its_source_in_whichever_increment_it_is(grown, capsys):
    for day in range(DAYS):
        arguments = [f"--source=day-{day}.jsonl:0", "--json"]
        found = [chatmill("inspect", grown, *arguments, f"--split={split}") for split in ("train", "validation")]
        assert 0 in found and f"text 0 of day {day}" in capsys.readouterr().out
    assert chatmill("inspect", f"{grown}@2", f"--source=day-{DAYS - 1}.jsonl:0") == 2


def test_versions_differ_by_what_was_appended(grown, built, capsys):
    assert chatmill("diff", f"{grown}@2", f"{grown}@3", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["sums"]["rows"] == {"a": 24, "b": 36} and found["files"]["same"] == found["files"]["a"]
    assert chatmill("diff", f"{grown}@1", built[0]) == 0
    assert "out@1" in capsys.readouterr().out.replace("\n", "")


def test_stats_are_of_the_version(grown, capsys):
    assert chatmill("stats", f"{grown}@2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["histograms"]["row_tokens"]["count"] == 24


def test_duckdb_queries_a_version(grown):
    for version in (2, None):
        dataset = Dataset(str(grown) if version is None else f"{grown}@{version}")
        rows = duckdb.read_parquet(shards(str(grown), version, "train"))  # noqa: F841
        found = duckdb.sql("select count(*), sum(len(input_ids)) from rows").fetchall()
        ids = ids_of(dataset, "train")
        assert found == [(len(ids), sum(map(len, ids)))]
