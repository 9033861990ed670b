"""The examples of the rows of a dataset, with and without packing and shifted labels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from transforms.reading.row_examples import RowExamples, examples_of

# Two rows, the first of two examples, as a build writes them.
PLAIN = {
    "input_ids": [[1, 11, 12, 2, 13, 3], [4, 14]],
    "labels": [[-100, 11, 12, -100, 13, -100], [-100, 14]],
    "loss_mask": [[0, 1, 1, 0, 1, 0], [0, 1]],
    "seq_lengths": [[3, 3], [2]],
    "position_ids": [[0, 1, 2, 0, 1, 2], [0, 1]],
}
# The same with --shift_labels.
SHIFTED = {
    "input_ids": [[1, 11, 12, 2, 13], [4]],
    "labels": [[11, 12, -100, 13, -100], [14]],
    "seq_lengths": [[3, 2], [1]],
    "position_ids": [[0, 1, 2, 0, 1], [0]],
}
SEGMENTS = [[1, 11, 12], [2, 13, 3], [4, 14]]
LABELS = [[-100, 11, 12], [-100, 13, -100], [-100, 14]]


def batch_of(rows: dict[str, list[list[int]]], *columns: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(rows[name], pa.list_(pa.int32())) for name in columns})


def segments_of(found: RowExamples) -> tuple[list[list[int]], list[list[int]]]:
    edges = found.offsets[1:-1]
    ids, labels = (np.split(values, edges) for values in (found.ids, found.labels))
    return [part.tolist() for part in ids], [part.tolist() for part in labels]


@pytest.mark.parametrize("where", ["seq_lengths", "position_ids"])
def test_packed_rows_are_split_into_their_examples(where):
    found = examples_of(batch_of(PLAIN, "input_ids", "labels", where), packed=True, shift_labels=False)
    assert segments_of(found) == (SEGMENTS, LABELS)
    assert (found.counts.tolist(), found.are_known) == ([2, 1], True)


def test_a_slice_of_a_batch_has_only_its_rows():
    batch = batch_of(PLAIN, "input_ids", "labels", "seq_lengths").slice(1)
    assert segments_of(examples_of(batch, packed=True, shift_labels=False)) == (SEGMENTS[2:], LABELS[2:])


def test_packed_rows_of_which_the_examples_are_not_known_are_one():
    found = examples_of(batch_of(PLAIN, "input_ids", "labels"), packed=True, shift_labels=False)
    assert (found.offsets.tolist(), found.are_known) == ([0, 6, 8], False)


def test_a_row_begins_an_example_whatever_its_positions_are():
    rows = PLAIN | {"position_ids": [[1, 2, 3, 0, 1, 2], [1, 2]]}
    found = examples_of(batch_of(rows, "input_ids", "labels", "position_ids"), packed=True, shift_labels=False)
    assert segments_of(found) == (SEGMENTS, LABELS)


def test_loss_mask_is_as_good_as_labels():
    found = examples_of(batch_of(PLAIN, "input_ids", "loss_mask", "seq_lengths"), packed=True, shift_labels=False)
    assert segments_of(found) == (SEGMENTS, LABELS)
    without = examples_of(batch_of(PLAIN, "input_ids", "seq_lengths"), packed=True, shift_labels=False)
    assert not without.trained.any()


@pytest.mark.parametrize("where", ["seq_lengths", "position_ids"])
def test_shifted_labels_are_those_of_their_tokens_again(where):
    batch = batch_of(SHIFTED, "input_ids", "labels", where)
    found = examples_of(batch, packed=True, shift_labels=True)
    # The last token of the first row is not trained on, so nothing of it was written.
    assert segments_of(found) == ([[1, 11, 12], [2, 13], [4, 14]], [[-100, 11, 12], [-100, 13], [-100, 14]])
    assert found.counts.tolist() == [2, 1]


def test_shifted_labels_without_packing():
    rows = {"input_ids": [[1, 11], [2, 13], [4]], "labels": [[11, 12], [13, -100], [14]]}
    found = examples_of(batch_of(rows, "input_ids", "labels"), packed=False, shift_labels=True)
    assert segments_of(found) == ([[1, 11, 12], [2, 13], [4, 14]], [[-100, 11, 12], [-100, 13], [-100, 14]])
