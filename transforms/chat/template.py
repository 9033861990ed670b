"""A chat template, rendered as transformers' apply_chat_template renders it.

Its environment is transformers' own. What goes into it is the record as it is: newer versions of apply_chat_template
also copy reasoning between the names that it goes by (reasoning_content, thinking), which would make the text depend
on the version that is installed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from transforms.chat.config import RenderConfig
from transforms.chat.message_map import Trace, instrumented, read_trace, unused_marks
from transforms.chat.transformers_jinja import (
    compile_template,
    new_environment,
    render,
    render_with_generation_blocks,
)
from transforms.errors import ParameterError, RecordError, UserError
from transforms.model.examples import Conversation, Span
from transforms.tokens.tokenizer import load_tokenizer

_CLOCK = "strftime_now"

NO_TEMPLATE = "the tokenizer has no chat template, and a conversation needs one: give it with --chat_template."
_NO_MOMENT = "the chat template prints the date (strftime_now); give the moment, such as 2026-11-20T12:00:00."


def reads_clock(template: str | Mapping[str, str] | None) -> bool:
    """Whether a chat template, or one of several, prints the date."""
    return any(_CLOCK in text for text in ([template] if isinstance(template, str) else (template or {}).values()))


@functools.cache
def _has_generation_block(source: str) -> bool:
    """Whether the template has {% generation %}, in whatever white space, but not in a comment or a string."""
    tokens = compile_template(source).environment.lex(source)
    words = [(kind, value) for _, kind, value in tokens if kind != "whitespace"]
    return any(a[0] == "block_begin" and b == ("name", "generation") for a, b in pairwise(words))


@functools.cache
def _traced(source: str) -> Any:
    return instrumented(source, new_environment(source))


class ChatTemplate:
    """Renders conversations with one tokenizer's template, or with another that is given.

    template: the text of a Jinja template; None is the tokenizer's own, which may be one for tools and one without.
    arguments: what the template reads besides messages and tools; a conversation's own go before them.
    now: the moment that strftime_now prints. A template that calls it needs one: the clock is never read.
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
        if now is None and reads_clock(tokenizer.chat_template if template is None else template):
            raise ParameterError("now", None, _NO_MOMENT)
        clock = {} if now is None else {_CLOCK: now.strftime}
        self._arguments = {**tokenizer.special_tokens_map, **clock, **(arguments or {})}
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
        return self.render_with(compile_template, conversation, messages, add_generation_prompt)

    def render_with(
        self,
        compile: Callable[[str], Any],
        conversation: Conversation,
        messages: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The text as the template renders it that is compiled from the source in another way. Raises RecordError."""
        source = self.source(conversation)
        template = compile(source)
        plain = self.plain(conversation.messages if messages is None else messages, source)
        values = self._values(conversation, plain, add_generation_prompt)
        return _rendered(render, template, values)

    def render_with_markers(self, conversation: Conversation) -> tuple[str, list[Span]]:
        """The text of the conversation, and a span for each generation block, in the order in which they close."""
        source = self.source(conversation)
        template = compile_template(source)
        values = self._values(conversation, self.plain(conversation.messages, source), False)
        return _rendered(render_with_generation_blocks, template, values)

    def trace(
        self,
        conversation: Conversation,
        text: str,
        messages: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        mark_contents: bool = False,
    ) -> Trace:
        """What of the text was printed for which message. text: that is rendered, to keep the marks apart from it.

        mark_contents: whether to mark the contents as well; to a template that looks into them, they are other ones.
        Raises RecordError.
        """
        source = self.source(conversation)
        plain = self.plain(conversation.messages if messages is None else messages, source)
        marks = unused_marks(text)
        if mark_contents:
            plain = [marks.in_content(message, number) for number, message in enumerate(plain)]
        values = self._values(conversation, plain, add_generation_prompt) | marks.functions(plain)
        return read_trace(_rendered(render, _traced(source), values), marks)

    def plain(self, messages: Sequence[Mapping[str, Any]], source: str) -> list[dict[str, Any]]:
        """The messages as apply_chat_template hands them on, without nulls; parts as text where a template needs it."""
        plain = [{key: value for key, value in message.items() if value is not None} for message in messages]
        for message in plain:
            if isinstance(message.get("content"), list) and not self._reads_parts(source):
                # vLLM joins the parts in this way for such a template.
                message["content"] = "\n".join(part["text"] for part in message["content"])
        return plain

    def _values(self, conversation: Conversation, messages: list[dict[str, Any]], add_generation_prompt: bool) -> Any:
        given = {**self._arguments, "documents": None, **conversation.template_kwargs}
        return {
            **given,
            "messages": messages,
            "tools": conversation.tools,
            "add_generation_prompt": add_generation_prompt,
        }

    def _reads_parts(self, source: str) -> bool:
        """Whether the template prints a list of one text part as it prints the text."""
        if source not in self._takes_parts:
            text = [{"role": "user", "content": "parts or text?"}]
            parts = [{"role": "user", "content": [{"type": "text", "text": "parts or text?"}]}]
            self._takes_parts[source] = self._probe(source, text) == self._probe(source, parts) is not None
        return self._takes_parts[source]

    def _probe(self, source: str, messages: list[dict[str, Any]]) -> str | None:
        try:
            return _rendered(render, compile_template(source), self._values(Conversation(messages), messages, False))
        except RecordError:  # a template that refuses the probe does not read parts
            return None


def load_template(config: RenderConfig) -> ChatTemplate:
    """The chat template that a configuration names, with its tokenizer loaded."""
    moment = datetime.fromisoformat(config.now) if config.now else None
    return ChatTemplate(load_tokenizer(config.tokenizer), config.chat_template, config.chat_template_kwargs, moment)


def _rendered(render: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return render(*arguments)
    except Exception as error:  # a template may raise any error, and a record may hold anything
        raise RecordError("template", f"the chat template refuses it: {type(error).__name__}: {error}") from None
