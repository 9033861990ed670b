"""Skeletons: what a chat template prints for all conversations of one signature, with a hole for each text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from transforms.chat.traced.tracer import LOWER, SENTINEL, STRIPPED, NotTraceable, print_form, sentinel_number
from transforms.model.examples import Span

# A span of a skeleton: how many holes are before its start, and how many characters of literals; the same for its stop.
Edges: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class Skeleton:
    """What a template prints, without the texts of a conversation.

    Attributes:
        literals: what is printed before, between and after texts.
        holes: for each literal but the last, the number of the text after it, and whether that is stripped.
        edges: of its spans.
    """

    literals: list[str]
    holes: list[tuple[int, bool]]
    edges: Sequence[Edges] = ()

    @classmethod
    def of(cls, traced: str, spans: Sequence[Span] = ()) -> Skeleton:
        """Make the skeleton of what a template printed for traced texts. spans: of that text.

        Raises:
            NotTraceable: if a text is printed in lower case.
        """
        forms = [(sentinel_number(text), print_form(text)) for text in SENTINEL.findall(traced)]
        if any(form == LOWER for _, form in forms):
            raise NotTraceable("the template prints a text in lower case")
        holes = [(number, form == STRIPPED) for number, form in forms]
        return cls(SENTINEL.split(traced), holes, find_edges(traced, spans) if spans else ())

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

    def filled(self, texts: list[str], trimmed: list[str]) -> tuple[str, list[Span]]:
        """Return the text of a conversation, and the spans in it. texts, trimmed: as in `printed`."""
        printed = self.printed(texts, trimmed)
        return self.text(printed), place_spans(self.edges, printed)

    def text(self, printed: list[str]) -> str:
        """Return the text with what is in the holes."""
        parts = self.literals * 2
        parts[::2] = self.literals
        parts[1:-1:2] = printed
        parts[-1] = ""
        return "".join(parts)


def place_spans(edges: Sequence[Edges], printed: list[str]) -> list[Span]:
    """Return the spans that have some edges in the text of a skeleton with what is in its holes."""
    if not edges:
        return []
    lengths = [0, *accumulate(map(len, printed))]
    return [(lengths[a] + i, lengths[b] + j) for a, i, b, j in edges]


def find_edges(traced: str, spans: Sequence[Span]) -> list[Edges]:
    """Return the edges of spans of what a template printed for traced texts."""
    texts = [0, *accumulate(bool(SENTINEL.match(character)) for character in traced)]
    return [(texts[start], start - texts[start], texts[stop], stop - texts[stop]) for start, stop in spans]
