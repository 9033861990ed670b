"""Tools that a system message has in its text already, as datasets for models without a template of tools have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transforms.inputs.unread import ReadTexts


def are_in_system_text(tools: Sequence[Any] | None, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the first message is of the system and has all of each tool in its text.

    Args:
        tools: the tool definitions of a conversation.
        messages: its messages.

    Returns:
        Whether the text has the names of all tools and parameters, as whole words, and their descriptions.
    """
    if not tools or not messages or messages[0].get("role") not in ("system", "developer"):
        return False
    content = messages[0].get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    read = ReadTexts(texts)
    return all(read.have_printed(text) for tool in tools for text in _texts(tool))


def _texts(tool: Any) -> Iterator[str]:
    """The names and the descriptions of a tool and its parameters, the name of the tool first."""
    function = tool.get("function")
    function = function if isinstance(function, dict) else tool
    yield str(function.get("name"))
    if isinstance(description := function.get("description"), str):
        yield description
    left = [function.get("parameters")]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            properties = value.get("properties")
            yield from properties if isinstance(properties, dict) else ()
            if isinstance(description := value.get("description"), str):
                yield description
            left += value.values()
