"""Contexts: compare each turn, as it is trained, with what it is when it is the last one, as at inference.

A server renders the messages so far with the generation prompt, and the model answers, with its reasoning. A template
that drops earlier reasoning, or prints the last turn differently from those before it, puts another text before a turn,
or into it, in training than at inference.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from transforms.base.errors import RecordError
from transforms.chat.spans.template_facts import Template, find_context, shared_start
from transforms.chat.spans.turn_search import merged
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.tracer import plain_text
from transforms.model.examples import REASONING_KEYS, Conversation, Span

# How a turn differs. A turn that differs in several ways counts as the first of them.
CONTEXT = "context"
REASONING_DROPPED = "reasoning_dropped"
DEFAULT_ADDED = "default_added"
OTHER_END = "other_end"
OTHER_TEXT = "other_text"
KINDS = (CONTEXT, REASONING_DROPPED, DEFAULT_ADDED, OTHER_END, OTHER_TEXT)
# What templates do to the reasoning of earlier turns, of most conversations: it says nothing of the data.
OWN_WAY = (REASONING_DROPPED, DEFAULT_ADDED)
_KEYS = frozenset(REASONING_KEYS)
# Characters that a message shows on each side of the first difference.
_SHOWN = 30


class Difference(NamedTuple):
    """How the training of a turn differs from its inference.

    Attributes:
        kind: `context`: the text before the turn is another one. Otherwise the turn itself is: `reasoning_dropped`: it
            has reasoning only if it is the last one. `default_added`: it has other text only then, before its end, such
            as an empty think block. `other_end`: it ends in another way then. `other_text`: none of these.
        turn: the number of the message.
        training: what the turn has in training: the whole text for `context`, otherwise what is trained on of it.
        inference: what it has at inference: what a server would have rendered before it (None if the template refuses
            that) for `context`, otherwise what the model would have written.
    """

    kind: str
    turn: int
    training: str
    inference: str | None

    @property
    def detail(self) -> str:
        """The difference in one line."""
        if self.kind == CONTEXT:
            return _other_context(self.turn, self.training, self.inference)
        where = f"messages[{self.turn}]: the training text"
        if self.kind == REASONING_DROPPED:
            return f"{where} leaves out the reasoning before the answer"
        training, inference = _around_difference(self.training, self.inference or "")
        return f"{where} of the turn has {training!r} where the last turn has {inference!r}"


class RenderedBeginnings:
    """The beginnings of one conversation, each as a template prints it. They are rendered when they are needed.

    Args:
        template: the chat template.
        turns: finds spans under it. Stop tokens that are printed for the next turn are not to be in them, since the
            template prints none after the last turn.
        as_trained: finds the spans that are trained on.
        conversation: the conversation.
        text: what the template prints for all of it; None if it is to be rendered.

    Attributes:
        conversation: as given.
        as_last: returns what a turn is when it is the last one.
    """

    def __init__(
        self,
        template: Template,
        turns: TurnFinder,
        as_trained: TurnFinder,
        conversation: Conversation,
        text: str | None,
    ):
        self.conversation, self._text = conversation, text
        self._template, self._turns, self._as_trained = template, turns, as_trained
        self._rendering = functools.cache(lambda length: template.rendering(self._beginning(length)))
        self.as_last = functools.cache(self._find_as_last)

    def difference(self, turn: int, text: str, spans: Sequence[Span]) -> Difference | None:
        """Return how a turn differs whose spans in a text begin with some spans; None if it does not."""
        as_last = self.as_last(turn)
        if not as_last.differs(text, spans):
            return None
        trained = "".join(_pieces_after(as_last.context, text, spans))
        if as_last.answer is None or not trained:
            return Difference(CONTEXT, turn, text, as_last.context)
        trained, answer = trained.rstrip(), as_last.answer.rstrip()
        return Difference(compare_answers(self.conversation.messages[turn], trained, answer), turn, trained, answer)

    def text(self, length: int) -> str:
        """Return the text of the first messages. Raises RecordError if the template refuses them."""
        return self._rendering(length).text

    def turns(self, length: int, numbers: Sequence[int]) -> Mapping[int, list[Span]]:
        """Return the spans of turns in the text of the first messages, with the parts that are not trained on.

        Raises:
            RecordError: if they cannot be established.
        """
        return self._turns.find_turn_spans(self._rendering(length), numbers, whole=True)

    def trained(self, length: int, numbers: Sequence[int]) -> list[Span]:
        """Return what of turns is trained on in this text. Raises RecordError as `turns`."""
        by_turn = self._as_trained.find_turn_spans(self._rendering(length), numbers)
        return merged([span for spans in by_turn.values() for span in spans])

    def _find_as_last(self, turn: int) -> AsLast:
        context = find_context(self._template, self.conversation, turn)
        answered = None if context is None else self._answered(turn)
        return AsLast(context, "".join(_pieces_after(context, *answered)) or None if answered else None)

    def _answered(self, turn: int) -> tuple[str, Sequence[Span]] | None:
        """The text that ends with a turn, and the spans in which what the model wrote is; None if unknown."""
        beginning = self._beginning(turn + 1)
        try:
            if self._turns.follows_blocks(beginning):
                text, blocks = self._template.generation_blocks(beginning)
                return text, merged(blocks)
            is_all = turn + 1 == len(self.conversation.messages)
            text = self._text if is_all and self._text is not None else self._template.render(beginning)
        except RecordError:
            return None
        return text, [(0, len(text))]

    def _beginning(self, length: int) -> Conversation:
        return self.conversation.with_messages(self.conversation.messages[:length])


def differing(
    beginnings: RenderedBeginnings, text: str, spans: Sequence[Span], turns: Sequence[int]
) -> dict[int, Difference]:
    """Find the turns that are trained on in another way than the model would write them.

    Args:
        beginnings: those of the conversation.
        text: its training text.
        spans: what of the text is trained on.
        turns: the numbers of the messages to compare.

    Returns:
        For each turn that differs, how.
    """
    suspects = [turn for turn in turns if beginnings.as_last(turn).differs(text, spans, True)]
    if not suspects:
        return {}
    by_turn: Mapping[int, Sequence[Span]]
    try:
        by_turn = beginnings.turns(beginnings.conversation.count, suspects)
    except RecordError:  # generation blocks that belong to no turn, or to several
        by_turn = dict.fromkeys(suspects, spans)
    if beginnings.conversation.completion_start is not None:
        by_turn = {turn: _start_after_prompt(own, spans) for turn, own in by_turn.items()}
    differences = {turn: beginnings.difference(turn, text, own) for turn, own in by_turn.items()}
    return {turn: difference for turn, difference in differences.items() if difference}


class Expanded(NamedTuple):
    """A text in which some turns are trained on.

    Attributes:
        text: of the first messages of the conversation.
        spans: what of it is trained on.
        length: how many messages it has.
        turns: the numbers of those that are trained on.
    """

    text: str
    spans: list[Span]
    length: int
    turns: list[int]


def expanded(beginnings: RenderedBeginnings, turns: Sequence[int]) -> list[Expanded] | Difference:
    """Make texts in which each of the turns is trained on once, as at its inference.

    Args:
        beginnings: those of the conversation.
        turns: the numbers of the messages that are trained on.

    Returns:
        The texts. The last is that of the whole conversation, for the turns that are right in it.
        Before it comes the conversation up to the last of the others, and so on. If a turn has no such text, how it
        differs even at the end of its text.

    Raises:
        RecordError: if the template refuses a beginning, or its turns cannot be established.
    """
    rows: list[Expanded] = []
    count = beginnings.conversation.count
    left, length = list(turns), count
    while left:
        text, spans = beginnings.text(length), beginnings.turns(length, left)
        if not rows and length == count:
            left = [turn for turn in left if turn in spans]  # the others are not printed, or not trained on
        is_last = bool(left) and length == left[-1] + 1
        if is_last and (difference := beginnings.difference(left[-1], text, spans.get(left[-1], ()))):
            return difference
        right = [turn for turn in left if turn in spans and not beginnings.difference(turn, text, spans[turn])]
        if right:
            rows.append(Expanded(text, beginnings.trained(length, right), length, right))
        left = [turn for turn in left if turn not in right]
        length = left[-1] + 1 if left else 0
    return rows[::-1]


class AsLast(NamedTuple):
    """What a turn is when it is the last one.

    Attributes:
        context: what a server would have rendered before it; None if the template refuses that.
        answer: what the model would have written; None if it is unknown.
    """

    context: str | None
    answer: str | None

    def differs(self, text: str, spans: Sequence[Span], first_only: bool = False) -> bool:
        """Return whether the turn is another one in a text in which its spans begin with some spans.

        More white space at its end is no difference. first_only: whether the turn has only the first of the spans after
        its context; if it has more, it seems to differ.
        """
        pieces = _pieces_after(self.context, text, spans)
        if not pieces or self.answer is None:
            return not pieces
        return "".join(pieces[:1] if first_only else pieces).rstrip() != self.answer.rstrip()


def _pieces_after(context: str | None, text: str, spans: Sequence[Span]) -> list[str]:
    """What the spans have after a context; none if the text does not begin with it, or no span continues there."""
    if context is None or not text.startswith(context):
        return []
    after = [(max(start, len(context)), stop) for start, stop in spans if stop > len(context)]
    return [text[start:stop] for start, stop in after] if after and after[0][0] == len(context) else []


def compare_answers(message: Mapping[str, Any], trained: str, answer: str) -> str:
    """Return the kind of the difference of a turn.

    Args:
        message: its message.
        trained: what is trained on of it, without white space at the end.
        answer: what the model would have written, which is another text, without white space at the end.
    """
    if any(answer.count(thought) > trained.count(thought) for thought in reasoning_in(message)):
        return REASONING_DROPPED
    if answer.startswith(trained) or trained.startswith(answer):
        return OTHER_END if trained else DEFAULT_ADDED
    if _is_cut(trained, answer):
        return DEFAULT_ADDED
    content = _plain(message.get("content"))
    if content and content in trained and content in answer:
        before, after = (whole.partition(content)[0] for whole in (trained, answer))
        if before == after:
            return OTHER_END
        if _is_cut(before, after):
            return DEFAULT_ADDED
    return OTHER_TEXT


def _is_cut(short: str, long: str) -> bool:
    """Whether a text is another one without one piece of it."""
    return len(short) < len(long) and long.endswith(short[shared_start(short, long) :])


def _start_after_prompt(own: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """The spans of a turn of a completion, which is trained on from the end of its prompt on."""
    start = next((start for start, stop in spans if start <= own[0][0] < stop), own[0][0])
    return [(start, own[0][1]), *own[1:]]


def has_reasoning(conversation: Conversation) -> bool:
    """Return whether a message of the assistant has reasoning."""
    return any(message["role"] == "assistant" and reasoning_in(message) for message in conversation.messages)


def reasoning_in(message: Mapping[str, Any]) -> list[str]:
    """Return what a message of the assistant holds besides its answer: in keys of its own, or before </think>."""
    thoughts = [] if _KEYS.isdisjoint(message) else [_plain(message[key]) for key in REASONING_KEYS if key in message]
    content = message.get("content")
    if isinstance(content, str) and "</think>" in (text := plain_text(content)):
        thoughts.append(text.rpartition("</think>")[0].rpartition("<think>")[2].strip())
    return [thought for thought in thoughts if thought]


def _plain(value: Any) -> str:
    """A text without white space around it. A traced one does not record that it is read here."""
    return plain_text(value).strip() if isinstance(value, str) else ""


def _other_context(turn: int, text: str, context: str | None) -> str:
    if context is None and not turn:
        return "messages[0]: no message precedes this answer, and the template refuses a conversation without messages"
    if context is None:
        return f"messages[{turn}]: the template refuses the messages before it, so no server would render them"
    if text.startswith(context):
        return f"messages[{turn}]: the answer that is trained on does not begin where the generation prompt ends"
    training, inference = _around_difference(text, context)
    return f"messages[{turn}]: the training text has {training!r} where a server renders {inference!r}"


def _around_difference(one: str, other: str) -> tuple[str, str]:
    """What two texts have around their first difference, which is marked."""
    same = shared_start(one, other)
    shown = [f"{whole[max(same - _SHOWN, 0) : same]}⟪{whole[same : same + _SHOWN]}⟫" for whole in (one, other)]
    return shown[0], shown[1]
