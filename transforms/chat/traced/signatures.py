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

from transforms.chat.traced.tracer import MOST_TEXTS, SENTINEL, Guards, NotTraceable, sentinel, traced_text
from transforms.model.examples import Conversation, are_text_parts, in_parts, plain

# The most messages of a conversation that is traced.
MOST_MESSAGES = 512
_PLAIN_KEYS = frozenset({("role", "content"), ("content", "role")})
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
    is_lazy = isinstance(conversation.lazy_messages, tuple) and conversation.made_messages is None
    parts: Any = (conversation.plain or conversation.in_parts) if is_lazy else _separate(conversation.messages)
    if parts is None:
        return None
    texts, literals = parts[-1], None
    trimmed = [*map(str.strip, texts)]
    if cut is not None or "" in trimmed:
        pieces = [*map(_splitter(cut), texts)]
        literals = tuple(tuple(each[::2]) for each in pieces)
        texts = [text for each in pieces for text in each[1::2]]
        trimmed = [*map(str.strip, texts)]
    return Signature((parts[:-1], arguments, cut, literals), texts, trimmed, cut)


def _separate(messages: list[dict[str, Any]]) -> tuple[Any, ...] | None:
    """What messages have besides their texts, and these; None if a value is neither. As of lazy ones if they are so."""
    keys, others, texts = [], list[Any](), list[str]()
    for message in messages:
        keys.append((*message,))
        for key, value in message.items():
            if key == "role":
                others.append(value if type(value) is str else (repr(value),))
            elif type(value) is str:
                others.append(None)  # in its place: which of the keys has a text is in the signature, too
                texts.append(value)
            elif key == "weight" or value is None:
                others.append((repr(value),))
            elif key == "content" and are_text_parts(value):
                others.append((*map(tuple, value),))
                texts += [part["text"] for part in value]
            else:
                return None
    if _PLAIN_KEYS.issuperset(keys) and (parts := plain(messages) or in_parts(messages)):
        return parts
    return (*keys,), (*others,), texts


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
