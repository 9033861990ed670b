"""Cache compiled templates, and render conversations by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transforms.chat.compiled import CompiledTemplate, SlowPath, Target, TemplateCompiler
from transforms.chat.template import ChatTemplate
from transforms.model.examples import Conversation, Span

# A signature takes as long to compile as some five conversations to render by the reference, so that it pays only if it
# repeats. A batch compiles one signature for so many conversations, or a few if it is small.
_CONVERSATIONS_PER_SIGNATURE, _FEW_SIGNATURES = 8, 16
# The most compiled templates that are kept beyond a batch, and the most messages of one conversation.
_KEPT, _MESSAGES = 4096, 512


class TraceCache:
    """Renders conversations by templates that are compiled once per signature.

    Whether a conversation is rendered by a compiled template depends on the batch alone, and not on the batches before
    it, so that the numbers that are counted are the same with any number of workers. Call `begin_batch` at the
    beginning of each batch.

    Args:
        template: the chat template.
    """

    def __init__(self, template: ChatTemplate):
        self._template = template
        self._compiler = TemplateCompiler(template)
        self._cache: dict[Any, CompiledTemplate | SlowPath] = {}
        self._batch: dict[Any, CompiledTemplate | SlowPath] = {}
        self._most = _FEW_SIGNATURES

    def begin_batch(self, conversations: int) -> None:
        """Begin a batch: it has no signature yet. If the cache is large, keep only what the last batch used of it.

        Args:
            conversations: how many the batch has, which bounds how many signatures it compiles.
        """
        if len(self._cache) > _KEPT:
            self._cache = self._batch
        self._batch = {}
        self._most = max(_FEW_SIGNATURES, conversations // _CONVERSATIONS_PER_SIGNATURE)

    def render(
        self, conversation: Conversation, messages: Sequence[dict[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        """Render messages of a conversation, by the reference if there is no compiled template for them.

        Args:
            conversation: it gives the tools and the arguments of the template.
            messages: the messages that are rendered.
            add_generation_prompt: as in `apply_chat_template`.

        Raises:
            RecordError: if the template refuses the messages.
        """
        part = conversation.with_messages([*messages])
        found = self._render(part, "prompt" if add_generation_prompt else "text")
        if isinstance(found, SlowPath):
            return self._template.render(conversation, messages, add_generation_prompt)
        return found[0]

    def render_with_spans(self, conversation: Conversation, loss_on: str) -> tuple[str, list[Span]] | SlowPath:
        """Render a conversation and find what of it is trained on.

        Args:
            conversation: the conversation.
            loss_on: one of LOSSES but auto.

        Returns:
            The text and the spans that the reference would give, or why they are left to the reference.
        """
        if loss_on != "all":
            return self._render(conversation, loss_on)  # type: ignore[arg-type]
        found = self._render(conversation, "text")
        return found if isinstance(found, SlowPath) else (found[0], [(0, len(found[0]))])

    def _render(self, conversation: Conversation, target: Target) -> tuple[str, list[Span]] | SlowPath:
        if conversation.tools:
            return _TOOLS
        if conversation.template_kwargs:
            return _TEMPLATE_KWARGS
        parts = _signature(conversation)
        if isinstance(parts, SlowPath):
            return parts
        signature, texts, trimmed = parts
        key = target, conversation.completion_start if target == "completion" else None, signature
        compiled = self._batch.get(key)
        if compiled is None:
            compiled = self._compiled(key, conversation, target)
        return compiled if isinstance(compiled, SlowPath) else compiled.render(texts, trimmed)

    def _compiled(self, key: Any, conversation: Conversation, target: Target) -> CompiledTemplate | SlowPath:
        if len(self._batch) >= self._most:
            return _TOO_MANY_SIGNATURES
        compiled = self._cache.get(key)
        if compiled is None:
            compiled = self._cache[key] = self._compiler.compile(conversation, target)
        self._batch[key] = compiled
        return compiled


_TOOLS, _TEMPLATE_KWARGS = SlowPath("tools"), SlowPath("chat_template_kwargs")
_TOO_MANY_MESSAGES, _TOO_MANY_SIGNATURES = SlowPath("too_many_messages"), SlowPath("too_many_signatures")


def _signature(conversation: Conversation) -> tuple[tuple[Any, ...], list[str], list[str]] | SlowPath:
    """The signature of a conversation, its texts, and these without the white space around them.

    A text of white space alone is a part of the signature, since templates treat it differently.
    """
    if plain := conversation.plain:
        roles, texts = plain
        trimmed = [*map(str.strip, texts)]
        if "" not in trimmed:
            return (roles, texts, trimmed) if len(roles) <= _MESSAGES else _TOO_MANY_MESSAGES
    if len(conversation.messages) > _MESSAGES:
        return _TOO_MANY_MESSAGES
    signature: list[Any] = []
    texts = []
    for message in conversation.messages:
        for key, value in message.items():
            if value is None:
                continue
            if key == "role" or key == "weight":
                signature.append((key, repr(value)))
            elif type(value) is not str:
                return _not_text(key)
            elif value and not value.isspace():
                signature.append((key,))
                texts.append(value)
            else:
                signature.append((key, value))
        signature.append(None)
    return tuple(signature), texts, [*map(str.strip, texts)]


def _not_text(key: str) -> SlowPath:
    if key == "tool_calls":
        return SlowPath("tool_calls")
    return SlowPath("content_parts") if key == "content" else SlowPath("field_not_text", key)
