"""Which messages are trained on, as Axolotl, LLaMA-Factory, torchtune, Mistral and OpenAI mark them in the data."""

from __future__ import annotations

import functools
import json
import re
from contextlib import suppress
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.records.reading import Reading

# Which value of each key means that the message is trained on. Axolotl: train, training. verl: trainable. slime, verl:
# loss masks. XTuner: output_with_loss. torchtune: masked.
_TRAINED_IF = {
    **dict.fromkeys(
        ("train", "training", "trainable", "loss", "loss_mask", "step_loss_mask", "output_with_loss"), True
    ),
    "masked": False,
}
# OpenAI, Mistral: weight. LLaMA-Factory: loss_weight.
_FLAGS = {*_TRAINED_IF, "weight", "loss_weight"}
# Keys that no project reads as a flag, so that the usual messages are not searched.
_OTHER_KEYS = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "thinking", "type", "text"}
_LIKE_A_FLAG = re.compile(r"(?:^|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))(?i:un|no|non|not)?(?i:train|loss|mask|weight)")
# The characters of a JSON list that is looked into.
_LONGEST_LIST = 1000
_LIST = msgspec.json.Decoder(list[bool | int | float])
# The characters of a note to which no further key is added.
_LONGEST_NOTE = 400


def take_weight(
    item: dict[str, Any], where: str, reading: Reading, trainable: bool = True
) -> tuple[dict[str, Any], Any]:
    """Take the flags that say whether a message, or a part of one, is trained on.

    Keys that look like flags and are not known, known ones whose value is not understood, and those that say to train
    on what the model does not write are noted.

    Args:
        item: the message or the part.
        where: its position, for errors and notes.
        reading: the reading of the record.
        trainable: whether it is the model that writes it.

    Returns:
        It without the flags that were understood, and its weight: 1 if no flag says otherwise, or it is not trainable.

    Raises:
        RecordError: if a weight is not 0 or 1, or contradicts another flag.
    """
    ours = reading.options.train_field
    if item.keys() <= _OTHER_KEYS and ours not in item:
        return item, 1
    rest, weights = dict[str, Any](), dict[str, Any]()
    for key, value in item.items():
        if key in _FLAGS or key == ours:
            if value is None:
                continue
            if (weight := _read_flag(key, value, key == ours, where)) is not None:
                weights[key] = weight
                continue
            _note(reading, "train_flags_not_understood", where, key, value, "; expected true or false")
        elif key not in _OTHER_KEYS and value is not None and _is_like_a_flag(key):
            advice = f"; with train_field {key}, false and 0 are not trained on"
            _note(reading, "train_flags_not_understood", where, key, value, advice)
        rest[key] = value
    values = {weight for weight in weights.values() if weight is not True}  # which agrees with any that is not 0
    if len(values) > 1 or len({*map(bool, weights.values())}) > 1:
        flags = " and ".join(_show(key, value) for key, value in weights.items())
        raise RecordError("bad_weight", f"{where} contradicts itself: read as weights, it has {flags}")
    weight = next(iter(values), 1)
    if not trainable:
        if weights and weight:
            key = next(iter(weights))
            _note(reading, "train_flags_on_other_roles", where, key, item[key])
        return rest, 1
    if weight not in (0, 1):
        problem = f"{where} has the weight {str(weight)[:60]}; expected 0 or 1"
        raise RecordError("bad_weight", f"{problem}: a label is the token's id or -100, and trainers read no weights")
    return rest, int(weight)


def note_flag(name: str, value: Any, reading: Reading) -> None:
    """Note a column that is not read, and looks as if it said what is trained on: a number, a boolean, or a list.

    The list may be JSON, as in CSV.
    """
    if not _is_like_a_flag(name):
        return
    listed = _read_list(value) if isinstance(value, str) else value
    first = listed[0] if isinstance(listed, list) and listed else listed
    if isinstance(first, (bool, int, float)):
        advice = "; a formatter can say it in the messages"
        _note(reading, "train_flags_not_understood", "the record", name, value, advice)


def _read_list(text: str) -> list[bool | int | float] | None:
    """The numbers and booleans of a short JSON list; None if it is not one."""
    if text[:1] == "[" and len(text) <= _LONGEST_LIST:
        with suppress(msgspec.DecodeError, UnicodeError):
            return _LIST.decode(text)
    return None


def _read_flag(key: str, value: Any, is_ours: bool, where: str) -> Any:
    """The weight that a flag gives, which may be True or False; None if its value is not understood."""
    flag = {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(flag, (bool, int, float)):
        flag = None
    if key in _TRAINED_IF and flag in (0, 1):
        return flag == _TRAINED_IF[key]
    if key in _TRAINED_IF and not is_ours:
        return None
    if flag is None or not flag >= 0:  # not NaN either
        expected = "true, false, 0 or 1" if is_ours else "a number, 0 or 1"
        raise RecordError("bad_weight", f"{where} has {_show(key, value)}; expected {expected}")
    return flag


@functools.lru_cache(maxsize=1024)
def _is_like_a_flag(key: str) -> bool:
    return bool(_LIKE_A_FLAG.search(key))


def _note(reading: Reading, name: str, where: str, key: str, value: Any, advice: str = "") -> None:
    """Note the first key with what can be done, and other keys after it."""
    found, before = f"{where} has {_show(key, value)}", reading.notes.get(name)
    if before is None:
        reading.notes[name] = found + advice
    elif f'"{key}": ' not in before and len(before) < _LONGEST_NOTE:
        reading.notes[name] = f"{before}; {found}"


def _show(key: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f'"{key}": {text if len(text) <= 60 else text[:60] + "…"}'
