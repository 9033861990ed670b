"""The messages of a record: what they must have, and their roles under the names that templates know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from transforms.errors import RecordError
from transforms.model.examples import plain

ROLES = ("system", "developer", "user", "assistant", "tool")
ROLE_NAMES = {role: role for role in ROLES} | {"human": "user", "gpt": "assistant", "observation": "tool"}

# ShareGPT's own role for an assistant turn whose value is the JSON of a call.
_FUNCTION_CALL = "function_call"
_MEDIA = ("image", "audio", "video")

# What decoding raises for a string that is not valid JSON, is nested too deeply, or is not valid Unicode.
NOT_JSON = (msgspec.MsgspecError, RecursionError, UnicodeEncodeError)


def messages_of(turns: Any, column: str, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Check messages, and give each its role under the name that templates know.

    Args:
        turns: the messages, as the record has them.
        column: the column that has them, for errors.
        roles: the role that each name stands for.

    Returns:
        The messages; the same list if nothing is to be changed. Keys that are not known stay.

    Raises:
        RecordError: if a message is malformed, or has content that is not text.
    """
    if not isinstance(turns, list):
        raise RecordError("bad_message", f"{column} is {kind_of(turns)}; expected a list of messages")
    roles_and_texts = plain(turns)
    if roles_and_texts and all(roles.get(role) == role for role in {*roles_and_texts[0]}):
        return turns
    return [_message(turn, f"{column}[{i}]", roles) for i, turn in enumerate(turns)]


def _message(message: Any, where: str, roles: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise RecordError("bad_message", f"{where} is {kind_of(message)}; expected an object with role and content")
    name = message.get("role")
    if not isinstance(name, str):
        found = f"the role {name!r}; expected a string" if "role" in message else "no role"
        raise RecordError("bad_message", f"{where} has {found}")
    role = roles.get(name, name)
    if role == _FUNCTION_CALL:
        return _function_call(message, where)
    if role not in ROLES:
        raise RecordError(
            "unknown_role",
            f'{where} has role "{name}"; known roles are {", ".join(ROLES)}. Map it with roles, such as {name}=user',
        )
    message = {**message, "role": role}
    _check_content(message, where)
    _check_tool_calls(message, where)
    _check_weight(message, where)
    return message


def _check_weight(message: dict[str, Any], where: str) -> None:
    if message.get("weight") is not None and message["weight"] not in (0, 1):
        raise RecordError("bad_weight", f"{where} has the weight {message['weight']!r}; expected 0 or 1")


def _check_content(message: dict[str, Any], where: str) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if content is None:
        if message["role"] != "assistant" or not (message.get("tool_calls") or message.get("reasoning_content")):
            raise RecordError("bad_content", f"{where} has no content")
        return
    if not isinstance(content, list):
        raise RecordError(
            "bad_content", f"the content of {where} is {kind_of(content)}; expected a string or text parts"
        )
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else None
        medium = next((medium for medium in _MEDIA if isinstance(kind, str) and medium in kind), None)
        if medium:
            raise RecordError(medium, f"the content of {where} has a part of type {kind}; only text can be tokenized")
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RecordError(
                "bad_content", f'the content of {where} has a part that is not {{"type": "text", "text": …}}'
            )


def _check_tool_calls(message: dict[str, Any], where: str) -> None:
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise RecordError("bad_tool_calls", f"the tool_calls of {where} are not a list of objects")


def _function_call(message: dict[str, Any], where: str) -> dict[str, Any]:
    """Read ShareGPT's function_call turn, whose value is the JSON of one call or of a list of calls."""
    _check_weight(message, where)
    calls = message.get("content")
    if isinstance(calls, str):
        try:
            calls = msgspec.json.decode(calls)
        except NOT_JSON as error:
            raise RecordError("bad_tool_calls", f"the function_call of {where} is not valid JSON: {error}") from None
    calls = calls if isinstance(calls, list) else [calls]
    named = (isinstance(call, dict) and isinstance(call.get("name"), str) and "arguments" in call for call in calls)
    if not calls or not all(named):
        raise RecordError("bad_tool_calls", f"the function_call of {where} lacks name or arguments")
    functions = [{"name": call["name"], "arguments": call["arguments"]} for call in calls]
    tool_calls = [{"type": "function", "function": function} for function in functions]
    return {**message, "role": "assistant", "content": "", "tool_calls": tool_calls}


def kind_of(value: Any) -> str:
    """Name the type of a JSON value in JSON's words, for errors."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)
