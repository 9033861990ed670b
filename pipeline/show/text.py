"""A text as people see it: what is trained on in colour and between ⟦ and ⟧, special tokens visible, nothing hidden.

The contents are those of strangers. A character that a terminal would act on, or would not show, is written as its
escape: control characters, marks that turn the direction of the text, invisible ones, and the two marks themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.text import Text

from transforms.base.hidden import HIDDEN
from transforms.rows.parts import KINDS

# How many tokens are shown before the first one that is trained on.
_BEFORE = 24
_TRAINED, _OTHER, _SPECIAL, _ESCAPE = "bold green", "dim", "cyan", "red"
# Of trained parts of turns, if they are known.
_COLOURS = {
    "reasoning": "magenta",
    "content": "green",
    "tool_calls": "blue",
    "template": "yellow",
    "end": "cyan",
    "after_end": "cyan",
}


@dataclass(frozen=True)
class Marked:
    """A text, and what is known of each of its characters.

    Attributes:
        text: of any contents; a lone surrogate stands for a byte that is not UTF-8.
        trained: bool, shape (characters,): whether it is trained on.
        special: bool, shape (characters,): whether it is of a special token.
        kinds: int8, shape (characters,): the part of a turn that it is, as a number of KINDS; 0 if that is not known.
    """

    text: str
    trained: np.ndarray
    special: np.ndarray
    kinds: np.ndarray

    def __getitem__(self, part: slice) -> Marked:
        return Marked(self.text[part], self.trained[part], self.special[part], self.kinds[part])


def marked_spans(
    text: str,
    trained: Iterable[tuple[int, int]],
    special: Iterable[tuple[int, int]] = (),
    kinds: Iterable[tuple[tuple[int, int], int]] = (),
) -> Marked:
    """Mark the characters of a text.

    Args:
        trained, special: (start, stop) of what is trained on, and of special tokens.
        kinds: the same of parts of turns, each with the number of its kind.
    """
    marks = np.zeros((2, len(text)), bool)
    for of, spans in zip(marks, (trained, special), strict=True):
        for start, stop in spans:
            of[start:stop] = True
    of_characters = np.zeros(len(text), np.int8)
    for (start, stop), kind in kinds:
        of_characters[start:stop] = kind
    return Marked(text, marks[0], marks[1], of_characters)


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
    return "\\r" if code == 13 else match[0].encode("unicode_escape").decode()


def as_text(marked: Marked) -> Text:
    """Make what a console prints of a text: what is trained on is between ⟦ and ⟧, in the colour of its part."""
    text = Text()
    for start, stop in runs(marked.trained):
        is_trained = bool(marked.trained[start])
        text.append("⟦" if is_trained else "", _TRAINED)
        for inner_start, inner_stop in runs(2 * marked.kinds[start:stop] + marked.special[start:stop]):
            piece = marked.text[start + inner_start : start + inner_stop]
            style = _trained_style(int(marked.kinds[start + inner_start])) if is_trained else _OTHER
            if marked.special[start + inner_start]:
                style = f"{style} underline" if is_trained else _SPECIAL
            last = 0
            for escaped in HIDDEN.finditer(piece):
                text.append(piece[last : escaped.start()], style)
                text.append(_escape(escaped), _ESCAPE)
                last = escaped.end()
            text.append(piece[last:], style)
        text.append("⟧" if is_trained else "", _TRAINED)
    return text


def _trained_style(kind: int) -> str:
    return f"bold {_COLOURS[KINDS[kind]]}" if kind else _TRAINED


def legend() -> Text:
    """Make the names of the parts of turns, in their colours."""
    names = (Text(part, f"bold {colour}") for part, colour in _COLOURS.items())
    return Text("parts of turns: ").append_text(Text(", ").join(names))


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """Return (start, stop) of each run of equal flags. flags: bool or int8, shape (any,)."""
    edges = [0, *(np.flatnonzero(np.diff(flags)) + 1).tolist(), len(flags)] if len(flags) else []
    return list(pairwise(edges))
