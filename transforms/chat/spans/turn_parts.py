"""Parts of turns: which of what the model writes is reasoning, content and so on."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transforms.base.errors import RecordError
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.spans.message_segments import Segment, segment_messages
from transforms.chat.spans.turn_search import Turn
from transforms.model.examples import Span
from transforms.rows.parts import PARTS, part_code

# How many characters of a text of an unknown part an error shows.
_SHOWN = 40


class PartedSpans(NamedTuple):
    """The parts of turns.

    Attributes:
        spans: those of all parts, ascending and disjoint.
        parts: the code of each, see `rows.parts`; None if that is not asked for.
    """

    spans: list[Span]
    parts: list[int] | None


def parted(
    rendering: Rendering,
    turns: Mapping[int, Turn],
    spans: Sequence[tuple[Span, int]],
) -> PartedSpans:
    """Divide the spans of turns into their parts.

    Args:
        rendering: of the conversation.
        turns: those that have spans, with their ends.
        spans: what is trained on, ascending and disjoint, each with its turn.

    Raises:
        RecordError: if it is not known which part some of it is.
    """
    segments = segment_messages(rendering, turns)
    stops = [one.stop for one in segments]
    found: list[tuple[Span, int]] = []
    for (start, stop), turn in spans:
        for segment in segments[bisect.bisect_right(stops, start) :]:
            first, last = max(start, segment.start), min(stop, segment.stop)
            if first >= last:
                break
            part = _find_part(rendering, segment._replace(start=first, stop=last, message=turn))
            code = part_code(part, turn)
            if found and (found[-1][0][1], found[-1][1]) == (first, code):
                first = found.pop()[0][0]
            found.append(((first, last), code))
    return PartedSpans([span for span, _ in found], [code for _, code in found])


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
