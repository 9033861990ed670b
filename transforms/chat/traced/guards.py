"""Guards: what must hold for the texts of a conversation so that a compiled template renders them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field


@dataclass
class Guards:
    """What must hold for the texts of a conversation.

    Texts are numbered in the order of the conversation. A template may print a text stripped, so that `edges` are
    checked with and without the white space around it.

    Attributes:
        absent: strings that no text contains.
        trimmed: whether no text begins or ends with white space.
        absent_in_lower: strings that no text contains in lower case.
        edges: for the number of a text and 0 (or -1), the strings with which it does not begin (or end); nor do they
            begin (or end) with the text.
        apart: pairs of numbers of texts neither of which begins with the other.
    """

    absent: set[str] = field(default_factory=set)
    trimmed: bool = False
    absent_in_lower: set[str] = field(default_factory=set)
    edges: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    apart: set[tuple[int, int]] = field(default_factory=set)

    def hold(self, texts: list[str], trimmed: list[str]) -> bool:
        """Check the guards. None is added afterwards.

        Args:
            texts: the texts of a conversation.
            trimmed: the same texts without the white space around them.
        """
        if self.trimmed and trimmed != texts:
            return False
        if self.absent:
            joined = "\0".join(texts)
            for string in self.absent:
                if string in joined:
                    return False
        if self.absent_in_lower:
            joined = "\0".join(texts).lower()
            if any(string in joined for string in self.absent_in_lower):
                return False
        for number, edge, characters, strings in self._edges:
            text, bare = texts[number], trimmed[number]
            may_touch = text[edge] in characters or bare[edge] in characters
            if may_touch and any(_touch(one, string, edge) for one in (text, bare) for string in strings):
                return False
        return not any(_touch(trimmed[one], trimmed[other], 0) for one, other in self.apart)

    @functools.cached_property
    def _edges(self) -> list[tuple[int, int, str, set[str]]]:
        """The edges, each with the characters that its strings have there, which are compared first."""
        return [(*at, "".join({string[at[1]] for string in own}), own) for at, own in self.edges.items()]


def _touch(text: str, string: str, edge: int) -> bool:
    if edge == 0:
        return text.startswith(string) or string.startswith(text)
    return text.endswith(string) or string.endswith(text)
