"""Hashes of the examples of rows, from the flat arrays: the same for the same example, whatever row it is in.

The hash of a sequence is the sum of mixed(value) * base ** position, modulo 2 ** 64, for each of two bases. So it is
computed for all examples of a batch at once; and that of an example that was cut into segments follows from theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from transforms.dataset.examples import RowExamples, examples_of
from transforms.rows.ragged import indices_of, offsets_of
from transforms.tokens.decoding import TokenDecoder

# Odd, so that their powers have inverses. Those of tokens and of bytes; of each there are two for 128 bits.
_TOKEN_BASES, _BYTE_BASES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F), (0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
# Slices of a batch are hashed one by one, to bound the memory and to stay in the caches.
_TOKENS_AT_ONCE = 1 << 18

# An example as it is compared. ids, text: of all its tokens, and of their text. labels, trained_text: of those that are
# trained on. cut: as ids, but of what would be left of the example if it were cut. bytes: of the text. content, origin:
# of its record, 0 if not known. lost: tokens of its record that are in no row. shard, row, segment: where it begins.
ENTRY = np.dtype([
    ("ids", "u8", 2), ("labels", "u8"), ("text", "u8", 2), ("trained_text", "u8"), ("cut", "u8", 2),
    ("content", "u8", 2), ("origin", "u8", 2), ("tokens", "u8"), ("bytes", "u8"), ("lost", "u8"), ("split", "u4"),
    ("shard", "u4"), ("row", "u4"), ("segment", "u4"),
])  # fmt: skip


def columns_of(entries: np.ndarray, name: str) -> list[np.ndarray]:
    """Return a field of entries as columns of numbers: one, or two for a field of 128 bits."""
    return [entries[name]] if entries[name].ndim == 1 else [entries[name][:, 0], entries[name][:, 1]]


def mixed(values: np.ndarray) -> np.ndarray:
    """Mix the bits of integers, as splitmix64 does. Returns uint64, of the same shape."""
    hashes = (values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(0x94D049BB133111EB)
    hashes ^= hashes >> np.uint64(32)
    return hashes


class _Powers:
    """The powers of a base, as many as were asked for."""

    def __init__(self, base: int):
        self._base = np.uint64(base)
        self._powers = np.ones(1, np.uint64)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        needed = int(positions.max(initial=0)) + 1
        if needed > len(self._powers):
            factors = np.full(max(needed, 1 << 16), self._base)
            factors[0] = 1
            self._powers = np.multiply.accumulate(factors)
        return self._powers[positions]


class ExampleHasher:
    """Hashes the examples of the rows of a dataset.

    Args:
        decoder: of its tokens.
        packed, shift_labels: of its layout.
        cut: how many tokens of an example the `cut` hash is of, and whether those are the last ones; None for all.
    """

    def __init__(self, decoder: TokenDecoder, packed: bool, shift_labels: bool, cut: tuple[int, bool] | None):
        self._packed, self._shift_labels, self._cut = packed, shift_labels, cut
        self._tokens = mixed(np.arange(len(decoder.added)))
        self._sizes = np.diff(decoder.offsets)
        self._powers, self._byte_powers = list(map(_Powers, _TOKEN_BASES)), list(map(_Powers, _BYTE_BASES))
        positions = indices_of(np.zeros(len(self._sizes), np.int64), self._sizes)
        data = mixed(decoder.data)
        self._texts = [_sums(data * powers(positions), decoder.offsets) for powers in self._byte_powers]

    def entries(self, rows: pa.RecordBatch) -> np.ndarray:
        """Hash the examples of some rows.

        Args:
            rows: with the columns of EXAMPLE_COLUMNS, as far as they were written.

        Returns:
            ENTRY, shape (examples,): their hashes, sizes, rows (of the batch) and segments. The other fields are 0.
        """
        parts, first = [], 0
        for examples in self._parts(rows):
            part = self._hashed(examples)
            counts = examples.counts
            part["row"] = np.repeat(np.arange(first, first + len(counts)), counts)
            part["segment"] = indices_of(np.zeros(len(counts), np.int64), counts)
            first += len(counts)
            parts.append(part)
        return np.concatenate(parts) if parts else np.empty(0, ENTRY)

    def _parts(self, rows: pa.RecordBatch) -> Iterator[RowExamples]:
        offsets = rows.column("input_ids").offsets.to_numpy()
        start = 0
        while start < len(rows):
            stop = int(np.searchsorted(offsets, offsets[start] + _TOKENS_AT_ONCE, "right")) - 1
            stop = min(max(stop, start + 1), len(rows))
            yield examples_of(rows.slice(start, stop - start), self._packed, self._shift_labels)
            start = stop

    def _hashed(self, examples: RowExamples) -> np.ndarray:
        entries = np.zeros(len(examples.offsets) - 1, ENTRY)
        ids, offsets = np.clip(examples.ids, 0, len(self._tokens) - 1), examples.offsets
        lengths = np.diff(offsets)
        trained = examples.trained
        positions = indices_of(np.zeros(len(lengths), np.int64), lengths)
        powers = self._powers[0](positions)
        tokens = self._tokens[ids]
        entries["tokens"] = lengths
        entries["ids"][:, 0] = _sums(tokens * powers, offsets)
        entries["ids"][:, 1] = _sums(tokens * self._powers[1](positions), offsets)
        labels = self._tokens[np.clip(examples.labels, 0, len(self._tokens) - 1)]
        entries["labels"] = _sums(np.where(trained, labels * powers, np.uint64(0)), offsets)
        sizes = self._sizes[ids]
        ends = offsets_of(sizes)
        starts_of_examples = ends[offsets]
        entries["bytes"] = np.diff(starts_of_examples)
        bytes_before = ends[:-1] - np.repeat(starts_of_examples[:-1], lengths)
        for lane, texts in enumerate(self._texts):
            terms = texts[ids] * self._byte_powers[lane](bytes_before)
            entries["text"][:, lane] = _sums(terms, offsets)
            if lane == 0:
                entries["trained_text"] = _sums(np.where(trained, terms, np.uint64(0)), offsets)
        entries["cut"] = entries["ids"]
        if self._cut is not None:
            limit, keeps_end = self._cut
            longer = np.flatnonzero(lengths > limit)
            kept = indices_of((offsets[1:] - limit if keeps_end else offsets[:-1])[longer], np.full(len(longer), limit))
            positions = indices_of(np.zeros(len(longer), np.int64), np.full(len(longer), limit))
            for lane, powers_of in enumerate(self._powers):
                sums = _sums(tokens[kept] * powers_of(positions), np.arange(len(longer) + 1) * limit)
                entries["cut"][longer, lane] = sums
        return entries

    def joined(self, entries: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Join the segments of examples that were cut.

        Args:
            entries: ENTRY, shape (segments,): those of an example are consecutive and in order.
            starts: int64, shape (examples,): where the segments of each example begin.

        Returns:
            ENTRY, shape (examples,): the hashes of the whole examples. The other fields are those of the first segment.
        """
        if len(starts) == len(entries):
            return entries
        counts = np.diff(np.append(starts, len(entries)))
        edges = np.append(starts, len(entries))
        joined = entries[starts]
        for size, names, powers in (
            ("tokens", ("ids", "labels"), self._powers),
            ("bytes", ("text", "trained_text"), self._byte_powers),
        ):
            before = offsets_of(entries[size].astype(np.int64))
            before = before[:-1] - np.repeat(before[starts], counts)
            for name in names:
                for lane, hashes in enumerate(columns_of(entries, name)):
                    columns_of(joined, name)[lane][:] = _sums(hashes * powers[lane](before), edges)
            joined[size] = _sums(entries[size], edges)
        several = counts > 1
        joined["cut"][several] = joined["ids"][several]
        return joined


def _sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Add up the values of each slice, modulo 2 ** 64. offsets: int64, shape (slices + 1,); slices may be empty."""
    sums = np.zeros(len(offsets) - 1, np.uint64)
    not_empty = np.flatnonzero(np.diff(offsets))
    if len(not_empty):
        sums[not_empty] = np.add.reduceat(values, offsets[not_empty], dtype=np.uint64)
    return sums
