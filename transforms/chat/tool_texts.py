"""Tool texts: the JSON of tool definitions, which many conversations share, is made once for each list of tools."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any

# The most lists of tools that are kept.
_KEPT = 256


class ToolTexts:
    """Keeps the JSON of tool definitions.

    A list of tools is known by its content, its tools by their identity: `known` returns the same objects for the same
    content, and these must not be changed.
    """

    def __init__(self) -> None:
        self._lists: dict[bytes, list[Any]] = {}
        self._texts: dict[int, tuple[Any, dict[Any, str]]] = {}

    def known(self, tools: list[Any]) -> list[Any]:
        """Return the first list of tools with the same content."""
        try:
            content = marshal.dumps(tools, 2)  # version 2 writes what is equal in the same way
        except ValueError:  # it holds something else than JSON
            return tools
        found = self._lists.get(content)
        if found is None:
            if len(self._lists) >= _KEPT:
                self._lists, self._texts = {}, {}
            found = self._lists[content] = tools
            self._texts |= {id(tool): (tool, {}) for tool in tools}
        return found

    def text(self, value: Any, settings: Any, make: Callable[[], str]) -> str:
        """Return the JSON of a value; it is made once if the value is one of the tools of a known list.

        Args:
            value: the value.
            settings: of the JSON.
            make: makes the JSON.
        """
        tool, texts = self._texts.get(id(value)) or (None, {})
        if tool is not value:
            return make()
        try:
            if settings not in texts:
                texts[settings] = make()
        except TypeError:  # settings that cannot be compared, such as a list
            return make()
        return texts[settings]


# Of all templates in the process.
TOOL_TEXTS = ToolTexts()
