"""What a conversation says in a way that its chat template does not read, said in a way that it reads."""

from __future__ import annotations

from typing import Any

import msgspec

from transforms.chat.rendering.template import ChatTemplate
from transforms.model.examples import Conversation

# SmolLM3's argument of its template for tools.
_TOOLS = "xml_tools"
_SWITCH = "enable_thinking"


def adapted(conversation: Conversation, template: ChatTemplate) -> tuple[Conversation, dict[str, str | None]]:
    """Adapt a conversation to its chat template.

    A message of the developer becomes one of the system, if the template prints nothing of a developer or refuses it,
    and prints the system. SmolLM3's `xml_tools` become tools, if the template does not read them under that name.

    Args:
        conversation: the conversation.
        template: that renders it.

    Returns:
        The conversation, the same if nothing is to be changed; and what is worth reporting, by name, as notes.

    Raises:
        RecordError: if there is no template.
    """
    notes: dict[str, str | None] = {}
    arguments = conversation.template_kwargs
    if _SWITCH in arguments and _SWITCH not in template.source(conversation):
        notes["enable_thinking_not_read"] = "the template does not read whether the model is to reason"
    if arguments.get(_TOOLS) and conversation.tools is None and _TOOLS not in template.source(conversation):
        tools = _tools(arguments[_TOOLS])
        if tools is not None:
            notes["xml_tools_as_tools"] = None
            rest = {name: value for name, value in arguments.items() if name != _TOOLS}
            start = conversation.completion_start
            conversation = Conversation(conversation.lazy_messages, tools, rest, start, conversation.made_messages)
    if _has_developer(conversation) and not template.prints(conversation, "developer"):
        if not template.prints(conversation, "system"):
            return conversation, notes
        notes["developer_as_system"] = None
        messages = [{**m, "role": "system"} if m["role"] == "developer" else m for m in conversation.messages]
        conversation = conversation.with_messages(messages)
    return conversation, notes


def _has_developer(conversation: Conversation) -> bool:
    messages = conversation.lazy_messages
    if isinstance(messages, tuple):
        return "developer" in messages[0]
    return any(message.get("role") == "developer" for message in messages)


def _tools(given: Any) -> list[Any] | None:
    """Tools in the OpenAI form, given as objects or as their JSON; None if they are something else."""
    tools = []
    for tool in given if isinstance(given, list) else [None]:
        if isinstance(tool, str):
            try:
                tool = msgspec.json.decode(tool)
            except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
                return None
        if not isinstance(tool, dict) or not isinstance((function := tool.get("function", tool)), dict):
            return None
        if not isinstance(function.get("name"), str):
            return None
        tools.append(tool if "function" in tool else {"type": "function", "function": tool})
    return tools
