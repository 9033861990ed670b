"""A chat template as transformers renders it: the text, and the characters that {% generation %} marks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from transforms.errors import RecordError, UserError
from transforms.examples import Conversation, Span

_CLOCK = "strftime_now"

NO_TEMPLATE = "the tokenizer has no chat template, and a conversation needs one: give it with --chat_template."


def reads_clock(template: str | Mapping[str, str] | None) -> bool:
    """Whether a chat template, or one of several, prints the date."""
    return any(_CLOCK in text for text in ([template] if isinstance(template, str) else (template or {}).values()))


@functools.cache
def _has_generation_block(source: str) -> bool:
    """Whether the template has {% generation %}, in whatever white space, but not in a comment or a string."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    tokens = _compile_jinja_template(source).environment.lex(source)
    words = [(kind, value) for _, kind, value in tokens if kind != "whitespace"]
    return any(a[0] == "block_begin" and b == ("name", "generation") for a, b in pairwise(words))


class ChatTemplate:
    """Renders conversations with one tokenizer's template, or with another that is given.

    template: the text of a Jinja template; None is the tokenizer's own, which may be one for tools and one without.
    arguments: what the template reads besides messages and tools; a conversation's own go before them.
    now: what strftime_now tells, whatever the clock says.
    """

    def __init__(
        self,
        tokenizer: Any,
        template: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ):
        self._tokenizer = tokenizer
        self._template = template
        self._arguments = {**tokenizer.special_tokens_map, **(arguments or {})}
        self._now = now or datetime.now()
        self._takes_parts: dict[str, bool] = {}

    def source(self, conversation: Conversation) -> str:
        """The text of the template that renders this conversation. Raises UserError where there is none."""
        try:
            return self._tokenizer.get_chat_template(self._template, conversation.tools)
        except ValueError:
            raise UserError(NO_TEMPLATE) from None

    def has_generation_markers(self, conversation: Conversation) -> bool:
        return _has_generation_block(self.source(conversation))

    def render(
        self,
        conversation: Conversation,
        messages: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The text of the conversation, or of other messages in its place. Raises RecordError."""
        messages = conversation.messages if messages is None else messages
        text, _ = self._render(conversation, messages, add_generation_prompt=add_generation_prompt)
        return text

    def render_with_markers(self, conversation: Conversation) -> tuple[str, list[Span]]:
        """The text of the conversation, and a span for each generation block, in the order in which they close."""
        text, spans = self._render(conversation, conversation.messages, return_assistant_tokens_mask=True)
        return text, spans[0]

    def _render(self, conversation: Conversation, messages: Sequence[Mapping[str, Any]], **how: bool) -> Any:
        from transformers.utils import chat_template_utils

        source = self.source(conversation)
        arguments = {**self._arguments, **conversation.template_kwargs}
        if reads_clock(source):
            # The environment is transformers' own and cached by the template's text, so this is set anew each time.
            compiled = chat_template_utils._compile_jinja_template(source)
            compiled.globals[_CLOCK] = self._now.strftime
        render: Any = chat_template_utils.render_jinja_template  # its signature is narrower than what it takes
        try:
            rendered, spans = render(
                conversations=[self._plain(messages, source)],
                tools=conversation.tools,
                chat_template=source,
                **how,
                **arguments,
            )
        except Exception as error:  # a template raises what it likes, and may stumble over anything in a record
            raise RecordError("template", f"the chat template refuses it: {type(error).__name__}: {error}") from None
        return rendered[0], spans

    def _plain(self, messages: Sequence[Mapping[str, Any]], source: str) -> list[dict[str, Any]]:
        """The messages as apply_chat_template hands them on, without nulls; parts as text where a template needs it."""
        plain = [{key: value for key, value in message.items() if value is not None} for message in messages]
        for message in plain:
            if isinstance(message.get("content"), list) and not self._reads_parts(source):
                # vLLM joins the parts in this way for such a template.
                message["content"] = "\n".join(part["text"] for part in message["content"])
        return plain

    def _reads_parts(self, source: str) -> bool:
        """Whether the template prints a list of one text part as it prints the text."""
        if source not in self._takes_parts:
            self._takes_parts[source] = False  # the probes below are plain texts and parts, as they are
            text = [{"role": "user", "content": "parts or text?"}]
            parts = [{"role": "user", "content": [{"type": "text", "text": "parts or text?"}]}]
            self._takes_parts[source] = self._probe(source, text) == self._probe(source, parts) is not None
        return self._takes_parts[source]

    def _probe(self, source: str, messages: list[dict[str, Any]]) -> str | None:
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            return render_jinja_template(conversations=[messages], chat_template=source, **self._arguments)[0][0]
        except Exception:  # a template that refuses the probe does not read parts
            return None
