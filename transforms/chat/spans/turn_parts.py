"""Parts of turns: which message each piece of a text was printed for, and what of the message it is.

What the template prints itself within a turn belongs to a text next to it only if the two cannot be told apart: the
tags of reasoning, what is between two calls, what closes a turn. All else of it is of no known kind.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from transforms.base.errors import RecordError
from transforms.chat.rendering.omissions import CLOSES, OPENS, tags_in
from transforms.chat.rendering.renderings import Key, Rendering
from transforms.chat.spans.turn_search import Turn
from transforms.model.examples import Span
from transforms.rows.parts import PARTS, part_code

Kind: TypeAlias = Literal["header", "reasoning", "content", "tool_calls", "end", "after_end"]
_KINDS: Mapping[str, Kind] = {"content": "content", "reasoning": "reasoning", "call": "tool_calls"}
_OPENING = re.compile(rf"\s*(?:{OPENS})\s*")
_END_OF_REASONING = re.compile(rf"\s*(?:(?:{OPENS})\s*)?(?:{CLOSES})\s*")
# How many characters of a text of an unknown part an error shows.
_SHOWN = 40


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


def split_by_part(
    rendering: Rendering, turns: Mapping[int, Turn], spans: Sequence[tuple[Span, int]]
) -> tuple[list[Span], list[int]]:
    """Divide the spans of turns into their parts.

    Args:
        rendering: of the conversation.
        turns: those that have spans, with their ends.
        spans: what is trained on, ascending and disjoint, each with its turn.

    Returns:
        The spans of all parts, ascending and disjoint, and the code of each, see `rows.parts`.

    Raises:
        RecordError: if it is not known which part some of it is.
    """
    segments = segment_messages(rendering, turns)
    stops = [segment.stop for segment in segments]
    parts: list[Span] = []
    codes: list[int] = []
    for (start, stop), turn in spans:
        for segment in segments[bisect.bisect_right(stops, start) :]:
            first, last = max(start, segment.start), min(stop, segment.stop)
            if first >= last:
                break
            code = part_code(_find_part(rendering, segment._replace(start=first, stop=last, message=turn)), turn)
            if parts and (parts[-1][1], codes[-1]) == (first, code):
                parts[-1] = parts[-1][0], last
            else:
                parts.append((first, last))
                codes.append(code)
    return parts, codes


def _find_part(rendering: Rendering, segment: Segment) -> str:
    """The part that a segment of a turn is. Raises RecordError if that is not known."""
    if segment.kind in PARTS:
        return segment.kind
    if not any(text.key[0] is not None for text in rendering.texts_between(segment.start, segment.stop)):
        return "template"
    shown = rendering.text[segment.start : segment.stop][:_SHOWN]
    raise RecordError(
        "parts_not_established",
        f"of messages[{segment.message}] it is unknown which part of the turn is {shown!r}; without train_parts "
        "and columns of parts the record is kept",
    )


def segment_messages(rendering: Rendering, turns: Mapping[int, Turn]) -> list[Segment]:
    """Divide a rendering into segments.

    Args:
        rendering: the rendering.
        turns: those of the assistant.

    Returns:
        The segments, adjacent, and in the order of the text.
    """
    texts = [text for text in _segment_texts(rendering) if text.start < text.stop]
    # What is printed again outside of its turn, such as the name of a function before its result, is not written there.
    inside = {text[2:] for text in texts if _is_in_turn(text, turns)}
    texts = [
        text._replace(kind=None) if text[2:] in inside and not _is_in_turn(text, turns) else text for text in texts
    ]
    # The later ones are known better.
    known = [Segment(start, stop, message, None) for start, stop, message in rendering.pieces]
    for turn, (_, spans, end, is_open) in turns.items():
        own = [text for text in texts if text.message == turn]
        last = end[0] if end else spans[-1][1]
        for start, stop in spans:
            is_last = stop >= last and (end is not None or is_open)
            known += _segment_between(rendering.text, turn, (start, min(stop, last)), own, is_last)
    known += texts
    for turn, (header, spans, end, _) in turns.items():
        if header:
            known.append(Segment(*header, turn, "header"))
        if end:
            known += Segment(*end, turn, "end"), Segment(end[1], spans[-1][1], turn, "after_end")
    return _join_segments(known, len(rendering.text))


def _join_segments(known: list[Segment], length: int) -> list[Segment]:
    """The segments of a text, each character of which is of the last one that has it."""
    numbers = np.full(length, -1, np.int32)  # of the segment that each character is of
    for number, (start, stop, _, _) in enumerate(known):
        numbers[start:stop] = number
    known = [*known, Segment(0, 0, None, None)]  # number -1
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), length] if length else []
    segments: list[Segment] = []
    for start, stop in pairwise(edges):
        segment = known[numbers[start]]._replace(start=start, stop=stop)
        if segments and segments[-1][2:] == segment[2:]:
            segment = segment._replace(start=segments.pop().start)
        segments.append(segment)
    return segments


def _is_in_turn(text: Segment, turns: Mapping[int, Turn]) -> bool:
    """Whether a text of a turn is in it, if it is one of a turn."""
    if text.message is None or text.message not in turns:
        return True
    return any(text.start < stop and start < text.stop for start, stop in turns[text.message].spans)


def _segment_texts(rendering: Rendering) -> Iterator[Segment]:
    """The segments of the texts of messages. Where several texts were made into one, its kind is unknown."""
    for (start, stop), group in groupby(rendering.texts, lambda text: (text.start, text.stop)):
        texts = [*group]
        owners = {(text.key[0], _KINDS.get(text.key[1])) for text in texts}
        message, kind = owners.pop() if len(owners) == 1 else (None, None)
        end = _find_reasoning_end(rendering, texts[0].key) if kind == "content" else 0
        if end == 0:
            yield Segment(start, stop, message, kind)
        elif end is None or not texts[0].is_copy:
            yield Segment(start, stop, message, None)
        else:
            middle = min(max(start, start + end - texts[0].first), stop)
            yield Segment(start, middle, message, "reasoning")
            yield Segment(middle, stop, message, "content")


def _find_reasoning_end(rendering: Rendering, key: Key) -> int | None:
    """Where the reasoning ends that a content begins with, 0 if it has none; None if the tags in it do not say that."""
    message = rendering.messages[key[0]]  # type: ignore[index]
    content = message["content"] if key[3] is None else message["content"][key[3]]["text"]
    tags = [tag for tag in tags_in(content) if tag.kind != "answer"] if message.get("role") == "assistant" else []
    if not tags:
        return 0
    if tags[0].kind == "opens" and not content[: tags[0].start].strip():
        tags = tags[1:]
    if len(tags) != 1 or tags[0].kind == "opens":
        return None
    return len(content) - len(content[tags[0].stop :].lstrip())


def _segment_between(text: str, turn: int, span: Span, own: Sequence[Segment], is_last: bool) -> Iterator[Segment]:
    """The segments of what the template itself prints in a span of a turn.

    own: the texts of the turn. is_last: whether the turn ends there.
    """
    within: list[Segment | None] = [None, *(one for one in own if one.start < span[1] and span[0] < one.stop), None]
    for before, after in pairwise(within):
        start, stop = before.stop if before else span[0], after.start if after else span[1]
        if start >= stop or (before and not before.kind):
            continue
        closes_calls = is_last and after is None and before and before.kind == "tool_calls"
        kind = before.kind if before else None
        if (before and after and kind == after.kind) or closes_calls:
            yield Segment(start, stop, turn, kind)
            continue
        closed = _END_OF_REASONING.match(text, start, stop) if kind in (None, "reasoning") else None
        if closed:
            yield Segment(start, closed.end(), turn, "reasoning")
            start = closed.end()
        if after and after.kind == "tool_calls" and (kind != "reasoning" or closed):
            yield Segment(start, stop, turn, "tool_calls")
        elif after and after.kind == "reasoning" and not before and _OPENING.fullmatch(text, start, stop):
            yield Segment(start, stop, turn, "reasoning")
