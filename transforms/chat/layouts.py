"""Layouts: what a template printed for a kind of message, to find the texts of other messages of that kind.

A layout is learned from a rendering with slots (`slots`). It is a guess for the next message of the same kind, which
is checked against the real text: literals and texts have to give it character by character. So what a kind is may be
rough. If no layout fits, the conversation is rendered with slots too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from transforms.chat.message_map import MessageMap, Piece, PrintedText
from transforms.chat.slots import Slots, written
from transforms.model.examples import REASONING_KEYS

# The most kinds that are kept, and layouts of a kind.
_KINDS, _OF_A_KIND = 4096, 8
# The texts of a message itself, and what differs in each message and is rarely printed.
_OTHER_KEYS = frozenset(("role", "tool_calls", "name", "tool_call_id", "content", *REASONING_KEYS))
# Messages with these keys have no other text than their content, if that is a string.
_PLAIN_NAMES = frozenset(
    (("role", "content"), ("role", "tool_call_id", "name", "content"), ("role", "tool_call_id", "content"))
)
_OTHER_CALL_KEYS = frozenset(("id", "function"))
_CALL_NAMES = frozenset(("name", "arguments"))


class _Slot(NamedTuple):
    message: int  # counted from the message of the piece; in text of no message, from the first one
    text: int  # number of the text in the message
    form: int  # how it is printed, see `slots.written`
    kind: str  # as in `omissions.Key`


@dataclass(frozen=True)
class _Layout:
    """What is printed in a piece.

    Attributes:
        literals: what is printed before, between and after the texts.
        slots: the texts.
        own_texts: how many texts the message of the piece has, if these are printed and no others; otherwise None.
        is_plain: whether its content is its only text, and printed as it is.
        tools: the tools, if their names are a part of the literals.
        printed_tools: their numbers.
    """

    literals: Sequence[str]
    slots: Sequence[_Slot]
    own_texts: int | None
    is_plain: bool
    tools: list[Any] | None
    printed_tools: frozenset[int]

    def texts_in(
        self, piece: str, start: int, texts: Sequence[Sequence[str]], message: int
    ) -> Sequence[PrintedText] | None:
        """Find where a piece has the texts of messages.

        Args:
            piece: what was printed.
            start: its offset in the whole text.
            texts: of all messages.
            message: that of the piece.

        Returns:
            MessageMap.texts of the piece. None if the piece is not of this layout.
        """
        if self.is_plain:  # in a third of the time
            if not texts[message]:
                return None
            (before, after), text = self.literals, texts[message][0]
            begin, length = start + len(before), len(text)
            key = message, "content", 0, None
            return (PrintedText(begin, begin + length, key, 0, length),) if before + text + after == piece else None
        first, *others = self.literals
        parts, at, printed_texts = [first], start + len(first), []
        for (delta, number, form, kind), literal in zip(self.slots, others, strict=True):
            owner = message + delta
            own = texts[owner] if 0 <= owner < len(texts) else ()
            if number >= len(own):
                return None
            text = written(own[number], form)
            printed_texts.append(
                PrintedText(at, at + len(text), (owner, kind, number, None), 0, len(own[number]), text == own[number])
            )
            at += len(text) + len(literal)
            parts += text, literal
        return printed_texts if "".join(parts) == piece else None


@dataclass
class Described:
    """The messages of a conversation without their texts.

    Attributes:
        kinds: of the messages.
        texts: of each message, without the white space around them.
    """

    kinds: list[Any] = field(default_factory=list)
    texts: list[Sequence[str]] = field(default_factory=list)


def describe(messages: Sequence[Mapping[str, Any]]) -> Described | None:
    """Separate the kinds of messages from their texts, in the order of `slots`; None if they are too unusual."""
    described = Described()
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) and len(message) == 2 and content and len(content.strip()) == len(content):
            described.kinds.append(message.get("role"))  # as those of most are
            described.texts.append((content,))
            continue
        names = tuple(message)
        kind: list[Any] = [names, message.get("role")]
        texts: list[str] = []
        if isinstance(content, str):
            _describe_text(content, kind, texts)
            if names not in _PLAIN_NAMES and not _describe_others(message, kind, texts):
                return None
        elif not _describe_others(message, kind, texts):
            return None
        described.kinds.append(tuple(kind))
        described.texts.append(texts)
    return described


def _describe_others(message: Mapping[str, Any], kind: list[Any], texts: list[str]) -> bool:
    """Describe what a message has besides a string as its content; return whether that is usual."""
    for key in REASONING_KEYS:
        if key in message:
            if not isinstance(message[key], str):
                return False
            _describe_text(message[key], kind, texts)
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or not isinstance(part.get("text"), str) or len(part) > 2:
                return False
            kind.append((*part, part.get("type")))
            _describe_text(part["text"], kind, texts)
    elif content is not None and not isinstance(content, str):
        return False
    kind += [repr(message[key]) for key in message if key not in _OTHER_KEYS]
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
    if not _CALL_NAMES.issuperset(function):
        return False
    kind += (*call,), (*function,), *[repr(call[key]) for key in call if key not in _OTHER_CALL_KEYS]
    _describe_text(name, kind, texts)
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        # An argument whose name is white space may count as not printed.
        return all(map(str.strip, arguments)) and _describe_value(arguments, kind, texts)
    return arguments is None or (isinstance(arguments, str) and _describe_value(arguments, kind, texts))


def _describe_value(value: Any, kind: list[Any], texts: list[str]) -> bool:
    if isinstance(value, str):
        _describe_text(value, kind, texts)
    elif isinstance(value, (dict, list)):
        kind.append((type(value), len(value)))
        parts = value if isinstance(value, list) else chain.from_iterable(value.items())
        return all(_describe_value(part, kind, texts) for part in parts)
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
            The map of the text, if all texts of the record are printed. None if it is not known that they are, or
            where.
        """
        kinds, texts, known = described.kinds, described.texts, self._known
        outside = _kind_outside(pieces, tools, described)
        printed_texts: list[PrintedText] = []
        shown: set[int] = set()  # messages of which all texts are printed
        others: list[tuple[int, _Layout]] = []
        for number, (start, stop, message) in enumerate(pieces):
            if message is None or message < 0:
                kind, message = (number, outside), 0
            else:
                kind = kinds[message]
            piece = text[start:stop]
            for layout in known.get(kind, ()):
                if layout.tools is None or layout.tools is tools:
                    found = layout.texts_in(piece, start, texts, message)
                    if found is not None:
                        break
            else:
                return None
            printed_texts += found
            if layout.own_texts == len(texts[message]):
                shown.add(message)
            else:
                others.append((message, layout))
        unseen = {number: {*range(len(own))} for number, own in enumerate(texts) if own and number not in shown}
        seen_tools: set[int] = set()
        for message, layout in others:
            seen_tools |= layout.printed_tools
            for slot in layout.slots:
                unseen.get(message + slot.message, set()).discard(slot.text)
        if any(unseen.values()) or len(seen_tools) < len(tools or ()):
            return None
        return MessageMap(text, pieces, printed_texts, prints_all=True)

    def learn(self, pieces: Sequence[Piece], tools: list[Any] | None, described: Described, slots: Slots) -> None:
        """Learn from a rendering with slots that gives the text of its record.

        Args:
            pieces, tools, described: as for `map_of`.
            slots: the slots, after their `map_of` found a map.
        """
        if len(self._known) >= _KINDS:
            self._known = {}
        outside = _kind_outside(pieces, tools, described)
        for number, ((_, _, message), parts) in enumerate(zip(pieces, slots.printed_pieces, strict=True)):
            if message is None or message < 0:
                known = self._known.setdefault((number, outside), [])
                layout = _layout(parts, 0, tools, described, slots)
            else:
                known = self._known.setdefault(described.kinds[message], [])
                layout = _layout(parts, message, tools, described, slots)
            if layout is not None and layout not in known and len(known) < _OF_A_KIND:
                known.append(layout)


