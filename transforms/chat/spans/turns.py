"""Turns: what the model itself would write in each message of the assistant, which is what is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.chat.rendering.arguments import with_any_texts, with_read_arguments
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.spans.loss import (
    assistant_turns,
    has_untrained_parts,
    not_established,
    remove_untrained_parts,
    resolve_loss,
    trained_turns,
)
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.spans.template_facts import Template, TemplateFacts, find_settings
from transforms.chat.spans.turn_parts import split_by_part
from transforms.chat.spans.turn_search import Turn, TurnSearch, merged
from transforms.model.examples import Conversation, Example, Span, Text
from transforms.rows.parts import part_code

# Of the arguments of templates those for which it is kept what a template does: each record may have its own.
_MOST_FACTS = 64


class TurnFinder:
    """Finds what is trained on in the renderings of one chat template.

    Args:
        template: the chat template. What depends on the template alone is found once.
        rules: what else is known about turns.
        reference: finds the facts of the template, if the template is a faster form of another one.

    Attributes:
        rules: as given.
    """

    def __init__(self, template: Template, rules: TurnRules | None = None, reference: TurnFinder | None = None):
        self._template = template
        self.rules = rules or TurnRules()
        self._reference = reference
        self._facts: dict[Any, TemplateFacts] = {}

    def follows_blocks(self, conversation: Conversation) -> bool:
        """Return whether {% generation %} blocks decide what is trained on of a conversation."""
        return self._template.has_generation_blocks(conversation)

    def trains_on_headers(self, conversation: Conversation) -> bool:
        """Return whether headers are trained on, because the template ignores add_generation_prompt."""
        return not self.follows_blocks(conversation) and self.facts(conversation).ignores_prompt

    def trained_text(
        self, example: Example, conversation: Conversation, loss_on: str, with_parts: bool = False
    ) -> tuple[Text, Rendering]:
        """Render a conversation, and find what is trained on.

        Args:
            example: the example of the conversation.
            conversation: the conversation.
            loss_on: one of LOSSES.
            with_parts: whether the parts of turns are found.

        Raises:
            RecordError: if the template refuses it, or it is unknown what is trained on, or which part it is.
        """
        resolved = resolve_loss(conversation, loss_on)
        rendering = self._template.rendering(conversation)
        text, parts = rendering.text, None
        if resolved == "all":
            spans: list[Span] = [(0, len(text))]
        elif with_parts:
            if resolved == "completion":
                resolved = _find_completion_turns(conversation)
            spans, parts = self.spans_by_part(rendering, trained_turns(conversation, resolved))
        else:
            spans = self.trained_spans(rendering, resolved)
        prompt = text[: spans[0][0]] if resolved == "completion" else None
        return Text(example, text, spans, prompt=prompt, parts=parts), rendering

    def trained_spans(self, rendering: Rendering, loss_on: str = "assistant") -> list[Span]:
        """Find the spans that are trained on.

        Args:
            rendering: of the conversation. Turns of weight 0 have no span.
            loss_on: one of LOSSES but auto and all, or `completion_turns`.

        Returns:
            The spans, ascending and disjoint; one if the loss is on a completion.

        Raises:
            RecordError: if the spans cannot be established.
        """
        if loss_on == "completion":
            return [self._completion_span(rendering)]
        conversation = rendering.conversation
        wanted = trained_turns(conversation, loss_on)
        are_blocks = self.follows_blocks(conversation) and not (self.rules.named or self.rules.masks_after_end)
        if are_blocks and wanted == assistant_turns(conversation) and not has_untrained_parts(conversation, wanted):
            return merged(self._blocks(rendering))
        by_turn = self.find_turn_spans(rendering, wanted)
        return merged([span for spans in by_turn.values() for span in spans])

    def spans_by_part(self, rendering: Rendering, turns: Sequence[int]) -> tuple[list[Span], list[int]]:
        """Find the parts of some turns, none of weight 0, as `split_by_part` does. Args, Raises: as of `turns`."""
        by_turn = self.find_turn_spans(rendering, turns)
        spans = sorted((span, turn) for turn, own in by_turn.items() for span in own)
        return split_by_part(rendering, self.turns(rendering, turns), spans)

    def find_turn_spans(self, rendering: Rendering, turns: Sequence[int], whole: bool = False) -> dict[int, list[Span]]:
        """Find the spans of each of some turns that has any. Args, Raises: as of `turns`.

        whole: whether the spans include the parts that are not trained on.
        """
        if not turns and not self.follows_blocks(rendering.conversation):
            return {}
        find_turns = self.turns if self.rules.masks_after_end else self._turns
        by_turn = {number: turn.without_after_end() for number, turn in find_turns(rendering, turns).items()}
        is_all = whole or not has_untrained_parts(rendering.conversation, turns)
        return by_turn if is_all else remove_untrained_parts(rendering, by_turn)

    def turns(self, rendering: Rendering, turns: Sequence[int]) -> dict[int, Turn]:
        """Find turns of the assistant, with what the template prints after their ends.

        Args:
            rendering: of the conversation.
            turns: the numbers of its messages.

        Returns:
            Each of the turns that is printed at all.

        Raises:
            RecordError: if the turns cannot be established.
        """
        search, without_ends = self._search(rendering), self._turns(rendering, turns)
        return {number: search.with_end(number, turn) for number, turn in without_ends.items()}

    def after_ends(self, conversation: Conversation, loss_on: str, rendering: Rendering | None = None) -> list[int]:
        """Find the trained turns of which a text follows the end of a turn, without a header, and is not trained on.

        Args:
            conversation: the conversation.
            loss_on: one of LOSSES but auto, or `completion_turns`.
            rendering: its rendering, if there is one.
        """
        if loss_on in ("all", "completion") or self.follows_blocks(conversation):
            return []
        messages = conversation.messages
        numbers = [
            number
            for number in trained_turns(conversation, loss_on)
            if messages[number].get("tool_calls") or (number and messages[number - 1]["role"] != "user")
        ]
        if not numbers:  # as most, which need not be rendered
            return []
        return self._search(rendering or self._template.rendering(conversation)).after_ends(numbers)

    def with_end(self, text: Text, conversation: Conversation, turns: Sequence[int]) -> Text:
        """Return a text with the end of its last turn, if that is to be appended, see `TemplateFacts.appended`.

        Args:
            text: the text.
            conversation: of which it is.
            turns: the numbers of the messages that are trained on.
        """
        last, length = conversation.count - 1, len(text.text)
        if not self.rules.appended or last not in turns or not text.spans or text.spans[-1][1] != length:
            return text
        calls = bool(conversation.messages[last].get("tool_calls"))
        whole = text.text + self.facts(conversation).appended.get(calls, "")
        if len(whole) == length:
            return text
        spans, parts = [*text.spans, (length, len(whole))], text.parts and [*text.parts, part_code("end", last)]
        return msgspec.structs.replace(text, text=whole, spans=spans if parts else merged(spans), parts=parts)

    def facts(self, conversation: Conversation) -> TemplateFacts:
        """Return what the template that renders a conversation does for any, found with dialogues of our own."""
        if self._reference is not None:
            return self._reference.facts(conversation)
        if conversation.template_kwargs:
            source = self._template.source(conversation)
            conversation = with_read_arguments(conversation, source)
            stop_tokens = self.rules.stop_tokens
            with_any = with_any_texts(
                conversation, source, lambda text: not any(token in text for token in stop_tokens)
            )
            if with_any is not conversation and not (facts := self._known_facts(with_any)).have_any_text:
                return facts
        return self._known_facts(conversation)

    def _known_facts(self, conversation: Conversation) -> TemplateFacts:
        key = find_settings(conversation)
        if key not in self._facts:
            if len(self._facts) == _MOST_FACTS:
                del self._facts[next(iter(self._facts))]
            self._facts[key] = TemplateFacts(self._template, conversation, self._turns, self.rules)
        return self._facts[key]

    def _turns(self, rendering: Rendering, turns: Sequence[int]) -> dict[int, Turn]:
        """Turns without their ends."""
        if self.follows_blocks(rendering.conversation):
            return self._search(rendering).find_block_turns(self._blocks(rendering), turns)
        return self._search(rendering).turns(turns)

    def _search(self, rendering: Rendering) -> TurnSearch:
        return TurnSearch(rendering, self._template, self.facts(rendering.conversation), self.rules)

    def _blocks(self, rendering: Rendering) -> list[Span]:
        """The generation blocks of a rendering."""
        text, blocks = self._template.generation_blocks(rendering.conversation)
        if text != rendering.text:
            raise not_established("the template prints the conversation differently while its blocks are recorded")
        return blocks

    def _completion_span(self, rendering: Rendering) -> Span:
        """The span of a completion. Raises RecordError if its beginning cannot be established.

        The prompt is rendered as at inference, with the generation prompt (as TRL's SFTTrainer does); the completion is
        all that follows it. If the template prints the prompt differently before an answer, the completion begins where
        its first turn begins.
        """
        conversation, text, search = rendering.conversation, rendering.text, self._search(rendering)
        first = conversation.completion_start or 0
        prompt = self._template.render(conversation.with_messages(conversation.messages[:first]), True)
        start = len(prompt)
        if not text.startswith(prompt) or not search.divides(start, first):
            is_answer = conversation.messages[first]["role"] == "assistant"
            turns = search.turns([first]) if is_answer else {}
            start = turns[first].spans[0][0] if first in turns else 0
            if first not in turns or not search.divides(start, first):
                raise RecordError(
                    "prompt_not_a_prefix",
                    "the rendered prompt is not a prefix of the rendered prompt and completion, and the completion "
                    "does not begin with a message of the assistant, so it is unknown where it begins",
                )
        span, last = (start, len(text)), len(conversation.messages) - 1
        if self.rules.masks_after_end and conversation.messages[last]["role"] == "assistant":
            (span,) = Turn(None, [span], search.end(last, span)).without_after_end()
        return span


def _find_completion_turns(conversation: Conversation) -> str:
    """The loss on the turns of a completion, whose parts are known, if it trains on the same. Raises RecordError."""
    completion = conversation.messages[conversation.completion_start or 0 :]
    if [message["role"] for message in completion] != ["assistant"]:
        trained = "loss_on completion trains on all of a completion of several messages, which has no parts"
        raise RecordError("loss_not_applicable", f"{trained}: give auto, or neither choose nor write parts")
    return "completion_turns"
