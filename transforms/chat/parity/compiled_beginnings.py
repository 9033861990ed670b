"""Compare turns once per signature: a turn that is right for traced texts is right for all texts under their guards.

Other turns are compared for each conversation, by the beginnings that were traced: its texts are put into their holes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transforms.base.errors import RecordError
from transforms.chat.parity.contexts import CONTEXT, Difference, differing
from transforms.chat.rendering.arguments import with_read_arguments
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.spans.template_facts import shared_start
from transforms.chat.spans.turn_search import merged
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import CompiledTemplate, SlowPath, Target, TemplateCompiler, TracingTemplate
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.signatures import Cut, Cuts, Signature, signature_of, traced_messages
from transforms.chat.traced.skeleton import Edges, Skeleton, edges_of, spans_of
from transforms.chat.traced.trace_cache import SignatureCache
from transforms.chat.traced.tracer import SENTINEL, NotTraceable, number_of, plain_text
from transforms.model.examples import REASONING_KEYS, Conversation, Span

# A comparison renders each turn twice. The conversations of a batch for which it makes one; a small batch makes a few.
_CONVERSATIONS_PER_SIGNATURE = 32
_KEYS = frozenset(REASONING_KEYS)


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


@dataclass(frozen=True)
class Comparison:
    """The turns of all conversations of one signature.

    Attributes:
        compiled: what renders the conversations.
        turns: the numbers of the messages that are compared.
        guards: what must hold for the texts, as for what renders the conversations.
        kinds: for each turn that differs whatever the texts are, the kind of its difference.
        suspects: the other turns that may differ.
        contexts: what a server would have rendered before each turn; None if the template refuses that.
        answered: the text that ends with each turn, and the edges of what of it may be the answer; None if unknown.
        beginning: makes the beginning of a number of messages, once; None if it cannot be established.
    """

    compiled: CompiledTemplate
    turns: Sequence[int]
    guards: Guards
    kinds: Mapping[int, str]
    suspects: Sequence[int]
    contexts: Mapping[int, Skeleton | None]
    answered: Mapping[int, tuple[Skeleton, Sequence[Edges]] | None]
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
        return None if skeleton is None else skeleton.text(skeleton.printed(self._texts, self._trimmed))

    def answered(self, turn: int) -> tuple[str, Sequence[Span]] | None:
        if (found := self.comparison.answered[turn]) is None:
            return None
        skeleton, edges = found
        printed = skeleton.printed(self._texts, self._trimmed)
        return skeleton.text(printed), spans_of(edges, printed)

    def text(self, length: int) -> str:
        beginning, printed = self._beginning(length)
        return beginning.skeleton.text(printed)

    def turns(self, length: int, numbers: Sequence[int]) -> Mapping[int, list[Span]]:
        beginning, printed = self._beginning(length)
        return {turn: spans_of(edges, printed) for turn in numbers if (edges := beginning.turns.get(turn))}

    def trained(self, length: int, numbers: Sequence[int]) -> list[Span]:
        beginning, printed = self._beginning(length)
        edges = [edge for turn in numbers for edge in beginning.trained.get(turn, ())]
        return merged(spans_of(edges, printed))

    def _beginning(self, length: int) -> tuple[_Beginning, list[str]]:
        """The first messages, and what is in their holes."""
        held = self._held.get(length)
        if held is None:
            found = self.comparison.beginning(length)
            if found is None or not found.guards.hold(self._texts, self._trimmed):
                raise NotCompiled
            held = self._held[length] = found, found.skeleton.printed(self._texts, self._trimmed)
        return held


class _TracedBeginnings:
    """The beginnings of a conversation of traced texts, with sentinels in their texts; a `contexts.EndsOfTurns`.

    Args:
        tracing: renders them.
        finder: finds turns in what that renders.
        conversation: the conversation.
        turns: the numbers of the messages that are compared.
    """

    def __init__(self, tracing: TracingTemplate, finder: TurnFinder, conversation: Conversation, turns: Sequence[int]):
        self.conversation = conversation
        self._tracing, self._finder = tracing, finder
        self.contexts = {turn: self._context(turn) for turn in turns}
        self.answers = {turn: self._answered(turn) for turn in turns}
        self.context, self.answered = self.contexts.__getitem__, self.answers.__getitem__

    def _context(self, turn: int) -> str | None:
        try:
            return self._tracing.trace(self._part(turn), True)
        except RecordError:
            return None

    def _answered(self, turn: int) -> tuple[str, Sequence[Span]] | None:
        part = self._part(turn + 1)
        try:
            text = self._tracing.trace(part)
            if self._finder.follows_blocks(part):
                return text, merged(self._tracing.generation_blocks(part)[1])
        except RecordError:
            return None
        return text, [(0, len(text))]

    def turns(self, length: int, numbers: Sequence[int]) -> Mapping[int, list[Span]]:
        return self._finder.spans_of_turns(self._tracing.rendering(self._part(length)), numbers, whole=True)

    def _part(self, length: int) -> Conversation:
        return self.conversation.with_messages(self.conversation.messages[:length])


class ComparisonCache:
    """Compares conversations by comparisons that are made once per signature.

    As in a TraceCache, the result depends on the batch alone.

    Args:
        template: the chat template.
        rules: what else is known about turns.
        reference: finds turns under the template, without stop tokens that are printed for the next turn.
        as_trained: finds turns under the template, by the rules.
    """

    def __init__(self, template: ChatTemplate, rules: TurnRules, reference: TurnFinder, as_trained: TurnFinder):
        self._template = template
        self._reference = reference
        self._compiler = TemplateCompiler(template, rules, as_trained)
        self._cuts = Cuts(template, rules)
        self._cache = SignatureCache[Comparison | SlowPath](_CONVERSATIONS_PER_SIGNATURE)

    def begin_batch(self, conversations: int) -> None:
        """Begin a batch, see SignatureCache."""
        self._cache.begin_batch(conversations)

    def find(
        self,
        conversation: Conversation,
        known: Signature | None,
        target: Target,
        turns_of: Callable[[Conversation], Sequence[int]],
    ) -> CompiledBeginnings | None:
        """Find the beginnings of a conversation.

        Args:
            conversation: the conversation.
            known: the signature by which it was rendered; None if there is none.
            target: what of it is trained on.
            turns_of: gives the numbers of the messages to compare. They depend on the signature alone.

        Returns:
            Its beginnings; None if there is no comparison of its signature that holds for its texts.
        """
        if conversation.template_kwargs:
            conversation = with_read_arguments(conversation, self._template.source(conversation))
        known = self._cuts.known_signature(conversation, known)
        # Also if it was rendered by the second: what a batch compares does not depend on the engine.
        first = signature_of(conversation) if known is None else known.first or known
        if first is None:
            return None
        found = self._holding(first, conversation, target, turns_of)
        if found is None:
            cut = known if known and known.cut else self._cuts.signature(conversation, first)
            found = cut and self._holding(cut, conversation, target, turns_of)
        return found

    def _holding(
        self,
        signature: Signature,
        conversation: Conversation,
        target: Target,
        turns_of: Callable[[Conversation], Sequence[int]],
    ) -> CompiledBeginnings | None:
        """The beginnings by the comparison of a signature, if there is one that holds for it."""
        key = target, conversation.completion_start, signature.key
        comparison = self._cache.get(key, lambda: self._compare(conversation, target, turns_of, signature.cut))
        texts = signature.texts, signature.trimmed
        if not isinstance(comparison, Comparison) or not comparison.guards.hold(*texts):
            return None
        compiled = comparison.compiled
        rendered = None if compiled.is_compared else compiled.render(*texts)
        if rendered and (differs := self._compiler.compare(compiled, conversation, target, rendered)):
            self._cache.replace(key, differs)
            return None
        return CompiledBeginnings(conversation, comparison, signature)

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
        try:
            messages, _ = traced_messages(conversation.messages, guards, cut)
            tracing = TracingTemplate(self._template)
            finder = TurnFinder(tracing, self._reference.rules, self._reference)
            traced = conversation.with_messages(messages)
            beginnings = _TracedBeginnings(tracing, finder, traced, turns)
            found = differing(beginnings, compiled.traced, compiled.spans, turns)
        except NotTraceable:
            return SlowPath()
        guards.update(compiled.guards)
        kinds = {turn: one.kind for turn, one in found.items() if _is_certain(one, messages[turn], guards)}
        return Comparison(
            compiled,
            turns,
            guards,
            kinds,
            [turn for turn in found if turn not in kinds],
            {turn: None if text is None else Skeleton.of(text) for turn, text in beginnings.contexts.items()},
            {turn: one and (Skeleton.of(one[0]), edges_of(*one)) for turn, one in beginnings.answers.items()},
            functools.cache(lambda length: self._beginning(conversation, length, turns, cut)),
        )

    def _beginning(
        self, conversation: Conversation, length: int, turns: Sequence[int], cut: Cut | None
    ) -> _Beginning | None:
        guards = Guards()
        tracing = TracingTemplate(self._template)
        own = [turn for turn in turns if turn < length]
        try:
            messages, owners = traced_messages(conversation.messages[:length], guards, cut)
            traced = conversation.with_messages(messages)
            text, rendering = tracing.trace(traced), tracing.rendering(traced)
            finder = TurnFinder(tracing, self._reference.rules, self._reference)
            whole = finder.spans_of_turns(rendering, own, whole=True)
            trained = self._compiler.turn_finder(tracing).spans_of_turns(rendering, own)
            self._compiler.guard_answers(guards, traced, text, owners)
        except (NotTraceable, RecordError):
            return None
        guards.trimmed |= tracing.has_both_forms
        edges = [{turn: edges_of(text, spans) for turn, spans in found.items()} for found in (whole, trained)]
        return _Beginning(guards, Skeleton.of(text), *edges)


def _is_certain(difference: Difference, message: Mapping[str, Any], guards: Guards) -> bool:
    """Whether a turn of traced texts differs in this way whatever the texts are. Guards may be added."""
    training, inference = difference.training, difference.inference or ""
    if difference.kind == CONTEXT:
        same = shared_start(training, inference)
        goes_on = training[same : same + 1], inference[same : same + 1]
        return "" in goes_on or not SENTINEL.search("".join(goes_on))
    content = plain_text(message["content"]) if isinstance(message.get("content"), str) else ""
    added = inference.removesuffix(training) if inference.endswith(training) else ""
    if _thoughts(message, content, guards) & {number_of(text) for text in SENTINEL.findall(added)}:
        return True  # it has its reasoning only if it is the last one
    may_reason = "</think>" in content or "</think>" not in guards.absent or not _KEYS.isdisjoint(message)
    return not may_reason and _have_other_lengths(training, inference)


def _have_other_lengths(one: str, other: str) -> bool:
    """Whether two traced texts end with literals, and differ in length whatever the texts are."""
    if any(SENTINEL.match(text[-1:]) for text in (one, other)):
        return False
    short, long = sorted((one, other), key=len)
    in_short, in_long = (Counter(SENTINEL.findall(text)) for text in (short, long))
    literals = (len(short) - in_short.total()) - (len(long) - in_long.total())
    return len(short) != len(long) and in_short <= in_long and literals <= 0


def _thoughts(message: Mapping[str, Any], content: str, guards: Guards) -> set[int]:
    """The numbers of the texts that are the reasoning of a message, or end with it, whatever the texts are."""
    thoughts = [plain_text(message[key]).strip() for key in _KEYS & message.keys() if isinstance(message[key], str)]
    if "</think>" in content and "</think>" in guards.absent:
        inline = content.rpartition("</think>")[0].rpartition("<think>")[2].strip()
        if SENTINEL.fullmatch(inline):
            # The reasoning begins after <think>, wherever that is in the text.
            guards.ends.setdefault(number_of(inline), set()).add("<think>")
            thoughts.append(inline)
    return {number_of(thought) for thought in thoughts if SENTINEL.fullmatch(thought)}
