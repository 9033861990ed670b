"""Spans: the characters of a rendered conversation that the model itself would produce.

{% generation %} markers decide where a template has them. Where it has none, a turn is what the rendering of the
messages up to and with it adds to the rendering of those before it with the generation prompt; both must be a prefix
of the whole text, or the spans are not established and the record is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from transforms.errors import RecordError
from transforms.examples import Conversation, Span
from transforms.templates import ChatTemplate


def assistant_spans(template: ChatTemplate, conversation: Conversation, last_only: bool) -> tuple[str, list[Span]]:
    """The text of a conversation, and the spans of its assistant turns, or of the last one.

    Turns with weight 0 have none. Raises RecordError where the spans cannot be established.
    """
    turns = [i for i, message in enumerate(conversation.messages) if message["role"] == "assistant"]
    wanted = [conversation.messages[i].get("weight") != 0 for i in turns]
    if last_only:
        wanted = [is_wanted and i == turns[-1] for i, is_wanted in zip(turns, wanted, strict=True)]
    if template.has_generation_markers(conversation):
        text, spans = template.render_with_markers(conversation)
        if all(wanted):
            return text, merged(spans)
        if len(spans) != len(turns) or any(b[0] < a[1] for a, b in pairwise(spans)):
            raise RecordError(
                "turns_not_established",
                f"the template marks {len(spans)} generation blocks for {len(turns)} assistant turns, so it is not "
                "known which block belongs to which turn, and not all turns are trained on",
            )
    else:
        text = template.render(conversation)
        spans = [
            _turn_span(template, conversation, text, i) if w else (0, 0) for i, w in zip(turns, wanted, strict=True)
        ]
    return text, merged([span for span, is_wanted in zip(spans, wanted, strict=True) if is_wanted])


def completion_span(template: ChatTemplate, conversation: Conversation) -> tuple[str, list[Span], str]:
    """The text of a prompt and completion, the span of the completion, and the text of the prompt.

    The prompt is rendered as at inference, with the generation prompt (as TRL's SFTTrainer does); all that follows it
    is the completion. Raises RecordError where the text does not begin with it.
    """
    text = template.render(conversation)
    prompt = template.render(
        conversation, conversation.messages[: conversation.completion_start], add_generation_prompt=True
    )
    if not text.startswith(prompt):
        raise RecordError(
            "prompt_not_a_prefix",
            "the rendering of the prompt is no prefix of that of prompt and completion, so it is not known where the "
            "completion begins",
        )
    return text, [(len(prompt), len(text))], prompt


def _turn_span(template: ChatTemplate, conversation: Conversation, text: str, turn: int) -> Span:
    before = template.render(conversation, conversation.messages[:turn], add_generation_prompt=True)
    upto = template.render(conversation, conversation.messages[: turn + 1])
    if not (text.startswith(before) and text.startswith(upto) and len(before) <= len(upto)):
        raise RecordError(
            "spans_not_established",
            f"what the template prints up to messages[{turn}] is no prefix of the whole conversation, so it is not "
            "known where that turn begins and ends. Add {% generation %} markers to the template",
        )
    return len(before), len(upto)


def merged(spans: Sequence[Span]) -> list[Span]:
    """The spans in ascending order, without empty ones, those that touch or overlap (nested markers) made one."""
    result: list[Span] = []
    for start, stop in sorted(spans):
        if start == stop:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result
