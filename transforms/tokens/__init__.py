"""Encoders: from texts to token ids, with the offsets of each token.

There are two, which give the same tokens: `reference` is transformers, `fast` is gigatoken. The step around them does
not know which one it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from transforms.rows.ragged import joined, offsets_of
from transforms.tokens.utf8 import Utf8


@dataclass(frozen=True)
class Encoded:
    """The tokens of some texts, in flat arrays.

    Offsets count characters, or bytes of UTF-8, through all the texts. Before each text and after it is one
    unit more, which belongs to no other text: the special tokens that the tokenizer adds lie there.

    Attributes:
        ids: int32, shape (tokens,).
        offsets: int64, shape (texts + 1,): text i has the tokens offsets[i]:offsets[i + 1].
        starts, stops: int64, shape (tokens,): the offsets of each token.
        bases: int64, shape (texts,): the offset at which each text begins.
        utf8: the texts in which offsets count bytes; None if they count characters.
        altered: int64, shape (altered texts,): the numbers of the texts that the fast encoder left to the reference,
            since the tokenizer normalises them. Only on what `TextEncoder.encode` returns.
        long: int64, shape (long texts,): the numbers of those that it left to the reference because of their length.
        newer: int64, shape (texts with newer characters,): the numbers of those with characters that it knows and the
            reference does not.
        failed: for the number of each text that the tokenizer cannot encode, its error. Such a text has no tokens.
    """

    ids: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    bases: np.ndarray
    utf8: Utf8 | None = None
    altered: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    long: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    newer: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    failed: Mapping[int, str] = field(default_factory=dict)


class TextEncoder(Protocol):
    """What the step needs of an encoder.

    Attributes:
        characters_at_once: the approximate characters of the texts of one call of encode, to bound its memory.
    """

    characters_at_once: int

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        """Encode texts.

        Args:
            texts: any number of them, also none.
            special_tokens: whether to add the tokenizer's own special tokens, and an EOS if the last token is not one.

        Returns:
            The tokens of each text. An added special token has the offsets (-1, 0) or (length, length + 1) in its text.
        """
        ...


def concatenated(
    ids: list[np.ndarray], starts: list[np.ndarray], stops: list[np.ndarray], bases: np.ndarray
) -> Encoded:
    """Combine texts that were encoded one by one.

    Args:
        ids: for each text int32, shape (tokens,).
        starts, stops: for each text int64, shape (tokens,): offsets in that text.
        bases: int64, shape (texts,): the offset at which each text is to begin.
    """
    counts = np.array([len(row) for row in ids], np.int64)
    shifts = np.repeat(bases, counts)
    all_starts, all_stops = (joined(rows, np.int64) + shifts for rows in (starts, stops))
    return Encoded(joined(ids, np.int32), offsets_of(counts), all_starts, all_stops, bases)
