"""Turns whose keys say who speaks: a question and its answer in one object, or one object for each."""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.json_text import kind_of
from transforms.records.names import ANSWERS, QUESTIONS, REASONINGS, SYSTEMS, plain_name
from transforms.records.reading import ROLE_NAMES
from transforms.records.turns import Messages, TurnForm

# Keys of an exchange that are written as columns are, and those that name who speaks.
_ASKS = {*QUESTIONS, *(name for name, role in ROLE_NAMES.items() if role == "user")}
_ANSWERS = {*ANSWERS, *(name for name, role in ROLE_NAMES.items() if role == "assistant")}
# XTuner's: whether the answer is trained on.
_TRAIN = "output_with_loss"


def _named(turn: Any, names: set[str] | tuple[str, ...]) -> list[str]:
    return [key for key in turn if plain_name(key) in names and isinstance(turn[key], str)]


def _are_exchanges(turns: list[Any]) -> bool:
    """Whether each turn has a question and an answer; the last one may have a question alone."""
    if not all(isinstance(turn, dict) and len(_named(turn, _ASKS)) == 1 for turn in turns):
        return False
    answers = [len(_named(turn, _ANSWERS)) for turn in turns]
    return answers[0] == 1 and all(count == 1 for count in answers[:-1]) and answers[-1] <= 1


def _exchanged(turns: list[Any], column: str) -> Messages:
    messages = list[Any]()
    for i, turn in enumerate(turns):
        taken = {}
        for role, names in (("user", _ASKS), ("assistant", _ANSWERS), ("system", SYSTEMS), ("reasoning", REASONINGS)):
            if keys := _named(turn, names):
                if len(keys) > 1:
                    raise RecordError("bad_message", f"{column}[{i}] has {' and '.join(keys)}; expected one of them")
                taken[role] = keys[0]
        if (system := turn.get(taken.get("system", ""))) and not (
            messages and messages[0] == _message("system", system)
        ):
            if messages:
                raise RecordError("bad_message", f"{column}[{i}] has another system message than the turns before it")
            messages.append(_message("system", system))
        if not turn[taken["user"]].strip():
            raise RecordError("bad_message", f"{column}[{i}] has an empty {taken['user']}; expected what the user says")
        messages.append(_message("user", turn[taken["user"]]))
        rest = {key: value for key, value in turn.items() if key not in taken.values() and value is not None}
        if "assistant" in taken:
            if reasoning := turn.get(taken.get("reasoning", "")):
                rest["reasoning_content"] = reasoning
            if _TRAIN in rest:
                rest["train"] = rest.pop(_TRAIN)
            messages.append(_message("assistant", turn[taken["assistant"]]) | rest)
        else:
            if other := next((key for key in rest if plain_name(key) in _ANSWERS), None):
                raise RecordError(
                    "bad_content", f"the {other} of {column}[{i}] is {kind_of(rest[other])}, not a string"
                )
            messages[-1] |= rest
    return Messages(messages)


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


FORMS = (TurnForm("exchanges", _are_exchanges, _exchanged),)
