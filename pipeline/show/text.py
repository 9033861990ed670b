"""A text as people see it: what is trained on in colour and between ⟦ and ⟧, and nothing hidden.

The contents are those of strangers. A character that a terminal would act on, or would not show, is written as its
escape: control characters, marks that turn the direction of the text, invisible ones, and the two marks themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from rich.text import Text

from transforms.base.hidden import visible
from transforms.rows.parts import KINDS

# A piece of a text in which nothing changes: `text`; `trained`, whether it is trained on; and if that is known of a
# part of the text, `part`, the part of a turn that it is.
Piece: TypeAlias = dict[str, Any]

_TRAINED = "bold green"
_COLOURS = {
    "reasoning": "magenta",
    "content": "green",
    "tool_calls": "blue",
    "template": "yellow",
    "end": "cyan",
    "after_end": "cyan",
}


def cut(text: str, spans: Iterable[tuple[int, int, bool, int]]) -> list[Piece]:
    """Cut a text where something changes.

    Args:
        text: to cut.
        spans: (start, stop) of some characters, whether they are trained on, and the number in KINDS of the part of a
            turn that they are. A character of several spans is trained on if one of them is.
    """
    marks = np.zeros((len(text), 2), np.int8)
    for start, stop, *mark in spans:
        np.maximum(marks[start:stop], mark, out=marks[start:stop], casting="unsafe")
    changes = np.flatnonzero(np.diff(marks, axis=0).any(axis=1)) + 1
    has_parts = marks[:, 1].any()
    return [
        {"text": text[start:stop], "trained": bool(marks[start, 0])}
        | ({"part": KINDS[marks[start, 1]]} if has_parts else {})
        for start, stop in pairwise([0, *changes.tolist(), len(text)])
        if start < stop
    ]


def joined(pieces: Iterable[Piece]) -> str:
    """Return the whole text."""
    return "".join(piece["text"] for piece in pieces)


def within(pieces: Iterable[Piece], start: int, stop: int) -> Iterator[Piece]:
    """Yield the pieces of some characters of a text."""
    for piece in pieces:
        if text := piece["text"][max(start, 0) : max(stop, 0)]:
            yield piece | {"text": text}
        start, stop = start - len(piece["text"]), stop - len(piece["text"])


def as_text(pieces: Iterable[Piece]) -> Text:
    """Make what a console prints of a text: what is trained on is between ⟦ and ⟧, in the colour of its part."""
    text, is_inside = Text(), False
    for piece in pieces:
        if piece["trained"] != is_inside:
            is_inside = piece["trained"]
            text.append("⟦" if is_inside else "⟧", _TRAINED)
        colour = _COLOURS.get(piece.get("part", ""), "green")
        text.append(visible(piece["text"]), f"bold {colour}" if is_inside else "dim")
    return text.append("⟧" if is_inside else "", _TRAINED)


def legend() -> Text:
    """Make the names of the parts of turns, in their colours."""
    names = (Text(part, f"bold {colour}") for part, colour in _COLOURS.items())
    return Text("parts of turns: ").append_text(Text(", ").join(names))
