"""Span ends: what the spans that are trained on end with, as it is in rows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from transforms.rows import IGNORED
from transforms.tokens.decoding import TokenDecoder

# So many tokens of white space at the end of a span are not looked at, such as the line break after `<|im_end|>`.
_MOST_SPACES = 8
_OTHERS, _SPACE = "others", " "


class SpanEnds:
    """Counts what spans of trained tokens end with.

    Args:
        decoder: of the tokens.
    """

    def __init__(self, decoder: TokenDecoder):
        self._decoder = decoder
        self._names: dict[int, str] = {}

    def count(self, labels: np.ndarray, starts: np.ndarray) -> Counter[str]:
        """Count the last tokens of spans, before white space: added tokens by their texts, and all others as `others`.

        Args:
            labels: int32, shape (tokens,): of rows, shifted or not.
            starts: int64, ascending: where each segment begins, which ends the span before it. The first one is 0.
        """
        trained = labels != IGNORED
        begins, ends = trained.copy(), trained.copy()
        begins[1:] &= ~trained[:-1]
        ends[:-1] &= ~trained[1:]
        begins[starts] = trained[starts]
        ends[starts[1:] - 1] = trained[starts[1:] - 1]
        first, at = np.flatnonzero(begins), np.flatnonzero(ends)
        for _ in range(_MOST_SPACES):
            before = at > first
            before[before] = self._are(labels[at[before]], _SPACE)
            if not before.any():
                break
            at = at - before
        ids, counts = np.unique(labels[at], return_counts=True)
        found: Counter[str] = Counter()
        for name, count in zip(self._names_of(ids), counts.tolist(), strict=True):
            found[_OTHERS if name == _SPACE else name] += count
        return found

    def _are(self, ids: np.ndarray, name: str) -> np.ndarray:
        """Whether each of some ids has a name."""
        some, inverse = np.unique(ids, return_inverse=True)
        return np.array([found == name for found in self._names_of(some)], bool)[inverse]

    def _names_of(self, ids: np.ndarray) -> list[str]:
        """The text of each added token, and what other tokens are. ids: each once."""
        wanted: list[int] = ids.tolist()
        for id in wanted:
            if id not in self._names:
                self._names[id] = _SPACE if self._decoder.is_space(id) else self._decoder.added_token(id) or _OTHERS
        return [self._names[id] for id in wanted]
