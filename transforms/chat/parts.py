"""Parts of messages that are not trained on: where a chat template printed them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from transforms.chat.conventions import Template
from transforms.chat.message_map import unused_marks
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span


def untrained_parts(message: dict[str, Any]) -> list[int]:
    """Return the numbers of the parts of a message that are not trained on."""
    content = message.get("content")
    return [i for i, part in enumerate(content) if part.get("weight") == 0] if isinstance(content, list) else []


def spans_of_untrained_parts(
    template: Template, conversation: Conversation, text: str, turns: Collection[int]
) -> list[Span]:
    """Find where the parts of weight 0 were printed, by rendering the conversation with marks around them.

    Args:
        template: the chat template.
        conversation: the conversation.
        text: its rendered text.
        turns: the numbers of the messages whose parts are searched.

    Returns:
        The (start, stop) of each, ascending, with the white space around it that belongs to the part.

    Raises:
        RecordError: if the template prints another text with the marks.
    """
    marks = unused_marks(text)
    parts: list[str] = []
    messages = list(conversation.messages)
    for turn in turns:
        untrained = {i for i in untrained_parts(messages[turn]) if messages[turn]["content"][i]["text"].strip()}
        if not untrained:
            continue
        content = [dict(part) for part in messages[turn]["content"]]
        for i in sorted(untrained):
            whole = content[i]["text"]
            core = whole.strip()
            before, _, after = whole.partition(core)
            begin, end = f"{marks.open}{len(parts)}{marks.close}", f"{marks.open}{marks.close}"
            content[i]["text"] = f"{before}{begin}{core}{end}{after}"
            parts.append(whole)
        messages[turn] = {**messages[turn], "content": content}
    if not parts:
        return []
    pieces = re.split(f"{marks.open}([0-9]*){marks.close}", template.render(conversation, messages))
    if "".join(pieces[::2]) != text:
        raise _not_established("the template prints another text if the parts of a message are marked")
    spans: list[Span] = []
    start, part, offset = 0, None, len(pieces[0])
    for mark, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        if (part is None) != bool(mark):
            raise _not_established("the template prints a part of a message in pieces")
        if mark:
            start, part = offset, parts[int(mark)]
        elif part is not None:
            spans.append(_with_white_space(text, start, offset, part))
            part = None
        offset += len(piece)
    return spans


def _with_white_space(text: str, start: int, stop: int, part: str) -> Span:
    """A span with the white space around it that the part has and the template printed."""
    for character in reversed(part[: len(part) - len(part.lstrip())]):
        if not text.endswith(character, 0, start):
            break
        start -= 1
    for character in part[len(part.rstrip()) :]:
        if not text.startswith(character, stop):
            break
        stop += 1
    return start, stop


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


def _not_established(why: str) -> RecordError:
    return RecordError("spans_not_established", f"{why}, so it is unknown what of the text is trained on")
