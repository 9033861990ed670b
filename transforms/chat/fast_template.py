"""A chat template, rendered faster: for conversations whose signatures do not repeat, such as those of agents.

A conversation is rendered by Jinja itself (`fast_jinja`), once, which gives its text, which message each piece of it
belongs to, and where the texts of the record are in it (`identity`). The reference finds the same with strings that
carry their sources, which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from transforms.chat.fast_jinja import Rendering, compile_fast, render_fast
from transforms.chat.identity import NotFollowed, Sources
from transforms.chat.limits import limited
from transforms.chat.message_map import MessageMap
from transforms.chat.omissions import NO_OMISSIONS, Omissions, find_omissions, with_sources
from transforms.chat.template import ChatTemplate
from transforms.chat.tool_texts import ToolTexts
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span


class _Rendered(NamedTuple):
    conversation: Conversation
    messages: list[dict[str, Any]]
    message_map: MessageMap
    sources: Sources


class FastTemplate:
    """Renders conversations as a ChatTemplate does; a `turns.Template`.

    Args:
        template: the chat template.
    """

    def __init__(self, template: ChatTemplate):
        self._template = template
        self._last: _Rendered | None = None
        self._tool_texts: dict[str, ToolTexts] = {}

    def source(self, conversation: Conversation) -> str:
        return self._template.source(conversation)

    def has_generation_markers(self, conversation: Conversation) -> bool:
        return self._template.has_generation_markers(conversation)

    def render(
        self,
        conversation: Conversation,
        messages: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render a conversation, as `ChatTemplate.render` does. Raises RecordError."""
        try:
            if messages is None and not add_generation_prompt:
                return self._rendered(conversation).message_map.text
            return self._map(conversation, self._plain(conversation, messages), Sources(), add_generation_prompt).text
        except NotFollowed:
            return self._template.render(conversation, messages, add_generation_prompt)

    def render_with_markers(self, conversation: Conversation) -> tuple[str, list[Span]]:
        """Render a conversation with generation blocks, as `ChatTemplate.render_with_markers` does."""
        return self._template.render_with_markers(conversation)

    def map_messages(
        self,
        conversation: Conversation,
        text: str,
        messages: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
    ) -> MessageMap:
        """Find which characters of a text were printed for which message, as `ChatTemplate.map_messages` does.

        Raises:
            NotFollowed: if it is not known where the texts of the record are printed.
        """
        if messages is not None or add_generation_prompt:
            return self._template.map_messages(conversation, text, messages, add_generation_prompt)
        return self._rendered(conversation).message_map

    def omissions(self, conversation: Conversation) -> Omissions:
        """Find what the template does not print of a conversation.

        Raises:
            NotFollowed: if it is not known where the texts of the record are printed.
        """
        rendered = self._rendered(conversation)
        if rendered.sources.are_whole(rendered.message_map.texts):
            return NO_OMISSIONS
        return find_omissions(rendered.messages, conversation.tools, rendered.message_map.printed)

    def _rendered(self, conversation: Conversation) -> _Rendered:
        """The conversation as it was rendered last, or rendered now."""
        if self._last is None or self._last.conversation is not conversation:
            self._last = None
            plain, sources = self._plain(conversation), Sources(max_characters=self._template.max_text_bytes)
            messages, _ = with_sources(plain, None, sources.copy)
            self._last = _Rendered(conversation, plain, self._map(conversation, messages, sources), sources)
        return self._last

    def _plain(self, conversation: Conversation, messages: Sequence[Any] | None = None) -> list[dict[str, Any]]:
        try:
            return self._template.plain_messages(conversation, messages)
        except RecordError:
            raise NotFollowed("") from None

    def _map(
        self,
        conversation: Conversation,
        messages: list[dict[str, Any]],
        sources: Sources,
        add_generation_prompt: bool = False,
    ) -> MessageMap:
        source = self._template.source(conversation)
        template = compile_fast(source)
        tools = None
        if conversation.tools:
            tools = self._tool_texts.setdefault(source, ToolTexts()).known(conversation.tools)
            sources.table |= tools.sources
            sources.lengths |= tools.lengths
        values = self._template.values(conversation, messages, add_generation_prompt)
        values["tools"] = tools.tools if tools else conversation.tools
        rendering = Rendering(template, sources, tools, self._template.max_text_bytes)
        try:
            return limited(render_fast, template, values, values["messages"], rendering)
        except NotFollowed:
            raise
        except Exception:  # a template may raise any error; the reference says which
            raise NotFollowed("the template refuses the messages") from None
