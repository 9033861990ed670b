"""Encoders: from texts to token ids, and where each token lies.

Two of them give the same result: `reference` is transformers, `fast` is gigatoken. The step around them does not know
which one it talks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from transforms.examples import Span


@dataclass(frozen=True)
class Encoded:
    """The tokens of some texts.

    ids: int32 (tokens,). offsets: int64 (texts + 1,), text i has the tokens offsets[i]:offsets[i + 1].
    starts, stops: int64 (tokens,), the places of each token in its own text, in the encoder's units. Special tokens
    that are added lie at -1 (in front of the text) and at its length (behind it).
    """

    ids: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


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
