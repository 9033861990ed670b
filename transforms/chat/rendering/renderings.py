"""Renderings: what a chat template prints of a conversation, and what of it each piece of the text is.

What is trained on, what is not printed, which parts have no weight and what the segments are: all that is read off a
rendering. The instrumented environment makes it (`instrument`), from texts of the record that each have a key.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from transforms.chat.rendering.tracked_text import sourced
from transforms.model.examples import REASONING_KEYS, Conversation

# What a text of a record is: the number of its message (None for a tool), "content", "reasoning", "call" or "tool", and
# the part, the key, the call and its argument, or the tool. Of any other text KEY, the name by which it is counted, and
# a number. `render_with_sources` says what its own are.
Key: TypeAlias = tuple[int | None, str, Any, Any]
KEY = "key"
# Takes a text and its key, and returns what stands for it.
Sourced: TypeAlias = Callable[[str, Key], str]
_KEYS = frozenset(REASONING_KEYS)
# The keys that have other texts, or say what an object is, and no text. So does the name of a tool that is called.
_OF_MESSAGES = frozenset(("role", "content", "tool_calls", "tool_call_id", "weight", *REASONING_KEYS))
_OF_TOOL_MESSAGES = _OF_MESSAGES | {"name"}
_OF_PARTS = frozenset(("type", "text", "weight"))
_OF_CALLS = frozenset(("id", "type", "function", "name", "arguments"))
_OF_TOOLS = frozenset(("type", "function", "name"))
# Of JSON Schema: what says what a value is, and what has names that somebody gave.
_OF_SCHEMAS = ("type", "format", "$ref", "$schema", "$id")
_WITH_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
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


class KnownTools(NamedTuple):
    """What is known of a list of tools.

    Attributes:
        given: the list.
        tools: the same with texts that carry where their characters came from.
        names: the key of each name, and the number of its characters.
        others: the other texts, by their keys.
        json: of the list and of each tool, by their identities: their JSON, by the settings of the filter.
    """

    given: list[Any]
    tools: list[Any]
    names: list[tuple[Key, int]]
    others: Mapping[Key, str]
    json: Mapping[int, dict[str, str]]


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
    keys: frozenset[Key] = frozenset()
    prints_all: bool = False
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
    def messages_end(self) -> int:
        """The offset where the last piece of a message ends."""
        return next((stop for _, stop, message in reversed(self.pieces) if message is not None), 0)


def with_sources(messages: Sequence[Mapping[str, Any]], sourced: Sourced = sourced) -> list[dict[str, Any]]:
    """Copy the messages that a chat template is given, with texts that carry where their characters came from.

    Args:
        messages: the messages.
        sourced: takes a text and its key, and returns what is in its place.
    """
    called = called_names(messages) if any("name" in message for message in messages) else frozenset()
    return [message_with_sources(number, message, sourced, called) for number, message in enumerate(messages)]


def called_names(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the functions that messages call."""
    calls = [call for message in messages if isinstance(calls := message.get("tool_calls"), list) for call in calls]
    names = [(get_function(call) or {}).get("name") for call in calls]
    return frozenset(name for name in names if isinstance(name, str))


