"""Segments: which message each piece of a text was printed for, and what of the message it is.

What the template prints itself within a turn belongs to a text next to it only if the two cannot be told otherwise: the
tags of reasoning, what is between two calls, what closes a turn. All else of it is of no known kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from transforms.chat.rendering.renderings import PrintedText, Rendering
from transforms.chat.rendering.tags import CLOSES, OPENS, Tag, tags_in
from transforms.chat.rendering.texts import Key, message_texts
from transforms.chat.spans.turn_search import Turn

Kind: TypeAlias = Literal["header", "reasoning", "content", "tool_calls", "end", "after_end"]
_KINDS: Mapping[str, Kind] = {"content": "content", "reasoning": "reasoning", "call": "tool_calls"}
_END_OF_REASONING = re.compile(rf"\s*(?:(?:{OPENS})\s*)?(?:{CLOSES})\s*")


class Segment(NamedTuple):
    """A piece of a text.

    Attributes:
        start, stop: its offsets in characters.
        message: the number of the message that it was printed for; None if it was printed for none.
        kind: what of the message it is: `content`, `reasoning` (with its tags), `tool_calls` (with what the template
            prints around them); in a message of the assistant also `header` (what the model is given before it
            answers), `end` (what ends the turn) and `after_end` (white space after that). None if it is unknown, or
            something else that the template prints.
    """

    start: int
    stop: int
    message: int | None
    kind: Kind | None


def segment_messages(rendering: Rendering, turns: Mapping[int, Turn]) -> list[Segment]:
    """Divide a rendering into segments.

    Args:
        rendering: the rendering.
        turns: those of the assistant.

    Returns:
        The segments, adjacent, and in the order of the text.
    """
    length = len(rendering.text)
    found: list[Segment] = [Segment(start, stop, message, None) for start, stop, message in rendering.pieces]
    texts = [one for one in _find_text_kinds(rendering) if one.start < one.stop]
    # What is printed again outside of its turn, such as the name of a function before its result, is not written there.
    inside = {(one.message, one.kind) for one in texts if _is_in(one, turns)}
    is_again = [not _is_in(one, turns) and (one.message, one.kind) in inside for one in texts]
    texts = [one._replace(kind=None) if again else one for one, again in zip(texts, is_again, strict=True)]
    for turn, (_, spans, end) in turns.items():
        own = [one for one in texts if one.message == turn]
        for start, stop in spans:
            is_last = end is not None and stop >= end[0]
            found += _between(rendering.text, turn, start, end[0] if end and is_last else stop, own, is_last)
    found += texts
    for turn, (header, spans, end) in turns.items():
        if header:
            found.append(Segment(*header, turn, "header"))
        if end:
            found += Segment(*end, turn, "end"), Segment(end[1], spans[-1][1], turn, "after_end")
    # The later ones are known better.
    numbers = np.full(length, -1, np.int32)  # of the segment that each character is of
    for number, (start, stop, _, _) in enumerate(found):
        numbers[start:stop] = number
    found.append(Segment(0, 0, None, None))  # number -1
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), length] if length else []
    result: list[Segment] = []
    for start, stop in pairwise(edges):
        one = found[numbers[start]]._replace(start=start, stop=stop)
        if result and result[-1][2:] == one[2:]:
            one = one._replace(start=result.pop().start)
        result.append(one)
    return result


def _is_in(text: Segment, turns: Mapping[int, Turn]) -> bool:
    """Whether a text of a turn is in it, if it is one of a turn."""
    if text.message is None or text.message not in turns:
        return True
    return any(text.start < stop and start < text.stop for start, stop in turns[text.message].spans)


def _find_text_kinds(rendering: Rendering) -> Iterator[Segment]:
    """The segments of the texts of messages. Where several texts were made into one, its kind is unknown."""
    contents: dict[Key, str] = {
        key: text
        for number, message in enumerate(rendering.messages)
        for key, text in (message_texts(number, message) if message.get("role") == "assistant" else ())
        if key[1] == "content" and _find_reasoning_tags(text)
    }
    for (start, stop), group in groupby(rendering.texts, lambda text: (text.start, text.stop)):
        texts: list[PrintedText] = [*group]
        owners = {(text.key[0], _KINDS.get(text.key[1])) for text in texts}
        message, kind = owners.pop() if len(owners) == 1 else (None, None)
        content = contents.get(texts[0].key)
        if kind != "content" or content is None:
            yield Segment(start, stop, message, kind)
        elif texts[0].is_copy and (first := _find_reasoning_end(content)) is not None:
            middle = min(max(start, start + first - texts[0].first), stop)
            yield Segment(start, middle, message, "reasoning")
            yield Segment(middle, stop, message, "content")
        else:
            yield Segment(start, stop, message, None)


def _find_reasoning_end(content: str) -> int | None:
    """Where the reasoning ends that a content begins with; None if the tags in it do not say that."""
    tags = _find_reasoning_tags(content)
    if tags[0].kind == "opens" and not content[: tags[0].start].strip():
        tags = tags[1:]
    if len(tags) != 1 or tags[0].kind == "opens":
        return None
    after = content[tags[0].stop :]
    return len(content) - len(after.lstrip())


def _find_reasoning_tags(content: str) -> list[Tag]:
    return [tag for tag in tags_in(content) if tag.kind != "answer"]


def _between(text: str, turn: int, start: int, stop: int, own: Sequence[Segment], is_last: bool) -> Iterator[Segment]:
    """The segments of what the template itself prints in a span of a turn.

    own: the texts of the turn. is_last: whether the end of the turn follows.
    """
    known: list[Segment | None] = [None, *(one for one in own if one.start < stop and start < one.stop), None]
    for before, after in pairwise(known):
        first, last = before.stop if before else start, after.start if after else stop
        if first < last and (before is None or before.kind):
            yield from _segment_template_text(text, turn, first, last, before and before.kind, after and after.kind)
            if is_last and after is None and before and before.kind == "tool_calls":
                yield Segment(first, last, turn, "tool_calls")


def _segment_template_text(
    text: str, turn: int, start: int, stop: int, before: Kind | None, after: Kind | None
) -> Iterator[Segment]:
    """The segments of what the template prints between two texts of known kinds; None if there is none."""
    if before == after and before:
        yield Segment(start, stop, turn, before)
        return
    closed = _END_OF_REASONING.match(text, start, stop) if before in (None, "reasoning") else None
    if closed:
        yield Segment(start, closed.end(), turn, "reasoning")
        start = closed.end()
    if after == "tool_calls" and (before != "reasoning" or closed):
        yield Segment(start, stop, turn, "tool_calls")
    elif after == "reasoning" and before is None and re.fullmatch(rf"\s*(?:{OPENS})\s*", text[start:stop]):
        yield Segment(start, stop, turn, "reasoning")
