"""Calls: what a chat template calls, and what it gives, in copies of transformers' Jinja environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

# Jinja itself passes these with each call, for functions that take the context. No function of a template reads them.
_KEYWORDS_OF_JINJA = ("_loop_vars", "_block_vars")


def owner_of(function: Any) -> Any:
    """Return the object whose method a function is; None if it is not a method. The sandbox wraps format."""
    return getattr(getattr(function, "__wrapped__", function), "__self__", None)


def given_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a call that the template gives."""
    return {name: value for name, value in keywords.items() if name not in _KEYWORDS_OF_JINJA}


def call_of(function: str, arguments: Sequence[Any], lineno: int) -> nodes.Call:
    """Make the node of a call of a global function."""
    return nodes.Call(nodes.Name(function, "load"), [*arguments], [], None, None, lineno=lineno)


class OperatorsAsCalls(NodeTransformer):
    """Replaces operators that Jinja and str compute without calling methods of a string's subclass.

    Args:
        functions: the name of the global function that is called instead of each kind of operator.
    """

    def __init__(self, functions: Mapping[type[nodes.Node], str]):
        self._functions = functions

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node)
        function = self._functions.get(type(node))
        return call_of(function, [*node.iter_child_nodes()], node.lineno) if function else node


def compile_tree(tree: nodes.Template, environment: Any) -> jinja2.Template:
    """Compile a template in a copy of the environment that parsed it."""
    tree.set_environment(environment)
    return jinja2.Template.from_code(environment, environment.compile(tree), dict(environment.globals))
