"""Items of OpenAI's Responses API, of which sessions of Codex consist: messages, calls and reasoning, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from transforms.records.builder import TurnBuilder, joined, parts_in

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_RESULTS = tuple(f"{kind}_output" for kind in _CALLS)
_ITEMS = (*_CALLS, *_RESULTS, "reasoning", "message")
_NOT_WRITTEN = ("summary", "encrypted_content")
# The keys of a message that are about the item.
_OF_ITEM = ("type", "id", "status")


class _Text(msgspec.Struct):
    text: str


class _Reasoning(msgspec.Struct):
    content: str | list[str | _Text] | None = None


def recognizes(turns: list[Any]) -> bool:
    """Return whether turns are such items, or messages among them."""
    return (
        any(turn.get("type") in _ITEMS for turn in turns)
        and all(turn.get("type") in _ITEMS or ("type" not in turn and "role" in turn) for turn in turns)
        and not all("text" in turn for turn in turns)
    )


def add_item(made: TurnBuilder, item: Mapping[str, Any]) -> bool:
    """Add an item of the API's input or output.

    Returns:
        Whether it was added: others are not read, such as searches on the server.

    Raises:
        msgspec.ValidationError: if it is reasoning that is not text.
    """
    kind, id = item.get("type", "message"), item.get("call_id") or item.get("id")
    if kind == "message":
        message = {key: value for key, value in item.items() if key not in _OF_ITEM}
        if item.get("role") == "assistant" and "content" in item:
            made.begin()
            made.write(item["content"])
            made.keep(**message)
        else:
            made.say({"role": None, **message, "content": joined(parts_in(item.get("content")))})
    elif kind == "reasoning":
        content = msgspec.convert(item, _Reasoning).content or []
        parts = [content] if isinstance(content, str) else content
        made.think("\n\n".join(text for part in parts if (text := part if isinstance(part, str) else part.text)))
        for key in _NOT_WRITTEN:
            made.leave(key, item.get(key))
    elif kind == "function_call":
        made.call(id, item.get("name"), item.get("arguments"))
    elif kind == "custom_tool_call":  # whose input is a text; a chat template prints arguments alone
        made.call(id, item.get("name"), {"input": item.get("input")})
    elif kind == "local_shell_call":
        made.call(id, "local_shell", item.get("action"))
    elif kind in _RESULTS:
        output = item.get("output")
        if isinstance(output, dict) and {"content"} <= output.keys() <= {"content", "success"}:  # as Codex wrote it
            output = output["content"]
        return made.answer(item.get("call_id"), output)
    else:
        return False
    return True
