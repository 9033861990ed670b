"""Anthropic's messages: contents of blocks, with calls and results among them. Inspect's have reasoning alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.records.builder import TurnBuilder, joined, parts_in
from transforms.records.turns import Messages, TurnForm

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
RESULTS = ("tool_result", "mcp_tool_result", "web_search_tool_result")
_REASONING = ("thinking", "reasoning")
_ENCRYPTED, _REFERENCE = "redacted_thinking", "tool_reference"


def blocks_in(turn: Mapping[str, Any]) -> list[Any]:
    """Return the blocks of a message, none if its content is a text."""
    content = turn.get("content")
    return content if isinstance(content, list) else []


def add_answer(made: TurnBuilder, blocks: Sequence[Any]) -> None:
    """Add the blocks of a message of the assistant to its turn."""
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
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
    said: list[Any] = []
    are_added = True
    for block in [*blocks_in(turn), None]:
        is_result = isinstance(block, dict) and block.get("type") in RESULTS
        if said and (is_result or block is None):
            made.say({**turn, "content": joined(parts_in(said))})
            said = []
        if is_result:
            are_added &= _add_result(made, block)
        elif block is not None:
            said.append(block)
    return are_added


def _add_result(made: TurnBuilder, block: Mapping[str, Any]) -> bool:
    content = block.get("content")
    if not isinstance(content, list):
        return made.answer(block.get("tool_use_id"), content)
    # A reference stands for the definition of a tool, which is not there.
    named = [part for part in content if isinstance(part, dict) and part.get("type") == _REFERENCE]
    left = {_REFERENCE: [part.get("tool_name") for part in named]} if named else {}
    return made.answer(block.get("tool_use_id"), [part for part in content if part not in named], **left)


def _is_block(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind in (*CALLS, *RESULTS, _ENCRYPTED) or (kind in _REASONING and isinstance(block.get(kind), str))


def _recognizes(turns: list[Any]) -> bool:
    return all(isinstance(turn, dict) and "role" in turn for turn in turns) and any(
        _is_block(block) for turn in turns for block in blocks_in(turn)
    )


def _messages(turns: list[Any], column: str) -> Messages:
    made = TurnBuilder(column)
    for made.at, turn in enumerate(turns):
        if not any(map(_is_block, blocks_in(turn))):
            made.say(turn)
        elif turn["role"] == "assistant":
            made.begin(made.at)
            add_answer(made, blocks_in(turn))
            made.keep(**{key: value for key, value in turn.items() if key not in ("role", "content")})
        else:
            add_results(made, turn)
    return Messages(made.messages)


FORMS = (TurnForm("anthropic", _recognizes, _messages),)
