"""Pack: from labelled examples to rows no longer than max_length, truncated or packed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from transforms.model.batches import Labels, Rows, RowTable, Used
from transforms.model.outcomes import Drop, Outcomes
from transforms.rows import IGNORED
from transforms.rows.packing import longer_segments, pack_segments
from transforms.rows.parts import count_parts
from transforms.rows.ragged import join_slices, joined, lengths_to_offsets, slice_indices, sum_each_row
from transforms.rows.segments import Segments, whole
from transforms.rows.truncation import find_turns, split, truncate, truncate_after_turns, windows
from transforms.steps.base import Step
from transforms.steps.counting import count_tokens
from transforms.steps.row_options import PackOptions


class Packer(PackOptions):
    """Truncates or packs the rows of a batch."""

    def __call__(self, batch: Labels) -> Rows:
        if self.shift_labels:
            batch = dataclasses.replace(batch, labels=_ignored_at(batch.labels, batch.offsets[:-1]))
        segments, left, in_rows = self._segments(batch)
        if len(copies := _copies_in_no_row(batch, left)):
            return self(batch.take(np.delete(np.arange(len(left)), copies), batch.outcomes))
        held_back = batch.facts.validation[segments.example_index]
        tables = [self._table(batch, segments.take(held_back == validation)) for validation in (False, True)]
        outcomes, used = self._outcomes(batch, segments, left, in_rows, tables)
        train, validation = map(shifted, tables) if self.shift_labels else tables
        statistics = count_tokens(
            labels=batch.labels,
            offsets=batch.offsets,
            trained_tokens=batch.trained_tokens,
            row_lengths=joined([np.diff(table.offsets) for table in (train, validation)], np.int64),
            examples_per_row=joined([np.diff(table.segment_offsets) for table in (train, validation)], np.int64),
        )
        if batch.parts is not None:
            statistics = msgspec.structs.replace(statistics, parts=_trained_tokens_by_part(tables))
        outcomes = outcomes.plus(statistics=statistics)
        return batch.succeeded_by(
            Rows,
            outcomes,
            train=train,
            validation=validation,
            packing=self.packing,
            facts=batch.facts,
            used=used,
        )

    def _segments(self, batch: Labels) -> tuple[Segments, np.ndarray, np.ndarray]:
        """Cut the labelled examples.

        Returns:
            The segments of rows that have a label left; int64 (rows,), the labels of each row after cutting; int64
            (rows,), the tokens of each row after cutting, without those that are repeated.
        """
        lengths = np.diff(batch.offsets)
        segments = self.cut(batch)
        in_rows = segments.new(len(lengths))
        if (in_rows < lengths).any() or len(segments) > len(lengths):
            in_segment = sum_each_row(self.labels_in(batch, segments) != IGNORED, lengths_to_offsets(segments.length))
            left = np.bincount(segments.example_index, in_segment, len(lengths))
        else:
            left = batch.trained_tokens
        return segments.take(left[segments.example_index] > 0), left, in_rows

    def cut(self, batch: Labels) -> Segments:
        """Truncate or split the rows that are longer than max_length."""
        lengths, longest = np.diff(batch.offsets), self.max_length
        longer = longer_segments(self.packing)
        if longest is None or longer == "keep" or not (lengths > longest).any():
            return whole(lengths)
        if longer == "split":
            return split(lengths, longest)
        if self.truncation not in ("turns", "windows"):
            return truncate(lengths, longest, self.truncation)
        turns = find_turns(batch.labels, batch.offsets, np.flatnonzero(lengths > longest))
        if self.truncation == "turns":
            return truncate_after_turns(lengths, longest, turns)
        return windows(lengths, longest, self.window_overlap or max(longest // 4, 1), turns)

    def labels_in(self, batch: Labels, segments: Segments) -> np.ndarray:
        """Return the labels of segments, one segment after the other: int32, shape (tokens,)."""
        labels = join_slices(batch.labels, batch.offsets[segments.example_index] + segments.start, segments.length)
        starts = lengths_to_offsets(segments.length)[:-1]
        if self.shift_labels:
            labels = _ignored_at(labels, starts[segments.length > 0])
        if segments.repeated is not None:
            labels = _ignored_at(labels, slice_indices(starts, segments.repeated))
        return labels

    def _parts_in(self, parts: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the parts of segments. If labels are shifted, the first token of a segment is of none."""
        segment_parts = join_slices(parts, starts, lengths)
        if self.shift_labels:
            segment_parts = segment_parts.copy()
            segment_parts[lengths_to_offsets(lengths)[:-1][lengths > 0]] = 0
        return segment_parts

    def _outcomes(
        self,
        batch: Labels,
        segments: Segments,
        left: np.ndarray,
        in_rows: np.ndarray,
        tables: list[RowTable],
    ) -> tuple[Outcomes, Used]:
        """Find the outcome of each record.

        Args:
            batch: the labelled examples.
            segments, left, in_rows: of _segments.
            tables: before labels are shifted.
        """
        facts, lengths, trained = batch.facts, np.diff(batch.offsets), batch.trained_tokens
        example_index = joined([table.example_index for table in tables], np.int64)
        numbers, records = facts.record_numbers(), facts.records()

        def sums(values: np.ndarray) -> np.ndarray:
            """Add up values of rows for each record: int64 (records,)."""
            return np.bincount(numbers, values, records).astype(np.int64)

        def lost(values: np.ndarray, in_segments: list[np.ndarray]) -> np.ndarray:
            """Find how much of each record is in no row, from what its examples and the segments have."""
            return sums(values - np.bincount(example_index, joined(in_segments, np.int64), len(lengths)))

        repeated = (
            0 if segments.repeated is None else np.bincount(segments.example_index, segments.repeated, len(lengths))
        )
        tokens_lost = lost(lengths + repeated, [table.segment_lengths for table in tables])
        trained_tokens_lost = lost(trained, [table.segment_trained_tokens for table in tables])
        survives, cut, had_labels = sums(left > 0) > 0, sums(in_rows < lengths) > 0, sums(trained > 0) > 0
        copies = batch.task.are_copies(facts.positions[facts.first_rows()])
        dropped_whole = ~survives & cut & (self.truncation == "drop")

        def drops(are_dropped: np.ndarray, reason: str) -> list[Drop]:
            """Return the drops of records; further copies have the outcome of the first one."""
            return facts.drops(np.flatnonzero(are_dropped & ~copies), reason, lengths, trained)

        outcomes = batch.outcomes.drop(
            [
                *drops(dropped_whole, "too_long"),
                *drops(~survives & ~dropped_whole & ~had_labels, "no_trained_tokens"),
                *drops(~survives & ~dropped_whole & had_labels, "no_trained_tokens_left"),
            ]
        )
        losers = np.flatnonzero(trained_tokens_lost)
        if len(losers):
            record = losers[0]
            detail = (
                f"{trained_tokens_lost[record]:,} of its {sums(trained)[record]:,} tokens to train on are in no row"
            )
            first = int(facts.positions[facts.first_rows()[record]]), detail
            outcomes = outcomes.note("records_that_lost_trained_tokens", len(losers), first)
        examples = int(np.count_nonzero(np.bincount(facts.example_numbers(), left > 0)))
        outcomes = outcomes.note("parity_rows_added", int(np.sum(left > 0)) - examples)
        outcomes = outcomes.note("formatter_rows_added", examples - int(np.sum(survives)))
        if segments.repeated is not None:
            outcomes = outcomes.note("window_rows_added", len(example_index) - int(np.sum(left > 0)))
        outcomes = outcomes.note("copies_added", int(np.sum(survives & copies)))
        outcomes = outcomes.plus(trained_tokens_lost=int(trained_tokens_lost.sum()))
        return outcomes, Used(survives, survives & cut, copies, tokens_lost, trained_tokens_lost)

    def _table(self, batch: Labels, segments: Segments) -> RowTable:
        """Make rows of the segments, and leave out those without a label. Labels are not shifted yet."""
        if self.packing == "none":
            segment_offsets = np.arange(len(segments) + 1)
        else:
            packed = pack_segments(self.packing, segments.length, self.max_length or 0)
            segments, segment_offsets = segments.cut(packed.segments), packed.offsets
        starts = batch.offsets[segments.example_index] + segments.start
        table = RowTable(
            ids=join_slices(batch.ids, starts, segments.length),
            labels=self.labels_in(batch, segments),
            segment_lengths=segments.length,
            segment_offsets=segment_offsets,
            example_index=segments.example_index,
            parts=None if batch.parts is None else self._parts_in(batch.parts, starts, segments.length),
        )
        return table if table.trained_tokens.all() else table.take(np.flatnonzero(table.trained_tokens))


