"""Requests to servers and their logs: the messages are with what goes to the server, or inside an object."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.shapes import Column, Shape, Values
from transforms.records.shapes.columns import TOOL_LIST, in_turn, is_dialog
from transforms.records.turns.anthropic import FORMS as _ANTHROPIC
from transforms.records.turns.gemini import FORMS as _GEMINI


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, dict) and "text" in part for part in value)


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and _is_list_of_texts(value.get("parts"))


def _request(values: Values) -> dict[str, Any]:
    tools = {"tools": values["tools"]} if "tools" in values else {}
    if "system" not in values:
        return {**in_turn(values["messages"]), **tools}
    parts = values["system"]["parts"] if isinstance(values["system"], dict) else values["system"]
    if any(not isinstance(part["text"], str) for part in parts):
        raise RecordError("bad_message", "a part of system has no text")
    content = [{"type": "text", "text": part["text"]} for part in parts]
    system = {"role": "system", "content": content[0]["text"] if len(content) == 1 else content}
    return {**in_turn([system], values["messages"]), **tools}


SHAPES = (
    Shape(
        "request of Anthropic",
        {"system": Column(("system",), _is_list_of_texts), "messages": Column(("messages",), is_dialog)},
        _request,
        "a conversation; the blocks of `system` are its first message",
        "`system` as a list of blocks, `messages`, `tools` with `input_schema`",
        _ANTHROPIC[0].sample._replace(
            record={
                "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}],
            }
        ),
        optional={"tools": TOOL_LIST},
    ),
    Shape(
        "request of Gemini",
        {"messages": Column(("contents",), is_dialog)},
        _request,
        "a conversation; `functionDeclarations` are its tools",
        "`systemInstruction` with `parts`, `contents`, `tools` with `functionDeclarations`",
        _GEMINI[0].sample,
        optional={"tools": TOOL_LIST, "system": Column(("system_instruction",), _is_content)},
    ),
)
