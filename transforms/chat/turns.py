"""Turns: find what the model itself would write in each message of the assistant."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from transforms.chat.conventions import (
    DIALOGUE,
    FIRST,
    SECOND,
    TOOL,
    TWO_CALLS,
    Conventions,
    Template,
    after,
    common_prefix,
    followers,
    rendered,
)
from transforms.chat.message_map import MessageMap, PrintedText
from transforms.chat.omissions import Key
from transforms.chat.parts import spans_of_untrained_parts, subtracted, untrained_parts
from transforms.chat.stop_tokens import TurnRules
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span

# A kind of turn: whether it calls tools, and the role of the message after it; None at the end of the text.
Ending: TypeAlias = tuple[bool, str | None]
# The roles of messages before the first one that is answered.
_INSTRUCTIONS = ("system", "developer")
_KINDS = {"call": "tool call"}


def loss_of(conversation: Conversation, loss_on: str) -> str:
    """Resolve what is trained on of a conversation.

    Args:
        conversation: the conversation.
        loss_on: one of LOSSES.

    Returns:
        One of LOSSES but auto; or `completion_turns`: the assistant's messages of the completion, if one of these has a
        weight, or a part that is not to be trained on. With auto also if the completion has other messages.

    Raises:
        RecordError: if the loss is on a completion and there is none, or on everything and a message has a weight.
    """
    if loss_on == "all":
        if (weighted := _weighted(conversation)) is not None:
            how = f"loss_on all trains on everything, but messages[{weighted}] or a part of it has a weight: give auto"
            raise RecordError("loss_not_applicable", how)
        return loss_on
    if loss_on not in ("auto", "completion"):
        return loss_on
    first = conversation.completion_start
    if first is None:
        if loss_on == "completion":
            raise RecordError("loss_not_applicable", "loss_on completion asks for what messages do not have")
        return "assistant"
    if _weighted(conversation, first) is not None:
        return "completion_turns"
    if loss_on == "completion":
        return loss_on
    is_answer = first == len(conversation.messages) - 1 and conversation.messages[first]["role"] == "assistant"
    return "completion" if is_answer else "completion_turns"


def _weighted(conversation: Conversation, first: int = 0) -> int | None:
    """The number of the first of the assistant's messages that has another weight than 1, or such a part."""
    if conversation.plain:
        return None
    for number, message in enumerate(conversation.messages[first:], first):
        if message["role"] == "assistant" and (message.get("weight", 1) != 1 or untrained_parts(message)):
            return number
    return None


def _has_untrained_parts(conversation: Conversation, turns: Sequence[int]) -> bool:
    messages = conversation.messages
    return any(isinstance(messages[turn].get("content"), list) and untrained_parts(messages[turn]) for turn in turns)


def trained_turns(conversation: Conversation, loss_on: str = "assistant") -> list[int]:
    """Return the numbers of the assistant's messages that are trained on.

    Args:
        conversation: the conversation. Messages of weight 0 are not trained on.
        loss_on: `assistant`, all of them; `last_assistant`, the last one; `completion` and `completion_turns`, those of
            the completion.
    """
    messages = conversation.messages
    first = conversation.completion_start or 0 if loss_on in ("completion", "completion_turns") else 0
    turns = [turn for turn in assistant_turns(conversation) if turn >= first]
    if loss_on == "last_assistant":
        turns = turns[-1:]
    return [turn for turn in turns if messages[turn].get("weight") != 0]


def has_weights(conversation: Conversation) -> bool:
    """Return whether a message has another weight than 0 and 1."""
    return any("weight" in message and message["weight"] not in (0, 1) for message in conversation.messages)


def assistant_turns(conversation: Conversation) -> list[int]:
    """Return the numbers of the assistant's messages."""
    return [number for number, message in enumerate(conversation.messages) if message["role"] == "assistant"]