def _kind_outside(pieces: Sequence[Piece], tools: Any, described: Described) -> Any:
    """The kind of what is printed for no message."""
    with_pieces = {message for _, _, message in pieces}
    return id(tools), tuple([kind for message, kind in enumerate(described.kinds) if message not in with_pieces])


def _layout(
    parts: Sequence[tuple[str, int | None, int]], message: int, tools: Any, described: Described, slots: Slots
) -> _Layout | None:
    """The layout of a piece that was printed with slots."""
    literals = [""]
    found: list[_Slot] = []
    printed_tools = set()
    for before, number, form in parts:
        literals[-1] += before
        if number is None:
            continue
        owner, own_number, inner, what = slots.place(number)
        if owner is None:
            literals[-1] += inner
            printed_tools.add(own_number)
            continue
        if [*described.texts[owner][own_number : own_number + 1]] != [inner]:
            return None
        found.append(_Slot(owner - message, own_number, form, what))
        literals.append("")
    own = {(0, number) for texts in described.texts[message : message + 1] for number in range(len(texts))}
    is_own = {(slot.message, slot.text) for slot in found} == own and not printed_tools
    return _Layout(
        literals,
        found,
        own_texts=len(own) if is_own else None,
        is_plain=is_own and found == [(0, 0, 0, "content")],
        tools=tools if printed_tools else None,
        printed_tools=frozenset(printed_tools),
    )
