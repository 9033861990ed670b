"""Fit: from labelled rows to rows no longer than max_length, truncated or packed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.checks import check_choice, check_count, check_flag
from transforms.choices import PACKINGS, TRUNCATIONS
from transforms.errors import ParameterError
from transforms.model.batches import Labels, Rows, RowTable
from transforms.model.outcomes import Outcomes
from transforms.rows import IGNORED
from transforms.rows.packing import cut_into_pieces, cut_stream, pack_bfd, pack_ffd
from transforms.rows.ragged import offsets_of, slices_of, sums_of
from transforms.steps.base import Step


@dataclass(frozen=True)
class _Segments:
    """Slices of labelled rows. source, start (in the batch's tokens), length: int64 (segments,)."""

    source: np.ndarray
    start: np.ndarray
    length: np.ndarray

    def take(self, which: np.ndarray) -> _Segments:
        return _Segments(self.source[which], self.start[which], self.length[which])


@dataclass(frozen=True)
class Packer:
    """Truncates or packs the rows of a batch.

    max_length: tokens in a row, None for any number. truncation: one of choices.TRUNCATIONS, for longer rows, where
    packing does not cut them up. packing: one of choices.PACKINGS; it needs a max_length.
    shift_labels: write input_ids[:-1] and labels[1:]; no token is then predicted from another segment.
    """

    max_length: int | None = None
    truncation: str = "keep_start"
    packing: str = "none"
    shift_labels: bool = False

    def __post_init__(self) -> None:
        check_count("max_length", self.max_length, optional=True)
        check_choice("truncation", self.truncation, TRUNCATIONS)
        check_choice("packing", self.packing, PACKINGS)
        check_flag("shift_labels", self.shift_labels)
        if self.packing != "none" and self.max_length is None:
            raise ParameterError("packing", self.packing, "it needs a max_length, such as 4096.")

    def __call__(self, batch: Labels) -> Rows:
        labels = batch.labels
        if self.shift_labels:
            labels = _ignored_at(labels, batch.offsets[:-1])
        trained = sums_of(labels != IGNORED, batch.offsets)
        segments, outcomes = self._segments(batch, labels, trained)
        tables = {
            name: self._table(batch, labels, segments.take(batch.source.validation[segments.source] == held_back))
            for name, held_back in (("train", False), ("validation", True))
        }
        written = sum(int(np.count_nonzero(table.labels != IGNORED)) for table in tables.values())
        outcomes = dataclasses.replace(
            outcomes, trained_tokens_lost=outcomes.trained_tokens_lost + int(trained.sum()) - written
        )
        return batch.succeeded_by(Rows, outcomes, packed=self.packing != "none", **tables)

    def _segments(self, batch: Labels, labels: np.ndarray, trained: np.ndarray) -> tuple[_Segments, Outcomes]:
        """What of each labelled row goes into rows, and the outcome of each record: kept, truncated or dropped."""
        lengths = np.diff(batch.offsets)
        cut = lengths if self.max_length is None else np.minimum(lengths, self.max_length)
        if self.packing in ("bfd_split", "wrapped"):
            cut = lengths
        too_long = cut < lengths
        starts = batch.offsets[:-1] + (lengths - cut if self.truncation == "keep_end" else 0)
        if self.packing == "bfd_split":
            source, start, length = cut_into_pieces(lengths, self.max_length or 0)
            segments = _Segments(source, batch.offsets[source] + start, length)
        else:
            segments = _Segments(np.arange(len(lengths)), starts, cut)
        if self.shift_labels:
            labels = _ignored_at(labels, segments.start)
        if too_long.any() or len(segments.length) > len(lengths):
            in_segment = sums_of(
                slices_of(labels, segments.start, segments.length) != IGNORED, offsets_of(segments.length)
            )
            left = np.bincount(segments.source, in_segment, len(lengths))
        else:
            left = trained.copy()
        dropped = too_long if self.truncation == "drop" else np.zeros(len(lengths), bool)
        left[dropped] = 0
        survives = left > 0
        return segments.take(survives[segments.source]), self._outcomes(batch, trained, left, too_long)

    def _outcomes(self, batch: Labels, trained: np.ndarray, left: np.ndarray, too_long: np.ndarray) -> Outcomes:
        """The outcome of each record. trained, left: int64 (rows,), labels of each row before and after cutting."""
        records, numbers = batch.source.records(), batch.source.record_numbers()

        def having(flags: np.ndarray) -> np.ndarray:
            """Whether a record has a row that is flagged: bool (records,)."""
            return np.bincount(numbers, flags, records) > 0

        survives, cut, had_labels = having(left > 0), having(too_long), having(trained > 0)
        dropped = ~survives & cut & (self.truncation == "drop")
        outcomes = batch.outcomes.drop("too_long", int(dropped.sum()))
        outcomes = outcomes.drop("no_trained_tokens", int(np.sum(~survives & ~dropped & ~had_labels)))
        outcomes = outcomes.drop("no_trained_tokens_left", int(np.sum(~survives & ~dropped & had_labels)))
        outcomes = outcomes.note("records_that_lost_trained_tokens", int(np.sum(having(too_long & (left < trained)))))
        outcomes = outcomes.note("parity_rows_added", int(np.sum(left > 0) - np.sum(survives)))
        return dataclasses.replace(
            outcomes,
            kept=outcomes.kept + int(np.sum(survives & ~cut)),
            truncated=outcomes.truncated + int(np.sum(survives & cut)),
        )

    def _table(self, batch: Labels, labels: np.ndarray, segments: _Segments) -> RowTable:
        """The rows that the segments make; those without a label are left out."""
        segments, segment_offsets = self._packed(segments)
        if self.shift_labels:
            labels = _ignored_at(labels, segments.start)
        source = batch.source.take(segments.source)
        table = RowTable(
            ids=slices_of(batch.ids, segments.start, segments.length),
            labels=slices_of(labels, segments.start, segments.length),
            offsets=offsets_of(segments.length)[segment_offsets],
            segment_lengths=segments.length,
            segment_offsets=segment_offsets,
            positions=source.positions,
            columns=source.columns if self.packing == "none" else None,
        )
        if self.shift_labels:
            table = shifted(table)
        has_label = sums_of(table.labels != IGNORED, table.offsets) > 0
        return table if has_label.all() else table.take(np.flatnonzero(has_label))

    def _packed(self, segments: _Segments) -> tuple[_Segments, np.ndarray]:
        """The segments in the order of their rows, and where in them each row begins: int64 (rows + 1,)."""
        capacity = self.max_length or 0
        if self.packing == "none":
            return segments, np.arange(len(segments.length) + 1)
        if self.packing == "wrapped":
            positions, segment_offsets = cut_stream(segments.length, capacity)
            begins = offsets_of(segments.length)
            of = np.searchsorted(begins, positions, side="right") - 1
            lengths = np.diff(np.append(positions, begins[-1]))
            return _Segments(segments.source[of], segments.start[of] + positions - begins[of], lengths), segment_offsets
        rows = (pack_ffd if self.packing == "ffd" else pack_bfd)(segments.length, capacity)
        order = np.array([segment for row in rows for segment in row], np.int64)
        return segments.take(order), offsets_of(np.array([len(row) for row in rows], np.int64))


def shifted(table: RowTable) -> RowTable:
    """The table with input_ids[:-1] and labels[1:] of each row; the row's last segment is one shorter."""
    ends = table.offsets[1:]
    lengths = table.segment_lengths.copy()
    lengths[table.segment_offsets[1:] - 1] -= 1
    left = lengths > 0
    return dataclasses.replace(
        table,
        ids=np.delete(table.ids, ends - 1),
        labels=np.delete(table.labels, table.offsets[:-1]),
        offsets=table.offsets - np.arange(len(table.offsets)),
        segment_lengths=lengths[left],
        segment_offsets=offsets_of(sums_of(left, table.segment_offsets)),
        positions=table.positions[left],
    )


def _ignored_at(labels: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The labels without those of tokens that nothing comes before."""
    labels = labels.copy()
    labels[positions] = IGNORED
    return labels


class TruncateOrPack(Step):
    """Truncate or pack rows, so that none is longer than max_length.

    PCollection[Labels] -> PCollection[Rows].

    Args:
        max_length: tokens in a row at most; None for any number.
        truncation: what happens to a longer row, if packing does not cut it into pieces: `keep_start`, `keep_end` or
            `drop`.
        packing: how rows are filled with several examples: `none`, `bfd` (best fit decreasing; longer rows are
            truncated), `bfd_split` (longer rows are cut into pieces), `ffd` (first fit decreasing) or `wrapped` (one
            stream, cut). All but `none` need a max_length.
        shift_labels: whether to write input_ids[:-1] and labels[1:], for trainers that do not shift.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Labels, Rows

    def __init__(
        self,
        *,
        max_length: int | None = None,
        truncation: str = "keep_start",
        packing: str = "none",
        shift_labels: bool = False,
    ):
        options: dict[str, Any] = {
            "max_length": max_length,
            "truncation": truncation,
            "packing": packing,
            "shift_labels": shift_labels,
        }
        Packer(**options)  # checks them here, not on a worker
        super().__init__(Packer, **options)
