"""Dialogues in one text, with a mark before each turn: `Human: ..`, `### Human: ..`, ChatML."""

from __future__ import annotations

import itertools
import re
from typing import Any, NamedTuple

from transforms.base.errors import RecordError


class Marks(NamedTuple):
    """The marks of a kind of texts.

    Attributes:
        name: of the kind.
        pattern: of a mark, with the speaker as its group.
        roles: of the speakers.
        end: of each turn, which is not a part of what is said; None if there is none.
    """

    name: str
    pattern: re.Pattern[str]
    roles: dict[str, str]
    end: str | None = None


# hh-rlhf and BELLE; a mark is at the start of a line.
LINES = Marks(
    "lines of Human and Assistant",
    re.compile(r"(?:\A\s*|\n)(Human|Assistant):[ \t]?"),
    {"Human": "user", "Assistant": "assistant"},
)
# openassistant-guanaco.
GUANACO = Marks(
    "### Human and ### Assistant",
    re.compile(r"(?:\A|\s*)### (Human|Assistant): ?"),
    {"Human": "user", "Assistant": "assistant"},
)
CHATML = Marks(
    "ChatML",
    re.compile(r"\s*<\|im_start\|>(system|user|assistant|tool)\n"),
    {role: role for role in ("system", "user", "assistant", "tool")},
    "<|im_end|>",
)
# What texts that may be dialogs begin with, and what follows somewhere in them.
BEGINNINGS = {"Human:": "\nAssistant:", "### Human:": "### Assistant:", "<|im_start|>": "<|im_start|>assistant\n"}
_SPEAKER = re.compile(r"\s*(?:###\s*)?(human|user|assistant|gpt|ai|bot|system)\s*[:：]", re.IGNORECASE)


def beginning_of(text: str) -> str | None:
    """Return which one of BEGINNINGS a text has, if it has what follows it, too; None if it is not a dialog."""
    start = text[:16].lstrip()
    if not start.startswith(("Human:", "### Human:", "<|im_start|>")):
        return None
    return next((begin for begin, then in BEGINNINGS.items() if start.startswith(begin[:9]) and then in text), None)


def speaker_of(text: str) -> str | None:
    """Return the mark of a speaker that a text begins with, None if there is none."""
    found = _SPEAKER.match(text)
    return found and found[0].strip()


def messages_in(text: str, marks: Marks, where: str) -> list[dict[str, Any]]:
    """Take a dialogue in one text apart.

    Args:
        text: begins with a mark.
        marks: of its turns.
        where: what has it, for errors.

    Returns:
        The messages. Users and the assistant speak in turn; an answer that is empty at the end is left out.

    Raises:
        RecordError: if it is not certain which turns there are: two of one speaker in a row, or an empty one.
    """
    found = [*marks.pattern.finditer(text)]
    if not found or found[0].start():
        raise RecordError("bad_message", f"{where} does not begin with a mark of {marks.name}")
    ends = [mark.start() for mark in found[1:]] + [len(text)]
    messages = [
        {"role": marks.roles[mark[1]], "content": _said(text[mark.end() : end], marks, where)}
        for mark, end in zip(found, ends, strict=True)
    ]
    if messages[-1]["role"] == "assistant" and not messages[-1]["content"]:
        messages.pop()
    roles = [message["role"] for message in messages if message["role"] != "system"]
    for i, (one, next_one) in enumerate(itertools.pairwise(roles)):
        if one == next_one != "tool":
            raise RecordError(
                "bad_message", f"{where} has two turns of the {one} in a row (turn {i + 2} of {marks.name})"
            )
    if not messages or any(not message["content"] for message in messages if message["role"] != "system"):
        raise RecordError("bad_message", f"{where} has an empty turn of {marks.name}")
    return messages


def _said(text: str, marks: Marks, where: str) -> str:
    if marks.end is None:
        return text.strip()
    said, end, rest = text.partition(marks.end)
    if rest.strip():
        raise RecordError("bad_message", f"{where} has text after {marks.end}")
    return said if end else said.rstrip("\n")
