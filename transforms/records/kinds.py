"""What the values of a field are: texts, turns, tools and so on; or their JSON, as the cells of tables have it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from transforms.base.errors import RecordError
from transforms.records.json_text import decode_json
from transforms.records.reading import LEVELS, SWITCHES, Reading
from transforms.records.turns import has_form, is_conversation, is_message
from transforms.records.turns.marked import marks_in

UNFIT: Any = object()


class Kind(NamedTuple):
    """A kind of values.

    Attributes:
        words: what a value is, for errors.
        fits: takes a value, its column and the reading; returns the value, decoded if it is JSON; or UNFIT.
        beginning: how a text begins that can only be meant as one.
    """

    words: str
    fits: Callable[[Any, str, Reading], Any]
    beginning: str = ""

    def is_malformed(self, value: Any) -> bool:
        """Return whether a value is meant as one, or has texts that are, and is not valid JSON: Python's repr."""
        if not self.beginning:
            return False
        value = _decoded(value)
        texts = map(_decoded, value) if type(value) is list else [value]
        return any(type(text) is str and re.match(self.beginning, text) for text in texts)


def _decoded(value: Any, column: str = "", reading: Reading | None = None) -> Any:
    """Return the list or the object of which a text is the JSON; any other value as it is."""
    if type(value) is not str or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return decode_json(value, "malformed", column, reading)
    except RecordError:
        return value


def _turns(value: Any, column: str, reading: Reading) -> Any:
    if type(value) is not list:
        value = _decoded(value, column, reading)
        if type(value) is not list:
            return UNFIT
    if not value:
        return value
    if type(value[0]) is str and value[0].lstrip().startswith("{"):  # a list of JSON texts
        value = [_decoded(turn, column, reading) for turn in value]
    first = value[0]
    if type(first) is not dict:
        return UNFIT
    if first.get("role") is not None or first.get("from") is not None:
        return value
    own = reading.options.message_fields.get("role")
    return value if first.get(own) is not None or has_form(value) else UNFIT


def _text_or_turns(value: Any, column: str, reading: Reading) -> Any:
    if type(value) is not str:
        return _turns(value, column, reading)
    if not value.lstrip().startswith("["):
        return value
    decoded = _decoded(value, column, reading)
    return decoded if type(decoded) is list and is_conversation(decoded) else value


def _question(value: Any, column: str, reading: Reading) -> Any:
    return value if type(value) is str and _text_or_turns(value, column, reading) is value else UNFIT


def _prompt(value: Any, column: str, reading: Reading) -> Any:
    if type(value) is dict:  # a request
        return value if type(value.get("messages")) is list else UNFIT
    return _text_or_turns(value, column, reading)


def _completion(value: Any, column: str, reading: Reading) -> Any:
    """Return a text, a message, messages, or what a server returned, if it is one answer."""
    return (type(value) is not str and _one_answer(value)) or _text_or_turns(value, column, reading)


def _one_answer(value: Any) -> list[Any] | None:
    """Return a message, or that of a chat completion, or of its choices."""
    if is_message(value):
        return [value]
    choices = value.get("choices") if type(value) is dict else value
    if type(choices) is list and len(choices) == 1 and type(choices[0]) is dict:
        return [choices[0]["message"]] if is_message(choices[0].get("message")) else None
    return None


def _answer(value: Any, column: str, reading: Reading) -> Any:
    answer = _completion(value, column, reading)
    if type(answer) is str:
        answer = _one_answer(_decoded(answer, column, reading)) or answer
    return UNFIT if not answer or (type(answer) is str and answer.isspace()) else answer


def _is_list(value: Any, kind: type) -> bool:
    return type(value) is list and {*map(type, value)} == {kind}


def _are_pairs(values: list[Any]) -> bool:
    return all(_is_list(pair, str) and len(pair) == 2 for pair in values)


def _texts(value: Any, column: str, reading: Reading) -> Any:
    value = _decoded(value, column, reading)
    if _is_list(value, str):
        return value if len(value) > 1 else UNFIT
    fits = _is_list(value, list) and _are_pairs(value) and all(text.strip() for pair in value for text in pair)
    return value if fits else UNFIT


def _history(value: Any, column: str, reading: Reading) -> Any:
    value = _decoded(value, column, reading)
    return value if type(value) is list and _are_pairs(value) else _turns(value, column, reading)


