"""Repack: from the rows of several shards to fewer and fuller rows of the same segments.

No segment is cut, and none is lost: what is trained on stays the same, also in another row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from transforms.catalog.consumers import RowLayout
from transforms.catalog.schema import schema_of
from transforms.model.batches import RowTable
from transforms.reading.row_examples import flat_values, segments_of
from transforms.rows import IGNORED
from transforms.rows.columns import OUTPUT_COLUMNS, column_of
from transforms.rows.packing import PAIRS, longer_of, pack_segments, padded
from transforms.rows.parts import PART_COLUMNS, codes_of_tokens
from transforms.rows.ragged import offsets_of, slices_of, sums_of


@dataclass(frozen=True)
class Repacked:
    """Rows, and where the segments of the rows before are in them.

    Attributes:
        rows: with the columns of the layout.
        row_lengths, examples_per_row: of each row, int64, shape (rows,).
        segments_before: of each row before, int64, shape (rows before,).
        places: of each segment before, in order: its row, its number in the row, and its tokens; int64, shape
            (segments, 3).
    """

    rows: pa.Table
    row_lengths: np.ndarray
    examples_per_row: np.ndarray
    segments_before: np.ndarray
    places: np.ndarray


def knows_segments(layout: RowLayout) -> bool:
    """Return whether segments can get other rows: the columns say what they are. Otherwise rows can only be moved."""
    columns = {*layout.columns}
    # A row whose labels are shifted has lost its last token: it is in the labels alone. It was packed with room for it,
    # and for padding after it.
    knows_ends = not layout.shift_labels or (columns >= {"input_ids", "labels"} and layout.pad_to_multiple_of == 1)
    return layout.packed and layout.packing != PAIRS and knows_ends and bool(columns & {"seq_lengths", "position_ids"})


def repack(rows: pa.Table, layout: RowLayout) -> Repacked:
    """Pack the segments of rows again, as the dataset is packed.

    Rows that are full stay as they are. So do rows that have a segment without a label, which must not become a row of
    its own, and all rows if the others would not become fewer. `wrapped` cuts segments: they are packed by `bfd`.

    Args:
        rows: at least one, with the columns of the layout.
        layout: of the rows, which knows their segments.
    """
    assert layout.max_length is not None
    capacity = layout.max_length - layout.shift_labels
    before = _table_of(rows, layout)
    with_padding = sums_of(padded(before.segment_lengths, layout.pad_to_multiple_of), before.segment_offsets)
    stays = with_padding > capacity - layout.pad_to_multiple_of
    stays |= sums_of(before.segment_trained_tokens == 0, before.segment_offsets) > 0
    after = before
    if not stays.all():
        whole = _with_last_tokens(before, ~stays) if layout.shift_labels else before
        after = _packed(whole, stays, layout, capacity)
        if len(after) >= len(before):
            after = before
    counts = np.diff(after.segment_offsets)
    row_of = np.repeat(np.arange(len(after)), counts)
    places = np.empty((len(after.sources), 3), np.int64)
    places[after.sources, 0] = row_of
    places[after.sources, 1] = np.arange(len(row_of)) - after.segment_offsets[row_of]
    places[after.sources, 2] = after.segment_lengths
    schema = schema_of(layout)
    columns = [_column(rows, after, field) for field in schema]
    return Repacked(pa.table(columns, schema), np.diff(after.offsets), counts, np.diff(before.segment_offsets), places)


def _packed(table: RowTable, stays: np.ndarray, layout: RowLayout, capacity: int) -> RowTable:
    """Pack the segments of the rows that do not stay; those that stay come first."""
    counts = np.diff(table.segment_offsets)
    segment_stays = np.repeat(stays, counts)
    moved = np.flatnonzero(~segment_stays)
    packing = "bfd" if longer_of(layout.packing) == "keep" else layout.packing
    packed = pack_segments(packing, table.segment_lengths[moved], capacity, layout.pad_to_multiple_of)
    order = np.concatenate([np.flatnonzero(segment_stays), moved[packed.segments.source]])
    starts, lengths = offsets_of(table.segment_lengths)[order], table.segment_lengths[order]
    segment_offsets = offsets_of(np.concatenate([counts[stays], np.diff(packed.offsets)]))
    return RowTable(
        ids=slices_of(table.ids, starts, lengths),
        labels=slices_of(table.labels, starts, lengths),
        offsets=offsets_of(lengths)[segment_offsets],
        segment_lengths=lengths,
        segment_offsets=segment_offsets,
        sources=order,
        weights=None if table.weights is None else slices_of(table.weights, starts, lengths),
        parts=None if table.parts is None else slices_of(table.parts, starts, lengths),
    )


def _with_last_tokens(table: RowTable, of_rows: np.ndarray) -> RowTable:
    """Give rows whose labels are shifted the token back that the last label is the id of.

    Then the last segment of a row is like the others, whose last token predicts nothing, and can be anywhere.

    Args:
        table: the rows.
        of_rows: bool, shape (rows,): which of them get it, if their last token has a label.
    """
    rows = np.flatnonzero(of_rows & (table.labels[table.offsets[1:] - 1] != IGNORED))
    ends = table.offsets[rows + 1]
    longer = np.zeros(len(table), np.int64)
    longer[rows] = 1
    lengths = table.segment_lengths.copy()
    lengths[table.segment_offsets[rows + 1] - 1] += 1
    return replace(
        table,
        ids=np.insert(table.ids, ends, table.labels[ends - 1]),
        labels=np.insert(table.labels, ends, IGNORED),
        weights=None if table.weights is None else np.insert(table.weights, ends, 0),
        parts=None if table.parts is None else np.insert(table.parts, ends, 0),
        offsets=table.offsets + offsets_of(longer),
        segment_lengths=lengths,
    )


def _table_of(rows: pa.Table, layout: RowLayout) -> RowTable:
    """The table from which the columns are made; `sources` are the numbers of its segments."""
    values = {name: flat_values(rows, name) for name in layout.columns if name in OUTPUT_COLUMNS}
    of_runs = [values.pop(name)[0] for name in PART_COLUMNS if name in values]
    segments = segments_of(values, layout.packed)
    assert segments is not None  # knows_segments holds
    lengths, segment_offsets = segments
    offsets = offsets_of(lengths)[segment_offsets]
    ids = values["input_ids"][0] if "input_ids" in values else np.zeros(offsets[-1], np.int32)
    weights = values["loss_weights"][0] if "loss_weights" in values else None
    return RowTable(
        ids=ids,
        labels=_labels_of(values, ids),
        offsets=offsets,
        segment_lengths=lengths,
        segment_offsets=segment_offsets,
        sources=np.arange(len(lengths)),
        weights=weights,
        parts=codes_of_tokens(*of_runs) if of_runs else None,
    )


def _labels_of(values: Mapping[str, tuple[np.ndarray, np.ndarray]], ids: np.ndarray) -> np.ndarray:
    """The labels, or numbers that are ignored where the labels would be; none is ignored if that is not known."""
    if "labels" in values:
        return values["labels"][0]
    for name in ("loss_mask", "loss_weights"):
        if name in values:
            return np.where(values[name][0] != 0, ids, IGNORED)
    return ids


def _column(rows: pa.Table, table: RowTable, field: pa.Field) -> pa.Array:
    """A column of repacked rows: made of their table, or of the values of the segments of the rows before."""
    if field.name in OUTPUT_COLUMNS:
        values, offsets = column_of(table, field.name)
        values = pa.array(values)
    else:
        of_segments = rows[field.name].combine_chunks().flatten()
        values, offsets = of_segments.take(pa.array(table.sources)), table.segment_offsets
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, field.type)
