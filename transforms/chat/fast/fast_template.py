"""A chat template, rendered faster: for conversations whose signatures do not repeat, such as those of agents.

A conversation is rendered by Jinja itself (`fast_jinja`), once, which gives its text, which message each piece of it
belongs to, and where the texts of the record are in it (`identity`). The reference finds the same with strings that
carry their sources, which takes ten times as long.
"""

from __future__ import annotations

from typing import Any

from transforms.base.errors import RecordError
from transforms.chat.fast.fast_jinja import Output, compile_fast, render_fast
from transforms.chat.fast.identity import NotFollowed, Sources
from transforms.chat.fast.tool_texts import ToolTexts
from transforms.chat.rendering.renderings import Rendering
from transforms.chat.rendering.template import ChatTemplate
from transforms.chat.rendering.texts import with_sources
from transforms.model.examples import Conversation, Span


class FastTemplate:
    """Renders conversations as a ChatTemplate does; a `template_facts.Template`.

    Args:
        template: the chat template.
    """

    def __init__(self, template: ChatTemplate):
        self._template = template
        self._tool_texts: dict[str, ToolTexts] = {}

    def source(self, conversation: Conversation) -> str:
        return self._template.source(conversation)

    def has_generation_blocks(self, conversation: Conversation) -> bool:
        return self._template.has_generation_blocks(conversation)

    def generation_blocks(self, conversation: Conversation) -> tuple[str, list[Span]]:
        return self._template.generation_blocks(conversation)

    def render(self, conversation: Conversation, add_generation_prompt: bool = False) -> str:
        """Render a conversation, as `ChatTemplate.render` does. Raises RecordError."""
        try:
            plain = self._plain_messages(conversation)
            return self._printed(conversation, plain, Sources(), add_generation_prompt).text
        except NotFollowed:
            return self._template.render(conversation, add_generation_prompt)

    def rendering(self, conversation: Conversation, add_generation_prompt: bool = False) -> Rendering:
        """Render a conversation, as `ChatTemplate.rendering` does.

        Raises:
            NotFollowed: if it is not known where the texts of the record are printed.
        """
        plain, sources = self._plain_messages(conversation), Sources()
        messages, _ = with_sources(plain, None, sources.copy)
        output = self._printed(conversation, messages, sources, add_generation_prompt)
        texts, keys, prints_all = output.texts()
        return Rendering(conversation, plain, output.text, output.pieces(), texts, prints_all=prints_all, keys=keys)

    def _plain_messages(self, conversation: Conversation) -> list[dict[str, Any]]:
        try:
            return self._template.plain_messages(conversation)
        except RecordError:
            raise NotFollowed("") from None

    def _printed(
        self,
        conversation: Conversation,
        messages: list[dict[str, Any]],
        sources: Sources,
        add_generation_prompt: bool,
    ) -> Output:
        source = self._template.source(conversation)
        template = compile_fast(source)
        tools = None
        if conversation.tools:
            tools = self._tool_texts.setdefault(source, ToolTexts()).known(conversation.tools)
            sources.table |= tools.sources
            sources.copied |= tools.copied
        values = self._template.values(conversation, messages, add_generation_prompt)
        values["tools"] = tools.tools if tools else conversation.tools
        output = Output(template, sources, tools)
        try:
            render_fast(template, values, values["messages"], output)
        except NotFollowed:
            raise
        except Exception:  # a template may raise any error; the reference says which
            raise NotFollowed("the template refuses the messages") from None
        return output
