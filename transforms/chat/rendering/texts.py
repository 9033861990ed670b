"""Texts: those of a record that a chat template is given, each with its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from transforms.chat.rendering.provenance import sourced
from transforms.model.examples import REASONING_KEYS

# What a text of a record is: the number of its message (None for a tool), "content", "reasoning", "call" or "tool", and
# the part, the key, the call and its argument, or the tool.
Key: TypeAlias = tuple[int | None, str, Any, Any]
# Takes a text and its key, and returns what stands for it.
Sourced: TypeAlias = Callable[[str, Key], str]
_KEYS = frozenset(REASONING_KEYS)


def with_sources(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None, sourced: Sourced = sourced
) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """Copy what a chat template is given, with texts that carry where their characters came from.

    Args:
        messages: the messages.
        tools: the tool definitions.
        sourced: takes a text and its key, and returns what is in its place: a text that carries its sources
            (`provenance`), or one that is recognised where it is printed (`identity`).
    """
    return [_message(number, message, sourced) for number, message in enumerate(messages)], (
        [_named(tool, (None, "tool", number, None), sourced) for number, tool in enumerate(tools)] if tools else None
    )


def _message(number: int, message: Mapping[str, Any], sourced: Sourced) -> dict[str, Any]:
    copy = dict(message)
    if type(content := message.get("content")) is str and "tool_calls" not in message and _KEYS.isdisjoint(message):
        copy["content"] = sourced(content, (number, "content", "content", None))  # as of most messages
        return copy
    for kind, key, part, text in texts_of(message):
        if part is None:
            copy[key] = sourced(text, (number, kind, key, part))
    if isinstance(content := message.get("content"), list):
        copy["content"] = [
            {**part, "text": sourced(part["text"], (number, "content", "content", at))} if _has_text(part) else part
            for at, part in enumerate(content)
        ]
    if isinstance(calls := message.get("tool_calls"), list):
        copy["tool_calls"] = [_call(call, number, at, sourced) for at, call in enumerate(calls)]
    return copy


def texts_of(message: Mapping[str, Any]) -> Iterator[tuple[str, str, int | None, str]]:
    """Give the content of a message or its parts, and its reasoning: kind, key, number of the part, text."""
    content = message.get("content")
    if isinstance(content, str):
        yield "content", "content", None, content
    elif isinstance(content, list):
        yield from (("content", "content", at, part["text"]) for at, part in enumerate(content) if _has_text(part))
    for key in REASONING_KEYS:
        if isinstance(text := message.get(key), str):
            yield "reasoning", key, None, text


def _has_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _call(call: Any, message: int, number: int, sourced: Sourced) -> Any:
    """A tool call with sources in its name and in each of its arguments."""
    function = function_of(call)
    if function is None:
        return call
    copy = _named(function, (message, "call", number, None), sourced)
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        copy["arguments"] = {
            sourced(name, (message, "call", number, name)): _deep(value, (message, "call", number, name), sourced)
            for name, value in arguments.items()
        }
    elif isinstance(arguments, str):
        copy["arguments"] = sourced(arguments, (message, "call", number, ""))
    return {**call, "function": copy} if function is not call else copy


def function_of(call: Any) -> Mapping[str, Any] | None:
    """Return what of a tool call, or of a tool definition, has the name of the function; None if it is neither."""
    if not isinstance(call, Mapping):
        return None
    function = call.get("function", call)
    return function if isinstance(function, Mapping) else None


def _named(tool: Any, key: Key, sourced: Sourced) -> Any:
    """A tool definition, or the function of a call, with a source in its name; in its type if it has no name."""
    function = function_of(tool)
    if function is None:
        return tool
    field = name_field(function)
    if field is None:
        return tool
    named = {**function, field: sourced(function[field], key)}
    return named if function is tool else {**tool, "function": named}


def name_field(function: Mapping[str, Any]) -> str | None:
    """Return the key of a function under which its name is, or else its type; None if it has neither."""
    if isinstance(function.get("name"), str):
        return "name"
    return "type" if isinstance(function.get("type"), str) else None


def _deep(value: Any, key: Key, sourced: Sourced) -> Any:
    if isinstance(value, str):
        return sourced(value, key)
    if isinstance(value, Mapping):
        return {_deep(name, key, sourced): _deep(item, key, sourced) for name, item in value.items()}
    return [_deep(item, key, sourced) for item in value] if isinstance(value, list) else value
