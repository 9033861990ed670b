"""Turns: find what the model itself would write in each message of the assistant."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from transforms.chat.conventions import Conventions, Template, after, common_prefix
from transforms.chat.message_map import MessageMap
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span


def trained_turns(conversation: Conversation, last_only: bool = False) -> list[int]:
    """Return the numbers of the assistant's messages that are trained on.

    Args:
        conversation: the conversation. Messages of weight 0 are not trained on.
        last_only: whether only the last message of the assistant is trained on.
    """
    messages = conversation.messages
    wanted = [i for i, message in enumerate(messages) if message["role"] == "assistant" and message.get("weight") != 0]
    return [turn for turn in wanted if turn == assistant_turns(conversation)[-1]] if last_only else wanted


def assistant_turns(conversation: Conversation) -> list[int]:
    """Return the numbers of the assistant's messages."""
    return [number for number, message in enumerate(conversation.messages) if message["role"] == "assistant"]


def settings_of(conversation: Conversation) -> tuple[bool, str]:
    """Return what else a template reads of a conversation: it may print other text around the same messages."""
    arguments = conversation.template_kwargs
    return bool(conversation.tools), repr(sorted(arguments.items())) if arguments else ""


class TurnFinder:
    """Finds the spans of assistant turns under one chat template.

    Args:
        template: the chat template. What depends on the template alone is computed once.
    """

    def __init__(self, template: Template):
        self._template = template
        self._conventions: dict[Any, Conventions] = {}

    def assistant_spans(self, conversation: Conversation, last_only: bool = False) -> tuple[str, list[Span]]:
        """Find the spans of the assistant's turns.

        Args:
            conversation: the conversation. Turns of weight 0 have no span.
            last_only: whether only the last turn of the assistant has one.

        Returns:
            The text, and its spans, ascending and disjoint.

        Raises:
            RecordError: if the template refuses the conversation, or the spans cannot be established.
        """
        wanted = trained_turns(conversation, last_only)
        if not self._template.has_generation_markers(conversation):
            text = self._template.render(conversation)
            return text, merged(list(self._turns(conversation, text, wanted).values()))
        text, spans = self._template.render_with_markers(conversation)
        if wanted != assistant_turns(conversation):
            spans = [span for own in self._spans_by_turn(conversation, text, spans, wanted).values() for span in own]
        return text, merged(spans)

    def spans_of_turns(self, conversation: Conversation, turns: Sequence[int]) -> tuple[str, dict[int, list[Span]]]:
        """Find the spans of each of some turns.

        Args:
            conversation: the conversation.
            turns: the numbers of messages of the assistant.

        Returns:
            The text, and the spans of each of the turns that has any.

        Raises:
            RecordError: if the template refuses the conversation, or the spans cannot be established.
        """
        if self._template.has_generation_markers(conversation):
            text, spans = self._template.render_with_markers(conversation)
            return text, self._spans_by_turn(conversation, text, spans, turns)
        text = self._template.render(conversation)
        found = self._turns(conversation, text, turns)
        return text, {turn: [(start, stop)] for turn, (start, stop) in found.items() if start < stop}

    def _spans_by_turn(
        self, conversation: Conversation, text: str, spans: Sequence[Span], turns: Sequence[int]
    ) -> dict[int, list[Span]]:
        """Of the spans of generation blocks, those of each of the turns."""
        pieces = self._message_map(conversation, text).pieces_of_messages()
        by_turn: dict[int, list[Span]] = {}
        for span in spans:
            turn = _message_of(pieces, span)
            if turn is None or conversation.messages[turn]["role"] != "assistant":
                raise _not_established("a generation block of the template does not belong to one turn alone")
            if turn in turns and span[0] < span[1]:
                by_turn.setdefault(turn, []).append(span)
        return {turn: merged(own) for turn, own in by_turn.items()}

    def completion_span(self, conversation: Conversation) -> tuple[str, list[Span], str]:
        """Find the span of a completion.

        The prompt is rendered as at inference, with the generation prompt (as TRL's SFTTrainer does); the completion is
        all that follows it. If the template prints the prompt differently before an answer, the completion begins where
        its first turn begins.

        Args:
            conversation: a conversation with `completion_start`.

        Returns:
            The text, its one span, and the text of the prompt.

        Raises:
            RecordError: if the template refuses the conversation, or neither beginning is established.
        """
        text = self._template.render(conversation)
        first = conversation.completion_start or 0
        prompt = self._template.render(conversation, conversation.messages[:first], add_generation_prompt=True)
        if text.startswith(prompt):
            return text, [(len(prompt), len(text))], prompt
        spans = self._turns(conversation, text, [first]) if conversation.messages[first]["role"] == "assistant" else {}
        if first not in spans:
            raise RecordError(
                "prompt_not_a_prefix",
                "the rendered prompt is not a prefix of the rendered prompt and completion, and the completion does "
                "not begin with a message of the assistant, so it is unknown where it begins",
            )
        start = spans[first][0]
        return text, [(start, len(text))], text[:start]

    def _message_map(self, conversation: Conversation, text: str) -> MessageMap:
        """A map whose text is the text, with the contents marked if the template allows that."""
        found = self._template.map_messages(conversation, text, mark_contents=True)
        if found.text != text:
            # The template compares or splits contents, and marked contents are different to it.
            found = self._template.map_messages(conversation, text)
        if found.text != text:
            raise _not_established("the template prints the conversation differently with marks")
        return found

    def _turns(self, conversation: Conversation, text: str, turns: Sequence[int]) -> dict[int, Span]:
        """The span of each of the turns, without those for which the template prints nothing."""
        if not turns:
            return {}
        message_map = self._message_map(conversation, text)
        pieces = message_map.pieces_of_messages()
        conventions = self.conventions(conversation)
        end_of_messages = message_map.end_of_messages()
        spans: dict[int, Span] = {}
        for turn in turns:
            if turn not in pieces:
                continue
            if len(pieces[turn]) > 1:
                raise _not_established(f"the template prints messages[{turn}] in {len(pieces[turn])} places")
            start, stop = pieces[turn][0]
            content = message_map.contents.get(turn, (None, None))[0]
            if content is not None and not start <= content <= stop:
                raise _not_established(f"the template prints the content of messages[{turn}] in another turn")
            if turn:
                start = after(conventions.separator, text, start)
            answer = self._answer_start(conventions, conversation, text, turn, start, content, stop)
            spans[turn] = answer, len(text) if stop == end_of_messages else after(conventions.separator, text, stop)
        _check_contents(message_map, spans)
        return spans

    def _answer_start(
        self,
        conventions: Conventions,
        conversation: Conversation,
        text: str,
        turn: int,
        start: int,
        content: int | None,
        stop: int,
    ) -> int:
        """Where the header of a turn ends, which is where the generation prompt ends that the model is given.

        start, stop: what was printed for the turn. content: the offset of its content, None if that is unknown.
        """
        latest = stop if content is None else content
        before = conversation.messages[:turn]
        is_first = all(message["role"] in ("system", "developer") for message in before)
        usual = conventions.prompt_after("user")
        prompt = usual if is_first else conventions.prompt_after(before[-1]["role"])
        for header in (prompt, usual):
            # After a tool's answer, a template may print in history the header of a turn that it does not print at
            # inference. It is a header all the same, and no model is meant to write it.
            if turn and header and text.startswith(header, start, stop):
                return start + len(header)
        if turn and prompt == "" and content is not None and not text[start:content].strip():
            return start
        # What a server would have rendered for the messages before this turn.
        context = conventions.rendered(before, True, conversation)
        if context is not None and start <= len(context) <= latest and text.startswith(context):
            return len(context)
        header = conventions.header
        if header and prompt is not None:
            # Before the first turn, the template may print a system message of its own.
            found = text.rfind(header, start, latest) if is_first else text.find(header, start, start + len(header))
            if found >= 0:
                return found + common_prefix(prompt, text[found:stop], at_least=len(header))
        if content is not None and not text[start:content].strip():
            return start
        raise _not_established(f"the template prints no generation prompt before messages[{turn}]")

    def conventions(self, conversation: Conversation) -> Conventions:
        """Return the conventions of the template that renders a conversation."""
        key = self._template.source(conversation), settings_of(conversation)
        if key not in self._conventions:
            self._conventions[key] = Conventions(self._template, conversation)
        return self._conventions[key]


