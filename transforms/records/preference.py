"""Preference data: the chosen one of two answers, and answers with a label that says that they are bad."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.reading import Reading

# Columns that say whether an answer is good: that of TRL, and that of LLaMA-Factory.
LABELS = ("label", "kto_tag")
_BOOLEANS = {"true": True, "false": False}
_CELLS = {**_BOOLEANS, "0": 0, "1": 1, "-1": -1}


def with_labels(record: dict[str, Any]) -> dict[str, Any]:
    """Decode the labels of a record of untyped cells: each becomes a boolean or a number."""
    labels = {name: str(record[name]).lower() for name in LABELS if name in record}
    decoded = {name: _CELLS[label] for name, label in labels.items() if label in _CELLS}
    return {**record, **decoded} if decoded else record


def is_undesirable(record: Mapping[str, Any], labels: Mapping[str, str], reading: Reading) -> bool:
    """Return whether a record's answer is labelled as bad: one of its labels is false, or the text "false".

    A number does not decide. If it is 0 or less it may mean the same, and so may any other value of `kto_tag`, which is
    never a class: the record has a note. labels: the columns that are LABELS, by these names.
    """
    for name, column in labels.items():
        label = record[column]
        label = _BOOLEANS.get(label.lower(), label) if isinstance(label, str) else label
        if label is False:
            return True
        is_low = isinstance(label, (int, float)) and label <= 0
        if is_low or (name == "kto_tag" and label is not True):
            reading.notes["label_not_understood"] = f"{name} is {label!r}; expected true or false"
    return False


def split_chosen(
    prompt: list[dict[str, Any]], chosen: list[dict[str, Any]], rejected: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    """Split the chosen conversation of a pair into prompt and completion.

    Args:
        prompt: the messages of the columns that say what is answered; none if only chosen and rejected have them.
        chosen: the messages of the chosen answer: the answer alone, or the conversation with it.
        rejected: those of the rejected answer.

    Returns:
        The messages of the whole conversation, and how many of them are the prompt. In conversations without a prompt
        of their own, it is what both begin with, as in TRL's extract_prompt.

    Raises:
        RecordError: if it is not certain what is prompt and what is answer.
    """
    answers = [number for number, message in enumerate(chosen) if message["role"] == "assistant"]
    if not answers:
        raise RecordError("bad_preference", "chosen has no message of the assistant")
    if answers[0] == 0:
        if not prompt:
            raise RecordError("bad_preference", "chosen is an answer alone, and the record has no prompt")
        if prompt[-len(chosen) :] == chosen:  # the conversation with its answer
            prompt = prompt[: -len(chosen)]
        return prompt + chosen, len(prompt)
    system, turns = _split_system(prompt)
    own_system, own_turns = _split_system(chosen)
    if (system and own_system not in ([], system)) or _compared(own_turns[: len(turns)]) != _compared(turns):
        raise RecordError("bad_preference", "chosen is a conversation that does not begin with the record's prompt")
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)))
    least = len(own_system) + len(turns) if turns else shared
    if not least:
        raise RecordError("bad_preference", "chosen and rejected begin differently, and the record has no prompt")
    # If the rejected conversation goes on where the chosen one ends, the answer is the last one.
    start = min(max(shared, least), answers[-1])
    return (system + chosen, start + 1) if system and not own_system else (chosen, start)


def _split_system(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    has_system = bool(messages) and messages[0]["role"] == "system"
    return messages[:has_system], messages[has_system:]


def _compared(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(message["role"], message.get("content"), message.get("tool_calls")) for message in messages]