def ending_of(conversation: Conversation, turn: int) -> Ending:
    """Return the kind of a turn. Before a role that is not one of `followers`, templates close it as before a user."""
    after = conversation.messages[turn + 1 : turn + 2]
    follower = after[0]["role"] if after else None
    return bool(conversation.messages[turn].get("tool_calls")), "user" if follower not in followers() else follower


def settings_of(conversation: Conversation) -> tuple[bool, str]:
    """Return what else a template reads of a conversation: it may print other text around the same messages."""
    arguments = conversation.template_kwargs
    return bool(conversation.tools), repr(sorted(arguments.items())) if arguments else ""


class Turn(NamedTuple):
    """Where a text has a turn of the assistant.

    Attributes:
        header: what the model is given before it answers; None if it is unknown.
        spans: what the model writes, ascending and disjoint.
        end: what ends the turn; white space may follow it in the last span. None if that is unknown.
    """

    header: Span | None
    spans: list[Span]
    end: Span | None = None


class TurnFinder:
    """Finds the spans of assistant turns under one chat template.

    Args:
        template: the chat template. What depends on the template alone is computed once.
        rules: what else is known about turns.
        reference: finds the conventions of the template, if the template is a faster form of another one.
    """

    def __init__(self, template: Template, rules: TurnRules | None = None, reference: TurnFinder | None = None):
        self._template = template
        self._rules = rules or TurnRules()
        self._reference = reference
        self._conventions: dict[Any, Conventions] = {}
        self._closings: dict[Any, Mapping[Ending, str | None]] = {}

    def follows_markers(self, conversation: Conversation) -> bool:
        """Return whether {% generation %} markers decide what is trained on of a conversation."""
        return not self._rules.traced and self._template.has_generation_markers(conversation)

    def trained_spans(self, conversation: Conversation, loss_on: str) -> tuple[str, list[Span]]:
        """Find the spans that are trained on.

        Args:
            conversation: the conversation.
            loss_on: one of LOSSES but auto and all, or `completion_turns`.

        Returns, Raises: as assistant_spans and completion_span.
        """
        if loss_on == "completion":
            return self.completion_span(conversation)[:2]
        return self.assistant_spans(conversation, loss_on)

    def assistant_spans(self, conversation: Conversation, loss_on: str = "assistant") -> tuple[str, list[Span]]:
        """Find the spans of the assistant's turns.

        Args:
            conversation: the conversation. Turns of weight 0 have no span.
            loss_on: as in `trained_turns`.

        Returns:
            The text, and its spans, ascending and disjoint.

        Raises:
            RecordError: if the template refuses the conversation, or the spans cannot be established.
        """
        wanted = trained_turns(conversation, loss_on)
        if self.follows_markers(conversation) and not self._rules.named and not self._rules.masks_after_end:
            is_all = wanted == assistant_turns(conversation) and not _has_untrained_parts(conversation, wanted)
            if is_all:
                text, spans = self._template.render_with_markers(conversation)
                return text, merged(spans)
        text, by_turn = self.spans_of_turns(conversation, wanted)
        return text, merged([span for spans in by_turn.values() for span in spans])

    def spans_of_turns(
        self, conversation: Conversation, turns: Sequence[int], whole: bool = False
    ) -> tuple[str, dict[int, list[Span]]]:
        """Find the spans of each of some turns.

        Args:
            conversation: the conversation.
            turns: the numbers of messages of the assistant.
            whole: whether the spans include the parts that are not trained on.

        Returns:
            The text, and the spans of each of the turns that has any.

        Raises:
            RecordError: if the template refuses the conversation, or the spans cannot be established.
        """
        if not turns and not self.follows_markers(conversation):
            return self._template.render(conversation), {}
        find = self.turns if self._rules.masks_after_end else self._turns
        message_map, found = find(conversation, turns)
        text, by_turn = message_map.text, {turn: found[turn].spans for turn in found}
        if self._rules.masks_after_end:
            by_turn = {turn: _without_after_end(*found[turn][1:]) for turn in found}
        if whole or not _has_untrained_parts(conversation, turns):
            return text, by_turn
        parts = spans_of_untrained_parts(self._template, conversation, text, turns)
        without_parts = {turn: subtracted(own, parts) for turn, own in by_turn.items()}
        return text, {turn: own for turn, own in without_parts.items() if own}

    def turns(self, conversation: Conversation, turns: Sequence[int]) -> tuple[MessageMap, dict[int, Turn]]:
        """Find turns of the assistant, with what the template prints after their ends.

        Args:
            conversation: the conversation.
            turns: the numbers of its messages.

        Returns:
            The map of the text, and each of the turns of which anything is printed.

        Raises:
            RecordError: if the template refuses the conversation, or the turns cannot be established.
        """
        message_map, found = self._turns(conversation, turns)
        ends = {turn: self._end_of_turn(conversation, message_map, turn, one.spans[-1]) for turn, one in found.items()}
        return message_map, {turn: one._replace(end=ends[turn]) for turn, one in found.items()}

    def _turns(self, conversation: Conversation, turns: Sequence[int]) -> tuple[MessageMap, dict[int, Turn]]:
        """The same without the ends of the turns."""
        if self.follows_markers(conversation):
            text, spans = self._template.render_with_markers(conversation)
            message_map = self._message_map(conversation, text)
            by_turn = self._spans_by_turn(conversation, message_map, spans, turns)
            headers = {turn: self._header_before(conversation, message_map, own[0]) for turn, own in by_turn.items()}
            return message_map, {turn: Turn(headers[turn], own) for turn, own in by_turn.items()}
        message_map = self._message_map(conversation, self._template.render(conversation))
        return message_map, self._unmarked_turns(conversation, message_map, turns)

    def _header_before(self, conversation: Conversation, message_map: MessageMap, span: Span) -> Span | None:
        """The header before a generation block; None if something else than the generation prompt is before it."""
        prompt = self.conventions(conversation).prompt_after("user")
        header = span[0] - len(prompt or ""), span[0]
        is_printed = prompt and message_map.text.endswith(prompt, 0, span[0]) and not message_map.texts_between(*header)
        return header if is_printed else None

    def _end_of_turn(self, conversation: Conversation, message_map: MessageMap, turn: int, last: Span) -> Span | None:
        """What ends a turn whose last span is given; None if that is unknown, or the turn has it in a text."""
        closings, (calls, follower) = self.closings(conversation), ending_of(conversation, turn)
        for ending in ((calls, follower), (False, follower)):  # some templates close turns with calls as others
            closing = closings[ending] or ""
            first = last[1] - len(closing)
            is_printed = closing.strip() and message_map.text.endswith(closing, *last)
            if is_printed and not message_map.texts_between(first, last[1]):
                return first, first + len(closing.rstrip())
        return None

    def closings(self, conversation: Conversation) -> Mapping[Ending, str | None]:
        """Return what closes a turn under the template that renders a conversation, for each kind of turn.

        It is found with dialogues of our own, with the stop token; None if it is unknown.
        """
        if self._reference is not None:
            return self._reference.closings(conversation)
        key = self._template.source(conversation), settings_of(conversation)
        if key not in self._closings:
            own = Conversation(DIALOGUE, [TOOL] if conversation.tools else None, conversation.template_kwargs)
            self._closings[key] = {
                (calls, follower): self._closing(own.with_messages([DIALOGUE[0], turn, *after]), calls)
                for calls, turn in ((False, DIALOGUE[1]), (True, TWO_CALLS))
                for follower, after in followers(calls).items()
            }
        return self._closings[key]

    def _closing(self, conversation: Conversation, calls: bool) -> str | None:
        """What is trained on at the end of the second message; None if that is unknown."""
        try:
            message_map, found = self._turns(conversation, [1])
        except RecordError:
            return None
        last = message_map.text[slice(*found[1].spans[-1])] if 1 in found else ""
        if not calls:
            content = DIALOGUE[1]["content"]
            return last.rpartition(content)[2] if content in last else None
        _, first, between = last.partition(FIRST)
        _, second, end = between.partition(SECOND)
        # What follows both calls closes the call, and not the turn.
        return end[common_prefix(end, between) :] if first and second else None

    def weighted_spans(self, conversation: Conversation, loss_on: str) -> tuple[str, list[Span], list[float]]:
        """Find the spans of the assistant's turns, if some have another weight than 0 and 1.

        Args:
            conversation: the conversation.
            loss_on: as in `trained_turns`.

        Returns:
            The text, its spans, ascending and disjoint, and the weight of each span.

        Raises:
            RecordError: if the template refuses the conversation, or the spans cannot be established.
        """
        text, by_turn = self.spans_of_turns(conversation, trained_turns(conversation, loss_on))
        spans: list[Span] = []
        weights: list[float] = []
        for (start, stop), turn in sorted((span, turn) for turn, own in by_turn.items() for span in own):
            start = max(start, spans[-1][1]) if spans else start
            weight = conversation.messages[turn].get("weight", 1)
            if spans and start == spans[-1][1] and weight == weights[-1]:
                spans[-1] = spans[-1][0], max(stop, start)
            elif start < stop:
                spans.append((start, stop))
                weights.append(weight)
        return text, spans, weights

    def _spans_by_turn(
        self, conversation: Conversation, message_map: MessageMap, spans: Sequence[Span], turns: Sequence[int]
    ) -> dict[int, list[Span]]:
        """Of the spans of generation blocks, those of each of the turns."""
        pieces = message_map.pieces_of_messages()
        by_turn: dict[int, list[Span]] = {}
        for span in spans:
            turn = _message_of(pieces, span)
            if turn is None or conversation.messages[turn]["role"] != "assistant":
                raise _not_established("a generation block of the template does not belong to one turn alone")
            if turn in turns and span[0] < span[1]:
                if self._rules.named:
                    span = span[0], self._stop(conversation, message_map, turn, *span)
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
        message_map = self._message_map(conversation, text)
        start = len(prompt)
        if not text.startswith(prompt) or not _divides(message_map, start, first):
            is_answer = conversation.messages[first]["role"] == "assistant"
            found = self._unmarked_turns(conversation, message_map, [first]) if is_answer else {}
            start = found[first].spans[0][0] if first in found else 0
            if first not in found or not _divides(message_map, start, first):
                raise RecordError(
                    "prompt_not_a_prefix",
                    "the rendered prompt is not a prefix of the rendered prompt and completion, and the completion "
                    "does not begin with a message of the assistant, so it is unknown where it begins",
                )
        span, last = (start, len(text)), len(conversation.messages) - 1
        if self._rules.masks_after_end and conversation.messages[last]["role"] == "assistant":
            (span,) = _without_after_end([span], self._end_of_turn(conversation, message_map, last, span))
        return text, [span], text[:start]

    def _message_map(self, conversation: Conversation, text: str) -> MessageMap:
        """A map whose text is the text."""
        found = self._template.map_messages(conversation, text)
        if found.text != text:
            raise _not_established("the template prints the conversation differently with marks")
        return found

    def _unmarked_turns(
        self, conversation: Conversation, message_map: MessageMap, turns: Sequence[int]
    ) -> dict[int, Turn]:
        """Each of the turns without generation blocks, without those for which the template prints nothing."""
        pieces, conventions = message_map.pieces_of_messages(), self.conventions(conversation)
        usual = self._usual_turns(conversation, conventions, message_map, turns, pieces)
        found = {
            turn: usual.get(turn) or self._turn(conversation, conventions, message_map, turn, pieces[turn])
            for turn in turns
            if turn in pieces
        }
        for turn in turns:
            if turn not in pieces and _is_printed(message_map, turn):
                raise _not_established(f"the template prints messages[{turn}] outside of a loop over the messages")
        _check_texts(message_map, found)
        _check_tool_answers(conversation, message_map)
        found = {turn: one._replace(spans=merged(one.spans)) for turn, one in found.items()}
        return {turn: one for turn, one in found.items() if one.spans}

    def _usual_turns(
        self,
        conversation: Conversation,
        conventions: Conventions,
        message_map: MessageMap,
        turns: Sequence[int],
        pieces: Mapping[int, Sequence[Span]],
    ) -> dict[int, Turn]:
        """What `_turn` finds, in a fifth of the time, for the turns in the usual form.

        Such a turn is printed in one piece, from the generation prompt to what closes it, between other messages.
        """
        if self._rules.stop_tokens or conventions.separator:
            return {}
        messages, text, contents = conversation.messages, message_map.text, message_map.contents
        found: dict[int, Turn] = {}
        starts = message_map.starts_of_texts
        headers: dict[str, str | None] = dict.fromkeys(_INSTRUCTIONS)
        for turn in turns:
            own = pieces.get(turn, ())
            if not turn or len(own) != 1:
                continue
            role, (start, stop) = messages[turn - 1]["role"], own[0]
            if role not in headers:
                headers[role] = conventions.prompt_after(role)
            header = headers[role]
            follower = message_map.messages_by_start.get(stop)
            if not header or follower is None or not text.startswith(header, start, stop):
                continue
            if turn in contents and not start <= contents[turn][0] <= stop:
                continue
            if messages[follower]["role"] == "tool" and conventions.call_separator:
                continue
            answer, at = start + len(header), bisect.bisect_left(starts, start)
            if at == len(starts) or starts[at] >= answer:  # the template itself printed the header
                found[turn] = Turn((start, answer), [(answer, stop)])
        return found

    def _turn(
        self,
        conversation: Conversation,
        conventions: Conventions,
        message_map: MessageMap,
        turn: int,
        pieces: Sequence[Span],
    ) -> Turn:
        """A turn, with a span for each piece that the template prints. Raises RecordError.

        A template may print the answers of tools within the turn that calls them, and text of the turn after them.
        """
        text = message_map.text
        place = message_map.contents.get(turn)
        content = place[0] if place else None
        if len(pieces) > 1:
            pieces = _parts_of_turn(conversation, message_map, turn, pieces)
        elif content is not None and not pieces[0][0] <= content <= pieces[0][1]:
            raise _not_in_turn((turn, "content", None, None))
        start, stop = pieces[0]
        start = after(conventions.separator, text, start) if turn else start
        inside = content if content is not None and content <= stop else None
        header = self._header(conventions, conversation, message_map, turn, start, inside, stop)
        spans = [(header[1], self._end(conversation, conventions, message_map, turn, header[1], stop))]
        for start, stop in pieces[1:]:
            spans.append((start, self._end(conversation, conventions, message_map, turn, start, stop)))
        return Turn(header, spans)

    def _end(
        self,
        conversation: Conversation,
        conventions: Conventions,
        message_map: MessageMap,
        turn: int,
        start: int,
        stop: int,
    ) -> int:
        """Where a span of a turn ends. start: where it begins. stop: where the piece that was printed for it ends."""
        text = message_map.text
        if stop == message_map.end_of_messages:
            return len(text)
        separator = conventions.separator
        if not separator:
            follower = message_map.messages_by_start.get(stop)
            if follower is not None and conversation.messages[follower]["role"] == "tool":
                separator = conventions.call_separator
        return self._stop(conversation, message_map, turn, start, after(separator, text, stop))

    def _stop(self, conversation: Conversation, message_map: MessageMap, turn: int, start: int, stop: int) -> int:
        """Where a span of a turn ends if the stop token after it belongs to it."""
        if not self._rules.stop_tokens:
            return stop
        text = message_map.text
        content_stop = message_map.contents.get(turn, (None, None))[1]
        closing = text[content_stop if content_stop is not None and start <= content_stop <= stop else start : stop]
        extended = self._rules.end_with_stop_token(text, stop, closing)
        # A stop token that a user typed is none.
        if extended == stop or message_map.has_content_between(stop, extended):
            return stop
        if not message_map.contents and any(
            self._rules.may_be_in(message.get("content")) for message in conversation.messages
        ):
            return stop  # it is unknown where the contents are
        return extended

    def _header(
        self,
        conventions: Conventions,
        conversation: Conversation,
        message_map: MessageMap,
        turn: int,
        start: int,
        content: int | None,
        stop: int,
    ) -> Span:
        """The header of a turn. It ends where the generation prompt ends that the model is given.

        start, stop: what was printed for the turn. content: the offset of its content, None if that is unknown.
        """
        messages, text = conversation.messages, message_map.text
        is_first = all(message["role"] in _INSTRUCTIONS for message in reversed(messages[:turn]))
        usual = conventions.prompt_after("user")
        prompt = usual if is_first else conventions.prompt_after(messages[turn - 1]["role"])

        def is_header(start: int, end: int) -> bool:
            return _is_header(message_map, turn, start, end)

        for header in (prompt, usual):
            # After a tool's answer, a template may print in history the header of a turn that it does not print at
            # inference. It is a header all the same, and no model is meant to write it.
            if turn and header and text.startswith(header, start, stop) and is_header(start, start + len(header)):
                return start, start + len(header)
        if turn and prompt == "" and content is not None and not text[start:content].strip():
            return start, start
        # What a server would have rendered for the messages before this turn.
        context = rendered(self._template, conversation, messages[:turn], True)
        latest = stop if content is None else content
        is_context = context is not None and start <= len(context) <= latest and text.startswith(context)
        if context is not None and is_context and is_header(start, len(context)):
            return start, len(context)
        header = conventions.header
        # What is printed before the first text of the turn.
        own = text[start : next((s.start for s in message_map.texts_between(start, stop) if s.key[0] == turn), stop)]
        if header and prompt is not None:
            # Before the first turn, the template may print a system message of its own.
            begin = start + own.rfind(header) if is_first and header in own else start
            if text.startswith(header, begin, stop) and is_header(begin, begin + len(header)):
                end = begin + common_prefix(prompt, text[begin:stop], at_least=len(header))
                return begin, end if is_header(begin, end) else begin + len(header)
        is_cut = own.strip() and prompt and prompt.startswith(own) and common_prefix(prompt, own) == len(own)
        if is_cut and is_header(start, start + len(own)):  # the generation prompt goes on
            return start, start + len(own)
        follows_answer = turn and messages[turn - 1]["role"] == "assistant"
        if follows_answer and header and header not in own and conventions.joins_answers:
            return start, start
        if turn and prompt == "" and conventions.ignores_prompt:
            return start, start
        expected = usual if prompt is None else prompt
        if content is not None and not text[start:content].strip() and not (expected or "").strip():
            return start, start
        raise _not_established(f"the template prints no generation prompt before messages[{turn}]")

    def conventions(self, conversation: Conversation) -> Conventions:
        """Return the conventions of the template that renders a conversation."""
        if self._reference is not None:
            return self._reference.conventions(conversation)
        key = self._template.source(conversation), settings_of(conversation)
        if key not in self._conventions:
            self._conventions[key] = Conventions(self._template, conversation)
        return self._conventions[key]


