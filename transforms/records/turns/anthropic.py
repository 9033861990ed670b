"""Anthropic's messages: contents of blocks, with calls and results among them. Inspect's have reasoning alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from transforms.records.builder import TurnBuilder, joined, parts_in

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
RESULTS = ("tool_result", "mcp_tool_result", "web_search_tool_result")
_REASONING = ("thinking", "reasoning")
_ENCRYPTED, _REFERENCE = "redacted_thinking", "tool_reference"


def recognizes(turns: list[Any]) -> bool:
    """Return whether messages have such blocks."""
    return any(map(_has_blocks, turns)) and all("role" in turn for turn in turns)


def add(made: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add a message. Raises RecordError."""
    if not _has_blocks(turn):
        made.say(turn)
    elif turn["role"] == "assistant":
        made.begin(made.at)
        add_answer(made, turn["content"])
        made.keep(**{key: value for key, value in turn.items() if key not in ("role", "content")})
    else:
        add_results(made, turn)


def add_answer(made: TurnBuilder, blocks: Sequence[Any]) -> None:
    """Add the blocks of a message of the assistant to its turn."""
    for block in blocks:
        kind = _kind(block)
        text = block.get(kind) if kind in _REASONING else None
        if text and isinstance(text, str):
            made.think(text)
        elif kind in (*_REASONING, _ENCRYPTED) and not text:
            made.leave(_ENCRYPTED, block.get("data") or block.get("signature"))
        elif kind in CALLS:
            made.call(block.get("id"), block.get("name"), block.get("input"))
        elif kind in RESULTS:
            _add_result(made, block)
        else:
            made.write([block])


def add_results(made: TurnBuilder, turn: Mapping[str, Any]) -> bool:
    """Add a message of another role: the results of calls, each as a message of the tool, and what is said around them.

    Returns:
        Whether each result was added.
    """
    are_added = True
    given = [block for block in turn["content"] if block is not None]
    for is_result, blocks in groupby(given, lambda block: _kind(block) in RESULTS):
        if not is_result:
            made.say({**turn, "content": joined(parts_in([*blocks]))})
            continue
        for block in blocks:
            are_added &= _add_result(made, block)
    return are_added


def _add_result(made: TurnBuilder, block: Mapping[str, Any]) -> bool:
    content = block.get("content")
    if not isinstance(content, list):
        return made.answer(block.get("tool_use_id"), content)
    # A reference stands for the definition of a tool, which is not there.
    named = [part for part in content if _kind(part) == _REFERENCE]
    left = {_REFERENCE: [part.get("tool_name") for part in named]} if named else {}
    return made.answer(block.get("tool_use_id"), [part for part in content if part not in named], **left)


def _has_blocks(turn: Mapping[str, Any]) -> bool:
    content = turn.get("content")
    return isinstance(content, list) and any(map(_is_block, content))


def _is_block(block: Any) -> bool:
    kind = _kind(block)
    return kind in (*CALLS, *RESULTS, _ENCRYPTED) or (kind in _REASONING and isinstance(block.get(kind), str))


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None
