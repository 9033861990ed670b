"""A text as people see it: what is trained on in colour and between ⟦ and ⟧, special tokens visible, nothing hidden.

The contents are those of strangers. A character that a terminal would act on, or would not show, is written as its
escape: control characters, marks that turn the direction of the text, invisible ones, and the two marks themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from rich.text import Text

from transforms.base.hidden import HIDDEN
from transforms.rows.parts import KINDS

# How many tokens are shown before the first one that is trained on.
_BEFORE = 24
_TRAINED = "bold green"
# Of trained parts of turns, if they are known.
_COLOURS = {
    "reasoning": "magenta",
    "content": "green",
    "tool_calls": "blue",
    "template": "yellow",
    "end": "cyan",
    "after_end": "cyan",
}


class Mark(NamedTuple):
    """What is known of a character. kind: the number in KINDS of the part of a turn that it is; 0 if it is none."""

    trained: bool
    special: bool = False
    kind: int = 0

    @property
    def style(self) -> str:
        """How it is printed."""
        if not self.trained:
            return "cyan" if self.special else "dim"
        return (f"bold {_COLOURS[KINDS[self.kind]]}" if self.kind else _TRAINED) + " underline" * self.special


@dataclass(frozen=True)
class Marked:
    """A text, and what is known of each of its characters.

    Attributes:
        text: of any contents; a lone surrogate stands for a byte that is not UTF-8.
        marks: int8, shape (characters, 3): a Mark of each.
    """

    text: str
    marks: np.ndarray

    def __getitem__(self, part: slice) -> Marked:
        return Marked(self.text[part], self.marks[part])

    def pieces(self) -> Iterator[tuple[str, Mark]]:
        """Yield the pieces in which nothing changes."""
        changes = np.flatnonzero(np.diff(self.marks, axis=0).any(axis=1)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(self.text)]):
            if start < stop:
                trained, special, kind = self.marks[start].tolist()
                yield self.text[start:stop], Mark(bool(trained), bool(special), kind)


def mark(text: str, spans: Iterable[tuple[int, int, Mark]]) -> Marked:
    """Mark the characters of a text.

    Args:
        spans: (start, stop) of some characters, and what they are. A character of several spans is all that they are.
    """
    marks = np.zeros((len(text), len(Mark._fields)), np.int8)
    for start, stop, each in spans:
        np.maximum(marks[start:stop], each, out=marks[start:stop], casting="unsafe")
    return Marked(text, marks)


def shown_tokens(trained: np.ndarray, limit: int | None) -> slice:
    """Choose the tokens of an example to show: `limit` or all, from near the first one that is trained on."""
    if limit is None:
        return slice(0, len(trained))
    first = int(trained.argmax()) if trained.any() else 0
    start = 0 if first <= 2 * _BEFORE else first - _BEFORE
    return slice(start, min(start + limit, len(trained)))


def visible(text: str) -> str:
    """Return a text with escapes for what a terminal would act on or would not show."""
    return HIDDEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return match[0].encode("unicode_escape").decode()


def as_text(marked: Marked) -> Text:
    """Make what a console prints of a text: what is trained on is between ⟦ and ⟧, in the colour of its part."""
    text, is_inside = Text(), False
    for piece, found in marked.pieces():
        if found.trained != is_inside:
            is_inside = found.trained
            text.append("⟦" if is_inside else "⟧", _TRAINED)
        text.append(visible(piece), found.style)
    return text.append("⟧" if is_inside else "", _TRAINED)


def legend() -> Text:
    """Make the names of the parts of turns, in their colours."""
    names = (Text(part, f"bold {colour}") for part, colour in _COLOURS.items())
    return Text("parts of turns: ").append_text(Text(", ").join(names))
