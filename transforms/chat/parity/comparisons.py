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
        by: the comparison by which they were compared, the conversation and its signature; None if no turn differs, or
            they were compared one by one.
    """

    turns: Sequence[int]
    kinds: Mapping[int, str]
    by: tuple[Comparison, Conversation, Signature] | None = None

    def rows(self) -> list[Expanded] | Difference | None:
        """Return what `expanded` does, if that is known of the signature."""
        if self.by is None:
            return None
        comparison, conversation, signature = self.by
        if comparison.rows is None:
            return None
        if isinstance(comparison.rows, _TracedDifference):
            return comparison.rows.filled(conversation, signature)
        texts = signature.texts, signature.trimmed
        return [Expanded(*row.filled(*texts), length, turns) for row, length, turns in comparison.rows]

    def first(self) -> Difference | None:
        """Return the difference of the first turn that differs, if that is known of the signature."""
        if self.by is None:
            return None
        comparison, conversation, signature = self.by
        return comparison.first and comparison.first.filled(conversation, signature)


class _TracedDifference(NamedTuple):
    """A Difference of traced texts, of the same kind for any texts if that is CONTEXT."""

    kind: str
    turn: int
    training: Skeleton
    inference: Skeleton | None

    @classmethod
    def of(cls, difference: Difference, trace: Trace) -> _TracedDifference:
        inference = None if difference.inference is None else trace.skeleton(difference.inference)
        return cls(difference.kind, difference.turn, trace.skeleton(difference.training), inference)

    def filled(self, conversation: Conversation, signature: Signature) -> Difference:
        texts = signature.texts, signature.trimmed
        training = self.training.filled(*texts)[0]
        inference = None if self.inference is None else self.inference.filled(*texts)[0]
        if self.kind == CONTEXT or inference is None:
            return Difference(CONTEXT, self.turn, training, inference)
        training, inference = training.rstrip(), inference.rstrip()
        kind = compare_answers(conversation.messages[self.turn], training, inference)
        return Difference(kind, self.turn, training, inference)


@dataclass(kw_only=True)
class Comparison(CompiledTemplate):
    """A compiled template, and the turns of all conversations of its signature.

    Attributes:
        turns: the numbers of the messages that are compared.
        kinds: for each turn that differs, the kind of its difference for the texts that were traced.
        by_texts: its difference, if the kind depends on the texts.
        rows: the texts in which each is trained on once, with how many messages they have and which turns; or the
            difference for which there are none; None if neither is known, or asked for.
        first: the first difference; None if there is none.
    """

    turns: Sequence[int]
    kinds: Mapping[int, str]
    by_texts: Mapping[int, _TracedDifference]
    rows: list[tuple[Skeleton, int, list[int]]] | _TracedDifference | None
    first: _TracedDifference | None

    def compared(self, conversation: Conversation, signature: Signature) -> Compared:
        """Return how the turns of a conversation of this signature differ, for whose texts the guards hold."""
        if not self.kinds:
            return Compared(self.turns, self.kinds)
        kinds = self.kinds
        if self.by_texts:
            others = {turn: own.filled(conversation, signature).kind for turn, own in self.by_texts.items()}
            kinds = {**kinds, **others}
        return Compared(self.turns, kinds, (self, conversation, signature))


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
        try:
            rows = expanded(beginnings, turns) if self._expands else None
        except (NotTraceable, RecordError):
            rows = None
        differences = differing(beginnings, trace.text, trace.spans, turns)
        compiled = trace.compiled()
        by_texts = {
            turn: _TracedDifference.of(difference, trace)
            for turn, difference in differences.items()
            if not _is_certain(difference, trace.conversation.messages[turn], trace.guards)
        }
        if isinstance(rows, Difference):
            traced_rows: Any = _TracedDifference.of(rows, trace)
        else:
            traced_rows = rows and [(trace.skeleton(row.text, row.spans), row.length, row.turns) for row in rows]
        return Comparison(
            **vars(compiled),
            turns=turns,
            kinds={turn: difference.kind for turn, difference in differences.items()},
            by_texts=by_texts,
            rows=traced_rows,
            first=next((_TracedDifference.of(difference, trace) for difference in differences.values()), None),
        )


class _TracedBeginnings(RenderedBeginnings):
    """The beginnings of a conversation of traced texts. Guards are added under which what differs does for any texts.

    Args:
        trace: of the conversation.
        plain: as of `ComparisonCache`, under the template of the trace.
    """

    def __init__(self, trace: Trace, plain: TurnFinder):
        super().__init__(trace.template, plain, trace.turns, trace.conversation, trace.text)
        self._trace = trace

    def text(self, length: int) -> str:
        text = super().text(length)
        self._trace.guard_spans(text)
        return text

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
                    self._trace.guards.apart.add((numbers[0], numbers[1]))
                elif numbers:
                    self._trace.guards.edges[numbers[0], 0] |= {*literals}
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
