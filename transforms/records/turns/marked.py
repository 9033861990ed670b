"""Dialogues in one text, with a mark before each turn: `Human: ..`, `### Human: ..`, ChatML."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple

from transforms.base.errors import RecordError


class Marks(NamedTuple):
    """The marks of a kind of texts."""

    name: str
    beginning: str  # what a text begins with
    answer: str  # what follows somewhere in it
    pattern: re.Pattern[str]  # of a mark, with the speaker as its group
    end: str = ""  # of each turn, which is not a part of what is said


# hh-rlhf and BELLE; a mark is at the start of a line.
LINES = Marks(
    *("lines of Human and Assistant", "Human:", "\nAssistant:"),
    re.compile(r"(?:\A\s*|\n)(Human|Assistant):[ \t]?"),
)
# openassistant-guanaco.
GUANACO = Marks(
    *("### Human and ### Assistant", "### Human:", "### Assistant:"),
    re.compile(r"(?:\A|\s*)### (Human|Assistant): ?"),
)
CHATML = Marks(
    *("ChatML", "<|im_start|>", "<|im_start|>assistant\n"),
    re.compile(r"\s*<\|im_start\|>(system|user|assistant|tool)\n"),
    "<|im_end|>",
)
_SPEAKER = re.compile(r"\s*(?:###\s*)?(human|user|assistant|gpt|ai|bot|system)\s*[:：]", re.IGNORECASE)


def marks_in(text: str) -> Marks | None:
    """Return the marks that a text begins with, if an answer has one, too; None if it is not a dialogue."""
    start = text[:16].lstrip()
    for marks in (LINES, GUANACO, CHATML):
        if start.startswith(marks.beginning) and marks.answer in text:
            return marks
    return None


def find_speaker(text: str) -> str | None:
    """Return the mark of a speaker that a text begins with, None if there is none."""
    mark = _SPEAKER.match(text)
    return mark and mark[0].strip()


def messages_in(text: str, marks: Marks, where: str) -> list[dict[str, Any]]:
    """Take a dialogue in one text apart. where: what has it, for errors.

    Returns:
        The messages. Users and the assistant speak in turn; an answer that is empty at the end is left out.

    Raises:
        RecordError: if it is not certain which turns there are: two of one speaker in a row, or an empty one.
    """
    before, *pieces = marks.pattern.split(text)
    if before or not pieces:
        raise RecordError("bad_message", f"{where} does not begin with a mark of {marks.name}")
    messages: list[dict[str, Any]] = []
    for speaker, content in zip(pieces[::2], pieces[1::2], strict=True):
        if marks.end:
            content, end, rest = content.partition(marks.end)
            if rest.strip():
                raise RecordError("bad_message", f"{where} has text after {marks.end}")
            content = content if end else content.rstrip("\n")
        role = {"Human": "user", "Assistant": "assistant"}.get(speaker, speaker)
        messages.append({"role": role, "content": content if marks.end else content.strip()})
    if messages[-1] == {"role": "assistant", "content": ""}:
        messages.pop()
    roles = [message["role"] for message in messages if message["role"] != "system"]
    for number, (role, next_role) in enumerate(pairwise(roles), 2):
        if role == next_role != "tool":
            problem = f"two turns of the {role} in a row (turn {number} of {marks.name})"
            raise RecordError("bad_message", f"{where} has {problem}")
    if not messages or not all(message["content"] for message in messages if message["role"] != "system"):
        raise RecordError("bad_message", f"{where} has an empty turn of {marks.name}")
    return messages
