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
            return not self._failure(texts, trimmed)
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

    def failure(self, texts: list[str], trimmed: list[str]) -> str:
        """Describe the guard that does not hold for some texts."""
        joined = "\0".join(texts)
        found = next((string for string in sorted(self.absent) if string in joined), None)
        if found is not None:
            return f"a text contains {found!r}"
        return self._failure(texts, trimmed) or "a text begins or ends with white space"

    def _failure(self, texts: list[str], trimmed: list[str]) -> str:
        """Describe which of the rare guards does not hold; empty if they all hold."""
        if self.absent_in_lower:
            lower = "\0".join(texts).lower()
            for string in sorted(self.absent_in_lower):
                if string in lower:
                    return f"a text contains {string!r} in lower case"
        for same in sorted(self.unequal.intersection((*texts, *trimmed))):
            return f"a text is {same!r}"
        for number, strings in self.starts.items():
            own = {texts[number], trimmed[number]}
            alike = [s for s in strings for text in own if text.startswith(s) or s.startswith(text)]
            if alike:
                return f"a text begins like {min(alike)!r}"
        for number, strings in self.ends.items():
            for text in {texts[number], trimmed[number]}:
                if text.endswith(tuple(strings)):
                    return f"a text ends with one of {sorted(strings)}"
        return ""
