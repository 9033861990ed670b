"""A chat template: rendered by `apply_chat_template` of transformers, or by the instrumented copy of its environment.

What has to be prepared for it is prepared in the messages: `ChatTemplate.plain_messages`.
"""

from __future__ import annotations

import functools
import marshal
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import count, pairwise
from typing import Any

import jinja2

from transforms.base.errors import ParameterError, RecordError
from transforms.chat.config import RenderConfig
from transforms.chat.rendering.arguments import with_read_arguments
from transforms.chat.rendering.environment import (
    CLOCK,
    Given,
    apply_chat_template,
    compile_template,
    render,
    render_generation_blocks,
    with_reasoning_aliases,
)
from transforms.chat.rendering.instrument import instrumented, print_parts, read_parts
from transforms.chat.rendering.probes import (
    PrintedContent,
    find_call_forms,
    find_content_forms,
    prints_role,
    with_text,
)
from transforms.chat.rendering.renderings import Key, KnownTools, Rendering, know_tools, with_all_texts, with_sources
from transforms.chat.rendering.tracked_text import sourced
from transforms.model.examples import Conversation, Span
from transforms.tokens.tokenizer import load_tokenizer

NO_TEMPLATE = "the tokenizer has no chat template, and a conversation needs one"
# The most bytes of lists of tools of which it is kept what is known, which takes some 20 times as many.
_MOST_OF_TOOLS = 4 << 20
_NO_MOMENT = "the chat template prints the date (strftime_now). Give the moment, such as 2026-11-20T12:00:00."


def reads_clock(template: str | Mapping[str, str] | None) -> bool:
    """Return whether a chat template, or one of several named ones, prints the date."""
    return any(CLOCK in source for source in ([template] if isinstance(template, str) else (template or {}).values()))


@functools.cache
def _has_generation_block(source: str) -> bool:
    """Whether the template has {% generation %} outside of comments and strings, with any white space."""
    tokens = compile_template(source).environment.lex(source)
    words = [(kind, value) for _, kind, value in tokens if kind != "whitespace"]
    return any(a[0] == "block_begin" and b == ("name", "generation") for a, b in pairwise(words))


@functools.cache
def _compares_identity(source: str) -> bool:
    """Whether the template asks whether two values are one object, as a text and its copy are not."""
    return "sameas" in source