def _parts_of_turn(
    conversation: Conversation, message_map: MessageMap, turn: int, pieces: Sequence[Span]
) -> Sequence[Span]:
    """Those of several pieces that the template prints of a turn. Raises RecordError if they may be something else."""
    text = message_map.text
    content = message_map.contents.get(turn, (None, None))[0]
    if content is not None and not any(start <= content <= stop for start, stop in pieces):
        raise _not_in_turn((turn, "content", None, None))
    # Loops over the messages that print no more than white space look for something.
    pieces = [piece for piece in pieces if text[slice(*piece)].strip()] or pieces[:1]
    for (_, before), (start, _) in pairwise(pieces):
        starts_with_content = content is not None and not text[start:content].strip()
        if not starts_with_content or not _are_answers(conversation, turn, message_map.printed_between(before, start)):
            raise _not_established(f"the template prints messages[{turn}] in {len(pieces)} places")
    return pieces


def _is_printed(message_map: MessageMap, number: int) -> bool:
    """Whether a text of a message is printed."""
    return number in message_map.contents or any(key[0] == number for key in message_map.printed)


def _not_in_turn(key: Key) -> RecordError:
    what = f"the {_KINDS.get(key[1], key[1])} of messages[{key[0]}]" if key[0] is not None else "a tool"
    return _not_established(f"the template prints {what} in another turn")


