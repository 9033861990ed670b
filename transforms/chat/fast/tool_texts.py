"""Tool texts: what a chat template prints for tool definitions alone is made once for each list of tools.

Many conversations share their tools. What a statement of a template prints depends on them alone if it reads no other
variable, and no macro but those that read their arguments alone.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.idtracking import VAR_LOAD_RESOLVE

from transforms.chat.fast.identity import Source, Sources
from transforms.chat.rendering.texts import with_sources

# The most lists of tools that are kept.
_KEPT = 256


@dataclass
class KnownTools:
    """A list of tools that a template is given for all conversations with the same tools.

    Attributes:
        tools: the tools, with names whose sources are known.
        sources: of these names, and of the texts.
        copied: the names, as Sources has them.
        texts: what statements print of the tools, by the number of the statement.
    """

    tools: list[Any]
    sources: dict[int, Source]
    copied: set[int]
    texts: dict[int, str] = field(default_factory=dict)

    def keep(self, number: int, text: str, sources: Sources) -> None:
        """Keep the text of a statement. sources: those of the rendering that made it."""
        self.texts[number] = text
        self.sources = sources.lasting(text) | self.sources


class ToolTexts:
    """Keeps the texts of lists of tools under one template. A list of tools is known by its content."""

    def __init__(self) -> None:
        self._known: dict[bytes, KnownTools] = {}
        self._last: tuple[list[Any], KnownTools] | None = None

    def known(self, tools: list[Any]) -> KnownTools:
        """Return what is known of the tools with the same content."""
        if self._last is not None and self._last[0] is tools:  # many conversations share them, and none changes them
            return self._last[1]
        found = self._found(tools)
        self._last = tools, found
        return found

    def _found(self, tools: list[Any]) -> KnownTools:
        try:
            content = marshal.dumps(tools, 2)  # version 2 writes what is equal in the same way
        except ValueError:  # it holds something else than JSON
            return _new(tools)
        found = self._known.get(content)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known = {}
            found = self._known[content] = _new(tools)
        return found


def _new(tools: list[Any]) -> KnownTools:
    sources = Sources()
    _, named = with_sources([], tools, sources.copy)
    return KnownTools(named or [], sources.table, sources.copied)


def find_statements_of_tools(tree: nodes.Template) -> dict[int, set[str]]:
    """Find the statements of a template that print what depends on the variable `tools` alone.

    Args:
        tree: the template, with its environment.

    Returns:
        For the id of each of them, the other names that it may look up in the context: of globals, and of variables
        that it sets itself, but perhaps not before it reads them. They must have no other value there.
    """
    return dict(_Statements(tree).of_tools(tree))


class _Statements:
    def __init__(self, tree: nodes.Template):
        names = [macro.name for macro in tree.find_all(nodes.Macro)] + [*_names_set(tree)]
        self._macros = {
            node.name: node for node in tree.body if isinstance(node, nodes.Macro) and names.count(node.name) == 1
        }

    def of_tools(self, node: nodes.Node) -> Iterator[tuple[int, set[str]]]:
        """The statements within a node."""
        for child in node.iter_child_nodes():
            names = self._others_read(child) if isinstance(child, (nodes.For, nodes.Output)) else None
            if names is not None:
                yield id(child), names
            else:
                yield from self.of_tools(child)

    def _others_read(self, statement: nodes.Stmt) -> set[str] | None:
        """The names that a statement reads besides `tools`, if it can be one of those; otherwise None."""
        if all(name.name != "tools" for name in statement.find_all(nodes.Name)):
            return None
        read = _names_read(statement)
        called: dict[str, nodes.Node] = {}
        while macros := [name for name in read if name in self._macros and name not in called]:
            called |= {name: self._macros[name] for name in macros}
            read = read.union(*(_names_read(self._macros[name]) for name in macros))
        others = read - {"tools"} - called.keys()
        known = {*statement.environment.globals}.union(*map(_names_set, (statement, *called.values())))  # type: ignore
        return others if others <= known else None


def _names_set(node: nodes.Node) -> Iterator[str]:
    return (name.name for name in node.find_all(nodes.Name) if name.ctx != "load")


def _names_read(node: nodes.Node) -> set[str]:
    """The names that a statement may look up in the context."""
    reader = _Reader(node.environment)  # type: ignore[arg-type]
    reader.visit(nodes.Template([node], lineno=node.lineno))
    return reader.names


class _Reader(CodeGenerator):
    """Generates no code, and notes the names of variables that are looked up in the context."""

    def __init__(self, environment: Environment):
        super().__init__(environment, None, None)
        self.names: set[str] = set()

    def write(self, x: str) -> None:
        pass

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        self.names |= {name for action, name in frame.symbols.loads.values() if action == VAR_LOAD_RESOLVE and name}
