"""Dialogues in one text, with a mark before each turn: `Human: ..`, `### Human: ..`, ChatML."""

from __future__ import annotations

import itertools
import re
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
    found = _SPEAKER.match(text)
    return found and found[0].strip()


def messages_in(text: str, marks: Marks, where: str) -> list[dict[str, Any]]:
    """Take a dialogue in one text apart. where: what has it, for errors.

    Returns:
        The messages. Users and the assistant speak in turn; an answer that is empty at the end is left out.

    Raises:
        RecordError: if it is not certain which turns there are: two of one speaker in a row, or an empty one.
    """
    found = [*marks.pattern.finditer(text)]
    if not found or found[0].start():
        raise RecordError("bad_message", f"{where} does not begin with a mark of {marks.name}")
    messages: list[dict[str, Any]] = []
    for mark, next_one in itertools.zip_longest(found, found[1:]):
        said = text[mark.end() : next_one.start() if next_one else None]
        if marks.end:
            said, end, rest = said.partition(marks.end)
            if rest.strip():
                raise RecordError("bad_message", f"{where} has text after {marks.end}")
            said = said if end else said.rstrip("\n")
        role = {"Human": "user", "Assistant": "assistant"}.get(mark[1], mark[1])
        messages.append({"role": role, "content": said if marks.end else said.strip()})
    if messages[-1] == {"role": "assistant", "content": ""}:
        messages.pop()
    turns = [message for message in messages if message["role"] != "system"]
    for i, (one, next_turn) in enumerate(itertools.pairwise(turns)):
        if one["role"] == next_turn["role"] != "tool":
            found_twice = f"two turns of the {one['role']} in a row (turn {i + 2} of {marks.name})"
            raise RecordError("bad_message", f"{where} has {found_twice}")
    if not messages or not all(turn["content"] for turn in turns):
        raise RecordError("bad_message", f"{where} has an empty turn of {marks.name}")
    return messages
