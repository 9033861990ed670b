"""Texts as UTF-8, in which the fast encoder counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transforms.rows.ragged import join_slices, lengths_to_offsets


@dataclass(frozen=True)
class Utf8:
    """Texts as UTF-8, one after the other.

    Attributes:
        data: the bytes of all texts.
        offsets: int64, shape (texts + 1,): text i is data[offsets[i]:offsets[i + 1]].
        lengths: int64, shape (texts,): of the texts, in characters.
    """

    data: bytes
    offsets: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: list[str]) -> Utf8:
        """Encode texts without lone surrogates."""
        lengths = _lengths(texts)
        if all(map(str.isascii, texts)):
            return cls("".join(texts).encode(), lengths_to_offsets(lengths), lengths)
        encoded = list(map(str.encode, texts))
        return cls(b"".join(encoded), lengths_to_offsets(_lengths(encoded)), lengths)

    @property
    def sizes(self) -> np.ndarray:
        """The size of each text in bytes: int64, shape (texts,)."""
        return np.diff(self.offsets)

    def spans_in_bytes(self, spans: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Convert spans of texts from characters to bytes.

        Args:
            spans: int64, shape (spans, 2): (start, stop) in characters of their text, from -1 to its length and 1;
                those of the first text, then those of the next one.
            counts: int64, shape (texts,): how many of the spans are of each text.

        Returns:
            int64, shape (spans, 2): the same spans in bytes of their text, from -1 to its size and 1.
        """
        rows = np.flatnonzero(self.sizes != self.lengths)
        if not len(rows):
            return spans
        # Those of all texts that are not ASCII at once: a call for each would cost more than the rest of the step.
        codes: np.ndarray = np.frombuffer(self.data, np.int8)
        if len(rows) < len(counts):
            codes = join_slices(codes, self.offsets[rows], self.sizes[rows])
        bytes_at = bytes_before(codes)
        lengths, of_row = self.lengths[rows], counts[rows]
        first = np.repeat(lengths_to_offsets(lengths)[:-1], of_row)[:, None]
        own = np.repeat(self.sizes != self.lengths, counts)
        inside = np.clip(spans[own], 0, np.repeat(lengths, of_row)[:, None])
        converted = spans.copy()
        # Outside of the text, a character counts as one byte.
        converted[own] += bytes_at[first + inside] - bytes_at[first] - inside
        return converted


def bytes_before(text: bytes | np.ndarray) -> np.ndarray:
    """Return the number of bytes before each character of UTF-8, and before its end: int64 (characters + 1,)."""
    codes = np.frombuffer(text, np.int8)
    is_first = np.ones(len(codes) + 1, bool)
    np.greater_equal(codes, -64, out=is_first[:-1])  # the other bytes of a character are -128 to -65
    return np.flatnonzero(is_first)


def _lengths(texts: list[str] | list[bytes]) -> np.ndarray:
    return np.fromiter(map(len, texts), np.int64, len(texts))
