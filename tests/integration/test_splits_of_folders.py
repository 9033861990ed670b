"""Datasets of the Hub on a disk: their test split is not trained on unless it is chosen."""

from __future__ import annotations

from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import chatmill
from support.datasets import read_manifest, read_rows, write_jsonl
from support.paths import TOKENIZER
from support.processes import end, running_command, wait_until

CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: data/train-*}
  - {split: test, path: data/test-*}
---
"""
OPTIONS = (f"--tokenizer={TOKENIZER}", "--report=none", "--direct_num_workers=1")


def rows(what: str, count: int) -> list[dict[str, str]]:
    return [{"prompt": f"{what} question {number}", "completion": f"answer {number}"} for number in range(count)]


@pytest.fixture
def snapshot(tmp_path) -> Path:
    """A dataset of the Hub, as `hf download` and `git clone` leave it."""
    folder = tmp_path / "snapshot"
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    for split, count in (("train", 8), ("test", 3)):
        pq.write_table(pa.Table.from_pylist(rows(split, count)), folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.fixture
def saved(tmp_path) -> Path:
    splits = {"sft": rows("sft", 4), "held_out": rows("held out", 2)}
    datasets.DatasetDict({name: datasets.Dataset.from_list(of) for name, of in splits.items()}).save_to_disk(
        tmp_path / "saved"
    )
    return tmp_path / "saved"


def write(path: Path, what: str, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(path, rows(what, count))


def one_line(capfd: pytest.CaptureFixture[str]) -> str:
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_split_of_a_folder_is_chosen_in_a_recipe(snapshot, saved, tmp_path):
    """That it is asked for, and words that are no splits, are in tests/data/splits.jsonl."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"sources:\n- {{input: {snapshot}, split: train}}\n- {{input: {saved}, split: [sft]}}\n")
    assert chatmill("build", str(recipe), *OPTIONS, f"--output={tmp_path / 'recipe'}") == 0
    files = f"{snapshot}/data/train-00000-of-00001.parquet,{saved}/sft/data-00000-of-00001.arrow"
    assert chatmill("build", *OPTIONS, f"--input={files}", f"--output={tmp_path / 'named'}") == 0
    assert read_rows(tmp_path / "recipe") == read_rows(tmp_path / "named")
    assert [source["records"]["read"] for source in read_manifest(tmp_path / "recipe")["sources"]] == [8, 4]
    assert chatmill("verify", str(tmp_path / "recipe")) == 0


def test_appends_and_the_same_command_again_take_the_chosen_split(snapshot, tmp_path, capfd):
    command = ["build", *OPTIONS, f"--input={snapshot}", f"--output={tmp_path / 'out'}"]
    assert chatmill(*command, "--split=train", "--append") == 0
    for split in ("train", "test"):
        pq.write_table(pa.Table.from_pylist(rows(split, 5)), snapshot / "data" / f"{split}-new.parquet")
    assert chatmill(*command, "--split=train", "--append") == 0
    assert read_manifest(tmp_path / "out")["records"]["read"] == 13
    assert chatmill(*command, "--split=train", "--append") == 0
    assert read_manifest(tmp_path / "out")["records"]["read"] == 13
    capfd.readouterr()
    for other, described in ((["--append"], "none"), (["--append", "--split=test"], "test")):
        assert chatmill(*command, *other) == 2
        assert f"--split was train and is {described}" in one_line(capfd)


def test_evaluation_sets_in_a_folder_are_read_unless_there_is_train(snapshot, tmp_path, capfd):
    sets = tmp_path / "sets"
    for name, what in (("gsm8k/test", "test"), ("mmlu/dev", "train"), ("other", "none")):
        write(sets / f"{name}.jsonl", what, 8)
    command = ["build", *OPTIONS, f"--input={snapshot}", "--split=train,test", f"--decontaminate={sets}"]
    assert chatmill(*command, "--decontaminate_words=3", f"--output={tmp_path / 'out'}") == 0
    assert "11 records with a run of words of an evaluation set" in capfd.readouterr().err
    write(sets / "gsm8k" / "train.jsonl", "train", 1)
    assert chatmill(*command, f"--output={tmp_path / 'none'}") == 2
    assert f"{sets}: it has several splits: train (" in (error := one_line(capfd)) and "Name the files of one." in error


def test_files_that_arrive_are_those_of_the_chosen_split(tmp_path):
    folder, output, log = tmp_path / "in", tmp_path / "out", tmp_path / "log"
    (tmp_path / "card").mkdir()  # of which no file is there yet
    (tmp_path / "card" / "README.md").write_text("---\nconfigs: [{config_name: a, data_dir: .}]\n---\n")
    (tmp_path / "built" / "_chatmill").mkdir(parents=True)  # whose newest version has another split alone
    (tmp_path / "built" / "_chatmill" / "a.json").touch()
    shards = '[{"path": "a.parquet", "bytes": 1, "split": "validation"}]'
    (tmp_path / "built" / "manifest.json").write_text(f'{{"records": {{}}, "shards": {shards}}}')
    inputs = f"--input={tmp_path}/card,{tmp_path}/built,{folder}"
    command = ["build", *OPTIONS, "--append", "--every=1", inputs, "--split=train", f"--output={output}"]

    with running_command(*command, log=log) as process:
        write(folder / "test" / "a.jsonl", "test", 3)
        wait_until(lambda: f"{folder}: it has no split train yet; it has test (" in log.read_text(), process)
        write(folder / "train" / "b.jsonl", "train", 2)
        wait_until(lambda: (output / "manifest.json").exists(), process)
        end(process)
    assert read_manifest(output)["records"]["read"] == 2
