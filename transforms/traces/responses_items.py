"""Items of OpenAI's Responses API, of which sessions of Codex consist, as messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.json_text import kind_of
from transforms.records.tool_calls import function_call
from transforms.traces import Trace
from transforms.traces.conversation import TraceConversation, parts_of

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def add_item(trace: Trace, conversation: TraceConversation, event: int, item: Mapping[str, Any]) -> None:
    """Add an item to a conversation, if it is a message, reasoning, a call or an answer.

    Args:
        trace: takes what is not read of the item.
        conversation: takes the rest.
        event: the number of the item.
        item: of the API's input or output.
    """
    kind = item.get("type", "message")
    if kind == "message":
        role, content = item.get("role"), _content(item.get("content"))
        if role == "assistant":
            conversation.write(event, content)
        else:
            conversation.say(event, str(role), content)
    elif kind == "reasoning":
        # A summary is not what the model wrote.
        text = "\n\n".join(_texts(item.get("content")))
        trace.unread["reasoning (summary)"] += sum(map(len, _texts(item.get("summary"))))
        trace.unread["reasoning (encrypted)"] += len(item.get("encrypted_content") or "") * (not text)
        if text:
            conversation.write(event, reasoning=text)
    elif kind == "function_call":
        conversation.write(event, calls=[function_call(item.get("call_id"), item.get("name"), item.get("arguments"))])
    elif kind == "custom_tool_call":  # whose input is a text; a chat template prints arguments alone
        arguments = {"input": item.get("input")}
        conversation.write(event, calls=[function_call(item.get("call_id"), item.get("name"), arguments)])
    elif kind == "local_shell_call":
        conversation.write(event, calls=[function_call(item.get("call_id"), "local_shell", item.get("action"))])
    elif kind in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        conversation.answer(event, item.get("call_id"), _content(item.get("output")))


def kind_of_item(item: Mapping[str, Any]) -> str:
    """Return the kind of an item: its type, and its role if it is a message."""
    kind = str(item.get("type", "message"))
    return f"{kind} ({item.get('role')})" if kind == "message" else kind


def _content(content: Any) -> Any:
    """A text, or parts: texts in the one form, others as they are."""
    if isinstance(content, Mapping) and isinstance(content.get("content"), str):  # of a function_call_output
        return content["content"]
    return [
        {"type": "text", "text": part["text"]} if isinstance(part, dict) and part.get("type") in _TEXTS else part
        for part in parts_of(content)
    ]


def _texts(parts: Any) -> list[str]:
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts_of(parts)]
    for text in texts:
        if not isinstance(text, str):
            raise RecordError("bad_trace", f"reasoning has a part whose text is {kind_of(text)}; expected a string")
    return [text for text in texts if text]
