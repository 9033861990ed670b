"""Compare turns once per signature: a turn that is right for traced texts is right for all texts under their guards.

Other turns are compared for each conversation, by the beginnings that were traced: its texts are put into their holes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from transforms.base.errors import RecordError
from transforms.chat.parity.contexts import (
    CONTEXT,
    REASONING_DROPPED,
    Difference,
    RenderedBeginnings,
    differing,
    reasoning_in,
)
from transforms.chat.rendering.arguments import with_read_arguments
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.template_facts import shared_start
from transforms.chat.spans.turn_search import merged
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import CompiledTemplate, Target, Trace, TracingTemplate
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.signatures import Cut, Signature, traced_messages
from transforms.chat.traced.skeleton import Edges, Skeleton, find_edges, place_spans
from transforms.chat.traced.trace_cache import SignatureCache
from transforms.chat.traced.tracer import SENTINEL, NotTraceable, plain_text, sentinel_number
from transforms.model.examples import Conversation, Span

# Gives the numbers of the messages of a conversation to compare. They depend on its signature alone.
TurnsOf: TypeAlias = Callable[[Conversation], Sequence[int]]


class NotCompiled(Exception):
    """A conversation has texts, or a template does something, that its compiled beginnings do not allow for."""


class _Beginning(NamedTuple):
    """The first messages, with their turns, of all conversations of a signature.

    Attributes:
        guards: what must hold for the texts.
        skeleton: what the template prints.
        turns: the edges of the spans of each turn that has any, with the parts that are not trained on.
        trained: the same of what is trained on.
    """

    guards: Guards
    skeleton: Skeleton
    turns: Mapping[int, Sequence[Edges]]
    trained: Mapping[int, Sequence[Edges]]


@dataclass(kw_only=True)
class Comparison(CompiledTemplate):
    """A compiled template, and the turns of all conversations of its signature.

    Attributes:
        turns: the numbers of the messages that are compared.
        kinds: for each turn that differs whatever the texts are, the kind of its difference.
        suspects: the other turns that may differ.
        contexts: what a server would have rendered before each turn; None if the template refuses that.
        answered: the text that ends with each turn, with the spans of what may be the answer; None if unknown.
        beginning: makes the beginning of a number of messages, once; None if it cannot be established.
    """

    turns: Sequence[int]
    kinds: Mapping[int, str]
    suspects: Sequence[int]
    contexts: Mapping[int, Skeleton | None]
    answered: Mapping[int, Skeleton | None]
    beginning: Callable[[int], _Beginning | None]


class CompiledBeginnings:
    """The beginnings of a conversation, by a comparison whose guards hold for it; a `contexts.Beginnings`.

    Its methods raise NotCompiled if more would have to hold.
    """

    def __init__(self, conversation: Conversation, comparison: Comparison, signature: Signature):
        self.conversation, self.comparison = conversation, comparison
        self._texts, self._trimmed = signature.texts, signature.trimmed
        self._held: dict[int, tuple[_Beginning, list[str]]] = {}

    def context(self, turn: int) -> str | None:
        skeleton = self.comparison.contexts[turn]
        return None if skeleton is None else skeleton.filled(self._texts, self._trimmed)[0]

    def answered(self, turn: int) -> tuple[str, Sequence[Span]] | None:
        skeleton = self.comparison.answered[turn]
        return None if skeleton is None else skeleton.filled(self._texts, self._trimmed)

    def text(self, length: int) -> str:
        beginning, printed = self._beginning(length)
        return beginning.skeleton.text(printed)

    def turns(self, length: int, numbers: Sequence[int]) -> Mapping[int, list[Span]]:
        beginning, printed = self._beginning(length)
        return {turn: place_spans(edges, printed) for turn in numbers if (edges := beginning.turns.get(turn))}

    def trained(self, length: int, numbers: Sequence[int]) -> list[Span]:
        beginning, printed = self._beginning(length)
        edges = [edge for turn in numbers for edge in beginning.trained.get(turn, ())]
        return merged(place_spans(edges, printed))

    def _beginning(self, length: int) -> tuple[_Beginning, list[str]]:
        """The first messages, and what is in their holes."""
        held = self._held.get(length)
        if held is None:
            found = self.comparison.beginning(length)
            if found is None or not found.guards.hold(self._texts, self._trimmed):
                raise NotCompiled
            held = self._held[length] = found, found.skeleton.printed(self._texts, self._trimmed)
        return held


class _PrintForms(TracingTemplate):
    """Renders with other sentinels for stripped texts, so that a text that is stripped is another one."""

    def render(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        return self.trace(conversation, add_generation_prompt)


class ComparisonCache(SignatureCache[Comparison]):
    """Compares conversations by comparisons that are made once per signature.

    As in a TraceCache, the result depends on the batch alone.

    Args:
        template: the chat template.
        plain: finds turns under the template, without stop tokens that are printed for the next turn.
        as_trained: finds turns under the template, by the rules.
        find_turns: gives the numbers of the messages to compare.
    """

    _conversations_per_signature = 32  # a comparison renders each turn twice

    def __init__(self, template: ChatTemplate, plain: TurnFinder, as_trained: TurnFinder, find_turns: TurnsOf):
        super().__init__(template, as_trained)
        self._plain, self._turns_of = plain, find_turns

    def find(self, conversation: Conversation, known: Signature | None, target: Target) -> CompiledBeginnings | None:
        """Find the beginnings of a conversation.

        Args:
            conversation: the conversation.
            known: the signature by which it was rendered; None if there is none.
            target: what of it is trained on.

        Returns:
            Its beginnings; None if there is no comparison of its signature that holds for its texts.
        """
        if conversation.template_kwargs:
            conversation = with_read_arguments(conversation, self._template.source(conversation))
        found = self._find(conversation, target, known)
        return None if isinstance(found, str) else CompiledBeginnings(conversation, *found)

    def _compile(self, conversation: Conversation, target: Target, cut: Cut) -> Comparison:
        turns = self._turns_of(conversation)
        compiled = super()._compile(conversation, target, cut)
        traced = conversation.with_messages(traced_messages(conversation.messages, compiled.guards, cut)[0])
        forms, finder = _PrintForms(self._template), self._finder(TracingTemplate(self._template))
        beginnings: Any = RenderedBeginnings(forms, finder, finder, traced, compiled.traced)
        beginnings.context, beginnings.answered = map(functools.cache, (beginnings.context, beginnings.answered))
        found = differing(beginnings, compiled.traced, compiled.spans, turns)
        certain = {turn: _find_certain_kind(one, traced.messages[turn], compiled.guards) for turn, one in found.items()}
        kinds = {turn: kind for turn, kind in certain.items() if kind}
        return Comparison(
            **vars(compiled),
            turns=turns,
            kinds=kinds,
            suspects=[turn for turn in found if turn not in kinds],
            contexts={turn: None if (one := beginnings.context(turn)) is None else Skeleton.of(one) for turn in turns},
            answered={turn: (one := beginnings.answered(turn)) and Skeleton.of(*one) for turn in turns},
            beginning=functools.cache(lambda length: self._beginning(conversation, length, turns, cut)),
        )

    def _finder(self, tracing: TracingTemplate) -> TurnFinder:
        return TurnFinder(tracing, self._plain.rules, self._plain)

    def _beginning(self, conversation: Conversation, length: int, turns: Sequence[int], cut: Cut) -> _Beginning | None:
        own = [turn for turn in turns if turn < length]
        try:
            part = conversation.with_messages(conversation.messages[:length])
            trace = Trace(self._template, self._turns, part, cut)
            whole = self._finder(trace.template).find_turn_spans(trace.rendering, own, whole=True)
            trained = trace.turns.find_turn_spans(trace.rendering, own)
            trace.add_guards("assistant")
        except (NotTraceable, RecordError):
            return None
        edges = [{turn: find_edges(trace.text, spans) for turn, spans in found.items()} for found in (whole, trained)]
        return _Beginning(trace.guards, Skeleton.of(trace.text), *edges)


def _find_certain_kind(difference: Difference, message: Mapping[str, Any], guards: Guards) -> str | None:
    """The kind of a difference of traced texts, if it is that whatever the texts are. Guards may be added."""
    training, inference = difference.training, difference.inference or ""
    if difference.kind == CONTEXT:
        same = shared_start(training, inference)
        goes_on = training[same : same + 1], inference[same : same + 1]
        return CONTEXT if "" in goes_on or not SENTINEL.search("".join(goes_on)) else None
    added = SENTINEL.findall(inference.removesuffix(training) if inference.endswith(training) else "")
    content = message.get("content")
    has_tag = isinstance(content, str) and "</think>" in plain_text(content)
    may_have_tag, thoughts = "</think>" not in guards.absent, reasoning_in(message)
    for thought in () if has_tag and may_have_tag else thoughts:
        if SENTINEL.fullmatch(thought) and sentinel_number(thought) in map(sentinel_number, added):
            # The reasoning begins after <think>, wherever that is in the text.
            guards.edges.setdefault((sentinel_number(thought), -1), set()).add("<think>")
            return REASONING_DROPPED  # it has its reasoning only if it is the last one, perhaps as a stripped text
    is_certain = not (has_tag or may_have_tag or thoughts) and _have_other_lengths(training, inference)
    return difference.kind if is_certain else None


def _have_other_lengths(one: str, other: str) -> bool:
    """Whether two traced texts end with literals, and differ in length whatever the texts are."""
    ends = one[-1:] + other[-1:]
    short, long = sorted((one, other), key=len)
    in_short, in_long = (Counter(SENTINEL.findall(text)) for text in (short, long))
    literals = (len(short) - in_short.total()) - (len(long) - in_long.total())
    return not SENTINEL.search(ends) and len(short) != len(long) and in_short <= in_long and literals <= 0
