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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.tracer import MOST_TEXTS, NotTraceable, sentinel, traced_text
from transforms.chat.traced.tracing_jinja import markers_of
from transforms.model.examples import Conversation, are_text_parts

# The most messages of a conversation that is traced.
MOST_MESSAGES = 512


class Cut:
    """Cuts texts at markers, and at the white space next to them and at both ends.

    Make it with `cut_at`: one for the same markers is the same object, also after pickling.

    Args:
        markers: the strings.
    """

    def __init__(self, markers: frozenset[str]):
        self._markers = markers
        longest_first = sorted(markers, key=lambda marker: (-len(marker), marker))
        self._split = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})").split

    def __call__(self, text: str) -> list[str]:
        """Return literals before, between and after texts, with these texts between them."""
        pieces = [""]
        for at, piece in enumerate(self._split(text)):
            text = "" if at % 2 else piece.strip()
            if text:
                before, _, after = piece.partition(text)
                pieces[-1] += before
                pieces += text, after
            else:
                pieces[-1] += piece
        return pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return cut_at, (self._markers,)


@functools.lru_cache(64)
def cut_at(markers: frozenset[str]) -> Cut:
    """Return what cuts texts at markers."""
    return Cut(markers)


class Signature(NamedTuple):
    """A conversation without its texts, and these.

    Attributes:
        key: what is the same for all conversations of the signature.
        texts: the texts in the order of the conversation. None is empty or white space alone.
        trimmed: the same without the white space around them.
        cut: how contents were cut into texts; None if each content is one text.
        first: the first signature of the conversation, if this is the second one.
    """

    key: Any
    texts: list[str]
    trimmed: list[str]
    cut: Cut | None = None
    first: Signature | None = None


def signature_of(conversation: Conversation, cut: Cut | None = None) -> Signature | None:
    """Separate what a template may distinguish in a conversation from its texts.

    A text that is empty or white space alone is a part of the signature, since templates treat it differently.

    Args:
        conversation: the conversation.
        cut: cuts each text; None if a text is the whole content of a message.

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
    if found := None if cut else plain or conversation.in_parts:
        texts = found[-1]
        trimmed = [*map(str.strip, texts)]
        if "" not in trimmed:
            roles = found[0] if plain else found[:-1]
            return Signature((roles, arguments) if arguments else roles, texts, trimmed)
    pieces_of = cut or _whole
    key: list[Any] = [pieces_of, arguments]
    texts = []
    if plain:  # its messages need not be decoded
        key += "plain", plain[0]
        for text in plain[1]:
            pieces = pieces_of(text)
            key.append((*pieces[::2],))
            texts += pieces[1::2]
        return _signature(key, texts, cut)

    def add(text: str) -> None:
        if cut is None and text and not text.isspace():
            texts.append(text)
        else:
            pieces = pieces_of(text)
            key.append((*pieces[::2],))
            texts.extend(pieces[1::2])

    for message in conversation.messages:
        for name, value in message.items():
            if value is None:
                continue
            if name == "role" or name == "weight":
                key.append((name, value if type(value) is str else (repr(value),)))
            elif type(value) is str:
                key.append(name)
                add(value)
            elif name == "content" and are_text_parts(value):
                key.append((name, len(value)))
                for part in value:
                    key.append((*part,))
                    add(part["text"])
            else:
                return None
        key.append(None)
    return _signature(key, texts, cut)


def _signature(key: list[Any], texts: list[str], cut: Cut | None) -> Signature:
    return Signature(tuple(key), texts, texts if cut else [*map(str.strip, texts)], cut)


def _whole(text: str) -> list[str]:
    return ["", text, ""] if text and not text.isspace() else [text]


class Cuts:
    """Makes the second signature of conversations, under one chat template.

    Args:
        template: the chat template.
        rules: its stop tokens are not markers, since it matters whether a text holds them.
    """

    def __init__(self, template: ChatTemplate, rules: TurnRules | None = None):
        self._template = template
        self._stop_tokens = frozenset(rules.stop_tokens if rules else ())

    def signature(self, conversation: Conversation, first: Signature) -> Signature | None:
        """Return the second signature of a conversation, None if it has the same texts as the first."""
        found = signature_of(conversation, self._cut(conversation))
        return None if found is None or found.texts == first.texts else found._replace(first=first)

    def known_signature(self, conversation: Conversation, known: Signature | None) -> Signature | None:
        """Return the signature by which a conversation was rendered, if that is one under this template."""
        return known if known and (known.cut is None or known.cut is self._cut(conversation)) else None

    def _cut(self, conversation: Conversation) -> Cut:
        return cut_at(markers_of(self._template.source(conversation)) - self._stop_tokens)


def traced_messages(
    messages: Sequence[Mapping[str, Any]], guards: Guards, cut: Cut | None = None, alphabet: int = 0
) -> tuple[list[dict[str, Any]], list[int]]:
    """Replace the texts of messages by sentinels.

    Args:
        messages: the messages.
        guards: takes what a template does to the texts.
        cut: as in `signature_of`.
        alphabet: of the sentinels, 0 or 1.

    Returns:
        The messages, and for each text the number of its message.

    Raises:
        NotTraceable: if there are too many texts.
    """
    owners: list[int] = []

    def traced(text: str, owner: int) -> str:
        pieces = (cut or _whole)(text)
        numbers = range(len(owners), len(owners) + len(pieces) // 2)
        owners.extend([owner] * len(numbers))
        if len(owners) > MOST_TEXTS:
            raise NotTraceable("the template renders more texts than are traced")
        pieces[1::2] = [sentinel(number, alphabet) for number in numbers]
        return traced_text("".join(pieces), guards)

    def fields(message: Mapping[str, Any], owner: int) -> Iterable[tuple[str, Any]]:
        for key, value in message.items():
            if key != "role" and type(value) is str:
                yield key, traced(value, owner)
            elif key == "content" and are_text_parts(value):
                yield (
                    key,
                    [
                        {name: text if name == "type" else traced(text, owner) for name, text in part.items()}
                        for part in value
                    ],
                )
            else:
                yield key, value

    return [dict(fields(message, number)) for number, message in enumerate(messages)], owners
