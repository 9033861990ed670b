"""Compare turns once per signature: the comparison of traced texts holds for all conversations under its guards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from transforms.chat.compiled import (
    CompiledTemplate,
    SlowPath,
    Target,
    TemplateCompiler,
    TracingTemplate,
)
from transforms.chat.contexts import CONTEXT, Contexts, Difference, kind_of_answers
from transforms.chat.conventions import shared_start
from transforms.chat.guards import Guards
from transforms.chat.signatures import Cut, Cuts, NoSignature, Signature, signature_of, traced_messages
from transforms.chat.stop_tokens import TurnRules
from transforms.chat.template import ChatTemplate
from transforms.chat.trace_cache import SignatureCache
from transforms.chat.tracer import SENTINEL, NotTraceable, joined_with_texts, split_at_texts
from transforms.chat.turns import TurnFinder
from transforms.errors import RecordError
from transforms.model.examples import REASONING_KEYS, Conversation

# A comparison renders each turn twice. A batch makes one for so many conversations, or a few if it is small.
_CONVERSATIONS_PER_SIGNATURE = 64


@dataclass(frozen=True)
class Comparison:
    """How the turns of all conversations of one signature differ.

    Attributes:
        turns: the numbers of the messages that were compared.
        compiled: renders the conversations. Its guards are among those of the comparison.
        guards: what must hold for the texts.
        differing: the turns that differ.
    """

    turns: Sequence[int]
    compiled: CompiledTemplate
    guards: Guards
    differing: Sequence[TracedDifference]

    @functools.cached_property
    def kinds(self) -> dict[int, str]:
        """For the number of each message that differs, the kind of its `contexts.Difference`."""
        return {difference.turn: difference.kind for difference in self.differing}

    def holds(self, conversation: Conversation, texts: list[str], trimmed: list[str]) -> bool:
        """Return whether a conversation of the signature differs in the same way.

        Args:
            conversation: the conversation.
            texts: its texts.
            trimmed: the same texts without the white space around them.
        """
        if not self.guards.hold(texts, trimmed) or self.compiled.failure(texts, trimmed):
            return False
        return all(difference.holds(conversation, texts, trimmed) for difference in self.differing)


class TracedDifference:
    """How a turn of traced texts differs.

    Traced texts that are equal stand for equal texts. Two that are not equal may stand for the same text all the same,
    and the kind of a difference depends on the texts. Therefore a difference is compared again for each conversation.
    It is not if the two hold the same texts and other literals, as of an empty think block, and the message has no
    reasoning.

    Args:
        difference: the difference.
        stripped: the numbers of the texts that are printed stripped.
        may_reason: whether the message may hold reasoning, by which the kind is chosen.
    """

    def __init__(self, difference: Difference, stripped: Collection[int], may_reason: bool):
        self.turn, self.kind = difference.turn, difference.kind
        training, inference = difference.training, difference.inference or ""
        # Those that follow a context which begins the text differ by where the answer begins.
        self._depends = self.kind != CONTEXT or not training.startswith(inference)
        if self.kind == CONTEXT:
            training, inference = _from_first_difference(training, inference)
            are_literal = not SENTINEL.match(training) and not SENTINEL.match(inference)
            self._depends = self._depends and not (training and inference and are_literal)
        else:
            self._depends = may_reason or not _have_other_lengths(training, inference)
        self._training, self._inference = (_pieces(text, stripped) for text in (training, inference))

    def holds(self, conversation: Conversation, texts: list[str], trimmed: list[str]) -> bool:
        """Return whether the turn differs in this way with these texts."""
        if not self._depends:
            return True
        training, inference = (_inserted(pieces, texts, trimmed) for pieces in (self._training, self._inference))
        if self.kind == CONTEXT:
            return not training.startswith(inference)
        return kind_of_answers(conversation.messages[self.turn], training, inference) == self.kind


# What a template printed: a literal, then the number of a text, whether it is stripped, a literal, and so on.
_Pieces: TypeAlias = tuple[list[str], list[tuple[int, bool]]]


def _pieces(text: str, stripped: Collection[int]) -> _Pieces:
    literals, slots = split_at_texts(text)
    return literals, [(number, number in stripped) for number, _ in slots]


def _have_other_lengths(one: str, other: str) -> bool:
    """Whether two traced texts hold the same texts, end with literals, and differ in length whatever the texts are."""
    same_texts = sorted(SENTINEL.findall(one)) == sorted(SENTINEL.findall(other))
    return same_texts and len(one) != len(other) and not any(SENTINEL.match(text[-1:]) for text in (one, other))


def _inserted(pieces: _Pieces, texts: list[str], trimmed: list[str]) -> str:
    literals, slots = pieces
    return joined_with_texts(literals, [trimmed[number] if strips else texts[number] for number, strips in slots])


def _from_first_difference(one: str, other: str) -> tuple[str, str]:
    """What is left of two traced texts without what they begin with in common."""
    same = shared_start(one, other)
    return one[same:], other[same:]


class ComparisonCache:
    """Compares conversations by comparisons that are made once per signature.

    As in a TraceCache, the result depends on the batch alone.

    Args:
        template: the chat template.
        rules: what else is known about turns.
    """

    def __init__(self, template: ChatTemplate, rules: TurnRules):
        self._template = template
        self._rules = TurnRules(traced=rules.traced)
        self._compiler = TemplateCompiler(template, rules)
        self._cuts = Cuts(template, rules)
        self._cache = SignatureCache[Comparison | SlowPath](_CONVERSATIONS_PER_SIGNATURE)

    def begin_batch(self, conversations: int) -> None:
        """Begin a batch, see SignatureCache."""
        self._cache.begin_batch(conversations)

    def compare(
        self, conversation: Conversation, target: Target, turns_of: Callable[[Conversation], Sequence[int]]
    ) -> Comparison | None:
        """Compare the turns of a conversation.

        Args:
            conversation: the conversation.
            target: what of it is trained on.
            turns_of: gives the numbers of the messages to compare. They depend on the signature alone.

        Returns:
            The comparison of its signature; None if there is none, or if it does not hold for these texts.
        """
        signature = signature_of(conversation)
        if isinstance(signature, NoSignature):
            return None
        comparison = self._holding(signature, conversation, target, turns_of)
        if comparison is None and (cut := self._cuts.signature(conversation, signature)):
            comparison = self._holding(cut, conversation, target, turns_of)
        return comparison

    def _holding(
        self,
        signature: Signature,
        conversation: Conversation,
        target: Target,
        turns_of: Callable[[Conversation], Sequence[int]],
    ) -> Comparison | None:
        """The comparison of a signature, if there is one and it holds for the conversation."""
        key = target, conversation.completion_start, signature.key
        comparison = self._cache.get(key, lambda: self._compare(conversation, target, turns_of, signature.cut))
        if isinstance(comparison, Comparison) and comparison.holds(conversation, signature.texts, signature.trimmed):
            return comparison
        return None

    def _compare(
        self,
        conversation: Conversation,
        target: Target,
        turns_of: Callable[[Conversation], Sequence[int]],
        cut: Cut | None,
    ) -> Comparison | SlowPath:
        turns = turns_of(conversation)
        compiled = self._compiler.compile(conversation, target, cut)
        if isinstance(compiled, SlowPath):
            return compiled
        guards = Guards()
        traced = conversation.with_messages(traced_messages(conversation.messages, guards, cut)[0])
        tracing = _RecordingTemplate(self._template)
        finder = TurnFinder(tracing, self._rules)
        try:
            text, spans = finder.trained_spans(traced, target)
            differing = Contexts(tracing, finder, finder).differing(traced, text, spans, turns)
            stripped = {number for number, is_stripped in tracing.ways if is_stripped}
            messages = enumerate(conversation.messages)
            reason = {number for number, message in messages if not message.keys().isdisjoint(REASONING_KEYS)}
            any_inline = "</think>" not in compiled.guards.absent
            differences = [TracedDifference(d, stripped, any_inline or d.turn in reason) for d in differing.values()]
        except NotTraceable as error:
            return SlowPath("template_not_traceable", str(error))
        except RecordError as error:
            return SlowPath("trace_failed", f"{error.reason}: {error.detail}")
        # A text that is stripped in one rendering and not in another is the same only if it needs no stripping.
        guards.trimmed |= any(number in stripped for number, is_stripped in tracing.ways if not is_stripped)
        return Comparison(turns, compiled, guards, differences)


class _RecordingTemplate(TracingTemplate):
    """Records how texts are printed: `ways` has the number of each text, and whether it was stripped."""

    def __init__(self, template: ChatTemplate):
        super().__init__(template)
        self.ways: set[tuple[int, bool]] = set()

    def trace(
        self,
        conversation: Conversation,
        messages: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        text = super().trace(conversation, messages, add_generation_prompt)
        self.ways.update(split_at_texts(text)[1])
        return text
