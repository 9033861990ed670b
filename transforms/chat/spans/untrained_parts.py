"""Parts of messages that are not trained on: where a chat template printed them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transforms.base.errors import RecordError
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.rendering.texts import Key
from transforms.chat.spans.loss import untrained_parts
from transforms.model.examples import Span


def find_untrained_spans(rendering: Rendering, turns: Iterable[int]) -> list[Span]:
    """Find where the parts of weight 0 were printed.

    Args:
        rendering: of the conversation.
        turns: the numbers of the messages whose parts are searched.

    Returns:
        The (start, stop) of each, ascending, with the white space of the part.

    Raises:
        RecordError: if it is unknown which characters are a part.
    """
    parts: dict[Key, list[Span]] = {}
    for turn in turns:
        for key, span in _untrained(rendering, turn):
            parts.setdefault(key, []).append(span)
    spans: list[Span] = []
    for start, stop, key, first, last, is_copy in rendering.texts:
        for begin, end in parts.get(key, ()):
            begin, end = max(begin, first), min(end, last)
            if begin >= end:
                continue
            if not is_copy:
                why = "the template makes another text of a part of a message"
                raise RecordError(
                    "spans_not_established", f"{why}, so it is unknown which part of the text is trained on"
                )
            spans.append((start + begin - first, stop + end - last))
    return spans


def _untrained(rendering: Rendering, turn: int) -> Iterator[tuple[Key, Span]]:
    """The parts of weight 0 of a message that have more than white space: the text that has each of them, and where."""
    message, given = rendering.conversation.messages[turn], rendering.messages[turn].get("content")
    untrained = untrained_parts(message)
    at = 0
    for number, part in enumerate(message["content"] if untrained else ()):
        text = part["text"]
        if number in untrained and text.strip():
            is_joined = isinstance(given, str)  # of all parts, with a line break between each two
            start = at if is_joined else 0
            yield (turn, "content", "content", None if is_joined else number), (start, start + len(text))
        at += len(text) + 1


def subtracted(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return what of some spans is in none of the others, which are ascending."""
    result = []
    for start, stop in spans:
        for begin, end in others:
            if begin < stop and start < end:
                if start < begin:
                    result.append((start, begin))
                start = max(start, end)
        if start < stop:
            result.append((start, stop))
    return result
