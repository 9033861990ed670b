"""Dialogs as lists of texts, of a user and the assistant in turn, and of pairs of texts.

Only names of dialogs have them: `turns` may be questions alone, as in MT-Bench, and `messages` those of one speaker.
"""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.records.reading import ROLE_NAMES
from transforms.records.samples import Sample
from transforms.records.shapes import Column, Shape, Values
from transforms.records.shapes.columns import SYSTEM, assistant, decoded, is_text, user
from transforms.records.turns.marked import speaker_of

_NAMES = ("conversation", "conversations", "dialog", "dialogs", "dialogue", "dialogues", "chat")


def _are_texts(value: Any) -> bool:
    turns = decoded(value)
    return isinstance(turns, list) and len(turns) > 1 and all(isinstance(turn, str) for turn in turns)


def _are_pairs(value: Any) -> bool:
    pairs = decoded(value)
    return (
        isinstance(pairs, list)
        and bool(pairs)
        and all(isinstance(pair, list) and len(pair) == 2 and all(map(is_text, pair)) for pair in pairs)
    )


def _in_turn(values: Values) -> dict[str, Any]:
    return _record(decoded(values["messages"]), values)


def _of_pairs(values: Values) -> dict[str, Any]:
    pairs = decoded(values["messages"])
    if all(role.lower() in ROLE_NAMES for role, _ in pairs):
        return {"messages": [{"role": role, "content": text} for role, text in pairs], **_system(values)}
    return _record([text for pair in pairs for text in pair], values)


def _record(texts: list[str], values: Values) -> dict[str, Any]:
    for i, text in enumerate(texts):
        if text.lstrip().startswith(("{", "[{")):
            raise RecordError("bad_message", f"text {i} looks like JSON; expected what is said")
        if speaker := speaker_of(text):
            found = f"text {i} begins with {speaker!r}, the name of a speaker"
            raise RecordError("bad_message", f"{found}; expected objects with role and content. Give a formatter")
        if not text.strip():
            raise RecordError("bad_message", f"text {i} is empty, so it is not certain who says the next one")
    return {"messages": [(user, assistant)[i % 2](text) for i, text in enumerate(texts)], **_system(values)}


def _system(values: Values) -> dict[str, Any]:
    return {"system": values["system"]} if "system" in values else {}


SHAPES = (
    Shape(
        "texts in turn",
        {"messages": Column(_NAMES, _are_texts)},
        _in_turn,
        "messages of a user and of the assistant in turn; the user begins",
        "a list of texts, under one of the names " + ", ".join(f"`{name}`" for name in _NAMES),
        Sample(
            {"conversations": ["What is 2+2?", "4"], "source": "stackexchange"},
            "GAIR/lima",
            "https://huggingface.co/datasets/GAIR/lima",
        ),
        optional={"system": SYSTEM},
    ),
    Shape(
        "pairs of texts",
        {"messages": Column(_NAMES, _are_pairs)},
        _of_pairs,
        "messages of a user and of the assistant in turn; of the role, if the first text of each pair is one",
        "a list of pairs of texts, `[question, answer]`, under one of these names",
        Sample(
            {"conversation": [["2+2?", "4"], ["3+3?", "6"]]},
            "chat histories of Gradio and of ms-swift",
            "https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html",
        ),
        optional={"system": SYSTEM},
    ),
)
