"""Answers in pieces, as three APIs have them: Anthropic's blocks, Gemini's parts, items of OpenAI's Responses.

Sessions of Claude Code consist of such blocks, those of Codex of such items. Inspect's messages have reasoning in
blocks, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.records.builder import TurnBuilder, joined, parts_in
from transforms.records.media import MEDIA
from transforms.records.names import plain_name

# The types of Anthropic's blocks.
CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
RESULTS = ("tool_result", "mcp_tool_result", "web_search_tool_result")
_REASONING = ("thinking", "reasoning")
_ENCRYPTED, _REFERENCE = "redacted_thinking", "tool_reference"

# The roles of Gemini's turns, and the keys of their parts.
_ROLES = ("user", "model", "function", "system", None)
_PARTS = {"text": str, "function_call": dict, "function_response": dict}

# The types of items: calls, each with its name and its arguments; results.
_ITEM_CALLS = {
    "function_call": lambda item: (item.get("name"), item.get("arguments")),
    # Its input is a text; a chat template prints arguments alone.
    "custom_tool_call": lambda item: (item.get("name"), {"input": item.get("input")}),
    "local_shell_call": lambda item: ("local_shell", item.get("action")),
}
_ITEM_RESULTS = tuple(f"{kind}_output" for kind in _ITEM_CALLS)
_ITEMS = (*_ITEM_CALLS, *_ITEM_RESULTS, "reasoning", "message")


class _Text(msgspec.Struct):
    text: str


class _Reasoning(msgspec.Struct):
    content: str | list[str | _Text] | None = None


def are_block_messages(turns: list[Any]) -> bool:
    """Return whether messages have blocks of Anthropic's API."""
    return any(map(_has_blocks, turns)) and all("role" in turn for turn in turns)


