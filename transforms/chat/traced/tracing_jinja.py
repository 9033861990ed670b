"""Compile chat templates so that whatever they make of a traced text is a traced text, or is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from transforms.chat.rendering.environment import (
    compile_template,
    compile_tree,
    given_keywords,
    look_up_quickly,
    new_environment,
)
from transforms.chat.traced.tracer import SENTINEL, NotTraceable, TracedLength, TracedText, known, traced_text


@functools.cache
def traceable_template(source: str) -> jinja2.Template:
    """Compile a chat template so that whatever it makes of a traced text is a traced text.

    Args:
        source: the text of the template.

    Returns:
        The template, in a copy of transformers' environment. Rendering it raises NotTraceable.

    Raises:
        NotTraceable: if the template holds a sentinel's character or an expression that cannot be traced.
    """
    if character := SENTINEL.search(source):
        raise NotTraceable(f"the template holds the character {character[0]!r}")
    environment: Any = new_environment(source)
    environment.filters = {name: _traceable_filter(name, filter) for name, filter in environment.filters.items()}
    kinds = {"sequence": TracedText, "iterable": TracedText, "number": TracedLength, "integer": TracedLength}
    tests = {name: functools.partial(_test, kind, environment.tests[name]) for name, kind in kinds.items()}
    environment.tests = {**environment.tests, **tests, "in": _is_in, "sameas": _is_same}
    environment.globals = {**environment.globals, _JOIN: lambda *parts: _join(map(str, parts)), _IS_IN: _is_in}
    look_up_quickly(environment)
    environment.call = functools.partial(_call, environment.call)
    environment.concat = _join
    return compile_tree(_OperatorsAsCalls().visit(environment.parse(source)), environment)


_JOIN, _IS_IN = "chatmill_join", "chatmill_is_in"
# Filters that return texts as they are, or only call methods of a text.
_TRACEABLE_FILTERS = {"trim", "string", "lower", "list", "first", "last", "reverse", "items", "map", "attr"}
_TRACEABLE_FILTERS |= {"selectattr", "rejectattr", "select", "reject", "default", "d"}


class _OperatorsAsCalls(NodeTransformer):
    """Replaces operators that Jinja and str compute without calling methods of a text, or of what is searched for."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call_guard(_JOIN, node.nodes, node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        if not any(operand.op in ("in", "notin") for operand in node.ops):
            return node
        if len(node.ops) > 1:
            raise NotTraceable("the template chains comparisons with in")
        is_in = _call_guard(_IS_IN, [node.expr, node.ops[0].expr], node.lineno)
        return is_in if node.ops[0].op == "in" else nodes.Not(is_in, lineno=node.lineno)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.left, nodes.Const) and isinstance(node.left.value, str):
            raise NotTraceable("the template formats with %")
        return node


def _call_guard(function: str, arguments: Sequence[nodes.Expr], lineno: int) -> nodes.Call:
    return nodes.Call(nodes.Name(function, "load"), [*arguments], [], None, None, lineno=lineno)


def _join(parts: Any) -> str:
    parts = [known(part) for part in parts if str.__len__(part)]
    texts = [part for part in parts if isinstance(part, TracedText)]
    if not texts:
        return "".join(parts)
    return parts[0] if len(parts) == 1 else traced_text("".join(parts), texts[0].guards)


def _is_in(value: Any, container: Any) -> bool:
    is_other_string = isinstance(container, str) and not isinstance(container, TracedText)
    if is_other_string and (isinstance(value, TracedText) or SENTINEL.search(container)):
        raise NotTraceable("the template searches another string for a text")
    return value in container


def _call(call: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse methods of other strings on a traced text, since they read its characters without calling its methods."""
    owner = getattr(function, "__self__", None)
    is_other_string = isinstance(owner, str) and not isinstance(owner, TracedText)
    if is_other_string and any(map(_may_hold_text, (*arguments, *given_keywords(keywords).values()))):
        raise NotTraceable(f"the template calls {function.__name__} of another string with a text")
    return call(context, function, *arguments, **keywords)


def _test(kind: type, test: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, kind) or test(value)


def _is_same(value: Any, other: Any) -> bool:
    if isinstance(value, TracedLength) or isinstance(other, TracedLength):
        raise NotTraceable("the template tests whether the length of a text is the same object")
    return value is other


def _traceable_filter(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    if name in ("length", "count"):
        return lambda value: TracedLength(str.__len__(value)) if isinstance(value, TracedText) else filter(value)
    if name in _TRACEABLE_FILTERS:
        return filter
    unchecked = 2 if name == "replace" else 0  # the context, and the text whose method it calls

    @functools.wraps(filter)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        if any(_may_hold_text(value) for value in (*arguments[unchecked:], *keywords.values())):
            raise NotTraceable(f"the template applies the filter {name} to a text")
        return filter(*arguments, **keywords)

    return checked


def _may_hold_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_may_hold_text, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_may_hold_text, value))
    known = (str, int, float, type(None), jinja2.Environment, jinja2.runtime.Context, nodes.EvalContext)
    return isinstance(value, TracedText) or not isinstance(value, known)


# Methods, filters and tests that search a text for the first of their arguments.
_SEARCHES = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "replace", "count", "find"}
_SEARCHES |= {"removeprefix", "removesuffix", "in"}
# Shorter strings are in too many texts.
_SHORTEST_MARKER = 3


@functools.cache
def find_markers(source: str) -> frozenset[str]:
    """Return the constant strings that a chat template searches texts for, such as </think>.

    Args:
        source: the text of the template.
    """
    tree = compile_template(source).environment.parse(source)
    assigned = [(assign.target, assign.node) for assign in tree.find_all(nodes.Assign)]
    constants = {target.name: value for target, value in assigned if isinstance(target, nodes.Name)}
    searched: list[Any] = []
    for compare in tree.find_all(nodes.Compare):
        searched += [compare.expr] * any(operand.op in ("in", "notin") for operand in compare.ops)
    for call in tree.find_all((nodes.Call, nodes.Filter, nodes.Test)):
        assert isinstance(call, (nodes.Call, nodes.Filter, nodes.Test))
        name = getattr(call.node, "attr", None) if isinstance(call, nodes.Call) else call.name
        searched += call.args[: name in _SEARCHES]
    searched += [constants[node.name] for node in searched if isinstance(node, nodes.Name) and node.name in constants]
    values = [constant.value for constant in nodes.List(searched).find_all(nodes.Const)]
    return frozenset(value for value in values if isinstance(value, str) and len(value.strip()) >= _SHORTEST_MARKER)
