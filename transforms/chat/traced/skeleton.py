"""Skeletons: what a chat template prints for all conversations of one signature, with a hole for each text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from transforms.chat.traced.tracer import SENTINEL, joined_with_texts, split_at_texts
from transforms.model.examples import Span

# A span of a skeleton: how many holes are before its start, and how many characters of literals; the same for its stop.
Edges: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class Skeleton:
    """What a template prints, without the texts of a conversation.

    Attributes:
        literals: what is printed before, between and after texts.
        holes: for each literal but the last, the number of the text after it, and whether that is stripped.
    """

    literals: list[str]
    holes: list[tuple[int, bool]]

    @classmethod
    def of(cls, traced: str) -> Skeleton:
        """Make the skeleton of what a template printed for traced texts.

        Raises:
            NotTraceable: if a text is printed in lower case.
        """
        return cls(*split_at_texts(traced))

    @functools.cached_property
    def _strips_all(self) -> bool | None:
        """Whether all texts are stripped, or none is, if the texts are printed in order; None otherwise."""
        kinds = {strips for _, strips in self.holes}
        in_order = [number for number, _ in self.holes] == [*range(len(self.holes))]
        return kinds.pop() if in_order and len(kinds) == 1 else None

    def printed(self, texts: list[str], trimmed: list[str]) -> list[str]:
        """Return what is in the holes for a conversation.

        Args:
            texts: its texts. Those after the last hole are not printed.
            trimmed: the same texts without the white space around them.
        """
        if self._strips_all is not None and len(texts) == len(self.holes):
            return trimmed if self._strips_all else texts
        return [trimmed[number] if strips else texts[number] for number, strips in self.holes]

    def text(self, printed: list[str]) -> str:
        """Return the text with what is in the holes."""
        return joined_with_texts(self.literals, printed)


def spans_of(edges: Sequence[Edges], printed: list[str]) -> list[Span]:
    """Return the spans that have some edges in the text of a skeleton with what is in its holes."""
    if not edges:
        return []
    lengths = [0, *accumulate(map(len, printed))]
    return [(lengths[a] + i, lengths[b] + j) for a, i, b, j in edges]


def edges_of(traced: str, spans: Sequence[Span]) -> list[Edges]:
    """Return the edges of spans of what a template printed for traced texts."""
    texts = [0, *accumulate(bool(SENTINEL.match(character)) for character in traced)]
    return [(texts[start], start - texts[start], texts[stop], stop - texts[stop]) for start, stop in spans]
