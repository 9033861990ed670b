"""Which messages are trained on, as Axolotl, LLaMA-Factory, torchtune, Mistral and OpenAI mark them in the data."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.reading import Reading

# Axolotl: train, training. verl: trainable. slime, verl: loss masks. XTuner: output_with_loss. torchtune: masked. Which
# value of each means that the message is trained on.
_WHETHER = {
    **dict.fromkeys(
        ("train", "training", "trainable", "loss", "loss_mask", "step_loss_mask", "output_with_loss"), True
    ),
    "masked": False,
}
# OpenAI, Mistral: weight. LLaMA-Factory: loss_weight.
_HOW_MUCH = ("weight", "loss_weight")
# Keys that no project reads as a flag, so that the usual messages are not searched.
_OTHERS = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "thinking", "type", "text"}
_LIKE_A_FLAG = re.compile(r"(?:^|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:un|no|non|not)?(?i:train|loss|mask|weight)")


def take_weight(
    item: dict[str, Any], where: str, reading: Reading, trainable: bool = True
) -> tuple[dict[str, Any], Any]:
    """Take the flags that say whether a message, or a part of one, is trained on.

    Args:
        item: the message or the part.
        where: its position, for errors and notes.
        reading: the reading of the record. Notes are made of keys that look like flags and are not known, of known
            flags whose value is not understood, and of flags that say to train on what the model does not write.
        trainable: whether it is the model that writes it.

    Returns:
        It without the flags that were understood, and its weight: 1 if no flag says otherwise, or it is not trainable.

    Raises:
        RecordError: if a weight is not 0 or 1, or contradicts another flag.
    """
    if item.keys() <= _OTHERS and reading.options.train_field not in item:
        return item, 1
    rest: dict[str, Any] = {}
    weights: dict[str, Any] = {}  # a flag without a weight has True or False
    for key, value in item.items():
        if key in _OTHERS and key != reading.options.train_field:
            rest[key] = value
            continue
        found = _found(key, value, where, reading)
        if found is _NO_FLAG:
            rest[key] = value
        elif found is not None:
            weights[key] = found
    weight = _agreed(weights, where)
    if not trainable:
        if weights and weight:
            key = next(iter(weights))
            _note(reading, "train_flags_on_other_roles", where, key, item[key])
        return rest, 1
    if weight not in (0, 1):
        raise RecordError(
            "bad_weight",
            f"{where} has the weight {_short(weight)}; expected 0 or 1: a label is the token's id or -100, and "
            "trainers read no weights",
        )
    return rest, weight


def note_flags(columns: Iterable[tuple[str, Any]], reading: Reading) -> None:
    """Note a column that is not read and looks as if it said what is trained on: a number, a boolean, or a list.

    Args:
        columns: of a record, with their values. Texts are counted as what is not read.
        reading: the reading of the record.
    """
    for name, value in columns:
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, (bool, int, float)) and is_like_a_flag(name):
            advice = "a formatter can say it in the messages"
            _note(reading, "train_flags_not_understood", "the record", name, value, advice)


_NO_FLAG = object()


def _found(key: str, value: Any, where: str, reading: Reading) -> Any:
    """What a key says: a weight, True or False; None if it is a flag that is null; _NO_FLAG if it says nothing."""
    named = key == reading.options.train_field
    if not (named or key in _WHETHER or key in _HOW_MUCH):
        if value is not None and is_like_a_flag(key):
            advice = f"with train_field {key}, false and 0 are not trained on"
            _note(reading, "train_flags_not_understood", where, key, value, advice)
        return _NO_FLAG
    if value is None:
        return None
    flag = _boolean(value)
    if key in _WHETHER:
        if flag is not None:
            return flag == _WHETHER[key]
        if not named:
            _note(reading, "train_flags_not_understood", where, key, value, "expected true or false")
            return _NO_FLAG
    elif flag is not None and not _is_number(value):
        return flag
    if not _is_number(value) or not value >= 0:  # not NaN either
        expected = "true, false, 0 or 1" if named else "a number, 0 or 1"
        raise RecordError("bad_weight", f"{where} has {_shown(key, value)}; expected {expected}")
    return value


def _agreed(weights: dict[str, Any], where: str) -> Any:
    """The weight that all flags agree on."""
    if len(weights) < 2:
        weight = next(iter(weights.values()), 1)
        return int(weight) if weight in (0, 1) else weight
    numbers = [value for value in weights.values() if _is_number(value)]
    whether = {bool(value) for value in weights.values()}
    if len(whether) > 1 or any(number != numbers[0] for number in numbers):
        found = " and ".join(_shown(key, value) for key, value in weights.items())
        raise RecordError("bad_weight", f"{where} contradicts itself: read as weights, it has {found}")
    weight = numbers[0] if numbers else all(whether)
    return int(weight) if weight in (0, 1) else weight


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@functools.lru_cache(maxsize=1024)
def is_like_a_flag(key: str) -> bool:
    """Return whether the name of a key or a column looks as if it said what is trained on."""
    return bool(_LIKE_A_FLAG.search(key))


def _note(reading: Reading, name: str, where: str, key: str, value: Any, advice: str = "") -> None:
    reading.notes.setdefault(name, "; ".join(filter(None, (f"{where} has {_shown(key, value)}", advice))))


def _shown(key: str, value: Any) -> str:
    return f'"{key}": {_short(value)}'


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:60] + "…"
