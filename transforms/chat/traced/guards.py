"""Guards: what must hold for the texts of a conversation so that a compiled template renders them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field


@dataclass
class Guards:
    """What must hold for the texts of a conversation.

    Texts are numbered in the order of the conversation. A template may print a text stripped, so that all but `trimmed`
    are checked with and without the white space around it.

    Attributes:
        absent: strings that no text contains.
        trimmed: whether no text begins or ends with white space.
        absent_in_lower: strings that no text contains in lower case.
        unequal: strings that no text is equal to.
        starts: for the number of a text, the strings with which it does not begin; nor do they begin with the text.
        ends: for the number of a text, the strings with which it does not end.
    """

    absent: set[str] = field(default_factory=set)
    trimmed: bool = False
    absent_in_lower: set[str] = field(default_factory=set)
    unequal: set[str] = field(default_factory=set)
    starts: dict[int, set[str]] = field(default_factory=dict)
    ends: dict[int, set[str]] = field(default_factory=dict)

    def update(self, others: Guards) -> None:
        """Add other guards."""
        self.trimmed |= others.trimmed
        for own, added in (
            (self.absent, others.absent),
            (self.absent_in_lower, others.absent_in_lower),
            (self.unequal, others.unequal),
        ):
            own |= added
        for edges, added_edges in ((self.starts, others.starts), (self.ends, others.ends)):
            for number, strings in added_edges.items():
                edges.setdefault(number, set()).update(strings)

    def hold(self, texts: list[str], trimmed: list[str]) -> bool:
        """Check the guards.

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
        if self.absent_in_lower or self.unequal or self._may_touch(texts, trimmed):
            return self._rare_ones_hold(texts, trimmed)
        return True

    def _may_touch(self, texts: list[str], trimmed: list[str]) -> bool:
        """Whether a text begins or ends with the same character as a string of `starts` or `ends`."""
        for number, at, characters in self._edges:
            if texts[number][at] in characters or trimmed[number][at] in characters:
                return True
        return False

    @functools.cached_property
    def _edges(self) -> list[tuple[int, int, str]]:
        """The number of a text, 0 or -1, and the characters there of its strings. No guard is added afterwards."""
        edges = ((0, self.starts), (-1, self.ends))
        return [(number, at, "".join({s[at] for s in strings})) for at, own in edges for number, strings in own.items()]

    def _rare_ones_hold(self, texts: list[str], trimmed: list[str]) -> bool:
        if self.absent_in_lower:
            lower = "\0".join(texts).lower()
            if any(string in lower for string in self.absent_in_lower):
                return False
        if not self.unequal.isdisjoint((*texts, *trimmed)):
            return False
        for number, strings in self.starts.items():
            for text in {texts[number], trimmed[number]}:
                if any(text.startswith(string) or string.startswith(text) for string in strings):
                    return False
        return not any(
            text.endswith(tuple(strings))
            for number, strings in self.ends.items()
            for text in (texts[number], trimmed[number])
        )
