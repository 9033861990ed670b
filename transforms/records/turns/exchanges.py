"""Turns whose keys say who speaks: a question and its answer in one object, or one object for each."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.builder import TurnBuilder
from transforms.records.json_text import kind_of
from transforms.records.names import ANSWERS, QUESTIONS, REASONINGS, SYSTEMS, plain_name
from transforms.records.reading import ROLE_NAMES
from transforms.records.turns import Messages, TurnForm

# Keys of an exchange that are written as columns are, and those that name who speaks.
_ASKS = {*QUESTIONS, *(name for name, role in ROLE_NAMES.items() if role == "user")}
_ANSWERS = {*ANSWERS, *(name for name, role in ROLE_NAMES.items() if role == "assistant")}


def _named(turn: Any, names: set[str] | tuple[str, ...]) -> list[str]:
    return [key for key in turn if plain_name(key) in names and isinstance(turn[key], str)]


def _are_exchanges(turns: list[Any]) -> bool:
    """Whether each turn has a question and an answer; the last one may have a question alone."""
    if not all(isinstance(turn, dict) and len(_named(turn, _ASKS)) == 1 for turn in turns):
        return False
    answers = [len(_named(turn, _ANSWERS)) for turn in turns]
    return answers[0] == 1 and all(count == 1 for count in answers[:-1]) and answers[-1] <= 1


def _exchanged(turns: list[Any], column: str) -> Messages:
    made = TurnBuilder(column)
    for made.at, turn in enumerate(turns):
        where = f"{column}[{made.at}]"
        keys = _keys(turn, where)
        said = {role: turn[key] for role, key in keys.items()}
        rest = {key: value for key, value in turn.items() if key not in keys.values() and value is not None}
        system = {"role": "system", "content": said.get("system")}
        if system["content"] and system not in made.messages[:1]:
            if made.messages:
                raise RecordError("bad_message", f"{where} has another system message than the turns before it")
            made.say(system)
        if not said["user"].strip():
            raise RecordError("bad_message", f"{where} has an empty {keys['user']}; expected what the user says")
        if "assistant" in said:
            made.say({"role": "user", "content": said["user"]})
            made.begin(made.at, **{"content": said["assistant"], **rest})
            made.think(said.get("reasoning", ""))
        elif other := next((key for key in rest if plain_name(key) in _ANSWERS), None):
            raise RecordError("bad_content", f"the {other} of {where} is {kind_of(rest[other])}, not a string")
        else:
            made.say({"role": "user", "content": said["user"], **rest})
    return Messages(made.messages)


def _keys(turn: dict[str, Any], where: str) -> dict[str, str]:
    """The keys of an exchange that have texts, by who says them. Raises RecordError if there are several."""
    found: dict[str, str] = {}
    for role, names in (("user", _ASKS), ("assistant", _ANSWERS), ("system", SYSTEMS), ("reasoning", REASONINGS)):
        keys = _named(turn, names)
        if len(keys) > 1:
            raise RecordError("bad_message", f"{where} has {' and '.join(keys)}; expected one of them")
        if keys:
            found[role] = keys[0]
    return found


FORMS = (TurnForm("exchanges", _are_exchanges, _exchanged),)
