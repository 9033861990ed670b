"""Dialogs in one text, with a mark before each turn."""

from __future__ import annotations

from typing import Any

from transforms.records.samples import Sample
from transforms.records.shapes import Column, Shape
from transforms.records.turns.marked import CHATML, GUANACO, LINES, Marks, beginning_of, messages_in


def _begins(start: str) -> Column:
    names = ("text", "dialog", "dialogue", "conversation", "chat")
    return Column(names, lambda value: isinstance(value, str) and beginning_of(value) == start)


def _of_marks(marks: Marks) -> Any:
    return lambda values: {"messages": messages_in(values["text"], marks, "the text")}


SHAPES = (
    Shape(
        "text of ### Human",
        {"text": _begins("### Human:")},
        _of_marks(GUANACO),
        "a conversation",
        "a text that begins with `### Human:`",
        Sample(
            {"text": "### Human: 2+2?### Assistant: 4"},
            "timdettmers/openassistant-guanaco",
            "https://huggingface.co/datasets/timdettmers/openassistant-guanaco",
        ),
    ),
    Shape(
        "text of Human",
        {"text": _begins("Human:")},
        _of_marks(LINES),
        "a conversation",
        "a text that begins with `Human:`",
        Sample(
            {"text": "Human: 2+2?\n\nAssistant: 4"},
            "Dahoas/full-hh-rlhf and texts like it",
            "https://huggingface.co/datasets/Dahoas/full-hh-rlhf",
        ),
    ),
    Shape(
        "text of ChatML",
        {"text": _begins("<|im_start|>")},
        _of_marks(CHATML),
        "a conversation",
        "a text that begins with `<|im_start|>`",
        Sample(
            {"text": "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"},
            "texts that were rendered by a template of ChatML",
            "https://github.com/openai/openai-python/blob/release-v0.28.0/chatml.md",
        ),
    ),
)
