"""Requests to servers and their logs: the messages are with what goes to the server, or inside an object."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.inputs.samples import Sample
from transforms.inputs.shapes import Column, Shape, Values
from transforms.inputs.shapes.columns import TOOL_LIST, in_turn, is_dialog, is_tools
from transforms.inputs.turns.anthropic import FORMS as _ANTHROPIC
from transforms.inputs.turns.gemini import FORMS as _GEMINI

# What a request says besides its messages: how the answer is to be made.
_OF_REQUESTS = ("model", "temperature", "max_tokens", "top_p", "n", "stream", "stop", "seed", "user", "metadata")


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


def _is_request(value: Any) -> bool:
    return isinstance(value, dict) and is_dialog(value.get("messages")) and is_tools(value.get("tools") or [])


def _inside(values: Values) -> dict[str, Any]:
    request = values["request"]
    record = {name: request[name] for name in ("messages", "tools") if request.get(name)}
    others = [name for name in request if name not in (*record, *_OF_REQUESTS) and request[name]]
    if others:
        raise RecordError("not_read", f"the request has {', '.join(others)}, which is not read; give a formatter")
    return record


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
    Shape(
        "request of OpenAI's Batch API",
        {
            "request": Column(("body",), _is_request),
            "method": Column(("method",), lambda value: value == "POST"),
            "url": Column(("url",), lambda value: isinstance(value, str)),
        },
        _inside,
        "the conversation of its `body`",
        "`method`, `url`, and a `body` with `messages`",
        Sample(
            {
                "custom_id": "1",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {
                    "model": "m",
                    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
                },
            },
            "files for OpenAI's Batch API",
            "https://platform.openai.com/docs/guides/batch",
        ),
    ),
)