def _calls(value: Any, column: str, reading: Reading) -> Any:
    value = _decoded(value, column, reading)
    return value if _is_list(value, dict) and all("name" in call for call in value) else UNFIT


def _tools(value: Any, column: str, reading: Reading) -> Any:
    if type(value) is str and value.strip() in ("", "null"):
        return []
    tools = _decoded(value, column, reading)
    if type(tools) is not list or not all(
        type(tool) is dict or _decoded(tool, column, reading) is not tool for tool in tools
    ):
        return UNFIT
    return value  # which is decoded with a note of duplicate keys


def _system(value: Any, column: str, reading: Reading) -> Any:
    """Return a text, or blocks of text, as Anthropic and Gemini have them."""
    parts = _decoded(value, column, reading)
    if type(parts) is dict:
        parts = parts.get("parts")
    if _is_list(parts, dict) and all(type(part.get("text")) is str for part in parts):
        texts = [part["text"] for part in parts]
        return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
    return value if type(value) is str else UNFIT


def _reasoning(value: Any, column: str, reading: Reading) -> Any:
    fits = type(value) is str and value and not value.isspace() and value.lower() not in (*SWITCHES, *LEVELS)
    return value if fits else UNFIT


def _switch(value: Any, column: str, reading: Reading) -> Any:
    return value if type(value) is bool else SWITCHES.get(value.lower(), UNFIT) if type(value) is str else UNFIT


def _effort(value: Any, column: str, reading: Reading) -> Any:
    is_level = type(value) in (int, float) or (type(value) is str and value.lower() in LEVELS)
    return value if is_level else _switch(value, column, reading)


def _enabled(value: Any, column: str, reading: Reading) -> Any:
    if value in (0, 1):
        return bool(value)
    return False if type(value) is str and value.lower() == "none" else _effort(value, column, reading)


def _ids(value: Any, column: str, reading: Reading) -> Any:
    value = _decoded(value, column, reading)
    fits = _is_list(value, int) or (_is_list(value, list) and all(_is_list(ids, int) for ids in value))
    return value if fits else UNFIT


def _any(value: Any, column: str, reading: Reading) -> Any:
    decoded = value.tolist() if isinstance(value, np.ndarray) else _decoded(value, column, reading)
    return decoded if type(decoded) is list else value


TEXT = Kind("a text", lambda value, column, reading: value if type(value) is str else UNFIT)
QUESTION = Kind("a text", _question)
TURNS = Kind("a list of messages", _turns, r"\s*\[\s*(?:['\"]\s*)?\{\s*['\"]")
PROMPT = Kind("a text, or a list of messages", _prompt)
COMPLETION = Kind("a text, a message, or a list of messages", _completion)
ANSWER = Kind(COMPLETION.words, _answer)
OUTPUTS = Kind("a list of two texts", lambda value, *_: value if _is_list(value, str) and len(value) == 2 else UNFIT)
TEXTS = Kind("a list of texts, or of pairs of texts", _texts, r"\s*\[\s*(?:[\[(]\s*)?['\"]")
HISTORY = Kind("a list of [question, answer] pairs of texts, or of messages", _history, r"\s*\[\s*[\[({]\s*['\"]")
CALLS = Kind("a list of calls with a name", _calls, r"\s*\[\s*\{\s*['\"]")
TOOLS = Kind("a list of tools", _tools, r"\s*[\[{]")
SYSTEM = Kind("a text, or a list of text blocks", _system)
REASONING = Kind("a text", _reasoning)
SWITCH = Kind("true or false, on or off, yes or no", _switch)
EFFORT = Kind("true or false, on or off, yes or no, or a level such as low", _effort)
ENABLED = Kind(EFFORT.words, _enabled)
IDS = Kind("a list of token ids, or of such lists", _ids, r"\s*\w*[\[(][\s\[(]*-?\d")
TRANSCRIPT = Kind(
    "a text with a mark before each turn", lambda value, *_: value if type(value) is str and marks_in(value) else UNFIT
)
ANY = Kind("any value", _any)
PRESENT = Kind("any value", lambda *_: True)
MESSAGE = Kind("message", lambda value, *_: value if value == "message" else UNFIT)
