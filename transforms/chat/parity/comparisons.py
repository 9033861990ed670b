"""Compare turns once per signature: the comparison of traced texts holds for all conversations under its guards."""

from __future__ import annotations

import functools
import marshal
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from transforms.chat.parity.contexts import CONTEXT, Contexts, Difference, kind_of_answers
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.conventions import Template, shared_start
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import (
    SlowPath,
    Target,
    TemplateCompiler,
    TracingTemplate,
    edges_of,
    with_texts,
)
from transforms.chat.traced.guards import Guards
from transforms.chat.traced.signatures import Cut, Cuts, NoSignature, Signature, signature_of, traced_messages
from transforms.chat.traced.trace_cache import SignatureCache
from transforms.chat.traced.tracer import (
    SENTINEL,
    NotTraceable,
    TracedText,
    joined_with_texts,
    number_of,
    plain_text,
    split_at_texts,
    traced_text,
)
from transforms.errors import RecordError
from transforms.model.examples import REASONING_KEYS, Conversation, Span

# A comparison renders each turn twice. A batch makes one for so many conversations, or a few if it is small.
_CONVERSATIONS_PER_SIGNATURE = 32
# The most traced renderings that are kept beyond a batch.
_KEPT = 4096


@dataclass(frozen=True)
class Comparison:
    """How the turns of all conversations of one signature differ.

    Attributes:
        turns: the numbers of the messages that were compared.
        guards: what must hold for the texts, as for what renders the conversations.
        differing: the turns that differ.
        expansion: the texts that replace a conversation; None if they are not known.
    """

    turns: Sequence[int]
    guards: Guards
    differing: Sequence[TracedDifference]
    expansion: Expansion | None = None

    @functools.cached_property
    def kinds(self) -> dict[int, str]:
        """For the number of each message that differs, the kind of its `contexts.Difference`."""
        return {difference.turn: difference.kind for difference in self.differing}

    @functools.cached_property
    def _dependent(self) -> list[TracedDifference]:
        return [difference for difference in self.differing if difference.depends]

    def holds(self, conversation: Conversation, texts: list[str], trimmed: list[str]) -> bool:
        """Return whether a conversation of the signature differs in the same way.

        Args:
            conversation: the conversation.
            texts: its texts.
            trimmed: the same texts without the white space around them.
        """
        if not self.guards.hold(texts, trimmed):
            return False
        if not self._dependent:
            return True

        def message(number: int) -> Mapping[str, Any]:
            if plain := conversation.plain:  # its messages need not be decoded
                return {"role": plain[0][number], "content": plain[1][number]}
            return conversation.messages[number]

        return all(difference.holds(message, texts, trimmed) for difference in self._dependent)


class Compared(NamedTuple):
    """A conversation, and the comparison of its signature, which holds for it.

    Attributes:
        comparison: the comparison.
        signature: of the conversation.
    """

    comparison: Comparison
    signature: Signature

    @property
    def detail(self) -> str:
        """The first difference in one line, as `Difference.detail`."""
        return self.comparison.differing[0].detail(self.signature.texts, self.signature.trimmed)

    def expanded(self) -> list[tuple[str, list[Span]]] | None:
        """Return the texts that replace the conversation as `Contexts.expanded` does, None if they are not known."""
        expansion = self.comparison.expansion
        return None if expansion is None else expansion.rows(self.signature.texts, self.signature.trimmed)


@dataclass(frozen=True)
class Expansion:
    """The texts that replace all conversations of one signature.

    Attributes:
        compiled: what renders each of them.
        guards: what must hold for the texts of the conversation.
        differing: the turns that must differ in one of them, or it would be another one.
    """

    compiled: Sequence[tuple[_Pieces, list[tuple[int, int, int, int]]]]
    guards: Guards
    differing: Sequence[TracedDifference]

    def rows(self, texts: list[str], trimmed: list[str]) -> list[tuple[str, list[Span]]] | None:
        """Return the texts and their spans for one conversation, None if they are not known."""
        if not self.guards.hold(texts, trimmed) or not all(one.differs(texts, trimmed) for one in self.differing):
            return None
        return [rendered(pieces, edges, texts, trimmed) for pieces, edges in self.compiled]


