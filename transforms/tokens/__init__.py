"""Encoders: from texts to token ids, and where each token lies.

Two of them give the same result: `reference` is transformers, `fast` is gigatoken. The step around them does not know
which one it talks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from transforms.model.examples import Span
from transforms.rows.ragged import joined, offsets_of


@dataclass(frozen=True)
class Encoded:
    """The tokens of some texts.

    ids: int32 (tokens,). offsets: int64 (texts + 1,), text i has the tokens offsets[i]:offsets[i + 1].
    starts, stops: int64 (tokens,), the places of each token, in the encoder's units. bases: int64 (texts,), the place
    where each text begins, behind those before it. Special tokens that are added lie one place in front of the text and
    one behind it, which then belong to no other.
    """

    ids: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    bases: np.ndarray


def in_one_space(
    ids: list[np.ndarray], starts: list[np.ndarray], stops: list[np.ndarray], bases: np.ndarray
) -> Encoded:
    """The tokens of texts that are encoded one by one, with places in each text, moved to where each text begins."""
    counts = np.array([len(row) for row in ids], np.int64)
    moved = np.repeat(bases, counts)
    starts_of_all, stops_of_all = (joined(rows, np.int64) + moved for rows in (starts, stops))
    return Encoded(joined(ids, np.int32), offsets_of(counts), starts_of_all, stops_of_all, bases)


class TextEncoder(Protocol):
    """What the step needs of an encoder."""

    characters_at_once: int

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        """The tokens of each text.

        special_tokens: whether to add the tokenizer's own, and an EOS where it is missing.
        """
        ...

    def length(self, text: str) -> int:
        """The length of a text in the encoder's units."""
        ...

    def places(self, text: str, spans: Sequence[Span]) -> Sequence[Span]:
        """Spans of characters in the encoder's units."""
        ...
