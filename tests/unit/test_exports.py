"""The layouts of exports: each from the same examples, with whole expected values; and how rows become shards."""

from __future__ import annotations

import dataclasses
import gzip
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_from_disk
from hypothesis import given
from hypothesis import strategies as st

from transforms.base.errors import ParameterError
from transforms.catalog.consumers import RowLayout, problems
from transforms.exporting.plan import plan_export
from transforms.exports import EXPORTS, Place, ShardFile, export_of
from transforms.reading.row_examples import RowExamples

# Two rows: of two examples, and of one.
PACKED = RowExamples(
    ids=np.array([1, 2, 3, 4, 5, 6, 7, 8, 9], np.int32),
    labels=np.array([-100, 2, -100, -100, 5, -100, 7, -100, 9], np.int32),
    offsets=np.array([0, 3, 5, 9]),
    counts=np.array([2, 1]),
)
EXAMPLES = dataclasses.replace(PACKED, counts=np.array([1, 1, 1]))
UNPACKED_ROWS = RowLayout(("input_ids", "labels"), ("parquet",))
PACKED_ROWS = RowLayout(("input_ids", "labels", "seq_lengths"), ("parquet",), "bfd", 8)


class Kept(BytesIO):
    """A file whose content can be read after it was closed."""

    def close(self) -> None:
        """Keep the content."""


def written(name: str, examples: RowExamples, place: Place | None = None) -> dict[str, bytes]:
    files: dict[str, Kept] = {}

    def create(file: str) -> Any:
        return files.setdefault(file, Kept())

    writer = export_of(name).writer(create, place or Place(0, 1))
    writer.write(examples)
    writer.close()
    return {file: content.getvalue() for file, content in files.items()}


def test_bridge_gets_the_mask_of_the_next_token_and_each_example_padded_to_one_more_than_the_multiple():
    (content,) = written("megatron_bridge", PACKED).values()
    assert pq.read_table(pa.BufferReader(content)).to_pylist() == [
        {"input_ids": [1, 2, 3, 4, 5], "loss_mask": [1, 0, 0, 1, 0], "seq_start_id": [0, 3]},
        {"input_ids": [6, 7, 8, 9], "loss_mask": [1, 0, 1, 0], "seq_start_id": [0]},
    ]
    (content,) = written("megatron_bridge", PACKED, Place(0, 1, multiple=2, eos_token_id=99)).values()
    assert pq.read_table(pa.BufferReader(content)).to_pylist() == [
        {"input_ids": [1, 2, 3, 4, 5, 99], "loss_mask": [1, 0, 0, 1, 0, 0], "seq_start_id": [0, 3]},
        {"input_ids": [6, 7, 8, 9, 99], "loss_mask": [1, 0, 1, 0, 0], "seq_start_id": [0]},
    ]


@pytest.mark.parametrize(("multiple", "found"), [(1, (3, 0)), (2, (4, 2)), (6, (12, 12))])
def test_longest_row_of_bridge_is_what_its_collator_makes_of_it_and_padding_is_counted(multiple, found):
    writer = export_of("megatron_bridge").writer(lambda name: Kept(), Place(0, 1, multiple, eos_token_id=99))
    assert writer.write(PACKED) == found


def test_skyrl_gets_the_mask_of_each_token():
    assert pq.read_table(pa.BufferReader(written("skyrl", EXAMPLES)["part-00000.parquet"])).to_pylist() == [
        {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 0]},
        {"input_ids": [4, 5], "loss_mask": [0, 1]},
        {"input_ids": [6, 7, 8, 9], "loss_mask": [0, 1, 0, 1]},
    ]


