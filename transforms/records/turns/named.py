"""Turns whose keys have other names: who speaks and what is said, or a question and its answer in one object."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.builder import TurnBuilder
from transforms.records.json_text import json_type
from transforms.records.names import ANSWERS, QUESTIONS, REASONINGS, SYSTEMS, TREE_COLUMNS, plain_name
from transforms.records.reading import ROLE_NAMES

_ROLES = ("role", "from", "speaker", "author", "sender")
_TEXTS = ("content", "value", "text", "utterance", "message", "body")
# Those that messages and ShareGPT have, and other turns.
_NOT_FIELDS = (("role", "content"), ("from", "value"), ("role", "value"), ("from", "content"), None)
# Keys of turns of another form, and of messages of a tree.
_OTHER_KEYS = {"parts", *TREE_COLUMNS}
# Where nebius has the text of system messages.
_SYSTEM_TEXT = "system_prompt"
# Keys of an exchange that are written as columns are, and those that name who speaks.
_ASKS = {*QUESTIONS, *(name for name, role in ROLE_NAMES.items() if role == "user")}
_ANSWERS = {*ANSWERS, *(name for name, role in ROLE_NAMES.items() if role == "assistant")}
_EXCHANGE_KEYS = {"user": _ASKS, "assistant": _ANSWERS, "system": SYSTEMS, "reasoning": REASONINGS}


def are_fields(turns: list[Any]) -> bool:
    """Return whether each turn has who speaks and what is said under the same two names."""
    if _names(turns[0]) in _NOT_FIELDS:
        return False
    names = {_names(turn) for turn in turns}
    roles, texts = ({pair[which] for pair in names if pair} for which in (0, 1))
    return names.isdisjoint(_NOT_FIELDS) and len(roles) == 1 >= len(texts - {_SYSTEM_TEXT})


def add_fields(builder: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add such a turn."""
    role, text = _names(turn) or ("role", "content")
    rest = {key: value for key, value in turn.items() if key not in (role, text) and value not in (None, "")}
    builder.say({"role": turn[role], "content": turn[text], **rest})


def _names(turn: dict[str, Any]) -> tuple[str, str] | None:
    """The names of the two fields of a turn; None if there are not exactly two."""
    roles = [name for name in _ROLES if isinstance(turn.get(name), str)]
    if len(roles) != 1 or not turn.keys().isdisjoint(_OTHER_KEYS):
        return None
    names = _TEXTS if turn[roles[0]] != "system" or any(map(turn.get, _TEXTS)) else (_SYSTEM_TEXT,)
    texts = [name for name in names if isinstance(turn.get(name), str) and turn[name]]
    texts = texts or [name for name in _TEXTS if turn.get(name) == ""]
    return (roles[0], texts[0]) if len(texts) == 1 else None


def are_exchanges(turns: list[Any]) -> bool:
    """Return whether each turn has a question and an answer; the last one may have a question alone."""
    if not all(len(_named(turn, _ASKS)) == 1 for turn in turns):
        return False
    answers = [len(_named(turn, _ANSWERS)) for turn in turns]
    return answers[0] == 1 and {*answers[:-1]} <= {1} and answers[-1] <= 1


def add_exchange(builder: TurnBuilder, turn: dict[str, Any]) -> None:
    """Add such a turn. Raises RecordError if it has two of a kind, or an empty question."""
    named = {role: _named(turn, names) for role, names in _EXCHANGE_KEYS.items()}
    if several := next((keys for keys in named.values() if len(keys) > 1), None):
        raise RecordError("bad_message", f"{builder.where} has {' and '.join(several)}; expected one of them")
    texts = {role: turn[key] for role, keys in named.items() for key in keys}
    read = [key for keys in named.values() for key in keys]
    rest = {key: value for key, value in turn.items() if key not in read and value is not None}
    system = {"role": "system", "content": texts.get("system")}
    if system["content"] and system not in builder.messages[:1]:
        if builder.messages:
            raise RecordError("bad_message", f"{builder.where} has another system message than the turns before it")
        builder.say(system)
    if not texts["user"].strip():
        raise RecordError(
            "bad_message", f"{builder.where} has an empty {named['user'][0]}; expected what the user says"
        )
    if "assistant" in texts:
        builder.say({"role": "user", "content": texts["user"]})
        builder.begin(**{"content": texts["assistant"], **rest})
        builder.think(texts.get("reasoning", ""))
    elif other := next((key for key in rest if plain_name(key) in _ANSWERS), None):
        raise RecordError("bad_content", f"the {other} of {builder.where} is {json_type(rest[other])}, not a string")
    else:
        builder.say({"role": "user", "content": texts["user"], **rest})


def _named(turn: dict[str, Any], names: Collection[str]) -> list[str]:
    """The keys of a turn that have texts, and one of some names."""
    return [key for key, value in turn.items() if isinstance(value, str) and plain_name(key) in names]