def _check_contents(message_map: MessageMap, spans: dict[int, Span]) -> None:
    """Raise RecordError if the content of one message was printed inside the answer to another."""
    ordered = sorted((start, stop, turn) for turn, (start, stop) in spans.items())
    starts = [start for start, _, _ in ordered]
    for message, offsets in message_map.contents.items():
        for offset in offsets:
            at = bisect.bisect_left(starts, offset) - 1 if offset is not None else -1
            if at >= 0 and offset is not None and offset < ordered[at][1] and ordered[at][2] != message:
                raise _not_established(f"the template prints the content of messages[{message}] in another turn")


def _message_of(pieces: dict[int, list[Span]], span: Span) -> int | None:
    """The message that a span was printed for, None if it was printed for none or for several."""
    return next((m for m, ends in pieces.items() if any(a <= span[0] and span[1] <= b for a, b in ends)), None)


def _not_established(why: str) -> RecordError:
    return RecordError("spans_not_established", f"{why}, so it is unknown what of the text is trained on")


def merged(spans: Sequence[Span]) -> list[Span]:
    """Sort spans and join those that touch or overlap (nested markers).

    Returns:
        The spans, ascending, disjoint and not empty.
    """
    result: list[Span] = []
    for start, stop in sorted(spans):
        if start == stop:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result
