"""A chat template, rendered faster: for conversations whose signatures do not repeat, such as those of agents.

A conversation is rendered by Jinja itself (`fast_jinja`), which gives its text and which message each piece of it
belongs to. Where the texts of the record are in it is known from other messages of the same kinds (`layouts`), or found
by rendering it with slots in place of its texts (`slots`). The reference finds the same with strings that carry their
sources, which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from transforms.chat.fast_jinja import MarksLost, compile_with_marks, render_with_marks
from transforms.chat.layouts import Layouts, describe
from transforms.chat.limits import limited
from transforms.chat.message_map import MessageMap, Piece
from transforms.chat.omissions import NO_OMISSIONS, Omissions, find_omissions
from transforms.chat.slots import Slots
from transforms.chat.template import ChatTemplate
from transforms.chat.tool_texts import TOOL_TEXTS
from transforms.errors import RecordError
from transforms.model.examples import Conversation, Span


class NotFollowed(Exception):
    """What a template does with a conversation is left to the reference; the text of the exception says why."""


class _Rendered(NamedTuple):
    conversation: Conversation
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    text: str
    pieces: list[Piece]


class FastTemplate:
    """Renders conversations as a ChatTemplate does; a `turns.Template`.

    Args:
        template: the chat template.
    """

    def __init__(self, template: ChatTemplate):
        self._template = template
        self._last: _Rendered | None = None
        self._last_map: MessageMap | None = None
        self._layouts = Layouts()

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
                return self._rendered(conversation).text
            return self._render(conversation, messages, add_generation_prompt).text
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
            NotFollowed: if the template does something with a text but to print it.
        """
        if messages is not None or add_generation_prompt:
            return self._template.map_messages(conversation, text, messages, add_generation_prompt)
        return self._map(conversation)

    def omissions(self, conversation: Conversation) -> Omissions:
        """Find what the template does not print of a conversation.

        Raises:
            NotFollowed: if the template does something with a text but to print it.
        """
        message_map = self._map(conversation)
        if message_map.prints_all:
            return NO_OMISSIONS
        return find_omissions(self._rendered(conversation).messages, conversation.tools, message_map.printed)

    def _rendered(self, conversation: Conversation) -> _Rendered:
        """The conversation as it was rendered last, or rendered now."""
        if self._last is None or self._last.conversation is not conversation:
            self._last, self._last_map = None, None
            self._last = self._render(conversation)
        return self._last

    def _map(self, conversation: Conversation) -> MessageMap:
        rendered = self._rendered(conversation)
        if self._last_map is None:
            described = describe(rendered.messages)
            if described is not None:
                self._last_map = self._layouts.map_of(rendered.text, rendered.pieces, rendered.tools, described)
        if self._last_map is None:
            slots = Slots(rendered.messages, conversation.tools)
            with_slots = self._render_plain(conversation, slots.messages, slots.tools)
            self._last_map = slots.map_of(rendered.text, rendered.pieces, *with_slots)
            if self._last_map is None:
                raise NotFollowed("the template does something with a text but to print it")
            if described is not None:
                self._layouts.learn(rendered.pieces, rendered.tools, described, slots)
        return self._last_map

    def _render(
        self, conversation: Conversation, messages: Sequence[Any] | None = None, add_generation_prompt: bool = False
    ) -> _Rendered:
        try:
            plain = self._template.plain_messages(conversation, messages)
        except RecordError:
            raise NotFollowed("") from None
        tools = TOOL_TEXTS.known(conversation.tools) if conversation.tools else conversation.tools
        found = self._render_plain(conversation, plain, tools, add_generation_prompt)
        return _Rendered(conversation, plain, tools, *found)

    def _render_plain(
        self,
        conversation: Conversation,
        messages: list[dict[str, Any]],
        tools: Any,
        add_generation_prompt: bool = False,
    ) -> tuple[str, list[Piece]]:
        source = self._template.source(conversation)
        values = self._template.values(conversation, messages, add_generation_prompt) | {"tools": tools}
        try:
            template = compile_with_marks(source)
            return limited(render_with_marks, template, values, values["messages"])
        except MarksLost:
            raise NotFollowed("the template prints messages in a place that is not followed, such as a macro") from None
        except Exception:  # a template may raise any error; the reference says which
            raise NotFollowed("the template refuses the messages without their texts") from None