def add_message(builder: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add a message of Anthropic's API. Raises RecordError."""
    if not _has_blocks(turn):
        builder.say(turn)
    elif turn["role"] == "assistant":
        builder.begin(builder.at)
        add_answer(builder, turn["content"])
        builder.keep(**{key: value for key, value in turn.items() if key not in ("role", "content")})
    else:
        add_results(builder, turn)


def add_answer(builder: TurnBuilder, blocks: Sequence[Any]) -> None:
    """Add the blocks of a message of the assistant to its turn."""
    for block in blocks:
        kind = _kind(block)
        text = block.get(kind) if kind in _REASONING else None
        if text and isinstance(text, str):
            builder.think(text, **builder.flags(block))
        elif kind in (*_REASONING, _ENCRYPTED) and not text:
            builder.leave(_ENCRYPTED, block.get("data") or block.get("signature"))
        elif kind in CALLS:
            builder.call(block.get("id"), block.get("name"), block.get("input"), **builder.flags(block))
        elif kind in RESULTS:
            _add_result(builder, block)
        else:
            builder.write([block])


def add_results(builder: TurnBuilder, turn: Mapping[str, Any]) -> bool:
    """Add a message of another role: the results of calls, each as a message of the tool, and what is said around them.

    Returns:
        Whether each result was added.
    """
    are_added = True
    blocks = [block for block in turn["content"] if block is not None]
    for is_result, group in groupby(blocks, lambda block: _kind(block) in RESULTS):
        if is_result:
            for block in group:
                are_added &= _add_result(builder, block)
        else:
            builder.say({**turn, "content": joined(parts_in([*group]))})
    return are_added


def _add_result(builder: TurnBuilder, block: Mapping[str, Any]) -> bool:
    content, left = block.get("content"), {}
    if isinstance(content, list):
        # A reference stands for the definition of a tool, which is not there.
        references = [part for part in content if _kind(part) == _REFERENCE]
        left = {_REFERENCE: [part.get("tool_name") for part in references] or None}
        content = [part for part in content if part not in references]
    return builder.answer(block.get("tool_use_id"), content, **left)


def _has_blocks(turn: Mapping[str, Any]) -> bool:
    content = turn.get("content")
    return isinstance(content, list) and any(map(_is_block, content))


def _is_block(block: Any) -> bool:
    kind = _kind(block)
    return kind in (*CALLS, *RESULTS, _ENCRYPTED) or (kind in _REASONING and isinstance(block.get(kind), str))


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def are_contents(turns: list[Any]) -> bool:
    """Return whether turns are contents of Gemini's API: they have parts, and no content."""
    return all(
        isinstance(parts := turn.get("parts"), (list, str))
        and turn.get("role") in _ROLES
        and not turn.get("content")
        and all(isinstance(part, str) or (isinstance(part, dict) and "type" not in part) for part in parts)
        for turn in turns
    )


def add_content(builder: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add a turn of Gemini's API. Raises RecordError."""
    role, parts = turn.get("role"), turn["parts"]
    rest = {key: value for key, value in turn.items() if key not in ("role", "parts", "content")}
    texts: list[str] = []
    builder.end()
    for part in [parts] if isinstance(parts, str) else parts:
        kind, value = _kind_and_value(part, builder.where)
        if kind == "function_response":
            builder.answer(value.get("id"), value.get("response"), name=value.get("name"))
        elif role != "model" and kind == "text":
            texts.append(value)
        elif role != "model":
            raise RecordError(
                "bad_content", f"{builder.where} of the role {role!r} has a {kind}; expected it of the model"
            )
        elif kind == "function_call":
            builder.call(value.get("id"), value.get("name"), value.get("args"))
        elif kind == "thought":
            builder.think(value)
        else:
            builder.write(value)
    if texts:
        role = "user" if role in (None, "function") else role
        builder.say({"role": role, "content": joined(parts_in(texts)), **rest})
    else:
        builder.keep(**rest)


def _kind_and_value(part: Any, where: str) -> tuple[str, Any]:
    """What a part of Gemini's is: `text`, `thought`, `function_call`, or `function_response`; and its value."""
    if isinstance(part, str):
        return "text", part
    values = [(plain_name(key), value) for key, value in part.items() if value is not None]
    is_thought = any(name == "thought" and value is True for name, value in values)
    values = [(name, value) for name, value in values if name not in ("thought", "thought_signature")]
    kind, value = values[0] if len(values) == 1 else ("", None)
    if isinstance(value, _PARTS.get(kind, ())):
        return "thought" if is_thought and kind == "text" else kind, value
    files = [value for _, value in values if isinstance(value, dict)]
    media_types = [str(file.get("mimeType") or file.get("mime_type")) for file in files]
    reason = next((medium for medium in MEDIA for each in media_types if each.startswith(medium)), "bad_content")
    raise RecordError(reason, f"{where} has a part of {', '.join(part) or 'nothing'}; expected text or a call")


def are_items(turns: list[Any]) -> bool:
    """Return whether turns are items of OpenAI's Responses API, or messages among them."""
    return (
        any(turn.get("type") in _ITEMS for turn in turns)
        and all(turn.get("type") in _ITEMS or ("type" not in turn and "role" in turn) for turn in turns)
        and not all("text" in turn for turn in turns)
    )


def add_item(builder: TurnBuilder, item: Mapping[str, Any]) -> bool:
    """Add an item of the input or output of OpenAI's Responses API.

    Returns:
        Whether it was added: others are not read, such as searches on the server.

    Raises:
        msgspec.ValidationError: if it is reasoning that is not text.
    """
    kind, id = item.get("type", "message"), item.get("call_id") or item.get("id")
    if kind not in _ITEMS:
        return False
    if kind == "message":
        message = {key: value for key, value in item.items() if key not in ("type", "id", "status")}
        if item.get("role") == "assistant" and "content" in item:
            builder.begin()
            builder.write(item["content"])
            builder.keep(**message)
        else:
            builder.say({"role": None, **message, "content": joined(parts_in(item.get("content")))})
    elif kind == "reasoning":
        content = msgspec.convert(item, _Reasoning).content or []
        parts = [content] if isinstance(content, str) else content
        text = "\n\n".join(text for part in parts if (text := part if isinstance(part, str) else part.text))
        builder.think(text, **builder.flags(item))
        for key in ("summary", "encrypted_content"):  # the model did not write it, or not so
            builder.leave(key, item.get(key))
    elif kind in _ITEM_CALLS:
        builder.call(id, *_ITEM_CALLS[kind](item), **builder.flags(item))
    else:
        output = item.get("output")
        if isinstance(output, dict) and {"content"} <= output.keys() <= {"content", "success"}:  # as Codex wrote it
            output = output["content"]
        return builder.answer(item.get("call_id"), output)
    return True