def message_with_sources(
    number: int, message: Mapping[str, Any], sourced: Sourced, called: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Copy a message, as `with_sources` does. number: of the message. called: the names of the functions of calls."""
    copy = dict(message)
    content = message.get("content")
    if isinstance(content, str):
        copy["content"] = sourced(content, (number, "content", "content", None))
        if len(copy) == 2 and "role" in copy:  # as of most messages
            return copy
    copier = _Copier(number, sourced)
    if isinstance(content, list):
        copy["content"] = [copier.part(part, at) for at, part in enumerate(content)]
    if not _KEYS.isdisjoint(message):
        for key in REASONING_KEYS:
            if isinstance(text := message.get(key), str):
                copy[key] = sourced(text, (number, "reasoning", key, None))
    if isinstance(calls := message.get("tool_calls"), list):
        copy["tool_calls"] = [copier.function(call, at) for at, call in enumerate(calls)]
    name = message.get("name")
    is_called = isinstance(name, str) and name in called and message.get("role") == "tool"
    return copier.others(copy, _OF_TOOL_MESSAGES if is_called else _OF_MESSAGES, "messages[]")


class _Copier:
    """Copies parts, calls and tools, with sources in their texts.

    Args:
        number: of the message that has them; None for a tool.
        sourced: as of `with_sources`.
        at: of the tool.
    """

    def __init__(self, number: int | None, sourced: Sourced, at: int = 0):
        self._number, self._sourced, self._at, self._texts = number, sourced, at, 0

    def part(self, part: Any, at: int) -> Any:
        if not isinstance(part, Mapping) or not isinstance(text := part.get("text"), str):
            return part
        copy = {**part, "text": self._sourced(text, (self._number, "content", "content", at))}
        return self.others(copy, _OF_PARTS, "messages[].content[]")

    def function(self, whole: Any, at: int) -> Any:
        """A tool or a call, with sources in its name, or else its type, and in the call's arguments."""
        if not _is_object(whole):
            return whole
        is_tool = self._number is None
        known, name = (_OF_TOOLS, "tools[]") if is_tool else (_OF_CALLS, "messages[].tool_calls[]")
        function = get_function(whole)
        if function is not None:
            key = self._number, "tool" if is_tool else "call", at, None
            copy = dict(function)
            if field := name_field(function):
                copy[field] = self._sourced(function[field], key)
            if not is_tool and "arguments" in function:
                copy["arguments"] = self._arguments(function["arguments"], key)
            if function is whole:
                whole = copy
            else:
                whole = {**whole, "function": self.others(copy, known, "tools[].function" if is_tool else name)}
        return self.others(whole, known, name)

    def _arguments(self, arguments: Any, key: Key) -> Any:
        """The arguments of a call, with a source in each; of some, in all texts of them. key: of the call's name."""
        if not _is_object(arguments):
            return self._sourced(arguments, (*key[:3], "")) if isinstance(arguments, str) else arguments
        copy: dict[str, Any] = {}
        for name, value in arguments.items():
            own = *key[:3], name
            copy[self._sourced(name, own)] = (
                self._sourced(value, own) if isinstance(value, str) else self._in_all(value, own)
            )
        return copy

    def _in_all(self, value: Any, key: Key) -> Any:
        return with_all_texts(value, lambda text: self._sourced(text, key))

    def others(self, whole: Mapping[str, Any], known: frozenset[str], name: str) -> Any:
        """An object, with sources in the texts of its keys that are not known. name: by which they are counted."""
        if whole.keys() <= known:
            return whole
        return {key: value if key in known else self._in_values(value, f"{name}.{key}") for key, value in whole.items()}

    def _in_values(self, value: Any, name: str, has_names: bool = False) -> Any:
        """A value with sources in its texts. has_names: its keys are names, too."""
        if isinstance(value, str):
            if not value or value.isspace():
                return value
            self._texts += 1
            return self._sourced(value, (self._number, KEY, name, (self._at, self._texts)))
        if isinstance(value, list):
            return [self._in_values(item, name) for item in value]
        if not _is_object(value):
            return value
        if self._number is not None:
            return {key: self._in_values(item, name) for key, item in value.items()}
        return {  # JSON Schema
            self._in_values(key, name) if has_names else key: item
            if not has_names and key in _OF_SCHEMAS
            else self._in_values(item, name, not has_names and key in _WITH_NAMES)
            for key, item in value.items()
        }


def know_tools(tools: list[Any]) -> KnownTools:
    """Find what many conversations have in common that share their tools."""
    names: list[tuple[Key, int]] = []
    others: dict[Key, str] = {}

    def tracked(text: str, key: Key) -> str:
        if key[1] == KEY:
            others[key] = text
        else:
            names.append((key, len(text) if text.strip() else -1))  # which is not seen
        return sourced(text, key)

    with_texts = [_Copier(None, tracked, at).function(tool, at) for at, tool in enumerate(tools)]
    return KnownTools(tools, with_texts, names, others, {id(one): {} for one in (with_texts, *with_texts)})


def message_texts(number: int, message: Mapping[str, Any]) -> list[tuple[Key, str]]:
    """Return the texts of a message, each with its key. number: of the message."""
    texts: list[tuple[Key, str]] = []

    def add(text: str, key: Key) -> str:
        texts.append((key, text))
        return text

    message_with_sources(number, message, add)
    return texts


def with_all_texts(value: Any, make: Callable[[str], str]) -> Any:
    """Copy a value with other texts.

    Args:
        value: of JSON.
        make: makes another text of each string in it, of names too.
    """
    if isinstance(value, str):
        return make(value)
    if isinstance(value, Mapping):
        return {with_all_texts(name, make): with_all_texts(item, make) for name, item in value.items()}
    return [with_all_texts(item, make) for item in value] if isinstance(value, list) else value


def get_function(call: Any) -> Mapping[str, Any] | None:
    """Return what of a tool call, or of a tool definition, has the name of the function; None if it is neither."""
    if not _is_object(call):
        return None
    function = call.get("function", call)
    return function if _is_object(function) else None


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return type(value) is dict or isinstance(value, Mapping)  # which takes five times as long


def name_field(function: Mapping[str, Any]) -> str | None:
    """Return the key of a function under which its name is, or else its type; None if it has neither."""
    if isinstance(function.get("name"), str):
        return "name"
    return "type" if isinstance(function.get("type"), str) else None
