"""Layouts: what a template printed for a kind of message, to find the texts of other messages of that kind.

A layout is learned from a rendering with slots (`slots`). It is a guess for the next message of the same kind, which
is checked against the real text: literals and texts have to give it character by character. So what a kind is may be
rough. If no layout fits, the conversation is rendered with slots too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transforms.chat.message_map import MessageMap, Piece
from transforms.chat.slots import Slots, forms
from transforms.model.examples import REASONING_KEYS

# The most kinds that are kept, and layouts of a kind.
_KINDS, _OF_A_KIND = 4096, 8
# The texts of a message itself, and what differs in each message and is rarely printed.
_OTHER_KEYS = frozenset(("role", "tool_calls", "name", "tool_call_id", "content", *REASONING_KEYS))
# Messages with these keys have no other text than their content, if that is a string.
_PLAIN_NAMES = (("role", "content"), ("role", "tool_call_id", "name", "content"), ("role", "tool_call_id", "content"))
_OTHER_CALL_KEYS = frozenset(("id", "function"))


class _Slot(NamedTuple):
    literal: str  # before it
    message: int  # counted from the message of the piece; in text of no message, from the first one
    text: int  # number of the text in the message
    is_content: bool


@dataclass(frozen=True)
class _Layout:
    slots: list[_Slot]
    end: str  # the literal after the last slot
    tools: list[Any] | None  # the tools, if their names are a part of the literals, and their numbers
    printed_tools: frozenset[int]


@dataclass
class Described:
    """The messages of a conversation without their texts.

    Attributes:
        kinds: of the messages.
        texts: of each message, without the white space around them.
    """

    kinds: list[Any] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)


def describe(messages: Sequence[Mapping[str, Any]]) -> Described | None:
    """Separate the kinds of messages from their texts, in the order of `slots`; None if they are too unusual."""
    described = Described()
    for message in messages:
        names = tuple(message)
        kind: list[Any] = [names, message.get("role")]
        texts: list[str] = []
        content = message.get("content")
        is_plain = False
        if isinstance(content, str):
            _describe_text(content, kind, texts)
            is_plain = names in _PLAIN_NAMES
        if not is_plain and not _describe_others(message, kind, texts):
            return None
        described.kinds.append(tuple(kind))
        described.texts.append(texts)
    return described


def _describe_others(message: Mapping[str, Any], kind: list[Any], texts: list[str]) -> bool:
    """Describe what a message has besides a string as its content; return whether that is usual."""
    for key in REASONING_KEYS:
        value = message.get(key)
        if isinstance(value, str):
            _describe_text(value, kind, texts)
        elif value is not None:
            return False
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or not isinstance(part.get("text"), str) or len(part) > 2:
                return False
            kind.append((*part, part.get("type")))
            _describe_text(part["text"], kind, texts)
    elif content is not None and not isinstance(content, str):
        return False
    kind += [repr(value) for key, value in message.items() if key not in _OTHER_KEYS]
    return all(_describe_call(call, kind, texts) for call in message.get("tool_calls") or ())


def _describe_text(text: str, kind: list[Any], texts: list[str]) -> None:
    inner = text.strip()
    if not inner:
        kind.append(text)
        return
    texts.append(inner)
    if len(inner) == len(text):
        kind.append(None)
    else:
        start = text.index(inner)
        kind.append((text[:start], text[start + len(inner) :]))


def _describe_call(call: Any, kind: list[Any], texts: list[str]) -> bool:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(name := function.get("name"), str) or not name.strip():
        return False  # a name that is white space counts as not printed
    kind += [(*call,), (*function,), *(repr(call[key]) for key in call if key not in _OTHER_CALL_KEYS)]
    _describe_text(name, kind, texts)
    if any(key not in ("name", "arguments") for key in function):
        return False
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        # An argument whose name is white space may count as not printed.
        return all(map(str.strip, arguments)) and _describe_value(arguments, kind, texts)
    return _describe_value(arguments, kind, texts) if isinstance(arguments, str) else arguments is None


def _describe_value(value: Any, kind: list[Any], texts: list[str]) -> bool:
    if isinstance(value, str):
        _describe_text(value, kind, texts)
    elif isinstance(value, dict):
        kind.append((dict, len(value)))
        return all(_describe_value(part, kind, texts) for item in value.items() for part in item)
    elif isinstance(value, list):
        kind.append((list, len(value)))
        return all(_describe_value(part, kind, texts) for part in value)
    else:
        kind.append((type(value), repr(value)))
    return True


class Layouts:
    """Finds the texts of a record in its rendered text, by what was found for other records."""

    def __init__(self) -> None:
        self._known: dict[Any, list[_Layout]] = {}

    def map_of(
        self, text: str, pieces: list[Piece], tools: list[Any] | None, described: Described
    ) -> MessageMap | None:
        """Find where a text has the texts of its record.

        Args:
            text: what was printed for the record.
            pieces: for which message each piece of the text was printed.
            tools: the tool definitions, which are the same object for the same content.
            described: the messages.

        Returns:
            The map of the text, without `printed`, if all texts of the record are printed. None if it is not known that
            they are, or where.
        """
        texts = described.texts
        contents: dict[int, tuple[int, int]] = {}
        unseen = {message: set(range(len(own))) for message, own in enumerate(texts) if own}
        seen_tools: set[int] = set()
        for key, (start, stop, message) in zip(_keys(pieces, tools, described), pieces, strict=True):
            for layout in self._known.get(key, ()):
                if layout.tools is not None and layout.tools is not tools:
                    continue
                offsets = _match(layout, text, start, stop, texts, message or 0)
                if offsets is not None:
                    break
            else:
                return None
            for slot, (begin, end) in zip(layout.slots, offsets, strict=True):
                number = slot.message + (message or 0)
                if left := unseen.get(number):
                    left.discard(slot.text)
                if slot.is_content:
                    contents[number] = contents.get(number, (begin, end))[0], end
            seen_tools |= layout.printed_tools
        if any(unseen.values()) or len(seen_tools) < len(tools or ()):
            return None
        return MessageMap(text, pieces, contents, {})

    def learn(self, pieces: Sequence[Piece], tools: list[Any] | None, described: Described, slots: Slots) -> None:
        """Learn from a rendering with slots that gives the text of its record.

        Args:
            pieces, tools, described: as for `map_of`.
            slots: the slots, after their `map_of` found a map.
        """
        if len(self._known) >= _KINDS:
            self._known = {}
        keys = _keys(pieces, tools, described)
        for key, (_, _, message), parts in zip(keys, pieces, slots.printed_pieces, strict=True):
            layout = _layout(parts, message or 0, tools, described, slots)
            known = self._known.setdefault(key, [])
            if layout is not None and layout not in known and len(known) < _OF_A_KIND:
                known.append(layout)


def _keys(pieces: Sequence[Piece], tools: Any, described: Described) -> list[Any]:
    """The kind of each piece: of its message, or of what is printed for no message."""
    kinds = described.kinds
    with_pieces = {message for _, _, message in pieces}
    others = tuple(kind for message, kind in enumerate(kinds) if message not in with_pieces)
    return [
        (number, id(tools), others) if message is None or message < 0 else kinds[message]
        for number, (_, _, message) in enumerate(pieces)
    ]


def _layout(
    parts: Sequence[tuple[str, int | None]], message: int, tools: Any, described: Described, slots: Slots
) -> _Layout | None:
    """The layout of a piece that was printed with slots."""
    found: list[_Slot] = []
    printed_tools = set()
    literal = ""
    for before, number in parts:
        literal += before
        if number is None:
            continue
        owner, own_number, inner, is_content = slots.place(number)
        if owner is None:
            literal += inner
            printed_tools.add(own_number)
        elif described.texts[owner][own_number : own_number + 1] != [inner]:
            return None
        else:
            found.append(_Slot(literal, owner - message, own_number, is_content))
            literal = ""
    return _Layout(found, literal, tools if printed_tools else None, frozenset(printed_tools))


def _match(
    layout: _Layout, text: str, start: int, stop: int, texts: Sequence[Sequence[str]], message: int
) -> list[tuple[int, int]] | None:
    """The offsets of the texts in a piece, None if it is not what the layout says."""
    offsets = []
    at = start
    for literal, delta, number, _ in layout.slots:
        if not text.startswith(literal, at) or not 0 <= message + delta < len(texts):
            return None
        at += len(literal)
        own = texts[message + delta]
        if number >= len(own):
            return None
        inner = own[number]
        begin = at
        if text.startswith(inner, at):
            at += len(inner)
        else:
            at = next((at + len(form) for form in forms(inner) if text.startswith(form, at)), at)
            if at == begin:
                return None
        offsets.append((begin, at))
    return offsets if at + len(layout.end) == stop and text.endswith(layout.end, at, stop) else None
