"""Tools that a system message has in its text already, as datasets for models without a template of tools have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transforms.inputs.unread import ReadTexts

# The name of a tool as a definition has it, and not as a word: "You add numbers."
_DEFINED = re.compile(r"""["']name["']\s*:\s*["']([^"']*)["']""")


def are_in_system_text(tools: Sequence[Any] | None, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the first message is of the system and has all of each tool in its text.

    Args:
        tools: the tool definitions of a conversation.
        messages: its messages.

    Returns:
        Whether the text has a definition of each tool: its name as JSON or Python writes it (`"name": "add"`), and the
        names of its parameters, as whole words, and all descriptions.
    """
    if not tools or not messages or messages[0].get("role") not in ("system", "developer"):
        return False
    content = messages[0].get("content")
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
    defined = {name for text in texts for name in _DEFINED.findall(text)}
    if not all(str(_function(tool).get("name")) in defined for tool in tools):
        return False
    read = ReadTexts(texts)
    return all(read.have_printed(text) for tool in tools for text in _texts(tool))


def _function(tool: Any) -> Any:
    function = tool.get("function")
    return function if isinstance(function, dict) else tool


def _texts(tool: Any) -> Iterator[str]:
    """The description of a tool, and the names and the descriptions of its parameters."""
    function = _function(tool)
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
