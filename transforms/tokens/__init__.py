"""Encoders: from texts to token ids, with the offsets of each token.

There are two, which give the same tokens: `reference` is transformers, `fast` is gigatoken. The step around them does
not know which one it uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from transforms.rows.ragged import joined, lengths_to_offsets
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
        failed: for the number of each text that the tokenizer cannot encode, its error. Such a text has no tokens.
        by_reference: for the number of each text that the fast encoder left to the reference, the reason, as a build
            counts it.
    """

    ids: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    bases: np.ndarray
    utf8: Utf8 | None = None
    failed: Mapping[int, str] = field(default_factory=dict)
    by_reference: Mapping[int, str] = field(default_factory=dict)


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


# The tokens of one text: ids, int32, and their starts and stops in the text, int64, each of shape (tokens,).
EncodedText = tuple[np.ndarray, np.ndarray, np.ndarray]


def concatenated(rows: Sequence[EncodedText], bases: np.ndarray, failed: Mapping[int, str]) -> Encoded:
    """Combine texts that were encoded one by one. bases, failed: as Encoded has them."""
    ids, starts, stops = (
        joined([row[i] for row in rows], dtype) for i, dtype in enumerate((np.int32, *[np.int64] * 2))
    )
    counts = np.array([len(row[0]) for row in rows], np.int64)
    shifts = np.repeat(bases, counts)
    return Encoded(ids, lengths_to_offsets(counts), starts + shifts, stops + shifts, bases, failed=failed)
