"""Unprinted: what a compiled template does not print of the conversations of a signature."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from transforms.chat.omissions import (
    MARKER,
    Key,
    Omissions,
    Printed,
    find_omissions,
    gaps_between,
    texts_of,
)
from transforms.chat.tracer import SENTINEL, joined_with_texts, number_of
from transforms.model.examples import REASONING_KEYS

_BEGINS_WITH_MARKER = re.compile(rf"\s*{MARKER}")
_ENDS_WITH_MARKER = re.compile(rf"{MARKER}\s*\Z")
# Text after markers. Since a marker begins with a bracket and holds no other one, there is one way to read them.
_HAS_MORE_THAN_MARKERS = re.compile(rf"(?:\s|{MARKER})*[^\s<\[]")


class Unprinted:
    """Finds what is not printed of a conversation.

    What is found depends on the texts only if a text is in what is not printed: it may consist of markers.

    Args:
        messages: traced messages, as ordinary strings.
        printed: what the template prints of them.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], printed: Printed):
        self._usual = find_omissions(messages, None, printed)
        self._messages, self._printed = messages, printed
        self._doubtful: set[int] = set()
        self._dropped: list[int] = []  # one text of each piece that is not printed
        self._is_certain = not [n for n, message in enumerate(messages) if not self._judge(n, message)]

    def _judge(self, number: int, message: Mapping[str, Any]) -> bool:
        """Whether it is known for any texts what is not printed of a message, unless `_dropped` are markers."""
        is_certain = True
        reasoning = [key for key in REASONING_KEYS if isinstance(message.get(key), str)]
        for kind, key, part, text in texts_of(message):
            ranges = self._printed.get((number, kind, key, part), ())
            dropped = [gap for gap in gaps_between(text, ranges) if SENTINEL.search(gap)]
            if not dropped or (kind == "reasoning" and ranges):
                continue
            self._doubtful.add(number)
            if kind == "reasoning":
                is_certain = is_certain and len(reasoning) == 1
                continue
            self._dropped += [number_of(SENTINEL.findall(gap)[0]) for gap in dropped]
            shown = any(text[start:stop].strip() for start, stop in ranges)
            is_certain = is_certain and shown and all(map(_is_beside_marker, dropped))
        return is_certain

    def omissions(self, texts: list[str]) -> Omissions:
        """Find what is not printed of a conversation.

        Args:
            texts: its texts.
        """
        if not self._doubtful or (
            self._is_certain and all(_HAS_MORE_THAN_MARKERS.match(texts[number]) for number in self._dropped)
        ):
            return self._usual
        messages: list[Mapping[str, Any]] = []
        printed: dict[Key, list[tuple[int, int]]] = {}
        for number, message in enumerate(self._messages):
            own = dict(message)
            for kind, key, part, text in texts_of(message):
                whole, ranges = _inserted(text, self._printed.get((number, kind, key, part), ()), texts)
                if part is None:
                    own[key] = whole
                else:
                    own[key] = [{**p, "text": whole} if at == part else p for at, p in enumerate(own[key])]
                if ranges:
                    printed[number, kind, key, part] = ranges
            messages.append(own)
        return find_omissions(messages, None, printed)


def _is_beside_marker(gap: str) -> bool:
    """Whether what is not printed begins or ends with a marker, whatever the texts in it are."""
    literals = SENTINEL.split(gap)
    encoded_is_text = not re.fullmatch(rf"(?:\s|{MARKER})*", gap)
    return encoded_is_text and bool(_BEGINS_WITH_MARKER.match(literals[0]) or _ENDS_WITH_MARKER.search(literals[-1]))


def _inserted(text: str, ranges: Sequence[tuple[int, int]], texts: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """A traced text with its texts, and ranges of its characters in it."""
    numbers = [number_of(character) for character in SENTINEL.findall(text)]
    whole = joined_with_texts(SENTINEL.split(text), [texts[number] for number in numbers])
    if not ranges:
        return whole, []
    lengths = [len(texts[number_of(c)]) if SENTINEL.match(c) else 1 for c in text]
    offsets = [0, *accumulate(lengths)]
    return whole, [(offsets[start], offsets[stop]) for start, stop in ranges]