def _is_header(message_map: MessageMap, turn: int, start: int, stop: int) -> bool:
    """Whether the template itself printed a header, but for what its turn may begin with, such as `<think>`."""
    for printed in message_map.texts_between(start, stop):
        number, kind = printed.key[:2]
        if number != turn or kind == "call":
            return False
        if printed.is_copy and not message_map.text[start : printed.start].strip():
            return False
    return True


def _divides(message_map: MessageMap, start: int, first: int) -> bool:
    """Whether all that was printed for the messages before one is before an offset, and the texts of others after."""
    before = [stop for _, stop, message in message_map.pieces if message is not None and message < first]
    texts = [(printed.stop, printed.key[0]) for printed in message_map.texts if printed.key[0] is not None]
    return max(before, default=0) <= start and all(
        (stop <= start) if message < first else (stop > start) for stop, message in texts
    )


def _without_after_end(spans: Sequence[Span], end: Span | None) -> list[Span]:
    """The spans of a turn without the white space that the template prints after what ends it."""
    return [*spans[:-1], (spans[-1][0], end[1] if end else spans[-1][1])]


def _check_texts(message_map: MessageMap, found: Mapping[int, Turn]) -> None:
    """Raise RecordError if a text of a turn was printed outside of it alone, or another text inside of it."""
    ordered = sorted((start, stop, turn) for turn, one in found.items() for start, stop in one.spans)
    ordered.append((len(message_map.text) + 1,) * 3)
    outside: list[PrintedText] = []
    at, (begin, end, turn) = 0, ordered[0]
    for text in message_map.texts:  # both are in the order of the text
        start, stop, key = text[:3]
        while end <= start:
            at += 1
            begin, end, turn = ordered[at]
        if stop <= begin:
            if key[0] in found:
                outside.append(text)
        elif turn != key[0]:
            raise _not_in_turn(key)
    outside = [text for text in outside if not _is_in_header(text, found)]
    for start, stop, key, first, last, _ in outside:
        inside = [text for text in message_map.texts if text.key == key and text not in outside]
        is_printed_twice = any(text.first <= first and last <= text.last for text in inside)
        if not is_printed_twice and message_map.text[start:stop].strip():
            raise _not_in_turn(key)


