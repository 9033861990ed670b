"""Texts: those of a record that a chat template is given, each with its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

from transforms.chat.rendering.provenance import sourced
from transforms.model.examples import REASONING_KEYS

# What a text of a record is: the number of its message (None for a tool), "content", "reasoning", "call" or "tool", and
# the part, the key, the call and its argument, or the tool. `rendering_of_all_texts` says what its own are.
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
    copies = [message_with_sources(number, message, sourced) for number, message in enumerate(messages)]
    return copies, [_with_name(tool, (None, "tool", at, None), sourced) for at, tool in enumerate(tools or ())] or None


def message_with_sources(number: int, message: Mapping[str, Any], sourced: Sourced) -> dict[str, Any]:
    """Copy a message, as `with_sources` does. number: of the message."""
    copy = dict(message)
    content = message.get("content")
    if isinstance(content, str):
        copy["content"] = sourced(content, (number, "content", "content", None))
    elif isinstance(content, list):
        copy["content"] = [
            {**part, "text": sourced(part["text"], (number, "content", "content", at))} if _has_text(part) else part
            for at, part in enumerate(content)
        ]
    if not _KEYS.isdisjoint(message):
        for key in REASONING_KEYS:
            if isinstance(text := message.get(key), str):
                copy[key] = sourced(text, (number, "reasoning", key, None))
    if "tool_calls" in message and isinstance(calls := message["tool_calls"], list):
        copy["tool_calls"] = [_with_name(call, (number, "call", at, None), sourced) for at, call in enumerate(calls)]
    return copy


def texts_of(number: int, message: Mapping[str, Any]) -> list[tuple[Key, str]]:
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
    function = function_of(whole)
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


def function_of(call: Any) -> Mapping[str, Any] | None:
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
