"""Tags of reasoning: what opens and closes reasoning in a content of the assistant."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

_NAME = "(?:(?:seed:|longcat_)?think|thinking|thought|reasoning)"
OPENS = rf"<{_NAME}>|\[THINK\]|◁think▷|<\|channel>thought|<\|(?:START_THINKING|inner_prefix|begin_of_thought)\|>"
CLOSES = rf"</{_NAME}>|\[/THINK\]|◁/think▷|<channel\|>|<\|(?:END_THINKING|inner_suffix|end_of_thought)\|>"
# What some models write around the answer after the reasoning.
_AROUND_ANSWER = r"</?answer>|<\|(?:begin|end)_of_solution\|>"
# Without named groups, so that `re` looks for the first characters of tags, which is five times faster.
_TAG = re.compile(f"{OPENS}|{CLOSES}|{_AROUND_ANSWER}")
_OPENING, _CLOSING = re.compile(OPENS), re.compile(CLOSES)
_LONGEST_TAG = len("<|begin_of_solution|>")


class Tag(NamedTuple):
    """A tag in a content, and the range of its characters there."""

    start: int
    stop: int
    kind: Literal["opens", "closes", "answer"]


def tags_in(text: str, start: int = 0, stop: int | None = None) -> list[Tag]:
    """Return the tags between two places in a content, in their order."""
    found = _TAG.finditer(text, start, len(text) if stop is None else stop)
    return [Tag(*tag.span(), _kind(tag[0])) for tag in found]


def may_complete_tag(text: str) -> bool:
    """Return whether a text has a tag of reasoning, or may end with the beginning of one."""
    if not _has_tag_beginning(text):  # as most, which is found in no time
        return False
    return _TAG.search(text) is not None or _has_tag_beginning(text[-_LONGEST_TAG:])


def is_whole_tag(literal: str) -> bool:
    """Return whether what may begin a tag of reasoning in a literal is one, whatever follows the literal."""
    return not _has_tag_beginning(_TAG.sub("", literal))


def _kind(tag: str) -> Literal["opens", "closes", "answer"]:
    return "opens" if _OPENING.match(tag) else "closes" if _CLOSING.match(tag) else "answer"


def _has_tag_beginning(text: str) -> bool:
    return "<" in text or "[" in text or "◁" in text