def _is_in_header(text: PrintedText, turns: Mapping[int, Turn]) -> bool:
    """Whether a text of a turn begins in its header."""
    header = turns[text.key[0]].header  # type: ignore[index]
    return header is not None and header[0] <= text.start < header[1]


def _check_tool_answers(conversation: Conversation, message_map: MessageMap) -> None:
    """Raise RecordError if the answer of a tool may have been printed inside a turn of the assistant."""
    if message_map.contents:
        return  # _check_contents knows
    pieces = message_map.pieces_of_messages()
    for number, message in enumerate(conversation.messages):
        if message["role"] == "tool" and message.get("content") and number not in pieces:
            raise _not_established(f"it is unknown where the template prints the content of messages[{number}]")


def _are_answers(conversation: Conversation, turn: int, others: Sequence[int | None]) -> bool:
    """Whether others are the messages of tools that answer the calls of a turn."""
    numbers = [number for number in others if number is not None]
    if not numbers or len(numbers) < len(others) or min(numbers) <= turn:
        return False
    following = conversation.messages[turn + 1 : max(numbers) + 1]
    return bool(conversation.messages[turn].get("tool_calls")) and all(m["role"] == "tool" for m in following)


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
    if len(spans) == 1 and spans[0][0] < spans[0][1]:
        return [*spans]
    result: list[Span] = []
    for start, stop in sorted(spans):
        if start == stop:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result
