"""Anthropic's messages: contents of blocks, with calls and results among them. Inspect's have reasoning alike."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.json_text import kind_of
from transforms.records.samples import Sample
from transforms.records.turns import Messages, TurnForm
from transforms.records.turns.assembling import Assembler

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_RESULTS = ("tool_result", "mcp_tool_result", "web_search_tool_result")
_REASONING = {"thinking": "thinking", "reasoning": "reasoning"}
# What is said about a text for the API, and is not a part of it.
_OF_API = {"type", "text", "cache_control", "citations", "signature"}


def _blocks(turn: Any) -> list[Any]:
    content = turn.get("content") if isinstance(turn, dict) else None
    return content if isinstance(content, list) else []


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    return kind in (*_CALLS, *_RESULTS, "redacted_thinking") or isinstance(
        block.get(_REASONING.get(str(kind), "")), str
    )


def _recognizes(turns: list[Any]) -> bool:
    return any(_is_block(block) for turn in turns for block in _blocks(turn)) and all(
        isinstance(turn, dict) and "role" in turn for turn in turns
    )


def _messages(turns: list[Any], column: str) -> Messages:
    made = Assembler(column)
    for i, turn in enumerate(turns):
        blocks = _blocks(turn)
        if not any(map(_is_block, blocks)):
            made.add_message(turn)
            continue
        rest = {key: value for key, value in turn.items() if key not in ("role", "content")}
        if turn["role"] == "assistant":
            made.end_turn()
            _add_answer(made, blocks, f"{column}[{i}]")
            made.add_keys(**rest)
            made.end_turn()
        else:
            _add_results(made, turn, blocks, f"{column}[{i}]")
    return Messages(made.messages())


def _add_answer(made: Assembler, blocks: list[Any], where: str) -> None:
    for block in blocks:
        kind = str(block.get("type")) if isinstance(block, dict) else kind_of(block)
        if kind in _REASONING and isinstance(block.get(_REASONING[kind]), str):
            made.add_reasoning(block[_REASONING[kind]])
        elif kind in _CALLS:
            made.add_call(block.get("name"), block.get("input"), block.get("id"))
        elif kind in _RESULTS:
            made.add_result(block.get("content"), block.get("tool_use_id"))
        elif kind == "text" and isinstance(block.get("text"), str) and not _more(block):
            made.add_text(block["text"])
        else:
            found = f"{kind} with {', '.join(_more(block))}" if kind == "text" else kind
            raise RecordError("bad_content", f"{where} has a block of {found}; expected thinking, text and tool_use")


def _add_results(made: Assembler, turn: dict[str, Any], blocks: list[Any], where: str) -> None:
    """Add the results of calls, each as a message of the tool, and what the user says before and after them."""
    said: list[Any] = []

    def end() -> None:
        if said:
            content = said[0]["text"] if len(said) == 1 and not _more(said[0]) else [*said]
            made.add_message({**turn, "content": content})
            said.clear()

    for block in blocks:
        if isinstance(block, dict) and block.get("type") in _RESULTS:
            end()
            made.add_result(block.get("content"), block.get("tool_use_id"))
        elif _is_block(block):
            found = f"{where} of the role {turn['role']!r} has a block of {block['type']}"
            raise RecordError("bad_content", f"{found}; expected it in an answer of the assistant")
        else:
            said.append(block if isinstance(block, dict) else {"type": kind_of(block)})
    end()


def _more(block: dict[str, Any]) -> list[str]:
    """What a block of text has besides its text."""
    more = [key for key, value in block.items() if key not in _OF_API and value not in (None, "", [], {})]
    return [*more, "citations"] if block.get("citations") else more


FORMS = (
    TurnForm(
        "anthropic",
        "`content` is a list of blocks with `tool_use`, `tool_result`, `thinking` or `reasoning`",
        _recognizes,
        _messages,
        "`tool_use` becomes a call, `tool_result` a message of the role tool, `thinking` is `reasoning_content`",
        Sample(
            {
                "system": "Be brief.",
                "messages": [
                    {"role": "user", "content": "Weather in Paris?"},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "I look it up.", "signature": "x"},
                            {"type": "text", "text": "Let me look."},
                            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "15 C"}],
                    },
                    {"role": "assistant", "content": [{"type": "text", "text": "It is 15 C."}]},
                ],
                "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}],
            },
            "requests of Anthropic's Messages API",
            "https://docs.anthropic.com/en/api/messages",
        ),
    ),
)
