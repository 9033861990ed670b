"""Unread tools: what tool definitions say that the chat template does not print, such as descriptions.

The same definitions are in many records. What is read of them is found once, in a piece of a printed text: each text
that has this piece has the same texts of the definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from transforms.records.unread import IN_A_WORD, ReadTexts, kind_of_name

# A text of a definition, and the name by which it is counted.
_Named: TypeAlias = tuple[str, str]
# The keys of JSON Schema. Others in parameters are names that somebody gave, and texts as such.
_OF_SCHEMAS = {
    *("type", "properties", "required", "description", "enum", "items", "default", "title", "format", "pattern"),
    *("const", "examples", "example", "nullable", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "contains", "minContains"),
    *("maxContains", "minProperties", "maxProperties", "patternProperties", "additionalProperties", "optional"),
    *("propertyNames", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$ref", "$defs", "definitions"),
    *("$schema", "$id", "$comment", "deprecated", "strict", "readOnly", "writeOnly", "dependentRequired"),
    *("dependentSchemas", "prefixItems", "additionalItems", "unevaluatedProperties"),
}
_WITH_NAMES = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_METADATA_OF_SCHEMAS = frozenset(("type", "format", "$ref", "$schema", "$id"))
# A text of at least this many characters is printed for its definition, and not by chance.
_LONG = 24
# How many characters before and after them are searched for shorter texts.
_AROUND = 512


@dataclass
class _Known:
    """Tool definitions, and what of them the texts have that have a certain piece.

    Attributes:
        tools: the definitions.
        texts: all that they say.
        piece: of a text that was printed for them; empty if no such text has several of their texts.
        start: where it was.
        others: the texts that are not in the piece.
    """

    tools: Sequence[Any]
    texts: Sequence[_Named]
    piece: str
    start: int
    others: Sequence[_Named]


class UnreadTools:
    """Finds what tool definitions say and texts do not have; for the texts of a batch."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}  # by identity, since conversations of the same tools share them

    def find(self, tools: Sequence[Any], printed: str) -> list[_Named]:
        """Return the names and the texts that are not printed.

        Args:
            tools: the definitions.
            printed: the text of a conversation that has them.
        """
        known = self._known.get(id(tools))
        if known is None:
            known = self._known[id(tools)] = _learn(tools, printed)
        if known.piece and (printed.startswith(known.piece, known.start) or known.piece in printed):
            return not_in(printed, known.others) if known.others else []
        return not_in(printed, known.texts)


def _learn(tools: Sequence[Any], printed: str) -> _Known:
    texts = list(dict.fromkeys(text for tool in tools for text in _texts_of_tool(tool)))
    found = [(at, at + len(text)) for _, text in texts if len(text) >= _LONG and (at := printed.find(text)) >= 0]
    if not found:
        return _Known(tools, texts, "", 0, texts)
    start, end = min(found)[0], max(end for _, end in found)
    for _, text in not_in(printed[start:end], texts):  # such as the names in the last definition
        if (at := printed.rfind(text, max(start - _AROUND, 0), start)) >= 0:
            start = at
        elif (at := printed.find(text, end, end + _AROUND)) >= 0:
            end = at + len(text)
    while start and IN_A_WORD.match(printed[start]):
        start -= 1
    while end < len(printed) and IN_A_WORD.match(printed[end - 1]):
        end += 1
    piece = printed[start:end]
    if IN_A_WORD.match(piece[0]) or IN_A_WORD.match(piece[-1]):  # at the edge of the text
        return _Known(tools, texts, "", 0, texts)
    return _Known(tools, texts, piece, start, not_in(piece, texts))


def not_in(printed: str, texts: Iterable[_Named]) -> list[_Named]:
    """Return the texts that a template did not print in a text, with their names."""
    read = ReadTexts([printed])
    return [(name, text) for name, text in texts if not read.have_printed(text)]


def _texts_of_tool(tool: Any) -> Iterator[_Named]:
    """Give the texts of a definition, but for its name, which is an omission if it is not printed."""
    if not isinstance(tool, Mapping):
        return
    for outer, keys in (("tools[]", tool), ("tools[].function", tool.get("function"))):
        for key, value in keys.items() if isinstance(keys, Mapping) else ():
            if key not in ("name", "function") and (kind_of_name(key) != "metadata" or key == "parameters"):
                yield from ((f"{outer}.{key}", text) for text in _texts_of_schema(value) if text.strip())


def _texts_of_schema(schema: Any) -> Iterator[str]:
    """Give the texts of a JSON Schema, among them the names of properties, without those of types and formats."""
    left = [(schema, False)]  # no recursion, as in texts_in
    while left:
        value, has_names = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            left += [(item, False) for item in value]
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if has_names or key not in _OF_SCHEMAS:
                    yield key
                if has_names or key not in _METADATA_OF_SCHEMAS:
                    left.append((item, not has_names and key in _WITH_NAMES))
