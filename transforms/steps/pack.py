"""Pack: from labelled rows to rows no longer than max_length, truncated or packed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.checks import check_choice, check_count, check_flag
from transforms.errors import ParameterError
from transforms.model.batches import Labels, Rows, RowTable
from transforms.model.outcomes import Outcomes
from transforms.rows import IGNORED
from transforms.rows.packing import PACKINGS, packing_of
from transforms.rows.ragged import offsets_of, slices_of, sums_of
from transforms.rows.segments import Segments, whole
from transforms.rows.truncation import TRUNCATIONS, split, truncate
from transforms.steps.base import Step


@dataclass(frozen=True)
class Packer:
    """Truncates or packs the rows of a batch.

    Args:
        max_length: tokens in a row at most; None for any number.
        truncation: one of TRUNCATIONS: what happens to a longer row, if the packing does not cut it into pieces.
        packing: one of PACKINGS; all but `none` need a max_length.
        shift_labels: whether to write input_ids[:-1] and labels[1:]. The first token of a segment is then not trained
            on, since it would be predicted from another segment.

    Raises:
        ParameterError: if a value is not one of those.
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
        if self.shift_labels:
            batch = dataclasses.replace(batch, labels=_ignored_at(batch.labels, batch.offsets[:-1]))
        segments, outcomes = self._segments(batch)
        tables = {
            name: self._table(batch, segments.take(batch.source.validation[segments.source] == held_back))
            for name, held_back in (("train", False), ("validation", True))
        }
        lost = batch.trained_tokens.sum() - sum(table.trained_tokens.sum() for table in tables.values())
        outcomes = dataclasses.replace(outcomes, trained_tokens_lost=outcomes.trained_tokens_lost + int(lost))
        return batch.succeeded_by(Rows, outcomes, packed=self.packing != "none", **tables)

    def _segments(self, batch: Labels) -> tuple[Segments, Outcomes]:
        """Cut the labelled rows, and find the outcome of each record."""
        lengths = np.diff(batch.offsets)
        segments = self._cut(lengths)
        too_long = np.bincount(segments.source, segments.length, len(lengths)) < lengths
        if too_long.any() or len(segments) > len(lengths):
            starts = batch.offsets[segments.source] + segments.start
            labels = _ignored_at(batch.labels, starts) if self.shift_labels else batch.labels
            in_segment = sums_of(slices_of(labels, starts, segments.length) != IGNORED, offsets_of(segments.length))
            left = np.bincount(segments.source, in_segment, len(lengths))
        else:
            left = batch.trained_tokens
        survives = left > 0
        return segments.take(survives[segments.source]), self._outcomes(batch, left, too_long)

    def _cut(self, lengths: np.ndarray) -> Segments:
        """Truncate or split the rows that are longer than max_length. lengths: int64 (rows,)."""
        longer = "truncate" if self.packing == "none" else packing_of(self.packing).longer
        if self.max_length is None or longer == "keep":
            return whole(lengths)
        if longer == "split":
            return split(lengths, self.max_length)
        return truncate(lengths, self.max_length, self.truncation)

    def _outcomes(self, batch: Labels, left: np.ndarray, too_long: np.ndarray) -> Outcomes:
        """Find the outcome of each record. left: int64 (rows,), labels of each row after cutting."""
        trained = batch.trained_tokens
        records, numbers = batch.source.records(), batch.source.record_numbers()

        def having(flags: np.ndarray) -> np.ndarray:
            """Find which records have a row that is flagged: bool (records,)."""
            return np.bincount(numbers, flags, records) > 0

        survives, cut, had_labels = having(left > 0), having(too_long), having(trained > 0)
        dropped = ~survives & cut & (self.truncation == "drop")
        outcomes = batch.outcomes.drop("too_long", int(dropped.sum()))
        outcomes = outcomes.drop("no_trained_tokens", int(np.sum(~survives & ~dropped & ~had_labels)))
        outcomes = outcomes.drop("no_trained_tokens_left", int(np.sum(~survives & ~dropped & had_labels)))
        outcomes = outcomes.note("records_that_lost_trained_tokens", int(np.sum(having(too_long & (left < trained)))))
        examples = int(np.count_nonzero(np.bincount(batch.source.example_numbers(), left > 0)))
        outcomes = outcomes.note("parity_rows_added", int(np.sum(left > 0)) - examples)
        outcomes = outcomes.note("formatter_rows_added", examples - int(np.sum(survives)))
        return dataclasses.replace(
            outcomes,
            kept=outcomes.kept + int(np.sum(survives & ~cut)),
            truncated=outcomes.truncated + int(np.sum(survives & cut)),
        )

    def _table(self, batch: Labels, segments: Segments) -> RowTable:
        """Make rows of the segments, and leave out those without a label."""
        if self.packing == "none":
            segment_offsets = np.arange(len(segments) + 1)
        else:
            packed = packing_of(self.packing).pack(segments.length, self.max_length or 0)
            segments, segment_offsets = segments.cut(packed.segments), packed.offsets
        starts = batch.offsets[segments.source] + segments.start
        labels = _ignored_at(batch.labels, starts) if self.shift_labels else batch.labels
        source = batch.source.take(segments.source)
        table = RowTable(
            ids=slices_of(batch.ids, starts, segments.length),
            labels=slices_of(labels, starts, segments.length),
            offsets=offsets_of(segments.length)[segment_offsets],
            segment_lengths=segments.length,
            segment_offsets=segment_offsets,
            positions=source.positions,
            columns=source.columns if self.packing == "none" else None,
            weights=None if batch.weights is None else slices_of(batch.weights, starts, segments.length),
        )
        if self.shift_labels:
            table = shifted(table)
        return table if table.trained_tokens.all() else table.take(np.flatnonzero(table.trained_tokens))


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
        weights=None if table.weights is None else np.delete(table.weights, table.offsets[:-1]),
        offsets=table.offsets - np.arange(len(table.offsets)),
        segment_lengths=lengths[left],
        segment_offsets=offsets_of(sums_of(left, table.segment_offsets)),
        positions=table.positions[left],
    )


def _ignored_at(labels: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Ignore the labels of the first tokens of segments, which are at these positions."""
    labels = labels.copy()
    labels[positions] = IGNORED
    return labels


class TruncateOrPack(Step):
    """Truncate or pack rows, so that none is longer than max_length.

    PCollection[Parts[Labels]] -> PCollection[Parts[Rows]].

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
