"""The content of a message: a string, or parts that each have text."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.model.examples import REASONING_KEYS, are_text_parts
from transforms.records.json_text import kind_of
from transforms.records.media import MEDIA, check_no_media_fields
from transforms.records.reading import Reading
from transforms.records.tool_calls import tool_calls_of
from transforms.records.train_flags import take_weight

# OpenAI's chat API, and its responses API.
_TEXT = ("text", "input_text", "output_text")
# The keys of a tool's answer that has no content, as that of a tool that returns nothing.
_OF_ANSWERS = {"role", "content", "tool_call_id", "name", "id"}
_AS_JSON = "Write another value as a string, with json.dumps"
# Where the text of a part is. LLaMA-Factory: value.
_PLACES = ("text", "value", "content")


def with_text_parts(message: dict[str, Any], where: str, reading: Reading) -> dict[str, Any]:
    """Check the content of a message, and bring its parts into the form `{"type": "text", "text": ...}`.

    LLaMA-Factory's parts of the types `reasoning` and `tool_call` become fields of the message. Raises RecordError if
    content is missing or is not text.
    """
    content = message.get("content")
    if isinstance(content, str) or are_text_parts(content):
        return message
    if content is None:
        if message["role"] == "tool" and not any(message[key] for key in message.keys() - _OF_ANSWERS):
            return {**message, "content": ""}
        if message["role"] != "assistant" or not any(message.get(key) for key in ("tool_calls", *REASONING_KEYS)):
            raise RecordError("bad_content", f"{where} has no content")
        return message
    if not isinstance(content, list):
        found = f"the content of {where} is {kind_of(content)}; expected a string or text parts. {_AS_JSON}"
        raise RecordError("bad_content", found)
    parts: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    for i, part in enumerate(content):
        at = f"content[{i}] of {where}"
        kind, text = _kind_and_text(part, at)
        if kind == "text" and "tool_calls" not in fields:
            if part.get("type") != "text" or part.get("text") != text:
                rest = {key: value for key, value in part.items() if key not in ("type", *_PLACES)}
                part = {"type": "text", "text": text, **rest}
            part, weight = take_weight(part, at, reading, message["role"] == "assistant")
            parts.append(part if weight == 1 else {**part, "weight": weight})
        elif kind == "reasoning" and not parts and not fields:
            fields["reasoning_content"] = text
        elif kind == "tool_call":
            fields["tool_calls"] = fields.get("tool_calls", []) + tool_calls_of([text], at, reading)
        else:
            raise RecordError("bad_content", f"{at} is of type {kind}; expected reasoning, then text, then calls")
    if taken := sorted(name for name in fields if message.get(name)):
        raise RecordError("bad_content", f"{where} has {' and '.join(taken)} both as a field and in a part")
    return {**message, "content": parts if parts or not fields else "", **fields}


def _kind_and_text(part: Any, where: str) -> tuple[str, str]:
    """The type of a part (text, reasoning or tool_call), and its text."""
    if not isinstance(part, dict):
        raise RecordError("bad_content", f"{where} is {kind_of(part)}; expected an object with type and text")
    kind = part.get("type") or "text"
    medium = next((medium for medium in MEDIA if kind != "text" and medium in str(kind)), None)
    if medium:
        raise RecordError(medium, f"{where} has {medium} (type {kind}); only text can be tokenized")
    check_no_media_fields(part, where)
    texts = [part[name] for name in _PLACES if part.get(name) is not None]
    text = texts[0] if texts and texts.count(texts[0]) == len(texts) else None
    if kind in _TEXT and not isinstance(text, str):
        found = "a text that is not one string" if texts else "no text"
        raise RecordError("bad_content", f'{where} has {found}; expected {{"type": "text", "text": …}}. {_AS_JSON}')
    if kind not in (*_TEXT, "reasoning", "tool_call") or not isinstance(text, str):
        raise RecordError("bad_content", f'{where} is not {{"type": "text", "text": …}}; its type is {kind!r}')
    return "text" if kind in _TEXT else kind, text
