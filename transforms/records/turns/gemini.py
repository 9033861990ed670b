"""Gemini's contents: turns of parts."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.builder import TurnBuilder, joined, parts_in
from transforms.records.media import MEDIA

_ROLES = ("user", "model", "function", "system", None)
_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")
# The keys of parts, what each is, and of what type.
_KINDS = {
    "text": ("text", str),
    **dict.fromkeys(("functionCall", "function_call"), ("call", dict)),
    **dict.fromkeys(("functionResponse", "function_response"), ("result", dict)),
}
# What is said about a part for the API.
_OF_API = ("thoughtSignature", "thought_signature", "thought")


def recognizes(turns: list[Any]) -> bool:
    """Return whether turns have parts, and no content."""
    return all(
        isinstance(parts := turn.get("parts"), (list, str))
        and turn.get("role") in _ROLES
        and not turn.get("content")
        and all(isinstance(part, str) or (isinstance(part, dict) and "type" not in part) for part in parts)
        for turn in turns
    )


def add(made: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add such a turn. Raises RecordError."""
    parts = [turn["parts"]] if isinstance(turn["parts"], str) else turn["parts"]
    role, rest = turn.get("role"), {key: turn[key] for key in turn if key not in ("role", "parts", "content")}
    said: list[str] = []
    made.end()
    for part in parts:
        kind, value = _kind_and_value(part, made.where)
        if kind == "result":
            made.answer(value.get("id"), value.get("response"), name=value.get("name"))
        elif role != "model" and kind == "text":
            said.append(value)
        elif role != "model":
            found = f"{made.where} of the role {role!r} has a {kind}; expected it of the model"
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


def _kind_and_value(part: Any, where: str) -> tuple[str, Any]:
    if isinstance(part, str):
        return "text", part
    given = {key: value for key, value in part.items() if key not in _OF_API and value is not None}
    if media := [given[name] for name in _MEDIA if name in given]:
        file = media[0] if isinstance(media[0], dict) else {}
        kind = str(file.get("mimeType") or file.get("mime_type") or "")
        reason = next((medium for medium in MEDIA if kind.startswith(f"{medium}/")), "bad_content")
        raise RecordError(reason, f"{where} has media of the type {kind or 'unknown'}; only text can be tokenized")
    name, value = next(iter(given.items()), ("", None))
    kind, expected = _KINDS.get(name, ("", ()))
    if len(given) != 1 or not isinstance(value, expected):
        found = ", ".join(given) or "nothing"
        raise RecordError("bad_content", f"{where} has a part of {found}; expected text or a call")
    return "thought" if kind == "text" and part.get("thought") is True else kind, value
