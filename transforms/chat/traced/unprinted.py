"""Unprinted: what a compiled template does not print of the conversations of a signature."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transforms.chat.rendering.omissions import (
    MessageOmissions,
    Omissions,
    Printed,
    find_message_omissions,
    gaps_between,
    is_whole_tag,
    joined_omissions,
    may_complete_tag,
)
from transforms.chat.rendering.renderings import Key, message_texts, message_with_sources
from transforms.chat.traced.skeleton import Skeleton
from transforms.chat.traced.tracer import SENTINEL, sentinel_number
from transforms.model.examples import REASONING_KEYS


class Unprinted:
    """Finds what is not printed of a conversation.

    What is found depends on the texts only if a text is in what is not printed: it may have tags of reasoning. It is
    then found with the texts themselves.

    Args:
        messages: traced messages, as ordinary strings.
        printed: what the template prints of them.
        keys: those of further texts that it prints.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], printed: Printed, keys: Collection[Key] = ()):
        self._messages, self._printed = messages, printed
        self._skeleton = functools.cache(lambda text, key: Skeleton.of(text, printed.get(key, ())))
        self._found = [
            find_message_omissions(number, message, printed, keys) for number, message in enumerate(messages)
        ]
        # Of further keys the name, the characters besides texts, and the numbers of these.
        self._unread = [
            (name, len(SENTINEL.sub("", text)), [*map(sentinel_number, SENTINEL.findall(text))])
            for each in self._found
            for name, text in each.unread
        ]
        self._usual = joined_omissions(messages, self._found)
        # The numbers of messages of which texts are not printed, and these texts; None if it is not enough to look at
        # each of them alone.
        self._doubtful = {
            number: texts for number in range(len(messages)) if (texts := self._dropped_texts(number)) != []
        }

    def _dropped_texts(self, number: int) -> list[int] | None:
        message, dropped = self._messages[number], list[int]()
        for key, text in message_texts(number, message):
            for start, stop in gaps_between(text, self._printed.get(key, ())):
                literals, numbers = SENTINEL.split(text[start:stop]), SENTINEL.findall(text, start, stop)
                if key[1] == "reasoning" and numbers and sum(one in message for one in REASONING_KEYS) > 1:
                    return None  # the texts may be the same
                if key[1] == "content" and numbers:
                    dropped += map(sentinel_number, numbers)
                    if not all(map(is_whole_tag, literals)):
                        return None
        return dropped

    def omissions(self, texts: list[str]) -> Omissions:
        """Find what is not printed of a conversation.

        Args:
            texts: its texts.
        """
        found = None
        for number, dropped in self._doubtful.items():
            if dropped is None or any(may_complete_tag(texts[one]) for one in dropped):
                found = found or [*self._found]
                found[number] = self._with_texts(number, texts)
        omissions = joined_omissions(self._messages, found) if found else self._usual
        if not self._unread:
            return omissions
        characters = Counter[str]()
        for name, literal, numbers in self._unread:
            characters[name] += literal + sum(len(texts[one]) for one in numbers)
        return replace(omissions, unread=tuple(sorted(characters.items())))

    def _with_texts(self, number: int, texts: list[str]) -> MessageOmissions:
        """What is not printed of a message that has these texts."""
        printed: dict[Key, list[tuple[int, int]]] = {}

        def inserted(text: str, key: Key) -> str:
            whole, ranges = self._skeleton(text, key).filled(texts, texts)
            if ranges:
                printed[key] = ranges
            return whole

        own = message_with_sources(number, self._messages[number], inserted)
        return find_message_omissions(number, own, printed)._replace(unread=self._found[number].unread)
