"""Texts: those of a record that a chat template is given, each with its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from transforms.chat.rendering.tracked_text import sourced
from transforms.model.examples import REASONING_KEYS

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
_CALLS = "messages[].tool_calls[]"
_OF_TOOLS = frozenset(("type", "function", "name"))
# Of JSON Schema: what says what a value is, and what has names that somebody gave.
_OF_SCHEMAS = ("type", "format", "$ref", "$schema", "$id")
_WITH_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


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
    others = _Others(number, sourced)
    if isinstance(content, list):
        copy["content"] = [
            others.followed(
                {**part, "text": sourced(part["text"], (number, "content", "content", at))},
                _OF_PARTS,
                "messages[].content[]",
            )
            if _has_text(part)
            else part
            for at, part in enumerate(content)
        ]
    if not _KEYS.isdisjoint(message):
        for key in REASONING_KEYS:
            if isinstance(text := message.get(key), str):
                copy[key] = sourced(text, (number, "reasoning", key, None))
    if "tool_calls" in message and isinstance(calls := message["tool_calls"], list):
        copy["tool_calls"] = [
            others.list_functions(
                _with_name(call, (number, "call", at, None), sourced), _OF_CALLS, "messages[].tool_calls[]"
            )
            for at, call in enumerate(calls)
        ]
    name = message.get("name")
    is_called = isinstance(name, str) and name in called and message.get("role") == "tool"
    known = _OF_TOOL_MESSAGES if is_called else _OF_MESSAGES
    return copy if copy.keys() <= known else others.followed(copy, known, "messages[]")


class _Others:
    """Gives sources to texts that are neither content, reasoning, calls nor names of tools.

    Args:
        number: of the message that has them; None for a tool.
        sourced: as of `with_sources`.
        at: of the tool.
    """

    def __init__(self, number: int | None, sourced: Sourced, at: int = 0):
        self._number, self._sourced, self._at, self._texts = number, sourced, at, 0

    def followed(self, whole: Mapping[str, Any], known: frozenset[str], name: str, is_schema: bool = False) -> Any:
        """An object, with sources in the texts of its keys that are not known. name: by which they are counted."""
        return {
            key: value if key in known else self._in_values(value, f"{name}.{key}", is_schema)
            for key, value in whole.items()
        }

    def list_functions(self, whole: Any, known: frozenset[str], name: str, of_function: str | None = None) -> Any:
        """A call or a tool, and its function."""
        if not _is_object(whole):
            return whole
        is_schema = self._number is None
        if _is_object(function := whole.get("function")) and not function.keys() <= known:
            function = self.followed(function, known, of_function or name, is_schema)
            whole = {**whole, "function": function}
        return whole if whole.keys() <= known else self.followed(whole, known, name, is_schema)

    def _in_values(self, value: Any, name: str, is_schema: bool, has_names: bool = False) -> Any:
        """A value with sources in its texts. is_schema: of JSON Schema. has_names: its keys are names, too."""
        if isinstance(value, str):
            if not value or value.isspace():
                return value
            self._texts += 1
            return self._sourced(value, (self._number, KEY, name, (self._at, self._texts)))
        if isinstance(value, list):
            return [self._in_values(item, name, is_schema) for item in value]
        if not _is_object(value):
            return value
        if not is_schema:
            return {key: self._in_values(item, name, False) for key, item in value.items()}
        return {
            self._in_values(key, name, True) if has_names else key: item
            if not has_names and key in _OF_SCHEMAS
            else self._in_values(item, name, True, not has_names and key in _WITH_NAMES)
            for key, item in value.items()
        }


def _tool_with_sources(at: int, tool: Any, sourced: Sourced) -> Any:
    named = _with_name(tool, (None, "tool", at, None), sourced)
    return _Others(None, sourced, at).list_functions(named, _OF_TOOLS, "tools[]", "tools[].function")


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

    with_texts = [_tool_with_sources(at, tool, tracked) for at, tool in enumerate(tools)]
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


def _has_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _with_name(whole: Any, key: Key, sourced: Sourced) -> Any:
    """A tool definition or a call, with sources in its name, or else its type, and in the call's arguments."""
    function = get_function(whole)
    if function is None:
        return whole
    copy = dict(function)
    if field := name_field(function):
        copy[field] = sourced(function[field], key)
    if key[1] == "call" and "arguments" in function:
        copy["arguments"] = _arguments(function["arguments"], key, sourced)
    return copy if function is whole else {**whole, "function": copy}


def _arguments(arguments: Any, key: Key, sourced: Sourced) -> Any:
    """The arguments of a call, with a source in each; of some, in all texts of them. key: of the name of the call."""
    if not _is_object(arguments):
        return sourced(arguments, (*key[:3], "")) if isinstance(arguments, str) else arguments
    copy: dict[str, Any] = {}
    for name, value in arguments.items():
        own = *key[:3], name
        copy[sourced(name, own)] = sourced(value, own) if isinstance(value, str) else _in_all(value, own, sourced)
    return copy


def _in_all(value: Any, key: Key, sourced: Sourced) -> Any:
    return with_all_texts(value, lambda text: sourced(text, key))


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
