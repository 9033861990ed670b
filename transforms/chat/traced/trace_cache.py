"""Cache compiled templates, and render conversations by them."""

from __future__ import annotations

import functools
from typing import Any, Generic, TypeVar

from transforms.base.errors import RecordError
from transforms.chat.rendering.arguments import with_any_texts, with_read_arguments
from transforms.chat.rendering.omissions import find_omissions
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.template_facts import find_settings
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import CompiledTemplate, Rendered, Target, Trace
from transforms.chat.traced.signatures import Cut, Signature, make_signature
from transforms.chat.traced.tracer import NotTraceable
from transforms.chat.traced.tracing_jinja import find_markers
from transforms.model.examples import Conversation

# The signatures that are compiled in a small batch.
_FEW_SIGNATURES = 16
# The most compiled templates that are kept beyond a batch.
_KEPT = 4096

T = TypeVar("T", bound=CompiledTemplate)


class SignatureCache(Generic[T]):
    """Keeps what is compiled once per signature.

    In place of it there is a text if conversations are rendered for themselves: how it differs from the reference, or
    an empty text, if nothing is compiled, or its guards do not hold.

    Whether a conversation gets it depends on the batch alone, and not on the batches before it, so that the numbers
    that are counted are the same with any number of workers. Call `begin_batch` at the beginning of each batch.

    Args:
        template: the chat template.
        turns: finds turns under it.
    """

    # The conversations of a batch for which it compiles one signature; a small batch compiles a few. That takes as long
    # as to render some five of them by the reference, so that it pays only if the signature repeats.
    _conversations_per_signature = 8

    def __init__(self, template: ChatTemplate, turns: TurnFinder):
        self._template, self._turns = template, turns
        self._cache: dict[Any, T | str] = {}
        self._batch: dict[Any, T | str] = {}
        self._most = _FEW_SIGNATURES

    def begin_batch(self, conversations: int) -> None:
        """Begin a batch of so many conversations. It has no signature yet."""
        if len(self._cache) > _KEPT:
            self._cache = self._batch  # what the last batch used of it
        self._batch = {}
        self._most = max(_FEW_SIGNATURES, conversations // self._conversations_per_signature)

    def _compile(self, conversation: Conversation, target: Target, cut: Cut) -> Any:
        return Trace(self._template, self._turns, conversation, target, cut).compiled()

    def _find(
        self, conversation: Conversation, target: Target, known: Signature | None = None
    ) -> tuple[T, Signature] | str:
        """What is compiled for the first or the second signature of a conversation, and holds for its texts.

        known: its signature, if that is known, the first or the second.
        """
        # The first also if it was rendered by the second: what a batch compares does not depend on the engine.
        signature = (known.first or known) if known else make_signature(conversation)
        while signature:
            key = target, conversation.completion_start, signature.key
            compiled = self._batch.get(key)
            if compiled is None and len(self._batch) < self._most:
                if key not in self._cache:
                    self._cache[key] = self._compiled(conversation, target, signature.cut)
                compiled = self._batch[key] = self._cache[key]
            if isinstance(compiled, str):
                return compiled
            if compiled and compiled.guards.hold(signature.texts, signature.trimmed):
                if not compiled.is_compared:
                    if difference := self._difference(compiled, conversation, target, signature):
                        self._cache[key] = self._batch[key] = difference
                        return difference
                    compiled.is_compared = True
                return compiled, signature
            signature = None if signature.cut is not None else self._second(conversation, signature, known)
        return ""

    def _compiled(self, conversation: Conversation, target: Target, cut: Cut) -> T | str:
        try:
            return self._compile(conversation, target, cut)
        except (NotTraceable, RecordError):
            return ""

    def _difference(self, compiled: T, conversation: Conversation, target: Target, signature: Signature) -> str:
        """What a compiled template renders in another way than the reference, `apply_chat_template`; empty if nothing.

        conversation: the first one for which its guards hold.
        """
        try:
            rendering = self._template.rendering(conversation)
            spans = [] if target == "text" else self._turns.trained_spans(rendering, target)
            expected = self._template.apply(conversation), spans, find_omissions(rendering)
        except RecordError as error:
            return f"the reference refuses it: {error.reason}: {error.detail}"
        whats = zip(("text", "spans", "omissions"), compiled.render(signature), expected, strict=True)
        return next((f"other {what}" for what, result, reference in whats if result != reference), "")

    def _second(self, conversation: Conversation, first: Signature, known: Signature | None) -> Signature | None:
        """The second signature of a conversation; None if it has the same texts as the first."""
        if known and known.first:
            return known
        second = make_signature(conversation, self._cut)
        return None if second is None or second.texts == first.texts else second._replace(first=first)

    @functools.cached_property
    def _cut(self) -> Cut:
        # It matters whether a text holds a stop token. A conversation with tools has no signature.
        return find_markers(self._template.source(Conversation([]))).difference(self._turns.rules.stop_tokens)


class TraceCache(SignatureCache[CompiledTemplate]):
    """Renders conversations by templates that are compiled once per signature.

    Args:
        template: the chat template.
        turns: finds turns under it.
    """

    def __init__(self, template: ChatTemplate, turns: TurnFinder):
        super().__init__(template, turns)
        self._arguments = set[Any]()  # those of conversations of the batch

    def begin_batch(self, conversations: int) -> None:
        super().begin_batch(conversations)
        self._arguments.clear()

    def render_with_spans(
        self, conversation: Conversation, loss_on: str
    ) -> tuple[CompiledTemplate, Rendered, Signature] | str:
        """Render a conversation and find what of it is trained on.

        Args:
            conversation: the conversation.
            loss_on: one of LOSSES but auto, or `completion_turns`.

        Returns:
            What is compiled for its signature; the text, the spans and the omissions that the reference would give; the
            signature. Or why it is rendered for itself, as in a SignatureCache.
        """
        if conversation.template_kwargs:
            source = self._template.source(conversation)
            conversation = with_read_arguments(conversation, source)
            # Each record may have its own date: its signature is compiled if the batch has it again.
            is_printed = with_any_texts(conversation, source) is not conversation
            if is_printed and (arguments := find_settings(conversation)) not in self._arguments:
                self._arguments.add(arguments)
                return ""
        target: Any = "text" if loss_on == "all" else loss_on
        found = self._find(conversation, target)
        if isinstance(found, str):
            return found
        compiled, signature = found
        text, spans, omissions = compiled.render(signature)
        return compiled, (text, [(0, len(text))] if loss_on == "all" else spans, omissions), signature
