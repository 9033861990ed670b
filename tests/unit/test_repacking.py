"""Repacking: segments of rows in fewer rows, each as it was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.chats import SPLIT
from transforms.audit.verification.row_check import check_rows
from transforms.catalog.consumers import RowLayout
from transforms.catalog.schema import schema_of
from transforms.model.batches import Labels, RowSource
from transforms.model.outcomes import Outcomes
from transforms.reading.row_examples import examples_of, flat_values
from transforms.rows import IGNORED
from transforms.rows.columns import column_of
from transforms.rows.packing import PACKINGS, PAIRS
from transforms.rows.parts import PART_COLUMNS, codes_of_tokens
from transforms.steps.pack import Packer
from transforms.upkeep.compaction.repacking import knows_segments, repack

ALL = (
    "input_ids", "labels", "attention_mask", "position_ids", "seq_lengths", "loss_mask", "loss_weights",
    "part_lengths", "part_kinds", "part_messages", "source", "source_position",
)  # fmt: skip
PACKED = [packing for packing in PACKINGS if packing not in ("none", PAIRS)]  # rows of pairs are moved


def layout_of(
    packing: str = "bfd", columns: tuple[str, ...] = ALL, max_length: int = 8, shift: bool = False, multiple: int = 1
) -> RowLayout:
    return RowLayout(columns, ("parquet",), packing, max_length, shift, pad_to_multiple_of=multiple)


def rows_of(masks: list[list[bool]], layout: RowLayout, first: int = 0) -> pa.Table:
    """The rows that a build makes of records, each with the mask of its tokens, whose ids are all different."""
    lengths = np.array([len(mask) for mask in masks], np.int64)
    ids = np.arange(1, lengths.sum() + 1, dtype=np.int32) + first
    trained = np.array([is_trained for mask in masks for is_trained in mask], bool)
    source = RowSource(first + np.arange(len(masks)), np.zeros(len(masks), bool), None)
    offsets = np.cumsum([0, *lengths]).astype(np.int64)
    labels = np.where(trained, ids, IGNORED).astype(np.int32)
    weights = (1 + ids % 3).astype(np.float32)
    parts = np.where(trained, 8 * ids + 1 + ids % 6, 0).astype(np.int32)
    batch = Labels(SPLIT, 0, True, Outcomes(read=len(masks)), ids, labels, offsets, source, weights, parts)
    options = {name: getattr(layout, name) for name in ("max_length", "packing", "shift_labels", "pad_to_multiple_of")}
    packer = Packer(**options)
    table = packer(batch).train
    columns = []
    for field in schema_of(layout):
        if field.name == "source":
            values, of_rows = pa.array(["chats.jsonl"] * len(table.sources), pa.string()), table.segment_offsets
        elif field.name == "source_position":
            values, of_rows = pa.array(source.positions[table.sources]), table.segment_offsets
        else:
            values, of_rows = column_of(table, field.name)
        columns.append(pa.ListArray.from_arrays(pa.array(of_rows, pa.int32()), pa.array(values), field.type))
    return pa.table(columns, schema_of(layout))


def examples(rows: pa.Table, shift: bool) -> list[tuple[Any, ...]]:
    """Each segment as it is trained on: its ids, its labels before a shift, and where its record is."""
    [batch] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    found = examples_of(batch, True, shift)
    positions = flat_values(rows, "source_position")[0] if len(rows) else []
    return [
        (tuple(found.ids[start:stop].tolist()), tuple(found.labels[start:stop].tolist()), int(position))
        for start, stop, position in zip(found.offsets[:-1], found.offsets[1:], positions, strict=True)
    ]


builds = st.lists(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), max_size=6), min_size=1, max_size=4)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(PACKED), builds, st.booleans(), st.integers(2, 12))
@example(  # the last two tokens of the first record are a segment without a label
    "bfd_split",
    [[[True] * 8 + [False] * 2, [True] * 3], [[True] * 5], [[True] * 4], [[True] * 4]],
    False,
    8,
)
@example("wrapped", [[[True] * 12], [[True] * 3]], False, 8)
def test_each_segment_is_there_once_and_as_it_was_and_the_rows_are_sound(
    packing: str, records: list[list[list[bool]]], shift: bool, max_length: int
):
    layout = layout_of(packing, max_length=max_length, shift=shift)
    rows = pa.concat_tables([rows_of(masks, layout, first=1000 * number) for number, masks in enumerate(records)])
    if not len(rows):
        return

    found = repack(rows.combine_chunks(), layout)

    assert Counter(examples(found.rows, shift)) == Counter(examples(rows, shift))
    assert check_rows(found.rows, layout, vocabulary=10_000).faults == []
    assert len(found.rows) <= len(rows)
    # Weights and parts stay with their labels.
    for of_rows in (rows, found.rows):
        labels, weights = (flat_values(of_rows, name)[0] for name in ("labels", "loss_weights"))
        assert np.array_equal(weights, np.where(labels == IGNORED, 0, 1 + labels % 3))
        codes = codes_of_tokens(*(flat_values(of_rows, name)[0] for name in PART_COLUMNS))
        assert np.array_equal(codes, np.where(labels == IGNORED, 0, 8 * labels + 1 + labels % 6))
    # What is said of the rows and of the places of segments is so.
    lengths, segments = flat_values(found.rows, "seq_lengths")
    assert found.row_lengths.tolist() == np.diff(flat_values(found.rows, "input_ids")[1]).tolist()
    assert found.examples_per_row.tolist() == np.diff(segments).tolist()
    before = examples(rows, shift)
    after = examples(found.rows, shift)
    assert found.segments_before.sum() == len(before)
    for number, (row, segment, tokens) in enumerate(found.places.tolist()):
        place = segments[row] + segment
        assert after[place] == before[number]
        assert lengths[place] == tokens


def test_rows_of_small_builds_are_filled():
    layout = layout_of(max_length=8)
    rows = pa.concat_tables([rows_of([[True] * 3], layout, first=10 * number) for number in range(4)])

    found = repack(rows, layout)

    assert len(rows) == 4
    assert found.rows["seq_lengths"].to_pylist() == [[3, 3], [3, 3]]
    assert found.rows["source_position"].to_pylist() == [[0, 10], [20, 30]]
    assert found.rows["input_ids"].to_pylist() == [[1, 2, 3, 11, 12, 13], [21, 22, 23, 31, 32, 33]]
    assert found.places.tolist() == [[0, 0, 3], [0, 1, 3], [1, 0, 3], [1, 1, 3]]


@settings(deadline=None)
@given(st.sampled_from([packing for packing in PACKED if packing != "wrapped"]), builds, st.integers(2, 5))
def test_rows_have_room_to_pad_each_example_again(packing: str, records: list[list[list[bool]]], multiple: int):
    layout = layout_of(packing, max_length=12, multiple=multiple)
    rows = pa.concat_tables([rows_of(masks, layout, first=1000 * number) for number, masks in enumerate(records)])
    if not len(rows):
        return

    found = repack(rows.combine_chunks(), layout)

    assert Counter(examples(found.rows, False)) == Counter(examples(rows, False))
    assert check_rows(found.rows, layout, vocabulary=10_000).faults == []
    for lengths in found.rows["seq_lengths"].to_pylist():
        assert sum(-(-length // multiple) * multiple for length in lengths) <= 12


def test_rows_without_room_to_pad_their_examples_are_found():
    rows = rows_of([[True] * 3, [True] * 4, [True]], layout_of(max_length=8))

    [fault] = check_rows(rows, layout_of(max_length=8, multiple=4), vocabulary=100).faults

    assert fault.problem == "with examples padded to multiples of 4, it has 12 tokens; the job allows 8"
    assert fault.rows == (0,)


def test_full_rows_stay_and_wrapped_rows_are_not_cut_again():
    layout = layout_of("wrapped", max_length=4)
    rows = pa.concat_tables([rows_of([[True] * 6], layout), rows_of([[True] * 5], layout, first=10)])

    found = repack(rows, layout)

    assert found.rows["input_ids"].to_pylist() == [[1, 2, 3, 4], [11, 12, 13, 14], [5, 6, 15]]
    assert found.rows["seq_lengths"].to_pylist() == [[4], [4], [2, 1]]


def test_last_token_that_a_shift_moved_into_the_labels_is_there_again_within_a_row():
    layout = layout_of(max_length=8, shift=True)
    rows = pa.concat_tables([rows_of([[False, True, True]], layout, first=10 * number) for number in range(2)])

    found = repack(rows, layout)

    assert rows["input_ids"].to_pylist() == [[1, 2], [11, 12]]
    assert found.rows["input_ids"].to_pylist() == [[1, 2, 3, 11, 12, 13]]
    assert found.rows["labels"].to_pylist() == [[2, 3, -100, 12, 13, -100]]
    again = repack(found.rows, layout)
    assert again.rows.equals(found.rows)


def test_rows_that_would_not_become_fewer_stay_as_they_are():
    layout = layout_of(max_length=8, shift=True)
    rows = pa.concat_tables([rows_of([[True] * 7], layout, first=10 * number) for number in range(2)])

    assert repack(rows, layout).rows.equals(rows)


@pytest.mark.parametrize("columns", [
    ("labels", "seq_lengths"), ("input_ids", "position_ids"), ("loss_mask", "position_ids"), ("seq_lengths",),
    ("loss_weights", "seq_lengths"), ("attention_mask", "seq_lengths"),
])  # fmt: skip
def test_any_columns_that_show_the_segments_are_enough(columns: tuple[str, ...]):
    records = [[[True] * 3, [False, True]], [[True, False, True]]]
    everything, layout = layout_of(max_length=8), layout_of(columns=columns, max_length=8)
    of_all, of_some = (
        pa.concat_tables([rows_of(masks, each, first=10 * number) for number, masks in enumerate(records)])
        for each in (everything, layout)
    )

    assert knows_segments(layout)
    assert repack(of_some, layout).rows.equals(repack(of_all, everything).rows.select(columns))


@pytest.mark.parametrize(("packing", "columns", "shift"), [
    ("none", ALL, False), ("bfd", ("input_ids", "labels"), False), ("bfd", ("input_ids", "seq_lengths"), True),
    ("bfd", ("labels", "seq_lengths"), True),
])  # fmt: skip
def test_rows_whose_segments_are_not_known_are_not_repacked(packing: str, columns: tuple[str, ...], shift: bool):
    assert not knows_segments(layout_of(packing, columns, shift=shift))


def test_rows_that_lost_a_token_to_a_shift_are_not_repacked_if_examples_are_to_be_padded():
    assert knows_segments(layout_of(multiple=4)) and knows_segments(layout_of(shift=True))
    assert not knows_segments(layout_of(shift=True, multiple=4))
