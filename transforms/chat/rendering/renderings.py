"""Renderings: what a chat template prints of a conversation, and what of it each piece of the text is.

What is trained on, what is not printed, which parts have no weight and what the segments are: all that is read off a
rendering, wherever it came from. The instrumented environment makes it (`instrument`), and for a signature it is made
once (`compiled`).
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from transforms.chat.rendering.texts import Key, KnownTools
from transforms.model.examples import Conversation

# (start, stop, message)
Piece: TypeAlias = tuple[int, int, int | None]


class PrintedText(NamedTuple):
    """A piece of a text that was printed from a text of the record.

    Attributes:
        start, stop: its offsets.
        key: of the text of the record.
        first, last: the (start, stop) of the characters of that text.
        is_copy: whether it is a copy of them. Otherwise it was made of them, and perhaps of others.
    """

    start: int
    stop: int
    key: Key
    first: int
    last: int
    is_copy: bool = True


@dataclass(frozen=True)
class Rendering:
    """The text of a conversation, and where it came from.

    Attributes:
        conversation: the conversation.
        messages: its messages as the template was given them.
        text: what the template prints.
        pieces: (start, stop, message), adjacent and in the order of the text. message is the number of the message that
            the piece was printed for, None if it was printed for none.
        texts: where texts of the record were printed, in the order of the text.
        keys: of the further texts that were printed, which are neither contents, reasoning, calls nor names of tools.
        prints_all: whether it is certain that all texts are printed, each as a whole, but for further ones of tools.
        tools: what is known of the tools of the conversation.
    """

    conversation: Conversation
    messages: list[dict[str, Any]]
    text: str
    pieces: Sequence[Piece] = ()
    texts: Sequence[PrintedText] = ()
    prints_all: bool = False
    keys: frozenset[Key] = frozenset()
    tools: KnownTools | None = None

    @functools.cached_property
    def contents(self) -> dict[int, tuple[int, int]]:
        """For each message, the offsets where its content begins and ends, without the white space around it.

        Messages of whose content nothing is printed are left out.
        """
        contents: dict[int, tuple[int, int]] = {}
        text = self.text
        for start, stop, key, _, _, _ in self.texts:
            if key[1] == "content" and (inner := text[start:stop].strip()):
                message: Any = key[0]
                start = text.index(inner[0], start)
                contents[message] = contents[message][0] if message in contents else start, start + len(inner)
        return contents

    @functools.cached_property
    def printed(self) -> dict[Key, list[tuple[int, int]]]:
        """For each text of the record, the (start, stop) of its characters that were printed.

        A text is left out if only white space of it is printed.
        """
        printed: dict[Key, list[tuple[int, int]]] = {}
        for start, stop, key, first, last, _ in self.texts:
            if self.text[start:stop].strip():
                printed.setdefault(key, []).append((first, last))
        return printed

    def find_message_pieces(self) -> dict[int, list[tuple[int, int]]]:
        """Return the (start, stop) of the pieces of each message."""
        pieces: dict[int, list[tuple[int, int]]] = {}
        for start, stop, message in self.pieces:
            if message is not None:
                pieces.setdefault(message, []).append((start, stop))
        return pieces

    def has_content_between(self, start: int, stop: int) -> bool:
        """Return whether the content of a message begins in a range."""
        starts = self._find_content_starts
        return bisect.bisect_left(starts, start) < bisect.bisect_left(starts, stop)

    def texts_between(self, start: int, stop: int) -> Sequence[PrintedText]:
        """Return the texts that have characters in a range."""
        texts = self.texts
        first = last = bisect.bisect_left(texts, (stop,))
        while first and texts[first - 1][1] > start:
            first -= 1
        return texts[first:last]

    def message_from(self, start: int) -> int | None:
        """Return the message of the piece that begins at an offset; None if none does, or it is not of a message."""
        number = bisect.bisect_left(self.pieces, (start,))
        return self.pieces[number][2] if number < len(self.pieces) and self.pieces[number][0] == start else None

    @functools.cached_property
    def _find_content_starts(self) -> list[int]:
        return sorted(start for start, _ in self.contents.values())

    @functools.cached_property
    def find_messages_end(self) -> int:
        """The offset where the last piece of a message ends."""
        return next((stop for _, stop, message in reversed(self.pieces) if message is not None), 0)
