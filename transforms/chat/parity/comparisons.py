"""Compare turns once per signature: what holds for the turns of traced texts holds for all texts under their guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from transforms.base.errors import RecordError
from transforms.chat.parity.contexts import (
    CONTEXT,
    OTHER_TEXT,
    Difference,
    Expanded,
    RenderedBeginnings,
    compare_answers,
    differing,
    expanded,
    reasoning_in,
)
from transforms.chat.rendering.arguments import with_read_arguments
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.template_facts import shared_start
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import CompiledTemplate, Skeleton, Target, Trace
from transforms.chat.traced.signatures import Cut, Signature
from transforms.chat.traced.trace_cache import SignatureCache
from transforms.chat.traced.tracer import SENTINEL, Guards, NotTraceable, plain_text, sentinel_number
from transforms.model.examples import Conversation, Span

# Gives the numbers of the messages of a conversation to compare. They depend on its signature alone.
TurnsOf: TypeAlias = Callable[[Conversation], Sequence[int]]


class Compared(NamedTuple):
    """The turns of a text that were compared.

    Attributes:
        turns: their numbers.
        kinds: for those that differ, the kind of their difference.
        rows: what makes the texts in which each is trained on once, if that is known of its signature.
    """

    turns: Sequence[int]
    kinds: Mapping[int, str]
    rows: Callable[[], list[Expanded]] | None = None


@dataclass(kw_only=True)
class Comparison(CompiledTemplate):
    """A compiled template, and the turns of all conversations of its signature.

    Attributes:
        turns: the numbers of the messages that are compared.
        kinds: for each turn that differs, the kind of its difference for the texts that were traced.
        answers: if it depends on the texts, what is trained on of the turn, and what the model would have written.
        rows: the texts in which each is trained on once, with how many messages they have and which turns; None if they
            are not known, or not asked for.
    """

    turns: Sequence[int]
    kinds: Mapping[int, str]
    answers: Mapping[int, tuple[Skeleton, Skeleton]]
    rows: Sequence[tuple[Skeleton, int, list[int]]] | None

    def compared(self, conversation: Conversation, signature: Signature) -> Compared:
        """Return how the turns of a conversation of this signature differ, for whose texts the guards hold."""
        texts, kinds = (signature.texts, signature.trimmed), self.kinds
        if self.answers:
            answers = {
                turn: [answer.filled(*texts)[0].rstrip() for answer in pair] for turn, pair in self.answers.items()
            }
            kinds = {
                turn: compare_answers(conversation.messages[turn], *answers[turn]) if turn in answers else kind
                for turn, kind in kinds.items()
            }
        rows = self.rows
        if rows is None:
            return Compared(self.turns, kinds)
        return Compared(
            self.turns, kinds, lambda: [Expanded(*row.filled(*texts), length, turns) for row, length, turns in rows]
        )


class ComparisonCache(SignatureCache[Comparison]):
    """Compares conversations by comparisons that are made once per signature.

    As in a TraceCache, the result depends on the batch alone.

    Args:
        template: the chat template.
        plain: finds turns under the template, without stop tokens that are printed for the next turn.
        as_trained: finds turns under the template, by the rules.
        find_turns: gives the numbers of the messages to compare.
        expands: whether the texts are needed in which each turn is trained on once.
    """

    _conversations_per_signature = 32  # a comparison renders each turn twice

    def __init__(
        self,
        template: ChatTemplate,
        plain: TurnFinder,
        as_trained: TurnFinder,
        find_turns: TurnsOf,
        expands: bool,
    ):
        super().__init__(template, as_trained)
        self._plain, self._find_turns, self._expands = plain, find_turns, expands

    def find(self, conversation: Conversation, known: Signature | None, target: Target) -> Compared | None:
        """Compare the turns of a conversation.

        Args:
            conversation: the conversation.
            known: the signature by which it was rendered; None if there is none.
            target: what of it is trained on.

        Returns:
            How they differ; None if there is no comparison of its signature that holds for its texts.
        """
        if conversation.template_kwargs:
            conversation = with_read_arguments(conversation, self._template.source(conversation))
        result = self._find(conversation, target, known)
        if isinstance(result, str):
            return None
        comparison, signature = result
        return comparison.compared(conversation, signature)

    def _compile(self, conversation: Conversation, target: Target, cut: Cut) -> Comparison:
        turns = self._find_turns(conversation)
        trace = Trace(self._template, self._turns, conversation, target, cut)
        beginnings = _TracedBeginnings(trace, TurnFinder(trace.template, self._plain.rules, self._plain))
        rows = self._expanded(trace, beginnings, turns) if self._expands else None
        differences = differing(beginnings, trace.text, trace.spans, turns)
        compiled = trace.compiled()
        answers = {
            turn: (trace.skeleton(difference.training), trace.skeleton(difference.inference or ""))
            for turn, difference in differences.items()
            if not _is_certain(difference, trace.conversation.messages[turn], trace.guards)
        }
        return Comparison(
            **vars(compiled),
            turns=turns,
            kinds={turn: difference.kind for turn, difference in differences.items()},
            answers=answers,
            rows=None
            if rows is None
            else [(trace.skeleton(row.text, row.spans), row.length, row.turns) for row in rows],
        )

    def _expanded(self, trace: Trace, beginnings: RenderedBeginnings, turns: Sequence[int]) -> list[Expanded] | None:
        try:
            rows = expanded(beginnings, turns)
            for row in rows:
                trace.guard_spans(row.text)
        except (NotTraceable, RecordError):
            return None
        return rows


class _TracedBeginnings(RenderedBeginnings):
    """The beginnings of a conversation of traced texts. Guards are added under which what differs does for any texts.

    Args:
        trace: of the conversation.
        plain: as of `ComparisonCache`, under the template of the trace.
    """

    def __init__(self, trace: Trace, plain: TurnFinder):
        super().__init__(trace.template, plain, trace.turns, trace.conversation, trace.text)
        self._guards = trace.guards

    def difference(self, turn: int, text: str, spans: Sequence[Span]) -> Difference | None:
        difference = super().difference(turn, text, spans)
        if difference and difference.inference is not None:
            same = shared_start(difference.training, difference.inference)
            rests = difference.training[same:], difference.inference[same:]
            # If one is the beginning of the other, it is for any texts. Two literals differ, too.
            if all(rests):
                numbers = [sentinel_number(text[0]) for text in map(SENTINEL.match, rests) if text]
                literals = [SENTINEL.split(rest)[0] for rest in rests if not SENTINEL.match(rest)]
                if not literals:
                    self._guards.apart.add((numbers[0], numbers[1]))
                elif numbers:
                    self._guards.edges[numbers[0], 0] |= {*literals}
        return difference


def _is_certain(difference: Difference, message: Mapping[str, Any], guards: Guards) -> bool:
    """Whether a difference of traced texts is of this kind for any texts. Guards may be added."""
    training, inference = difference.training, difference.inference or ""
    if difference.kind == CONTEXT:
        return True
    added = SENTINEL.findall(inference.removesuffix(training) if inference.endswith(training) else "")
    content = message.get("content")
    has_tag = isinstance(content, str) and "</think>" in plain_text(content)
    may_have_tag, thoughts = "</think>" not in guards.absent, reasoning_in(message)
    for thought in () if has_tag and may_have_tag else thoughts:
        if SENTINEL.fullmatch(thought) and sentinel_number(thought) in map(sentinel_number, added):
            # The reasoning begins after <think>, wherever that is in the text.
            guards.edges[sentinel_number(thought), -1].add("<think>")
            return True  # it has its reasoning only if it is the last one
    # Without reasoning, it is that of any texts if one answer is the other without a piece of it.
    return not (has_tag or may_have_tag or thoughts) and compare_answers({}, training, inference) != OTHER_TEXT
