"""Slots: where a rendered text has the texts of its record, found by rendering the record with other texts.

Each text of the record is replaced by a slot: a short word that names it, with the white space around the text. What
the template prints then shows where the texts go. If the real text is the same with the record's texts in the slots,
character by character, then the template did nothing else with them: it copied them, or wrote them as in JSON. If it
cut, counted or compared a text, the two differ, and nothing is concluded from them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from transforms.chat.message_map import MessageMap, Piece, PrintedText
from transforms.chat.omissions import Key, with_sources

# How a slot is written. What JSON makes of its last but one characters shows in which form it is printed.
_OPEN, _CLOSE = "zqSLOT", "TOLSqz"
_FORMS = ('é"', 'é\\"', '\\u00e9\\"')
_SLOT = re.compile(f"{_OPEN}([0-9]+)({'|'.join(map(re.escape, _FORMS))}){_CLOSE}")


class Slots:
    """The messages and the tools of a conversation with slots in place of their texts.

    Args:
        messages: the messages.
        tools: the tool definitions.

    Attributes:
        messages, tools: the same with slots.
        printed_pieces: after `map_of`, for each piece the characters before each slot, its number and its form, see
            `written`, and those at the end, with None.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None):
        self._keys: list[Key] = []
        self._texts: list[str] = []  # without the white space around them, which stays where it is
        self._starts: list[int] = []  # of these in the whole text
        self._counts: Counter[int | None] = Counter()
        self._of_owner: list[int] = []
        self._has_blank_name = False
        self.printed_pieces: list[list[tuple[str, int | None, int]]] = []
        self.messages, self.tools = with_sources(messages, tools, self._slot)

    def _slot(self, text: str, key: Key) -> str:
        inner = text.strip()
        if not inner:
            # White space alone: templates treat it in another way than a text. A name is printed all the same.
            self._has_blank_name |= key[1] == "tool" or (key[1] == "call" and key[3] in (None, text))
            return text
        start = text.index(inner)
        slot = f"{text[:start]}{_OPEN}{len(self._keys)}{_FORMS[0]}{_CLOSE}{text[start + len(inner) :]}"
        self._keys.append(key)
        self._of_owner.append(self._counts[key[0]] if key[1] != "tool" else key[2])
        self._counts[key[0]] += 1
        self._texts.append(inner)
        self._starts.append(start)
        return slot

    def map_of(self, text: str, pieces: list[Piece], with_slots: str, slotted: Sequence[Piece]) -> MessageMap | None:
        """Find where a text has the texts of its record.

        Args:
            text, pieces: the text that was printed for the record, and for which message each piece of it was printed.
            with_slots, slotted: the same for the messages and the tools with slots.

        Returns:
            The map of the text; None if it is not what was printed with slots, with the texts in them, or if a tool, a
            call or an argument has a name without characters, so that no slot shows whether it is printed.
        """
        if self._has_blank_name or [message for _, _, message in pieces] != [message for _, _, message in slotted]:
            return None
        printed_texts: list[PrintedText] = []
        for (start, stop, _), (first, last, _) in zip(pieces, slotted, strict=True):
            at = start
            parts = _split(with_slots[first:last])
            self.printed_pieces.append(parts)
            for literal, number, form in parts:
                if not text.startswith(literal, at):
                    return None
                at += len(literal)
                if number is None:
                    continue
                begin = at
                inner = self._texts[number] if number < len(self._texts) else ""
                at += len(inner_as_printed := written(inner, form))
                if at == begin or not text.startswith(inner_as_printed, begin):
                    return None
                key = self._keys[number]
                first, last = self._starts[number], self._starts[number] + len(inner)
                printed_texts.append(PrintedText(begin, at, key, first, last, inner == inner_as_printed))
            if at != stop:
                return None
        return MessageMap(text, pieces, printed_texts)

    def place(self, number: int) -> tuple[int | None, int, str, str]:
        """Return what a slot stands for.

        Returns:
            The message (None if it is a tool), the number of the text in it (or of the tool), the text without the
            white space around it, and its kind (`omissions.Key`).
        """
        owner, kind, _, _ = self._keys[number]
        return owner, self._of_owner[number], self._texts[number], kind


def _split(with_slots: str) -> list[tuple[str, int | None, int]]:
    """The characters before each slot, its number and its form; then those after the last one."""
    parts = _SLOT.split(with_slots)
    slots = zip(parts[::3], map(int, parts[1::3]), map(_FORMS.index, parts[2::3]), strict=False)
    return [*slots, (parts[-1], None, 0)]


def written(text: str, form: int) -> str:
    """Return a text as it is printed in a form: 0 as it is, 1 as in JSON, 2 as in JSON of ASCII characters."""
    return _WRITERS[form](text)[1:-1] if form else text


_WRITERS: Any = (None, json.encoder.encode_basestring, json.encoder.encode_basestring_ascii)
