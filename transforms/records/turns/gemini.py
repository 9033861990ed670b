"""Gemini's contents: turns of parts."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.builder import TurnBuilder, joined, parts_in
from transforms.records.media import MEDIA
from transforms.records.turns import Messages, TurnForm

_ROLES = ("user", "model", "function", "system", None)
_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")
# What is said about a part for the API.
_OF_API = ("thoughtSignature", "thought_signature", "thought")


def _recognizes(turns: list[Any]) -> bool:
    return all(
        isinstance(turn, dict)
        and isinstance(parts := turn.get("parts"), (list, str))
        and turn.get("role") in _ROLES
        and not turn.get("content")
        and all(isinstance(part, str) or (isinstance(part, dict) and "type" not in part) for part in parts)
        for turn in turns
    )


def _messages(turns: list[Any], column: str) -> Messages:
    made = TurnBuilder(column)
    for made.at, turn in enumerate(turns):
        parts = [turn["parts"]] if isinstance(turn["parts"], str) else turn["parts"]
        role, rest = turn.get("role"), {key: turn[key] for key in turn if key not in ("role", "parts", "content")}
        said: list[str] = []
        made.end()
        for part in parts:
            kind, value = _kind_and_value(part, f"{column}[{made.at}]")
            if kind == "result":
                made.answer(value.get("id"), value.get("response"), name=value.get("name"))
            elif role != "model" and kind == "text":
                said.append(value)
            elif role != "model":
                found = f"{column}[{made.at}] of the role {role!r} has a {kind}; expected it of the model"
                raise RecordError("bad_content", found)
            elif kind == "call":
                made.call(value.get("id"), value.get("name"), value.get("args"))
            elif kind == "thought":
                made.think(value)
            else:
                made.write(value)
        if said:
            role = "user" if role in (None, "function") else role
            made.say({"role": role, "content": joined(parts_in(said)), **rest})
        else:
            made.keep(**rest)
    return Messages(made.messages)


def _kind_and_value(part: Any, where: str) -> tuple[str, Any]:
    if isinstance(part, str):
        return "text", part
    found = {key: value for key, value in part.items() if key not in _OF_API and value is not None}
    if any(name in found for name in _MEDIA):
        media = next(found[name] for name in _MEDIA if name in found)
        kind = str(media.get("mimeType") or media.get("mime_type") or "") if isinstance(media, dict) else ""
        reason = next((medium for medium in MEDIA if kind.startswith(f"{medium}/")), "bad_content")
        raise RecordError(reason, f"{where} has media of the type {kind or 'unknown'}; only text can be tokenized")
    if len(found) == 1:
        [(name, value)] = found.items()
        if name == "text" and isinstance(value, str):
            return ("thought" if part.get("thought") is True else "text"), value
        if name in ("functionCall", "function_call") and isinstance(value, dict):
            return "call", value
        if name in ("functionResponse", "function_response") and isinstance(value, dict):
            return "result", value
    raise RecordError("bad_content", f"{where} has a part of {', '.join(found) or 'nothing'}; expected text or a call")


FORMS = (TurnForm("gemini", _recognizes, _messages),)
