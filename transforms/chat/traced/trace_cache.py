"""Cache compiled templates, and render conversations by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from transforms.chat.rendering.arguments import with_any_texts, with_read_arguments
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.spans.stop_tokens import TurnRules
from transforms.chat.spans.template_facts import settings_of
from transforms.chat.spans.turns import TurnFinder
from transforms.chat.traced.compiled import CompiledTemplate, Rendered, SlowPath, Target, TemplateCompiler
from transforms.chat.traced.signatures import Cut, Cuts, Signature, signature_of
from transforms.model.examples import Conversation

# A signature takes as long to compile as some five conversations to render by the reference, so that it pays only if it
# repeats. The conversations of a batch for which it compiles one signature; a small batch compiles a few.
_CONVERSATIONS_PER_SIGNATURE, _FEW_SIGNATURES = 8, 16
# The most compiled templates that are kept beyond a batch.
_KEPT = 4096

T = TypeVar("T")


class SignatureCache(Generic[T]):
    """Keeps what is made once per signature.

    Whether a conversation gets it depends on the batch alone, and not on the batches before it, so that the numbers
    that are counted are the same with any number of workers. Call `begin_batch` at the beginning of each batch.

    Args:
        conversations_per_signature: those of a batch for which it compiles one signature; a small batch compiles a few.
    """

    def __init__(self, conversations_per_signature: int):
        self._conversations_per_signature = conversations_per_signature
        self._cache: dict[Any, T] = {}
        self._batch: dict[Any, T] = {}
        self._most = _FEW_SIGNATURES

    def begin_batch(self, conversations: int) -> None:
        """Begin a batch: it has no signature yet. If the cache is large, keep only what the last batch used of it.

        Args:
            conversations: how many the batch has.
        """
        if len(self._cache) > _KEPT:
            self._cache = self._batch
        self._batch = {}
        self._most = max(_FEW_SIGNATURES, conversations // self._conversations_per_signature)

    def get(self, signature: Any, make: Callable[[], T]) -> T | None:
        """Return what is made for a signature, None if the batch has too many others."""
        found = self._batch.get(signature)
        if found is not None or len(self._batch) >= self._most:
            return found
        found = self._cache.get(signature)
        if found is None:
            found = self._cache[signature] = make()
        self._batch[signature] = found
        return found

    def replace(self, signature: Any, made: T) -> None:
        """Put something else in the place of what was made for a signature."""
        self._cache[signature] = self._batch[signature] = made


class TraceCache:
    """Renders conversations by templates that are compiled once per signature.

    Args:
        template: the chat template.
        rules: what else is known about turns.
        reference: as TemplateCompiler has it.
    """

    def __init__(self, template: ChatTemplate, rules: TurnRules | None = None, reference: TurnFinder | None = None):
        self._template = template
        self._compiler = TemplateCompiler(template, rules, reference)
        self._cuts = Cuts(template, rules)
        self._cache = SignatureCache[CompiledTemplate | SlowPath](_CONVERSATIONS_PER_SIGNATURE)
        self._arguments = set[Any]()  # those of conversations of the batch

    def begin_batch(self, conversations: int) -> None:
        """Begin a batch with this number of conversations, see SignatureCache."""
        self._cache.begin_batch(conversations)
        self._arguments.clear()

    def render_with_spans(self, conversation: Conversation, loss_on: str) -> tuple[Rendered, Signature] | SlowPath:
        """Render a conversation and find what of it is trained on.

        Args:
            conversation: the conversation.
            loss_on: one of LOSSES but auto, or `completion_turns`.

        Returns:
            The text, the spans and the omissions that the reference would give, and the signature by which they were
            found; or that it is rendered for itself.
        """
        if loss_on != "all":
            return self._render(conversation, loss_on)  # type: ignore[arg-type]
        found = self._render(conversation, "text")
        if isinstance(found, SlowPath):
            return found
        (text, _, omissions), signature = found
        return (text, [(0, len(text))], omissions), signature

    def _render(self, conversation: Conversation, target: Target) -> tuple[Rendered, Signature] | SlowPath:
        if conversation.template_kwargs:
            source = self._template.source(conversation)
            conversation = with_read_arguments(conversation, source)
            # Each record may have its own date: its signature is compiled if the batch has it again.
            is_printed = with_any_texts(conversation, source) is not conversation
            if is_printed and (arguments := settings_of(conversation)) not in self._arguments:
                self._arguments.add(arguments)
                return SlowPath()
        signature = signature_of(conversation)
        if signature is None:
            return SlowPath()
        while True:
            key = target, conversation.completion_start if target in _ON_COMPLETION else None, signature.key
            compiled = self._compiled(key, signature.cut, conversation, target)
            if isinstance(compiled, SlowPath):
                return compiled
            if rendered := compiled.render(signature.texts, signature.trimmed):
                if differs := self._compiler.compare(compiled, conversation, target, rendered):
                    self._cache.replace(key, differs)
                    return differs
                return rendered, signature
            cut = None if signature.cut else self._cuts.signature(conversation, signature)
            if cut is None:
                return SlowPath()
            signature = cut

    def _compiled(
        self, key: Any, cut: Cut | None, conversation: Conversation, target: Target
    ) -> CompiledTemplate | SlowPath:
        compiled = self._cache.get(key, lambda: self._compiler.compile(conversation, target, cut))
        return SlowPath() if compiled is None else compiled


_ON_COMPLETION = ("completion", "completion_turns")