class ChatTemplate:
    """Renders conversations with a tokenizer's chat template, or with another one.

    Args:
        tokenizer: a transformers tokenizer.
        template: the text of a Jinja template; None is the tokenizer's own, which may be one for conversations with
            tools and one for those without.
        arguments: what the template reads besides messages and tools. Those of a conversation take precedence.
        now: the moment that strftime_now prints; needed if the template calls it, since the clock is never read.
        is_reference: whether each rendering is compared with `apply_chat_template`.
    """

    def __init__(
        self,
        tokenizer: Any,
        template: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        now: datetime | None = None,
        is_reference: bool = False,
    ):
        self._tokenizer = tokenizer
        self._clock = None if now is None else now.strftime
        self._template = template
        self._arguments = arguments or {}
        self._sources: dict[bool, str] = {}  # without tools, and with them
        self._is_reference = is_reference
        self._tools: dict[int | bytes, KnownTools] = {}  # by the identity of the list, and by its content
        self._size_of_tools = 0
        # What the template reads, and prints at all, found with messages of our own: by its text, and a role.
        self._content_forms = self._once(find_content_forms)
        self._call_forms = self._once(find_call_forms)
        self._prints = self._once(prints_role)

    def source(self, conversation: Conversation) -> str:
        """Return the text of the template that renders a conversation.

        Raises:
            RecordError: if there is none.
            ParameterError: if it prints the date, and there is no moment to print.
        """
        source = self._sources.get(conversation.tools is None)
        if source is None:
            try:
                source = self._tokenizer.get_chat_template(self._template, conversation.tools)
            except ValueError:
                raise RecordError("no_chat_template", f"{NO_TEMPLATE}: give chat_template") from None
            if self._clock is None and CLOCK in source:
                raise ParameterError("now", None, _NO_MOMENT)
            self._sources[conversation.tools is None] = source
        return source

    def has_generation_blocks(self, conversation: Conversation) -> bool:
        """Return whether the template that renders a conversation has {% generation %} blocks."""
        return _has_generation_block(self.source(conversation))

    def apply(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        """Render a conversation by `apply_chat_template` of transformers.

        Args:
            conversation: the conversation.
            add_generation_prompt: as in `apply_chat_template`.

        Raises:
            RecordError: if the template refuses it.
        """
        return self._rendered(apply_chat_template, self._given(conversation), add_generation_prompt)

    def render(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        """Return the text that `apply` gives, in a third of the time. Args, Raises: as of `apply`."""
        if self._is_reference:
            return self.apply(conversation, add_generation_prompt)
        values = self.values(conversation, self.plain_messages(conversation), add_generation_prompt)
        return self._print("".join, conversation, values)

    def render_with(
        self,
        compile: Callable[[str], jinja2.Template],
        conversation: Conversation,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render a conversation with a template that is compiled in another way than transformers does.

        Args:
            compile: compiles the text of the template, in a copy of transformers' environment.
            conversation, add_generation_prompt: as in `render`.

        Raises:
            RecordError: if the template refuses it.
        """
        template = compile(self.source(conversation))
        values = self.values(conversation, self.plain_messages(conversation), add_generation_prompt)
        return self._rendered(render, template, values)

    def generation_blocks(self, conversation: Conversation) -> tuple[str, list[Span]]:
        """Render a conversation with a template that has {% generation %} blocks.

        Returns:
            The text, and the (start, stop) characters of each block, in the order in which the blocks close.

        Raises:
            RecordError: if the template refuses it.
        """
        return self._rendered(render_generation_blocks, self._given(conversation))

    def _given(self, conversation: Conversation) -> Given:
        source, plain = self.source(conversation), self.plain_messages(conversation)
        arguments = {**self._arguments, **with_read_arguments(conversation, source).template_kwargs}
        return Given(self._tokenizer, source, plain, conversation.tools, arguments, self._clock)

    def rendering(self, conversation: Conversation, add_generation_prompt: bool = False) -> Rendering:
        """Render a conversation, and find which characters were printed for which message, and from which text.

        Args:
            conversation, add_generation_prompt: as in `render`.

        Raises:
            RecordError: if the template refuses it; if this is the reference, also if it prints another text while its
                texts are followed.
        """
        plain = self.plain_messages(conversation)
        given: list[tuple[Key, int]] = []

        def tracked(text: str, key: Key) -> str:
            if text and not text.isspace():
                given.append((key, len(text)))
            elif key[1] == "call":
                given.append((key, -1))  # which is not printed, or not seen
            return sourced(text, key)

        messages = with_sources(plain, tracked)
        values = self.values(conversation, messages, add_generation_prompt)
        printed = self._followed(conversation, plain, values)
        shown = {
            (key, last - first)
            for start, stop, key, first, last, is_copy in printed.texts
            if is_copy or not printed.text[start:stop].isspace()
        }
        tools = self._known_tools(conversation.tools) if conversation.tools else None
        prints_all = all(one in shown or one[0] in printed.keys for one in given)
        prints_all = prints_all and (tools is None or shown.issuperset(tools.names))
        return replace(printed, prints_all=prints_all, tools=tools)

    def render_with_sources(self, conversation: Conversation) -> Rendering:
        """Find which characters of a text came from which text of its record, of any kind but roles.

        Args:
            conversation: the conversation.

        Returns:
            A rendering. The keys of its texts have the number of the message, None for tools and arguments; "any"; the
            key of the message or the name of the argument, with a number that no other text has; and the text.

        Raises:
            RecordError: as `rendering` does.
        """
        plain, numbers = self.plain_messages(conversation), count()
        values = self.values(conversation, plain, False)

        def with_keys(value: Any, message: int | None, name: str) -> Any:
            return with_all_texts(value, lambda text: sourced(text, (message, "any", (name, next(numbers)), text)))

        messages = [
            {key: value if key == "role" else with_keys(value, number, key) for key, value in message.items()}
            for number, message in enumerate(values["messages"])
        ]
        own = {name: with_keys(values[name], None, name) for name in ("tools", *conversation.template_kwargs)}
        return self._followed(conversation, plain, {**values, **own, "messages": messages})

    def _followed(self, conversation: Conversation, plain: list[dict[str, Any]], values: dict[str, Any]) -> Rendering:
        """What the template prints of values with sources."""
        printed: Rendering = self._print(functools.partial(read_parts, conversation, plain), conversation, values)
        is_compared = self._is_reference or _compares_identity(self.source(conversation))
        if is_compared and self.apply(conversation, values["add_generation_prompt"]) != printed.text:
            why = "the template prints another text while it is followed where its texts are printed"
            raise RecordError("spans_not_established", f"{why}, so it is unknown what is trained on")
        return printed

    def _print(self, read: Callable[[list[str]], Any], conversation: Conversation, values: dict[str, Any]) -> Any:
        """What the instrumented template prints. values: its variables, with sources or without; tools are changed."""
        template, tools = instrumented(self.source(conversation)), None
        if conversation.tools and values["tools"] is conversation.tools:
            tools = self._known_tools(conversation.tools)
            values["tools"] = tools.tools
        try:
            return self._rendered(lambda: read(print_parts(template, values, tools)))
        except RecordError:
            self.apply(conversation, values["add_generation_prompt"])  # whose error it is
            raise

    def _known_tools(self, tools: list[Any]) -> KnownTools:
        known = self._tools.get(id(tools))  # many conversations share them, and none changes them
        if known is not None:
            return known
        try:
            content = marshal.dumps(tools, 2)  # version 2 writes what is equal in the same way
        except ValueError:  # it holds something else than JSON
            return know_tools(tools)
        known = self._tools.get(content)
        if known is None:
            self._size_of_tools += len(content)
            if self._size_of_tools > _MOST_OF_TOOLS:
                self._tools.clear()
                self._size_of_tools = len(content)
            known = self._tools[id(tools)] = self._tools[content] = know_tools(tools)
        return known

    def plain_messages(self, conversation: Conversation) -> list[dict[str, Any]]:
        """Return the messages as the template is given them: as a server has them, contents in a form that is printed.

        A server has no weights, and leaves out nulls.
        """
        source = self.source(conversation)
        plain = [
            {key: value for key, value in message.items() if value is not None and key != "weight"}
            for message in conversation.messages
        ]
        for message in plain:
            if "tool_calls" in message:
                forms = self._call_forms(source)
                if forms.strings:
                    message["tool_calls"] = [*map(with_text, message["tool_calls"])]
                if forms.content is not None:
                    message.setdefault("content", forms.content)
            content, role = message.get("content"), str(message.get("role"))
            if isinstance(content, str):
                if content and not self._content_forms(source, role).strings:
                    message["content"] = [{"type": "text", "text": content}]
            elif isinstance(content, list) and not self._content_forms(source, role).parts:
                # vLLM joins the parts in this way for such a template.
                texts = [part["text"] for part in content] or [""]
                message["content"] = functools.reduce(_joined, texts)
            elif isinstance(content, list) and any("weight" in part for part in content):
                message["content"] = [{key: part[key] for key in part if key != "weight"} for part in content]
        return plain

    def values(
        self, conversation: Conversation, messages: list[dict[str, Any]], add_generation_prompt: bool
    ) -> dict[str, Any]:
        """Return the variables of the template.

        Args:
            conversation: it gives the tools and the arguments of the template.
            messages: as `plain_messages` returns them.
            add_generation_prompt: as in `apply_chat_template`.
        """
        return {
            **self._special_tokens,
            "documents": None,
            **({} if self._clock is None else {CLOCK: self._clock}),
            **self._arguments,
            **conversation.template_kwargs,
            "messages": with_reasoning_aliases(messages),
            "tools": conversation.tools,
            "add_generation_prompt": add_generation_prompt,
        }

    @functools.cached_property
    def _special_tokens(self) -> dict[str, str]:
        return self._tokenizer.special_tokens_map  # which is made for each call

    def prints(self, conversation: Conversation, role: str) -> bool:
        """Return whether the template of a conversation prints what messages of a role say; not if it refuses them."""
        return self._prints(self.source(conversation), role)

    def _once(self, find: Callable[..., Any]) -> Callable[..., Any]:
        return functools.cache(lambda source, *role: find(*role, functools.partial(self._probe, source)))

    def _probe(self, source: str, messages: list[dict[str, Any]], number: int) -> PrintedContent:
        """How the content of one of some messages of our own is printed."""
        conversation, messages = Conversation(messages), with_sources(messages)
        values = self.values(conversation, messages, False)
        try:
            template = instrumented(source)
            printed = self._rendered(lambda: read_parts(conversation, messages, print_parts(template, values)))
        except RecordError:  # the template refuses the content in this form
            return PrintedContent(False, False, None)
        copied = [text.is_copy for text in printed.texts if text.key[:2] == (number, "content")]
        return PrintedContent(bool(copied), any(copied), printed.text)

    def _rendered(self, render: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return render(*arguments)
        except MemoryError:  # which depends on the machine, so that no record is rejected for it
            raise
        except RecursionError:  # its message depends on where
            how = "it is nested too deeply for transformers or the chat template"
            raise RecordError("nested_too_deeply", how) from None
        except Exception as error:  # a template may raise any error, and a record may hold anything
            raise RecordError("template", f"the chat template refuses it: {type(error).__name__}: {error}") from None


def _joined(one: str, other: str) -> str:
    return one + "\n" + other  # which traced texts follow, and not `join`


def load_template(config: RenderConfig, tokenizer: Any = None) -> ChatTemplate:
    """Load the tokenizer and the chat template of a configuration.

    Args:
        config: the configuration.
        tokenizer: of transformers; None if it is to be loaded.

    Raises:
        ParameterError: if the template prints the date and `config.now` is None.
    """
    moment = datetime.fromisoformat(config.now) if config.now else None
    tokenizer, is_reference = tokenizer or load_tokenizer(config.tokenizer), config.engine == "reference"
    return ChatTemplate(tokenizer, config.chat_template, config.chat_template_kwargs, moment, is_reference)
