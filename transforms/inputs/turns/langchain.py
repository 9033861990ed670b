"""LangChain's messages: as dicts, as `message_to_dict` writes them, and as `dumps` does."""

from __future__ import annotations

from typing import Any

from transforms.inputs.samples import Sample
from transforms.inputs.turns import Messages, TurnForm

_TYPES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_CLASSES = {
    f"{name}Message{chunk}": _TYPES[name.lower()]
    for name in ("Human", "AI", "System", "Tool", "Function")
    for chunk in ("", "Chunk")
}
_ROLES = {**_TYPES, **_CLASSES}
# What LangChain notes of a message, and is not said in it.
_OF_RUN = ("type", "id", "example", "response_metadata", "usage_metadata", "status", "lc_attributes")


def _fields(turn: Any) -> tuple[str, dict[str, Any]] | None:
    """The role and the fields of a turn; None if it is not one of LangChain."""
    if not isinstance(turn, dict) or "role" in turn:
        return None
    if turn.get("type") == "constructor" and isinstance(turn.get("kwargs"), dict) and turn.get("id"):
        role, fields = _ROLES.get(turn["id"][-1]), turn["kwargs"]
    else:
        data = turn.get("data")
        role = _ROLES.get(turn["type"]) if isinstance(turn.get("type"), str) else None
        fields = data if isinstance(data, dict) and "content" in data else turn
    return (role, fields) if role and "content" in fields else None


def _recognizes(turns: list[Any]) -> bool:
    return all(_fields(turn) is not None for turn in turns)


def _messages(turns: list[Any], column: str) -> Messages:
    return Messages([_message(*fields) for turn in turns if (fields := _fields(turn))])


def _message(role: str, fields: dict[str, Any]) -> dict[str, Any]:
    message = {"role": role} | {key: value for key, value in fields.items() if key not in _OF_RUN}
    calls = message.pop("tool_calls", None) or None
    further = message.pop("additional_kwargs", None)
    further = {key: value for key, value in further.items() if value} if isinstance(further, dict) else {}
    of_api = further.pop("tool_calls", None)  # the same calls, as the provider wrote them
    if calls is None:
        calls = of_api
    if not message.get("invalid_tool_calls"):
        message.pop("invalid_tool_calls", None)
    elif calls is None:  # what the model wrote
        calls = message.pop("invalid_tool_calls")
    message |= {key: value for key, value in further.items() if key not in message}
    if calls:
        message["tool_calls"] = [_call(call) for call in calls] if isinstance(calls, list) else calls
        if isinstance(message["content"], list):  # Anthropic's blocks, with the same calls
            blocks = message["content"]
            message["content"] = [b for b in blocks if not (isinstance(b, dict) and b.get("type") == "tool_use")] or ""
    return {key: value for key, value in message.items() if value is not None or key == "content"}


def _call(call: Any) -> Any:
    """A call in the OpenAI form."""
    if not isinstance(call, dict) or "args" not in call:
        return call
    rest = {key: value for key, value in call.items() if key not in ("name", "args", "type") and value is not None}
    return {**rest, "type": "function", "function": {"name": call.get("name"), "arguments": call["args"]}}


FORMS = (
    TurnForm(
        "langchain",
        "`type` (human, ai, tool ..) and `content`, or `data` with it, or `kwargs` with it",
        _recognizes,
        _messages,
        "messages; the `args` of calls are their arguments",
        Sample(
            {
                "messages": [
                    {"type": "human", "content": "Weather in Paris?"},
                    {
                        **{"type": "ai", "content": "", "additional_kwargs": {}, "response_metadata": {}},
                        "tool_calls": [
                            {"name": "get_weather", "args": {"city": "Paris"}, "id": "c1", "type": "tool_call"}
                        ],
                    },
                    {"type": "tool", "content": "15 C", "tool_call_id": "c1", "name": "get_weather"},
                    {"type": "ai", "content": "15 C."},
                ]
            },
            "LangChain's messages_to_dict, model_dump and dumps",
            "https://python.langchain.com/docs/concepts/messages/",
        ),
    ),
)