def _copies_in_no_row(batch: Labels, left: np.ndarray) -> np.ndarray:
    """Find the examples of further copies that have no label left: nothing of them is in the dataset, and what
    became of their records is counted with the first copies.
    """
    are_copies = batch.task.are_copies(batch.facts.positions)
    if not are_copies.any():
        return np.flatnonzero(are_copies)
    records = batch.facts.record_numbers()
    survives = np.bincount(records, left, batch.facts.records()) > 0
    return np.flatnonzero(~survives[records] & are_copies)


def shifted(table: RowTable) -> RowTable:
    """Keep input_ids[:-1] and labels[1:] of each row; the last segment of the row gets one token shorter."""
    ends = table.offsets[1:]
    lengths = table.segment_lengths.copy()
    lengths[table.segment_offsets[1:] - 1] -= 1
    left = lengths > 0
    return dataclasses.replace(
        table,
        ids=np.delete(table.ids, ends - 1),
        labels=np.delete(table.labels, table.offsets[:-1]),
        parts=None if table.parts is None else np.delete(table.parts, table.offsets[:-1]),
        segment_lengths=lengths[left],
        segment_offsets=lengths_to_offsets(sum_each_row(left, table.segment_offsets)),
        example_index=table.example_index[left],
    )


def _trained_tokens_by_part(tables: Sequence[RowTable]) -> dict[str, int]:
    """Count the labels of rows by the part of a turn that they are."""
    codes = [table.parts[table.labels != IGNORED] for table in tables if table.parts is not None]
    return count_parts(joined(codes, np.int32))


def _ignored_at(labels: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Ignore the labels of the first tokens of segments, which are at these positions."""
    labels = labels.copy()
    labels[positions] = IGNORED
    return labels


class TruncateOrPack(Step):
    """Truncate or pack rows, so that none is longer than max_length.

    PCollection[Chunks[Labels]] -> PCollection[Chunks[Rows]].

    Args:
        options: those of a build, by name: max_length, truncation, window_overlap, packing, shift_labels.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Labels, Rows

    def __init__(self, **options: Any):
        super().__init__(_packer, packer=Packer(**options))  # checked here, not on a worker


def _packer(packer: Packer) -> Packer:
    return packer
