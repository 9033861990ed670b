"""Invariants of all rows of a dataset, checked in flat arrays, a row group at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transforms.catalog.consumers import RowLayout
from transforms.reading.row_examples import Segments, flat_values, segments_of, whole_column
from transforms.rows import IGNORED
from transforms.rows.answers import ANSWER_COLUMNS, with_tokens
from transforms.rows.columns import PROVENANCE_COLUMNS
from transforms.rows.packing import PAIRS
from transforms.rows.pairs import equal_pairs
from transforms.rows.parts import KINDS, PART_COLUMNS, codes_of_tokens, count_parts, run_starts
from transforms.rows.ragged import indices_of, offsets_of, sums_of
from transforms.tokens.span_ends import SpanEnds

# Columns with a value for each token.
_OF_TOKENS = ("input_ids", "labels", "loss_mask", "attention_mask", "position_ids")
_ROWS_NAMED = 5
_MOST_IDS = 1 << 31  # of int32


@dataclass(frozen=True)
class Fault:
    """What is wrong with a file, or with rows of it.

    Attributes:
        path: of the file, relative to the dataset's folder.
        problem: what was found in the file, or in the first of the rows, and what was expected.
        rows: the numbers of the first rows that have it, from 0; none if it is not about rows.
        count: of all rows that have it.
    """

    path: str
    problem: str
    rows: tuple[int, ...] = ()
    count: int = 0

    @classmethod
    def of_rows(cls, path: str, problem: str, rows: Sequence[int] | np.ndarray) -> Fault:
        """Make the fault of some rows; the first ones are named. rows: their numbers in the file."""
        return cls(path, problem, tuple(int(row) for row in rows[:_ROWS_NAMED]), len(rows))


@dataclass
class Checked:
    """What rows hold.

    Attributes:
        rows, tokens, trained_tokens, examples: how many there are; None if the columns do not show it.
        records: for each example a hash of the source and the position of its record, uint64, and the number of its
            row; none without provenance.
        faults: what is wrong with them.
        span_ends: what spans of trained tokens end with, as SpanEnds counts it; None if the columns do not show it.
        parts: the trained tokens by part, as `count_parts` counts them; None if the columns do not show it.
        segments: of rows that are checked at once: int64, shape (segments, 4), the row, the number in the row, tokens
            and trained tokens of each; None if the columns do not show it.
    """

    rows: int = 0
    tokens: int | None = 0
    trained_tokens: int | None = 0
    examples: int | None = 0
    records: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    span_ends: Counter[str] | None = field(default_factory=Counter)
    parts: Counter[str] | None = field(default_factory=Counter)
    segments: np.ndarray | None = None

    def add(self, other: Checked) -> None:
        """Add what other rows hold, but for their segments."""
        self.rows += other.rows
        for name in ("tokens", "trained_tokens", "examples", "span_ends", "parts"):
            ours, others = getattr(self, name), getattr(other, name)
            setattr(self, name, None if ours is None or others is None else ours + others)
        self.records += other.records
        self.faults += other.faults


def check_rows(
    rows: pa.Table | pa.RecordBatch,
    layout: RowLayout,
    vocabulary: int | None,
    path: str = "",
    first: int = 0,
    span_ends: SpanEnds | None = None,
) -> Checked:
    """Check rows.

    Args:
        rows: at least one, with the schema of the layout.
        layout: of the dataset.
        vocabulary: ids must be below it; None if it is not known.
        path: of their file, for faults.
        first: the number in the file of the first row.
        span_ends: counts what trained spans end with; None if that is not known.
    """
    checker = _Checker(rows, layout, vocabulary, path, first, span_ends)
    checker.check()
    return checker.found


class _Checker:
    def __init__(
        self,
        rows: pa.Table | pa.RecordBatch,
        layout: RowLayout,
        vocabulary: int | None,
        path: str,
        first: int,
        span_ends: SpanEnds | None,
    ):
        self._rows, self._layout, self._path, self._first = rows, layout, path, first
        self._vocabulary = _MOST_IDS if vocabulary is None else vocabulary
        self._span_ends = span_ends
        self.found = Checked(len(rows), None, None, None if layout.packed else len(rows), span_ends=None, parts=None)

    def check(self) -> None:
        columns = {
            name: flat_values(self._rows, name)
            for name in (*_OF_TOKENS, "seq_lengths", *ANSWER_COLUMNS)
            if name in self._layout.columns
        }
        if not self._check_masks(columns):
            return
        columns = with_tokens(columns)
        of_tokens = [name for name in columns if name != "seq_lengths"]
        for name in of_tokens[1:]:
            if not np.array_equal(columns[name][1], columns[of_tokens[0]][1]):
                lengths, others = (np.diff(columns[each][1]) for each in (of_tokens[0], name))
                bad = np.flatnonzero(lengths != others)
                self._fault(bad, f"it has {lengths[bad[0]]} {of_tokens[0]} and {others[bad[0]]} {name}")
                return
        values = {name: column[0] for name, column in columns.items()}
        seq_lengths = columns.get("seq_lengths")
        offsets = columns[of_tokens[0]][1] if of_tokens else None
        if seq_lengths is not None:
            if not self._check_seq_lengths(*seq_lengths, offsets):
                return
            if offsets is None:
                offsets = offsets_of(np.add.reduceat(seq_lengths[0], seq_lengths[1][:-1]))
        if offsets is None or not self._check_lengths(np.diff(offsets)):
            return
        self.found.tokens = int(offsets[-1])
        segments = segments_of(columns, self._layout.packed)
        starts = None
        if segments is not None:
            starts = offsets_of(segments.lengths)[:-1]
            self.found.examples = len(starts)
        if "input_ids" in values:
            self._check_ids(values["input_ids"], offsets)
        if self._layout.packing == PAIRS and segments is not None:
            self._check_pairs(segments, values.get("input_ids"))
        trained = self._check_labels(values, offsets, starts)
        if segments is not None and trained is not None:
            counts = np.diff(segments.offsets)
            rows = np.repeat(np.arange(self._first, self._first + len(counts)), counts)
            numbers = indices_of(np.zeros(len(counts), np.int64), counts)
            of_segments = sums_of(trained, offsets_of(segments.lengths))
            if self._layout.packing == PAIRS:
                self._no_fault(np.bincount(rows - self._first, of_segments == 0) > 0, "an answer has no trained token")
            self.found.segments = np.stack([rows, numbers, segments.lengths, of_segments], axis=1)
        if self._span_ends and starts is not None and trained is not None:
            labels = values.get("labels")
            if labels is None and "input_ids" in values and not self._layout.shift_labels:
                labels = np.where(trained, values["input_ids"], np.int32(IGNORED))
            if labels is not None:
                self.found.span_ends = self._span_ends.count(labels, starts)
        if "part_lengths" in self._layout.columns:
            self._check_parts(offsets, starts, trained)
        if "attention_mask" in values:
            self._expect(values["attention_mask"] == 1, offsets, "attention_mask", values, "1")
        if "position_ids" in values:
            self._check_positions(values["position_ids"], offsets, starts)
        if "source" in self._layout.columns:
            self._check_provenance(None if seq_lengths is None else np.diff(seq_lengths[1]))

    def _check_masks(self, columns: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> bool:
        """Check that the mask of each answer has a 0 or a 1 for each of its tokens."""
        for name in [name for name in columns if name in ANSWER_COLUMNS and name.endswith("_mask")]:
            ids = name.replace("_mask", "_ids")
            mask, offsets = columns[name]
            lengths, of_ids = np.diff(offsets), np.diff(columns[ids][1])
            if len(bad := np.flatnonzero(lengths != of_ids)):
                self._fault(bad, f"it has {of_ids[bad[0]]} {ids} and {lengths[bad[0]]} {name}")
                return False
            self._expect((mask == 0) | (mask == 1), offsets, name, {name: mask}, "0 or 1")
        return True

    def _check_seq_lengths(self, lengths: np.ndarray, of_rows: np.ndarray, offsets: np.ndarray | None) -> bool:
        if not self._no_fault(np.diff(of_rows) == 0, "seq_lengths is empty"):
            return False
        if len(bad := np.flatnonzero(lengths < 1)):
            rows = np.unique(np.searchsorted(of_rows, bad, "right") - 1)
            self._fault(rows, f"seq_lengths has {lengths[bad[0]]}; each example has a token")
            return False
        sums = np.add.reduceat(lengths, of_rows[:-1], dtype=np.int64)
        tokens = sums if offsets is None else np.diff(offsets)
        if len(bad := np.flatnonzero(sums != tokens)):
            self._fault(bad, f"seq_lengths adds up to {sums[bad[0]]}, and the row has {tokens[bad[0]]} tokens")
            return False
        return self._layout.packed or self._no_fault(np.diff(of_rows) > 1, "a row that is not packed has two examples")

    def _check_lengths(self, lengths: np.ndarray) -> bool:
        limit = self._layout.max_length
        if limit is not None and self._layout.packing != PAIRS:  # its answers have the limit
            limit -= self._layout.shift_labels
            if len(bad := np.flatnonzero(lengths > limit)):
                self._fault(bad, f"it has {lengths[bad[0]]:,} tokens; the job allows {limit:,}")
        return self._no_fault(lengths == 0, "it has no token")

    def _check_pairs(self, segments: Segments, ids: np.ndarray | None) -> None:
        """Check that each row has two answers, each with a trained token, which are not the same nor too long."""
        if not self._no_fault(np.diff(segments.offsets) != 2, "it does not have two answers, as a pair has"):
            return
        limit = self._layout.max_length
        lengths = segments.lengths.reshape(-1, 2)
        if limit is not None and len(bad := np.flatnonzero((lengths > limit).any(axis=1))):
            self._fault(bad, f"an answer has {lengths[bad[0]].max():,} tokens; the job allows {limit:,}")
        if ids is not None:
            self._no_fault(equal_pairs(ids, segments.lengths), "its two answers are equal")

    def _check_ids(self, ids: np.ndarray, offsets: np.ndarray) -> None:
        if int(ids.view(np.uint32).max()) >= self._vocabulary:  # negative ones are above all others
            expected = f"an id of the vocabulary, from 0 to {self._vocabulary - 1:,}"
            self._expect(ids.view(np.uint32) < self._vocabulary, offsets, "input_ids", {"input_ids": ids}, expected)

    def _check_labels(
        self, values: dict[str, np.ndarray], offsets: np.ndarray, starts: np.ndarray | None
    ) -> np.ndarray | None:
        """Check labels and loss_mask. Returns which tokens are trained on, by the first that is there."""
        labels, mask = (values.get(name) for name in ("labels", "loss_mask"))
        if labels is not None:
            trained = labels != IGNORED
            if "input_ids" in values:
                self._check_ids_of_labels(values, trained, offsets)
        elif mask is not None:
            trained = mask != 0
        else:
            return None
        self.found.trained_tokens = int(np.count_nonzero(trained))
        any_trained = np.maximum.reduceat(trained.view(np.uint8), offsets[:-1])
        self._no_fault(any_trained == 0, "it has no trained token: all labels are -100")
        if mask is not None:
            self._expect(mask == trained, offsets, "loss_mask", values, "1 where there is a label, 0 elsewhere")
        if self._layout.shift_labels and starts is not None:
            # What is predicted at the last token of an example is the first one of the next.
            crossing = np.setdiff1d(starts, offsets) - 1
            bad = crossing[trained[crossing]]
            if len(bad):
                self._fault(self._rows_of(bad, offsets), "the first token of an example is predicted from another one")
        return trained

    def _check_ids_of_labels(self, values: dict[str, np.ndarray], trained: np.ndarray, offsets: np.ndarray) -> None:
        ids, labels = values["input_ids"], values["labels"]
        if not self._layout.shift_labels:
            wrong = (labels != ids) & trained
        else:
            wrong = np.zeros(len(ids), bool)
            np.not_equal(labels[:-1], ids[1:], out=wrong[:-1])
            wrong &= trained
            last = offsets[1:] - 1  # the token after it is not in the row
            wrong[last] = trained[last] & (labels.view(np.uint32)[last] >= self._vocabulary)
        if wrong.any():
            whose = "the next token" if self._layout.shift_labels else "the token"
            self._expect(~wrong, offsets, "labels", values, f"the id of {whose}, or {IGNORED}")

    def _check_parts(self, offsets: np.ndarray, starts: np.ndarray | None, trained: np.ndarray | None) -> None:
        """Check the columns of parts, and count the trained tokens of each."""
        (lengths, of_rows), (kinds, *_), (messages, *_) = columns = [
            flat_values(self._rows, name) for name in PART_COLUMNS
        ]
        counts = [np.diff(column[1]) for column in columns]
        for name, count in zip(PART_COLUMNS[1:], counts[1:], strict=True):
            if not self._no_fault(count != counts[0], f"it has not as many {name} as part_lengths"):
                return
        sums = sums_of(lengths, of_rows)
        if not self._no_fault(sums != np.diff(offsets), "part_lengths does not add up to the tokens of the row"):
            return
        for holds, problem in (
            (lengths > 0, "part_lengths has a run without a token"),
            ((kinds >= 0) & (kinds < len(KINDS)), f"part_kinds has a number that is not from 0 to {len(KINDS) - 1}"),
            ((messages >= 0) == (kinds > 0), "part_messages has to be -1 where part_kinds is 0, and only there"),
        ):
            if len(bad := np.flatnonzero(~holds)):
                self._fault(self._rows_of(bad, of_rows), problem)
                return
        codes = codes_of_tokens(lengths, kinds, messages)
        begins = offsets_of(lengths)[:-1]
        wrong = np.setxor1d(begins if starts is None else run_starts(codes, starts), begins)
        if len(wrong):
            rows = self._rows_of(wrong, offsets)
            self._fault(rows, "part_lengths are not the longest runs of one part in each example")
        elif trained is not None:
            self.found.parts = Counter(count_parts(codes[trained]))

    def _check_positions(self, positions: np.ndarray, offsets: np.ndarray, starts: np.ndarray | None) -> None:
        fits = np.empty(len(positions), bool)
        np.equal(positions[1:], positions[:-1] + 1, out=fits[1:])
        begins = offsets[:-1] if starts is None else starts
        fits[begins] = positions[begins] == 0
        if not fits.all():
            self._expect(fits, offsets, "position_ids", {"position_ids": positions}, "to count from 0 in each example")

    def _check_provenance(self, examples: np.ndarray | None) -> None:
        sources, positions = (whole_column(self._rows, name) for name in PROVENANCE_COLUMNS)
        if self._layout.packed:
            counts = [np.diff(column.offsets.to_numpy()) for column in (sources, positions)]
            for count in counts:
                expected = counts[0] if examples is None else examples
                if len(bad := np.flatnonzero(count != expected)):
                    self._fault(bad, f"it has {expected[bad[0]]} examples, and the sources of {count[bad[0]]}")
                    return
            self.found.examples = int(counts[0].sum())
            rows = np.repeat(np.arange(len(counts[0])), counts[0])
            sources, positions = sources.flatten(), positions.flatten()
        else:
            rows = np.arange(len(sources))
        self.found.records.append((record_hashes(sources, positions), self._first + rows))

    def _expect(
        self, holds: np.ndarray, offsets: np.ndarray, name: str, values: dict[str, np.ndarray], expected: str
    ) -> None:
        """Report the rows of the tokens for which something does not hold."""
        bad = np.flatnonzero(~holds)
        if len(bad):
            rows = self._rows_of(bad, offsets)
            at = bad[0] - offsets[rows[0]]
            self._fault(rows, f"{name}[{at}] is {values[name][bad[0]]}; expected {expected}")

    def _rows_of(self, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return np.unique(np.searchsorted(offsets, tokens, "right") - 1)

    def _no_fault(self, bad: np.ndarray, problem: str) -> bool:
        rows = np.flatnonzero(bad)
        if len(rows):
            self._fault(rows, problem)
        return not len(rows)

    def _fault(self, rows: np.ndarray, problem: str) -> None:
        self.found.faults.append(Fault.of_rows(self._path, problem, self._first + rows))


def record_hashes(sources: pa.Array, positions: pa.Array) -> np.ndarray:
    """Hash the source and the position of records: uint64, shape (records,)."""
    encoded = sources.dictionary_encode()
    of_sources = np.array([_hash(source) for source in encoded.dictionary.to_pylist()], np.uint64)
    mixed = positions.to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return (mixed + of_sources[encoded.indices.to_numpy()]) * np.uint64(0xBF58476D1CE4E5B9)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
