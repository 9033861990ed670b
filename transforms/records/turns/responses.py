"""Items of OpenAI's Responses API: messages, calls and reasoning, each an item of its own."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.samples import Sample
from transforms.records.turns import Messages, TurnForm
from transforms.records.turns.assembling import Assembler

_ITEMS = ("function_call", "function_call_output", "reasoning", "message")
_NOT_WRITTEN = ("summary", "encrypted_content")


def _recognizes(turns: list[Any]) -> bool:
    if not all(isinstance(turn, dict) for turn in turns):
        return False
    return (
        any(turn.get("type") in _ITEMS for turn in turns)
        and all(turn.get("type") in _ITEMS or ("type" not in turn and "role" in turn) for turn in turns)
        and not all("text" in turn for turn in turns)
    )


def _messages(turns: list[Any], column: str) -> Messages:
    made = Assembler(column)
    for i, item in enumerate(turns):
        kind = item.get("type", "message")
        if kind == "function_call":
            made.add_call(item.get("name"), item.get("arguments"), item.get("call_id") or item.get("id"))
        elif kind == "function_call_output":
            made.add_result(item.get("output"), item.get("call_id"))
        elif kind == "reasoning":
            _add_reasoning(made, item, f"{column}[{i}]")
        else:
            _add_message(made, item, f"{column}[{i}]")
    return Messages(made.messages())


def _add_reasoning(made: Assembler, item: dict[str, Any], where: str) -> None:
    """Add reasoning. A summary of it, and what is encrypted, are not what the model wrote: they are only counted."""
    content = item.get("content") or []
    parts = content if isinstance(content, list) else [content]
    texts: list[Any] = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise RecordError("bad_content", f"{where} is reasoning whose content is not a list of text parts")
    made.add_reasoning("\n\n".join(texts), **{key: item[key] for key in _NOT_WRITTEN if item.get(key)})


def _add_message(made: Assembler, item: dict[str, Any], where: str) -> None:
    message = {key: value for key, value in item.items() if key not in ("type", "id", "status")}
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, (str, list)):
        made.add_message(message)
        return
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    for part in [content] if isinstance(content, str) else content:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise RecordError("bad_content", f"{where} has a part of type {kind}; expected output_text")
        made.add_text(text)
    made.add_keys(**rest)


FORMS = (
    TurnForm(
        "responses",
        "items of the `type` message, function_call, function_call_output or reasoning",
        _recognizes,
        _messages,
        "items of one answer become one message, with its reasoning and calls; outputs are messages of the role tool. "
        "A `summary` of reasoning is counted, and not trained on",
        Sample(
            {
                "input": [
                    {"role": "user", "content": "Weather in Paris?"},
                    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city":"Paris"}'},
                    {"type": "function_call_output", "call_id": "c1", "output": "15 C"},
                ],
                "output": [
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "15 C."}]}
                ],
            },
            "requests and responses of OpenAI's Responses API",
            "https://platform.openai.com/docs/api-reference/responses",
        ),
    ),
)