def test_olmo_core_gets_memory_maps_where_documents_begin_and_no_first_token_is_trained_on():
    trains_on_all = dataclasses.replace(EXAMPLES, labels=EXAMPLES.ids)
    files = written("olmo_core", trains_on_all, Place(3, 4))
    assert np.frombuffer(files["token_ids_part_0003.npy"], np.uint32).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert np.frombuffer(files["labels_mask_part_0003.npy"], bool).tolist() == [
        False, True, True, False, True, False, True, True, True,
    ]  # fmt: skip
    assert gzip.decompress(files["token_ids_part_0003.csv.gz"]) == b"0,3\n3,5\n5,9\n"
    assert files == written("olmo_core", trains_on_all, Place(3, 4))


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("llamafactory", [{"attention_mask": [1] * 3}, {"attention_mask": [1] * 2}, {"attention_mask": [1] * 4}]),
        ("ms_swift", [{"lengths": 3}, {"lengths": 2}, {"lengths": 4}]),
    ],
)
def test_datasets_loads_what_was_saved_to_disk(tmp_path, name, extra):
    rows = [
        {"input_ids": [1, 2, 3], "labels": [-100, 2, -100]},
        {"input_ids": [4, 5], "labels": [-100, 5]},
        {"input_ids": [6, 7, 8, 9], "labels": [-100, 7, -100, 9]},
    ]
    splits: dict[str, list[ShardFile]] = {"train": [], "validation": []}
    for split, shards in (("train", 2), ("validation", 1)):
        (tmp_path / split).mkdir()
        for number in range(shards):
            for file, content in written(name, EXAMPLES, Place(number, shards)).items():
                (tmp_path / split / file).write_bytes(content)
                splits[split].append(ShardFile(file, "00"))
    for path, content in export_of(name).ending(splits).items():
        (tmp_path / path).write_bytes(content)
    loaded = load_from_disk(str(tmp_path))
    expected = [row | more for row, more in zip(rows, extra, strict=True)]
    assert loaded["train"].to_list() == expected * 2 and loaded["validation"].to_list() == expected


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize(
    ("layout", "option", "only_if_not_packed"),
    [
        (PACKED_ROWS, "packing", True),
        (dataclasses.replace(PACKED_ROWS, columns=("input_ids", "labels")), "write_columns", False),
        (dataclasses.replace(UNPACKED_ROWS, columns=("labels",)), "write_columns", False),
        (
            dataclasses.replace(UNPACKED_ROWS, columns=("input_ids", "loss_mask"), shift_labels=True),
            "write_columns",
            False,
        ),
    ],
)
def test_rows_that_a_trainer_would_not_train_on_as_it_should_are_refused(name, layout, option, only_if_not_packed):
    found = [problem.option for problem in problems(name, layout)]
    assert (option in found) != (only_if_not_packed and export_of(name).packs)
    assert problems(name, UNPACKED_ROWS) == []


def dataset_of(**rows: int) -> Any:
    """What a plan needs of a dataset with so many rows in each split, in shards of 4."""

    def readable(split: str) -> list[dict[str, int]]:
        count = rows.get(split, 0)
        return [{"rows": min(4, count - first)} for first in range(0, count, 4)]

    return SimpleNamespace(
        name="out/mine", version=1, layout=UNPACKED_ROWS, manifest={}, readable=readable,
        row_count=lambda split: rows.get(split, 0),
    )  # fmt: skip


@given(
    rows=st.integers(1, 50),
    how=st.one_of(
        st.just({}),
        st.integers(1, 50).map(lambda n: {"shards": n}),
        st.integers(1, 60).map(lambda n: {"rows_per_shard": n}),
    ),
    drop=st.booleans(),
)
def test_each_row_is_in_one_shard_or_dropped_and_shards_are_equal_if_asked(rows, how, drop):
    drop = drop and bool(how)
    try:
        plan = plan_export(dataset_of(train=rows), "skyrl", **how, drop_remainder=drop)
    except ParameterError as error:
        assert rows < how[error.parameter]
        return
    assert [row for shard in plan.shards for row in range(shard.start, shard.stop)] == [*range(rows)]
    written = [shard for shard in plan.shards if shard.number >= 0]
    assert [(shard.number, shard.count) for shard in written] == [(i, len(written)) for i in range(len(written))]
    sizes = {shard.stop - shard.start for shard in written}
    left = [shard.stop - shard.start for shard in plan.shards if shard.number < 0]
    assert min(sizes) > 0 and (drop or not left)
    if "shards" in how:
        assert len(written) == how["shards"] and max(sizes) - min(sizes) <= (not drop) and sum(left) < how["shards"]
    if "rows_per_shard" in how:
        assert max(sizes) <= how["rows_per_shard"] and (not drop or sizes == {how["rows_per_shard"]})


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"shards": 2, "rows_per_shard": 2}, "shards says already"),
        ({"drop_remainder": True}, "expected shards or rows_per_shard"),
        ({"shards": 9}, "validation has 3 rows"),
    ],
)
def test_options_that_do_not_go_together_are_refused(how, error):
    with pytest.raises(ParameterError, match=error):
        plan_export(dataset_of(train=10, validation=3), "skyrl", **how)