class TracedDifference:
    """How a turn of traced texts differs.

    Traced texts that are equal stand for equal texts. Two that are not equal may stand for the same text all the same,
    and the kind of a difference depends on the texts. Therefore a difference is compared again for each conversation.
    It is not if the two hold the same texts and other literals, as of an empty think block, and the message has no
    reasoning; nor if all that the last turn has more is before the rest, with the reasoning in it.

    Args:
        difference: the difference.
        stripped: the numbers of the texts that are printed stripped.
        guards: takes those under which a text is not equal to a literal that is in its place.
        may_reason: whether the message may hold reasoning, by which the kind is chosen.
        thoughts: the numbers of the texts that are its reasoning, or hold it, whatever the texts are.

    Attributes:
        turn, kind: those of the difference.
        depends: whether it is compared again for each conversation.
    """

    def __init__(
        self,
        difference: Difference,
        stripped: Collection[int],
        guards: Guards,
        may_reason: bool = False,
        thoughts: Collection[int] = (),
    ):
        self.turn, self.kind = difference.turn, difference.kind
        training, inference = difference.training, difference.inference or ""
        self._whole_training = _pieces(training, stripped)
        self._whole_inference = None if difference.inference is None else _pieces(inference, stripped)
        # Those that follow a context which begins the text differ by where the answer begins.
        self.depends = self.kind != CONTEXT or not training.startswith(inference)
        if self.kind == CONTEXT:
            training, inference = _from_first_difference(training, inference)
            self.depends = self.depends and not (
                training and inference and _begin_differently(training, inference, guards)
            )
            self._may_be_equal = self.depends
        else:
            self._may_be_equal = not _have_other_lengths(training, inference)
            added = inference.removesuffix(training) if inference.endswith(training) else ""
            if any(number_of(character) in thoughts for character in SENTINEL.findall(added)):
                may_reason = self._may_be_equal = False
            self.depends = may_reason or self._may_be_equal
        self._training, self._inference = (_pieces(text, stripped) for text in (training, inference))

    def holds(self, message: Callable[[int], Mapping[str, Any]], texts: list[str], trimmed: list[str]) -> bool:
        """Return whether the turn differs in this way.

        Args:
            message: returns a message of the conversation.
            texts: the texts of the conversation.
            trimmed: the same without the white space around them.
        """
        training, inference = self._inserted(texts, trimmed)
        if self.kind == CONTEXT:
            return not training.startswith(inference)
        return kind_of_answers(message(self.turn), training, inference) == self.kind

    def differs(self, texts: list[str], trimmed: list[str]) -> bool:
        """Return whether the turn differs in some way."""
        if not self._may_be_equal:
            return True
        training, inference = self._inserted(texts, trimmed)
        if self.kind == CONTEXT:
            return not training.startswith(inference)
        return training.rstrip() != inference.rstrip()

    def detail(self, texts: list[str], trimmed: list[str]) -> str:
        """The difference in one line, as `Difference.detail`."""
        training = _inserted(self._whole_training, texts, trimmed)
        inference = self._whole_inference and _inserted(self._whole_inference, texts, trimmed)
        if self.kind != CONTEXT:
            training, inference = training.rstrip(), (inference or "").rstrip()
        return Difference(self.kind, self.turn, training, inference).detail

    def _inserted(self, texts: list[str], trimmed: list[str]) -> tuple[str, str]:
        return _inserted(self._training, texts, trimmed), _inserted(self._inference, texts, trimmed)


# What a template printed: a literal, then the number of a text, whether it is stripped, a literal, and so on.
_Pieces: TypeAlias = tuple[list[str], list[tuple[int, bool]]]


def _pieces(text: str, stripped: Collection[int]) -> _Pieces:
    literals, holes = split_at_texts(text)
    return literals, [(number, number in stripped) for number, _ in holes]


def _have_other_lengths(one: str, other: str) -> bool:
    """Whether two traced texts end with literals, and differ in length whatever the texts are."""
    if any(SENTINEL.match(text[-1:]) for text in (one, other)):
        return False
    short, long = sorted((one, other), key=len)
    in_short, in_long = (Counter(SENTINEL.findall(text)) for text in (short, long))
    literals = (len(short) - in_short.total()) - (len(long) - in_long.total())
    return len(short) != len(long) and in_short <= in_long and literals <= 0


def _begin_differently(one: str, other: str, guards: Guards) -> bool:
    """Whether two traced texts that begin with other characters do so for all texts under guards, which are added."""
    literals = [SENTINEL.split(text, 1)[0] for text in (one, other)]
    if not any(literals):
        return False
    for text, literal in zip((one, other), literals[::-1], strict=True):
        if SENTINEL.match(text):
            guards.starts.setdefault(number_of(text[0]), set()).add(literal)
    return True


