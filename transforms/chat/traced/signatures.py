"""Signatures: separate what a chat template may distinguish in a conversation from its texts.

There are two. In the first, a text is the whole content of a message. If the guards of a compiled template do not hold
for these texts, the second one cuts them at the markers that the template searches for (`<think>A</think>B` becomes two
texts and the literals around them), and at the white space next to markers and around texts. There, no text begins or
ends with white space, so that a template that splits and strips contents is followed.
"""

from __future__ import annotations

import functools
import marshal
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from transforms.chat.traced.guards import Guards
from transforms.chat.traced.tracer import MOST_TEXTS, SENTINEL, NotTraceable, sentinel, traced_text
from transforms.model.examples import Conversation, are_text_parts

# The most messages of a conversation that is traced.
MOST_MESSAGES = 512
# The markers at which texts are cut, and the white space next to them and at both ends; None if each content is a text.
Cut: TypeAlias = frozenset[str] | None


class Signature(NamedTuple):
    """A conversation without its texts, and these.

    Attributes:
        key: what is the same for all conversations of the signature.
        texts: the texts in the order of the conversation. None is empty or white space alone.
        trimmed: the same without the white space around them.
        cut: how contents were cut into texts.
        first: the first signature of the conversation, if this is the second one.
    """

    key: Any
    texts: list[str]
    trimmed: list[str]
    cut: Cut = None
    first: Signature | None = None


def make_signature(conversation: Conversation, cut: Cut = None) -> Signature | None:
    """Separate what a template may distinguish in a conversation from its texts.

    A text that is empty or white space alone is a part of the signature, since templates treat it differently.

    Args:
        conversation: the conversation.
        cut: how contents are cut into texts.

    Returns:
        The signature; None if those of such conversations hardly ever repeat: it has tools, calls, parts other than
        text, very many messages, or a value that JSON does not have.
    """
    if conversation.tools or conversation.count > MOST_MESSAGES:
        return None
    arguments = b""
    if conversation.template_kwargs:
        try:
            # Exact: 1, 1.0 and True differ, and so do orders of keys. Version 2 has no references between values.
            arguments = marshal.dumps(conversation.template_kwargs, 2)
        except ValueError:
            return None  # a value that JSON does not have
    plain = conversation.plain
    if cut is None and (found := plain or conversation.in_parts):
        texts = found[-1]
        trimmed = [*map(str.strip, texts)]
        if "" not in trimmed:
            roles = found[0] if plain else found[:-1]
            return Signature((roles, arguments) if arguments else roles, texts, trimmed)
    key: list[Any] = [cut, arguments]
    texts, split = [], _splitter(cut)

    def add(name: str, text: str) -> None:
        key.append(name)
        if cut is None and text and not text.isspace():
            texts.append(text)
        else:
            pieces = split(text)
            key.append((*pieces[::2],))
            texts.extend(pieces[1::2])

    if plain:  # its messages need not be decoded
        key += "plain", plain[0]
        for text in plain[1]:
            add("content", text)
    for message in () if plain else conversation.messages:
        for name, value in message.items():
            if value is None:
                continue
            if name == "role" or name == "weight":
                key.append((name, value if type(value) is str else (repr(value),)))
            elif type(value) is str:
                add(name, value)
            elif name == "content" and are_text_parts(value):
                key.append((name, len(value)))
                for part in value:
                    add(next(iter(part)), part["text"])
            else:
                return None
        key.append(None)
    return Signature(tuple(key), texts, [*map(str.strip, texts)] if cut is None else texts, cut)


@functools.lru_cache(64)
def _splitter(cut: Cut) -> Callable[[str], list[str]]:
    """What splits a content into literals before, between and after texts, with these texts between them."""
    if cut is None:
        return lambda text: ["", text, ""] if text and not text.isspace() else [text]
    longest_first = sorted(cut, key=lambda marker: (-len(marker), marker))
    split_at_markers = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})").split

    def split(text: str) -> list[str]:
        pieces = [""]
        for at, piece in enumerate(split_at_markers(text)):
            text = "" if at % 2 else piece.strip()
            if text:
                before, _, after = piece.partition(text)
                pieces[-1] += before
                pieces += text, after
            else:
                pieces[-1] += piece
        return pieces

    return split


def traced_messages(
    messages: Sequence[Mapping[str, Any]], guards: Guards, cut: Cut
) -> tuple[list[dict[str, Any]], list[int]]:
    """Replace the texts of messages by sentinels.

    Args:
        messages: the messages.
        guards: takes what a template does to the texts.
        cut: how contents are cut into texts.

    Returns:
        The messages, and for each text the number of its message.

    Raises:
        NotTraceable: if there are too many texts, or a marker has a sentinel.
    """
    owners: list[int] = []
    split = _splitter(cut)

    def traced(text: str, owner: int) -> str:
        pieces = split(text)
        numbers = range(len(owners), len(owners) + len(pieces) // 2)
        owners.extend([owner] * len(numbers))
        if len(owners) > MOST_TEXTS or any(map(SENTINEL.search, pieces[::2])):
            raise NotTraceable("the template renders more texts than are traced, or searches for a sentinel")
        pieces[1::2] = map(sentinel, numbers)
        return traced_text("".join(pieces), guards)

    def fields(message: Mapping[str, Any], owner: int) -> Iterator[tuple[str, Any]]:
        for key, value in message.items():
            if key != "role" and type(value) is str:
                value = traced(value, owner)
            elif key == "content" and are_text_parts(value):
                value = [{**part, "text": traced(part["text"], owner)} for part in value]
            yield key, value

    return [dict(fields(message, number)) for number, message in enumerate(messages)], owners
