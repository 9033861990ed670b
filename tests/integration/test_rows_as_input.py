"""The rows of a dataset as the input of another build: the rows of a build of the records with the same options."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import chatmill
from support.datasets import read_manifest, read_rows
from support.paths import CHATS, TOKENIZER

RECORDS = ("--input", CHATS, "--max_reject_fraction=0.5", "--validation_fraction=0.2")
OPTIONS = {
    "packed": ("--packing=bfd", "--max_length=512"),
    "cut after turns": ("--truncation=turns", "--max_length=128"),
    "shifted, for SkyRL's columns": ("--write_columns=input_ids,loss_mask,labels", "--shift_labels"),
    "without duplicates": ("--dedup=exact", "--packing=ffd", "--max_length=1024"),
}


def build(output: Path, *arguments: object) -> int:
    return chatmill("build", f"--tokenizer={TOKENIZER}", f"--output={output}", "--direct_num_workers=1", *arguments)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("unpacked") / "out"
    assert build(output, *RECORDS) == 0
    return output


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_rows_of_both_splits_are_those_of_a_build_of_the_records(unpacked, tmp_path, options):
    assert build(tmp_path / "direct", *RECORDS, *options) == 0
    for split in ("train", "validation"):
        assert build(tmp_path / split, "--input", unpacked, f"--split={split}", *options) == 0
        expected = read_rows(tmp_path / "direct", split)
        assert len(expected) > 10 and read_rows(tmp_path / split) == expected
        assert read_manifest(tmp_path / split)["records"]["read"] == len(read_rows(unpacked, split))


@pytest.mark.parametrize("options", ["--packing=bfd --max_length=512", "--shift_labels"])
def test_shards_of_packed_or_shifted_rows_are_refused(unpacked, tmp_path, capfd, options):
    """The launcher looks at the first file of a source, and workers at the others."""
    assert build(tmp_path / "made", *RECORDS, *options.split()) == 0
    shards = f"{tmp_path}/made/data/train-*.parquet"
    for inputs in (shards, f"{unpacked}/data/*.parquet,{shards}"):
        capfd.readouterr()
        assert build(tmp_path / "out", "--input", inputs) == 2
        assert ".parquet: its rows are packed, so that one has several examples" in capfd.readouterr().err
