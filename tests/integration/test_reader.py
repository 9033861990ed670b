"""Dataset: reads what a build wrote, from Parquet alone, and imports little."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.command_line import chatmill
from support.datasets import read_rows
from support.paths import CHATS, TOKENIZER
from transforms import Dataset, InputError, UserError, shards

COLUMNS = "input_ids,labels,attention_mask,position_ids,loss_mask"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A dataset in both formats, of several shards and row groups, with columns of each type."""
    output = tmp_path_factory.mktemp("reader") / "out"
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--split_bytes=30000"]
    options += [
        "--output_format=parquet,tfrecord",
        f"--write_columns={COLUMNS}",
        "--provenance",
        "--keep_columns=topic",
    ]
    assert chatmill(*options, "--validation_fraction=0.2", "--direct_num_workers=1", f"--output={output}") == 0
    return output


@pytest.mark.parametrize("split", ["train", "validation"])
def test_rows_are_those_of_the_shards_in_order_with_their_numbers(folder, split):
    dataset = Dataset(str(folder))
    found, shards = [], []
    for shard, first, batch in dataset.rows(split):
        assert first == len(found)
        found += batch.to_pylist()
        shards.append(shard)
    assert found == read_rows(folder, split)
    assert shards == dataset.shards(split, "parquet") and len(shards) > 1
    assert [dataset.row(number, split) for number in range(len(found))] == found
    assert {name for _, _, batch in dataset.rows(split, ["labels"]) for name in batch.schema.names} == {"labels"}


def test_rows_in_tfrecord_alone_are_not_read_which_is_one_line(tmp_path):
    options = [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", "--max_reject_fraction=0.5", "--direct_num_workers=1"]
    output = tmp_path / "out"
    assert chatmill(*options, "--output_format=tfrecord,tfrecord.gz", f"--output={output}") == 0
    problem = (
        f"{output}: its rows are in tfrecord alone, which is written and not read. Build it again with parquet in "
    )
    dataset = Dataset(str(output))
    [first, *_] = dataset.shards("train")
    for read in (lambda: next(dataset.rows()), lambda: dataset.row(0), lambda: next(dataset.read_shard(first))):
        with pytest.raises(UserError, match=re.escape(problem)):
            read()
    report = (output / "report.html").read_text()
    assert "No rows are shown: for that, the dataset needs Parquet" in report and "<article" not in report
    assert all(url.endswith(".tfrecord") for url in shards(str(output)))


def test_options_layout_and_tokenizer_are_those_of_the_job(folder):
    dataset = Dataset(str(folder))
    assert (dataset.options["validation_fraction"], dataset.layout.packed, dataset.layout.max_length) == (
        0.2,
        False,
        None,
    )
    ids = dataset.row(0)["input_ids"]
    assert dataset.tokenizer.encode(dataset.tokenizer.decode(ids, skip_special_tokens=False)).ids == ids


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda dataset: dataset.row(9999), r"there is no row 9,999 in train, which has \d+, numbered from 0"),
        (lambda dataset: dataset.row(-1), "there is no row -1 "),
        (lambda dataset: [*dataset.rows("test")], "split='test': expected train, validation"),
        (lambda dataset: dataset.shards(format="csv"), "format='csv': expected parquet, tfrecord"),
        (lambda dataset: [*dataset.rows(columns=["labels", "label"])], "columns='label': expected .* mean labels"),
    ],
)
def test_misspelt_names_are_errors(folder, read, message):
    with pytest.raises(UserError, match=message):
        read(Dataset(str(folder)))


def test_rejects_of_a_file_that_was_exchanged_are_not_read(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "out")
    dataset = Dataset(f"{tmp_path}/out")
    rejected = sum(map(len, dataset.rejects()))
    assert rejected == sum(dataset.manifest["records"]["rejected"].values()) > 0
    for path in tmp_path.glob("out/records/*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="none")
    with pytest.raises(InputError, match=r"records/records-.*\(its sha256 is not that of the manifest\)"):
        next(dataset.rejects())