def _inserted(pieces: _Pieces, texts: list[str], trimmed: list[str]) -> str:
    literals, holes = pieces
    return joined_with_texts(literals, [trimmed[number] if strips else texts[number] for number, strips in holes])


def rendered(
    pieces: _Pieces, edges: Sequence[tuple[int, int, int, int]], texts: list[str], trimmed: list[str]
) -> tuple[str, list[Span]]:
    """Return a text and its spans, see `CompiledTemplate`."""
    literals, holes = pieces
    printed = [trimmed[number] if strips else texts[number] for number, strips in holes]
    lengths = [0, *accumulate(map(len, printed))]
    return joined_with_texts(literals, printed), [(lengths[a] + i, lengths[b] + j) for a, i, b, j in edges]


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
        expands: whether conversations of which a turn differs are expanded.
    """

    def __init__(self, template: ChatTemplate, rules: TurnRules, expands: bool = False):
        self._template = template
        self._all_rules, self._expands = rules, expands
        self._rules = TurnRules(traced=rules.traced)
        self._compiler = TemplateCompiler(template, rules)
        self._cuts = Cuts(template, rules)
        self._cache = SignatureCache[Comparison | SlowPath](_CONVERSATIONS_PER_SIGNATURE)
        self._traced: dict[bytes, _Traced] = {}

    def begin_batch(self, conversations: int) -> None:
        """Begin a batch, see SignatureCache."""
        self._cache.begin_batch(conversations)
        if len(self._traced) > _KEPT:
            self._traced.clear()

    def compare(
        self,
        conversation: Conversation,
        known: Signature | None,
        target: Target,
        turns_of: Callable[[Conversation], Sequence[int]],
    ) -> Compared | None:
        """Compare the turns of a conversation.

        Args:
            conversation: the conversation.
            known: the signature by which it was rendered; None if there is none.
            target: what of it is trained on.
            turns_of: gives the numbers of the messages to compare. They depend on the signature alone.

        Returns:
            It with the comparison of its signature; None if there is none, or if it does not hold for these texts.
        """
        known = self._cuts.known_signature(conversation, known)
        # Also if it was rendered by the second: what a batch compares does not depend on the engine.
        first = signature_of(conversation) if known is None else known.first or known
        if isinstance(first, NoSignature):
            return None
        comparison = self._holding(first, conversation, target, turns_of)
        if comparison is None:
            cut = known if known and known.cut else self._cuts.signature(conversation, first)
            comparison = cut and self._holding(cut, conversation, target, turns_of)
        return comparison

    def _holding(
        self,
        signature: Signature,
        conversation: Conversation,
        target: Target,
        turns_of: Callable[[Conversation], Sequence[int]],
    ) -> Compared | None:
        """The conversation and the comparison of a signature, if there is one that holds for it."""
        key = target, conversation.completion_start, signature.key
        comparison = self._cache.get(key, lambda: self._compare(conversation, target, turns_of, signature.cut))
        if isinstance(comparison, Comparison) and comparison.holds(conversation, signature.texts, signature.trimmed):
            return Compared(comparison, signature)
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
        messages, _ = traced_messages(conversation.messages, guards, cut)
        traced = conversation.with_messages(messages)
        tracing = _RecordingTemplate(self._template, guards, self._traced)
        finder = TurnFinder(tracing, self._rules)
        try:
            rendering = tracing.rendering(traced)
            text, spans = rendering.text, finder.trained_spans(rendering, target)
            differing = [*Contexts(tracing, finder, finder).differing(traced, text, spans, turns).values()]
            guards.trimmed |= tracing.has_both_forms
            guards.update(compiled.guards)
            may_reason = {turn for turn in turns if self._may_reason(messages[turn], guards)}
            stripped = tracing.stripped
            thoughts = {turn: self._thoughts(messages[turn], guards) for turn in may_reason}
            differences = [
                TracedDifference(one, stripped, guards, one.turn in may_reason, thoughts.get(one.turn, ()))
                for one in differing
            ]
        except NotTraceable as error:
            return SlowPath("template_not_traceable", str(error))
        except RecordError as error:
            return SlowPath("trace_failed", f"{error.reason}: {error.detail}")
        expansion = self._expansion(conversation, turns, cut) if self._expands and differences else None
        return Comparison(turns, guards, differences, expansion)

    def _may_reason(self, message: Mapping[str, Any], guards: Guards) -> bool:
        """Whether a message of traced texts may hold reasoning under guards."""
        content = message.get("content")
        is_inline = isinstance(content, str) and "</think>" in plain_text(content)
        return is_inline or "</think>" not in guards.absent or not message.keys().isdisjoint(REASONING_KEYS)

    def _thoughts(self, message: Mapping[str, Any], guards: Guards) -> set[int]:
        """The numbers of the texts that are the reasoning of a message of traced texts, or end with it."""
        thoughts = [plain_text(message[key]) for key in REASONING_KEYS if isinstance(message.get(key), str)]
        numbers = {number_of(thought.strip()) for thought in thoughts if SENTINEL.fullmatch(thought.strip())}
        content = message.get("content")
        if isinstance(content, str) and "</think>" in guards.absent:
            inline = plain_text(content).rpartition("</think>")[0].rpartition("<think>")[2].strip()
            if SENTINEL.fullmatch(inline):
                # The reasoning begins after <think>, wherever that is in the text.
                guards.ends.setdefault(number_of(inline), set()).add("<think>")
                numbers.add(number_of(inline))
        return numbers

    def _expansion(self, conversation: Conversation, turns: Sequence[int], cut: Cut | None) -> Expansion | None:
        guards = Guards()
        messages, owners = traced_messages(conversation.messages, guards, cut)
        traced = conversation.with_messages(messages)
        tracing = _RecordingTemplate(self._template, guards, self._traced)
        finder, as_trained = (TurnFinder(tracing, rules) for rules in (self._rules, self._all_rules))
        contexts = _RecordingContexts(tracing, finder, as_trained)
        try:
            rows = contexts.expanded(traced, turns)
            for text, _ in rows:
                self._compiler.guard_answers(guards, traced, text, owners)
        except (NotTraceable, RecordError):
            return None  # the reference finds out for each conversation
        guards.trimmed |= tracing.has_both_forms
        compiled = [(_pieces(text, tracing.stripped), edges_of(text, spans)) for text, spans in rows]
        return Expansion(compiled, guards, [TracedDifference(one, tracing.stripped, guards) for one in contexts.found])


class _RecordingContexts(Contexts):
    """Records the differences that it finds: `found`."""

    def __init__(self, template: Template, turns: TurnFinder, as_trained: TurnFinder):
        super().__init__(template, turns, as_trained)
        self.found: list[Difference] = []

    def difference(self, *arguments: Any) -> Difference | None:
        found = super().difference(*arguments)
        self.found += [found] if found else []
        return found


class _Traced(NamedTuple):
    """What a template made of traced messages.

    Attributes:
        text: what it printed, or why it refused them.
        print_forms: the number of each text that it printed, and whether it was stripped.
        guards: what must hold for the texts.
    """

    text: str | RecordError
    print_forms: frozenset[tuple[int, bool]]
    guards: Guards


class _RecordingTemplate(TracingTemplate):
    """Records how texts are printed.

    Args:
        template: the chat template.
        guards: those of the traced messages.
        known: what was traced before. The beginnings of a conversation are those of a longer one, and all are traced.
    """

    def __init__(self, template: ChatTemplate, guards: Guards, known: dict[bytes, _Traced]):
        super().__init__(template)
        self._guards, self._known = guards, known

    def trace(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        # It is exact: 1 and True differ, and so do orders of keys.
        given = with_texts(conversation.messages), conversation.tools, conversation.template_kwargs
        key = marshal.dumps((*given, add_generation_prompt), 2)
        traced = self._known.get(key)
        if traced is None:
            traced = self._known[key] = self._traced(conversation, add_generation_prompt)
        self._guards.update(traced.guards)
        self.print_forms |= traced.print_forms
        if isinstance(traced.text, RecordError):
            raise traced.text
        return traced.text

    def _traced(self, conversation: Conversation, add_generation_prompt: bool) -> _Traced:
        guards = Guards()
        guarded = with_texts(
            conversation.messages, lambda text: traced_text(text, guards) if isinstance(text, TracedText) else text
        )
        try:
            text = super().trace(conversation.with_messages(guarded), add_generation_prompt)
        except RecordError as error:
            return _Traced(error, frozenset(), guards)
        return _Traced(text, frozenset(split_at_texts(text)[1]), guards)
