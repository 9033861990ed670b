"""The text of a conversation, with what of it is trained on."""

from __future__ import annotations

from transforms.chat.rendering.renderings import Rendering
from transforms.chat.spans.loss import has_weights, loss_of
from transforms.chat.spans.template_facts import Template
from transforms.chat.spans.turns import TurnFinder
from transforms.model.examples import Conversation, Example, Span, Text


def trained_text(
    example: Example, conversation: Conversation, loss_on: str, template: Template, turns: TurnFinder
) -> tuple[Text, Rendering]:
    """Render a conversation, and find what is trained on.

    Args:
        example: the example of the conversation.
        conversation: the conversation.
        loss_on: one of LOSSES.
        template: renders it.
        turns: finds turns in what that renders.

    Raises:
        RecordError: if the template refuses it, or it is unknown what is trained on.
    """
    resolved = loss_of(conversation, loss_on)
    rendering = template.rendering(conversation)
    text, weights = rendering.text, None
    if resolved == "all":
        spans: list[Span] = [(0, len(text))]
    elif resolved != "completion" and has_weights(conversation):
        spans, weights = turns.weighted_spans(rendering, resolved)
    else:
        spans = turns.trained_spans(rendering, resolved)
    prompt = text[: spans[0][0]] if resolved == "completion" else None
    return Text(example, text, spans, prompt=prompt, weights=weights), rendering
