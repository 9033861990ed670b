"""The search for turns: where one rendering has each turn of the assistant.

A turn begins where the generation prompt ends that a server would have rendered before it. It ends with what closes it.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from transforms.base.errors import RecordError
from transforms.chat.rendering.renderings import Key, Piece, PrintedText, Rendering
from transforms.chat.spans.loss import not_established
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.spans.template_facts import (
    Template,
    TemplateFacts,
    after,
    common_prefix,
    find_context,
    find_ending,
)
from transforms.model.examples import Span

# The roles of messages before the first one that is answered.
_INSTRUCTIONS = ("system", "developer")
_KINDS = {"call": "tool call"}


class Turn(NamedTuple):
    """Where a text has a turn of the assistant.

    Attributes:
        header: what the model is given before it answers; None if it is unknown.
        spans: what the model writes, ascending and disjoint.
        end: what ends the turn; white space may follow it in the last span. None if that is unknown.
        is_open: whether the template prints nothing that ends such turns.
    """

    header: Span | None
    spans: list[Span]
    end: Span | None = None
    is_open: bool = False

    def without_after_end(self) -> list[Span]:
        """Return the spans without the white space that the template prints after what ends the turn."""
        return [*self.spans[:-1], (self.spans[-1][0], self.end[1])] if self.end else self.spans


class TurnSearch:
    """Finds the turns of one rendering.

    Args:
        rendering: the rendering.
        template: what made it.
        facts: those of the template for the conversation.
        rules: what else is known about turns.
    """

    def __init__(self, rendering: Rendering, template: Template, facts: TemplateFacts, rules: TurnRules):
        self._rendering = rendering
        self._template = template
        self._facts = facts
        self._rules = rules
        self._messages = rendering.conversation.messages
        self._text = rendering.text
        self._pieces = rendering.find_message_pieces()
        questions = (n for n, message in enumerate(self._messages) if message["role"] not in _INSTRUCTIONS)
        self._first = next(questions, 0)  # the number of the first message that is not an instruction

    def turns(self, numbers: Sequence[int]) -> dict[int, Turn]:
        """Find turns by the generation prompt before them, without ends. Args, Raises: as of `TurnFinder.turns`."""
        turns = self._with_what_follows_ends(numbers)
        for number in numbers:
            if number not in turns and any(key[0] == number for key in self._rendering.printed):
                raise not_established(f"the template prints messages[{number}] outside of a loop over the messages")
        self._check_texts(turns)
        turns = {number: self._until_ended(number, turn) for number, turn in turns.items()}
        return {number: turn for number, turn in turns.items() if turn.spans and turn.spans[0][0] < turn.spans[-1][1]}

    def after_ends(self, numbers: Sequence[int]) -> list[int]:
        """Return the turns of which a text is not trained on, since it follows the end of a turn, without a header.

        Args, Raises: as of `turns`.
        """
        ends = {stop for _, stop, message in self._rendering.pieces if self._is_answer(message)}
        places = {number: self._pieces[number] for number in numbers if number in self._pieces}
        some = [number for number, pieces in places.items() if len(pieces) > 1 or pieces[0][0] in ends]
        return [
            number
            for number, turn in self._with_what_follows_ends(some).items()
            for span in {*turn.spans}.difference(self._until_ended(number, turn).spans)
            if any(self._text[text.start : text.stop].strip() for text in self._rendering.texts_between(*span))
        ]

    def find_block_turns(self, blocks: Sequence[Span], numbers: Sequence[int]) -> dict[int, Turn]:
        """Find turns by the generation blocks of the template, without ends. Args, Raises: as of `turns`."""
        by_turn: dict[int, list[Span]] = {}
        # An empty block, of an empty answer, is between two messages, and nothing is trained on.
        for start, stop in (block for block in blocks if block[0] < block[1]):
            turn = self._find_block_turn(start, stop)
            if turn is None:
                raise not_established("a generation block of the template does not belong to one turn alone")
            if turn in numbers:
                if self._rules.named:
                    stop = self._stop(turn, start, stop)
                by_turn.setdefault(turn, []).append((start, stop))
        spans = {turn: merged(own) for turn, own in by_turn.items()}
        return {turn: Turn(self._header_before(own[0][0]), own) for turn, own in spans.items()}

    def end(self, turn: int, last: Span) -> Span | None:
        """Find what ends a turn, by its last span; None if that is unknown, or the turn has it in a text."""
        calls, follower = find_ending(self._rendering.conversation, turn)
        for ending in ((calls, follower), (False, follower)):  # some templates close turns with calls as others
            closing = self._facts.closings[ending] or ""
            first = last[1] - len(closing)
            is_printed = closing.strip() and self._text.endswith(closing, *last)
            if is_printed and not self._rendering.texts_between(first, last[1]):
                return first, first + len(closing.rstrip())
        return None

    def with_end(self, number: int, turn: Turn) -> Turn:
        """Return a turn with what ends it, and whether the template leaves such turns open."""
        is_open = find_ending(self._rendering.conversation, number) in self._facts.open_endings
        return turn._replace(end=self.end(number, turn.spans[-1]), is_open=is_open)

    def divides(self, offset: int, first: int) -> bool:
        """Return whether an offset is between what was printed for the messages before one, and the texts after it."""
        before = [stop for _, stop, message in self._rendering.pieces if message is not None and message < first]
        texts = [(text.stop, text.key[0]) for text in self._rendering.texts if text.key[0] is not None]
        return max(before, default=0) <= offset and all(
            (stop <= offset) if message < first else (stop > offset) for stop, message in texts
        )

    def _turn(self, turn: int) -> Turn:
        """A turn, with a span for each piece that the template prints. Raises RecordError.

        A template may print the answers of tools within the turn that calls them, and text of the turn after them.
        """
        pieces: Sequence[Span] = self._pieces[turn]
        content = self._rendering.contents.get(turn, (None, None))[0]
        if content is not None and not any(start <= content <= stop for start, stop in pieces):
            raise _not_in_turn((turn, "content", None, None))
        if len(pieces) > 1:
            pieces = self._find_turn_parts(turn, pieces, content)
        start, stop = pieces[0]
        if turn:
            start = after(self._facts.separator, self._text, start)
        header = self._header(turn, start, content if content is not None and content <= stop else None, stop)
        spans = [(start, self._end(turn, start, stop)) for start, stop in ((header[1], stop), *pieces[1:])]
        return Turn(header, spans if len(spans) == 1 else merged(spans))

    def _with_what_follows_ends(self, numbers: Sequence[int]) -> dict[int, Turn]:
        return {number: self._turn(number) for number in numbers if number in self._pieces}

    def _until_ended(self, number: int, turn: Turn) -> Turn:
        """A turn without what no server lets the model write, since it follows what ends a turn, without a header."""
        spans = turn.spans
        if self._facts.header:
            # What the template moves to the place after the answers of tools is not written there either, if a server
            # asks for the next turn at its end.
            spans = [spans[0], *(span for span in spans[1:] if not self._is_moved(number, span))]
            begin = spans[0][0]
            if turn.header == (begin, begin) and self._follows_end(number, begin):
                del spans[0]
        return turn._replace(spans=spans)

    def _is_moved(self, turn: int, span: Span) -> bool:
        """Whether a later span of a turn ends it, and a server renders it before the next turn, without a header."""
        following = self._rendering.message_from(span[1])
        return following is not None and bool(self.end(turn, span)) and self._is_context(following, span[1])

    def _follows_end(self, turn: int, begin: int) -> bool:
        """Whether a turn begins where the end of another one was printed, which is not moved."""
        for start, stop, message in self._rendering.pieces:
            if stop == begin and message is not None and self._is_answer(message) and self.end(message, (start, stop)):
                return start == self._pieces[message][0][0] or not self._is_context(turn, begin)
        return False

    def _is_context(self, turn: int, stop: int) -> bool:
        """Whether a text up to an offset is what a server renders before an answer."""
        context = find_context(self._template, self._rendering.conversation, turn)
        return self._is_answer(turn) and context == self._text[:stop]

    def _find_turn_parts(self, turn: int, pieces: Sequence[Span], content: int | None) -> Sequence[Span]:
        """Those of several pieces that are printed of a turn. Raises RecordError if they may be something else."""
        # Loops over the messages that print no more than white space look for something.
        pieces = [piece for piece in pieces if self._text[slice(*piece)].strip()] or pieces[:1]
        # What the template itself prints elsewhere, after the last text of the turn, is nothing that the model writes.
        texts = [text.start for text in self._rendering.texts if text.key[0] == turn]
        pieces = [piece for piece in pieces if not texts or piece[0] <= max(texts)] or pieces[:1]
        for (_, before), (start, _) in pairwise(pieces):
            starts_with_content = content is not None and not self._text[start:content].strip()
            between = [message for at, _, message in self._rendering.pieces if before <= at < start]
            if not starts_with_content or not self._are_answers(turn, between):
                raise not_established(f"the template prints messages[{turn}] in {len(pieces)} places")
        return pieces

    def _are_answers(self, turn: int, others: Sequence[int | None]) -> bool:
        """Whether others are the messages of tools that answer the calls of a turn."""
        numbers = [number for number in others if number is not None and number > turn]
        following = self._messages[turn + 1 : max(numbers, default=turn) + 1]
        are_results = bool(numbers) and all(message["role"] == "tool" for message in following)
        return are_results and len(numbers) == len(others) and bool(self._messages[turn].get("tool_calls"))

    def _end(self, turn: int, start: int, stop: int) -> int:
        """Where a span of a turn ends. start: where it begins. stop: where the piece that was printed for it ends."""
        if stop == self._rendering.messages_end:
            return len(self._text)
        follower, separator = self._rendering.message_from(stop), self._facts.separator
        if not separator and follower is not None and self._messages[follower]["role"] == "tool":
            separator = self._facts.call_separator
        stop = after(separator, self._text, stop)
        return self._stop(turn, start, stop) if self._rules.stop_tokens else stop

    def _stop(self, turn: int, start: int, stop: int) -> int:
        """Where a span of a turn ends if the stop token after it belongs to it."""
        _, content_stop = self._rendering.contents.get(turn, (start, start))
        closing = self._text[content_stop if start <= content_stop <= stop else start : stop]
        stop_tokens = self._rules.stop_tokens
        if closing.endswith(stop_tokens) or closing.rstrip().endswith(stop_tokens):
            return stop  # what the template prints to close the turn ends with one
        following = self._rules.following.match(self._text, stop)
        # A stop token that a user typed is none.
        is_printed = following and not self._rendering.texts_between(*following.span())
        return following.end() if following and is_printed else stop

    def _header(self, turn: int, start: int, content: int | None, stop: int) -> Span:
        """The header of a turn. It ends where the generation prompt ends that the model is given.

        start, stop: what was printed for the turn. content: the offset of its content, None if that is unknown.
        """
        role = "user" if turn <= self._first else self._messages[turn - 1]["role"]
        # After a tool's answer, a template may print in history the header of a turn that it does not print at
        # inference. It is a header all the same, and no model is meant to write it.
        for before in (role, "user") if turn else ():
            prompt = self._facts.prompt_after(before) or ""
            header = start, start + len(prompt)
            if prompt and self._text.startswith(prompt, start, stop) and self._is_header(turn, *header):
                return header
        return self._other_header(turn, start, content, stop, self._facts.prompt_after(role))

    def _other_header(self, turn: int, start: int, content: int | None, stop: int, prompt: str | None) -> Span:
        """The header of a turn that does not begin as the generation prompt. Raises RecordError if there is none.

        prompt: the generation prompt before the turn. The others: as of `_header`.
        """
        text, facts = self._text, self._facts
        begins_with_content = content is not None and not text[start:content].strip()
        if turn and prompt == "" and begins_with_content:
            return start, start
        context = find_context(self._template, self._rendering.conversation, turn)
        latest = stop if content is None else content
        is_context = context is not None and start <= len(context) <= latest and text.startswith(context)
        if context is not None and is_context and self._is_header(turn, start, len(context)):
            return start, len(context)
        header = facts.header
        # What is printed before the first text of the turn.
        starts = (printed.start for printed in self._rendering.texts_between(start, stop) if printed.key[0] == turn)
        lead = text[start : next(starts, stop)]
        if header and prompt is not None:
            # Before the first turn, the template may print a system message of its own.
            begin = start + lead.rfind(header) if turn <= self._first and header in lead else start
            if text.startswith(header, begin, stop) and self._is_header(turn, begin, begin + len(header)):
                end = begin + common_prefix(prompt, text[begin:stop], at_least=len(header))
                return begin, end if self._is_header(turn, begin, end) else begin + len(header)
        is_cut = lead.strip() and prompt and prompt.startswith(lead) and common_prefix(prompt, lead) == len(lead)
        if is_cut and self._is_header(turn, start, start + len(lead)):  # the generation prompt goes on
            return start, start + len(lead)
        follows_answer = turn and self._is_answer(turn - 1)
        joins_answers = follows_answer and header and header not in lead and facts.joins_answers
        ignores_prompt = turn and prompt == "" and facts.ignores_prompt
        expected = facts.prompt_after("user") if prompt is None else prompt
        if joins_answers or ignores_prompt or (begins_with_content and not (expected or "").strip()):
            return start, start
        raise not_established(f"the template prints no generation prompt before messages[{turn}]")

    def _header_before(self, start: int) -> Span | None:
        """The header before a generation block; None if something else than the generation prompt is before it."""
        prompt = self._facts.prompt_after("user")
        header = start - len(prompt or ""), start
        is_printed = prompt and self._text.endswith(prompt, 0, start) and not self._rendering.texts_between(*header)
        return header if is_printed else None

    def _is_header(self, turn: int, start: int, stop: int) -> bool:
        """Whether the template itself printed a header, but for what its turn may begin with, such as `<think>`."""
        for printed in self._rendering.texts_between(start, stop):
            number, kind = printed.key[:2]
            if number != turn or kind == "call":
                return False
            if printed.is_copy and not self._text[start : printed.start].strip():
                return False
        return True

    def _check_texts(self, turns: Mapping[int, Turn]) -> None:
        """Raise RecordError if a text of a turn was printed outside of it alone, or another text inside of it."""
        inside: set[PrintedText] = set()
        for number, turn in turns.items():
            texts = [text for span in turn.spans for text in self._rendering.texts_between(*span)]
            if other := next((text for text in texts if text.key[0] != number), None):
                raise _not_in_turn(other.key)
            inside.update(texts)
        outside = [text for text in self._rendering.texts if text.key[0] in turns and text not in inside]
        outside = [text for text in outside if not _is_in_header(text, turns)]
        for start, stop, key, first, last, _ in outside:
            others = [text for text in self._rendering.texts if text.key == key and text not in outside]
            is_printed_twice = any(text.first <= first and last <= text.last for text in others)
            if not is_printed_twice and self._text[start:stop].strip():
                raise _not_in_turn(key)

    def _find_block_turn(self, start: int, stop: int) -> int | None:
        """The turn that a generation block is of; None if it is of none, or of several.

        What closes a turn may be printed after the loop over the messages, or before the text of the next message.
        """
        pieces = self._printed_for_messages
        at = bisect.bisect_right(pieces, start, key=itemgetter(0)) - 1
        if at > 0 and start == pieces[at][0] and not self._is_answer(pieces[at][2]):
            at -= 1
        if at < 0 or not self._is_answer(turn := pieces[at][2]):
            return None
        _, end, _ = pieces[at]
        goes_on = any(start < begin < stop for begin, _, _ in pieces[at + 1 :])
        has_others = any(text.key[0] != turn for text in self._rendering.texts_between(end, max(end, stop)))
        return None if goes_on or has_others else turn

    def _is_answer(self, message: int | None) -> bool:
        return message is not None and self._messages[message]["role"] == "assistant"

    @functools.cached_property
    def _printed_for_messages(self) -> list[Piece]:
        return [piece for piece in self._rendering.pieces if piece[2] is not None]


def _not_in_turn(key: Key) -> RecordError:
    what = f"the {_KINDS.get(key[1], key[1])} of messages[{key[0]}]" if key[0] is not None else "a tool"
    return not_established(f"the template prints {what} in another turn")


def _is_in_header(text: PrintedText, turns: Mapping[int, Turn]) -> bool:
    """Whether a text of a turn begins in its header."""
    header = turns[text.key[0]].header  # type: ignore[index]
    return header is not None and header[0] <= text.start < header[1]


def merged(spans: Sequence[Span]) -> list[Span]:
    """Sort spans, join those that touch or overlap (nested markers), and leave out empty ones."""
    joined: list[Span] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        elif start < stop:
            joined.append((start, stop))
    return joined
