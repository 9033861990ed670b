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
            moves = (at > first) & self._is_space(labels[at])
            if not moves.any():
                break
            at = at - moves
        counts: Counter[str] = Counter()
        for id, count in zip(*(each.tolist() for each in np.unique(labels[at], return_counts=True)), strict=True):
            name = self._name(id)
            counts[_OTHERS if name == _SPACE else name] += count
        return counts

    def _is_space(self, ids: np.ndarray) -> np.ndarray:
        some, inverse = np.unique(ids, return_inverse=True)
        return np.array([self._name(id) == _SPACE for id in some.tolist()], bool)[inverse]

    def _name(self, id: int) -> str:
        """The text of an added token, and what another one is."""
        if id not in self._names:
            self._names[id] = _SPACE if self._decoder.is_space(id) else self._decoder.added_token(id) or _OTHERS
        return self._names[id]
