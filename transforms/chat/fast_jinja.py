"""transformers' Jinja environment, faster: the same values and the same text, with marks of the loops next to it.

Jinja's sandbox looks for an attribute with an exception first and in a dict afterwards, and checks each access and each
call. Here what cannot be refused is looked up at once: an entry of a dict, a method of a string, a variable of a loop.
Everything else goes the way of the sandbox.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context, LoopContext, missing
from jinja2.utils import Namespace

from transforms.chat.message_map import (
    MARK_FUNCTIONS,
    Piece,
    mark_function,
    mark_functions,
    mark_loops,
    read_pieces,
)
from transforms.chat.tool_texts import TOOL_TEXTS, find_statements_of_tools
from transforms.chat.transformers_jinja import new_environment

# What the sandbox allows of each type. Names of a dict's own attributes come before its entries in Jinja.
_DICT_NAMES = frozenset(dir(dict))
_DICT_METHODS = frozenset(("get", "items", "keys", "values"))
_STRING_METHODS = frozenset(name for name in dir(str) if name[0] != "_") - {"format", "format_map"}
_LOOP_NAMES = frozenset(("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem"))
_PLAIN_TYPES = frozenset((str, int, float, bool, type(None), dict, list))
_KEYWORDS_OF_JINJA = ("_loop_vars", "_block_vars")


class LoopMark(str):
    """What a mark prints: no character at all, so that no template can print another text because of it.

    Attributes:
        place: the kind of the mark and its two numbers, as in `message_map`.
    """

    place: tuple[str, int, int]

    def __str__(self) -> str:
        return self


@functools.cache  # there is one for each loop of a template and number of a message
def _loop_mark(*place: Any) -> LoopMark:
    mark = LoopMark()
    mark.place = place
    return mark


class MarksLost(Exception):
    """A mark is to be printed where its place is unknown, such as in a macro."""


def _lost(mark: str) -> None:
    if type(mark) is LoopMark:
        raise MarksLost


@functools.cache
def compile_with_marks(source: str) -> jinja2.Template:
    """Compile a chat template for `render_with_marks`.

    Args:
        source: the text of the template.

    Raises:
        jinja2.TemplateSyntaxError: if the source is not valid Jinja.
    """
    environment: Any = new_environment(source)
    environment.code_generator_class = _FastCode
    environment.absent = _Absent(environment.undefined, once="sameas" not in source)
    environment.lost = _lost
    environment.texts_of_tools = _texts_of_tools
    environment.getattr = functools.partial(attribute_of, environment.getattr, environment.undefined)
    environment.entry_of = _entry_of(environment.getattr)
    environment.call = functools.partial(_call, environment.call)
    environment.filters = {**environment.filters, "tojson": _tojson(environment.filters["tojson"])}
    tree = mark_loops(environment.parse(source))
    tree.set_environment(environment)
    code: Any = environment.compile(tree)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


def render_with_marks(
    template: jinja2.Template, values: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]
) -> tuple[str, list[Piece]]:
    """Render a template that `compile_with_marks` compiled.

    Args:
        template: the template.
        values: its variables.
        messages: the messages among them; they are recognised by their identity.

    Returns:
        The text, and for which message each piece of it was printed, as in MessageMap.

    Raises:
        MarksLost: if this is not known.

    Raises whatever the template raises, too.
    """
    functions = mark_functions(_loop_mark, messages)
    parts = [*template.root_render_func(template.new_context({**values, **functions}))]
    text = "".join(parts)
    offsets = itertools.accumulate(map(len, parts))
    marks = [(offset, part.place) for offset, part in zip(offsets, parts, strict=True) if type(part) is LoopMark]
    return text, read_pieces(len(text), marks)


class _FastCode(CodeGenerator):
    """Generates code that looks into dicts and namespaces itself, and that calls marks without the sandbox."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        self._namespaces = {name for assigned in node.find_all(nodes.Assign) for name in _namespace_of(assigned)}
        self._of_tools = find_statements_of_tools(node)
        self._has_marks = True
        super().visit_Template(node, frame)

    def write_commons(self) -> None:
        super().write_commons()
        for function in MARK_FUNCTIONS:
            self.writeline(f"{function} = resolve({function!r})")
        for name in ("absent", "entry_of", "lost", "texts_of_tools"):
            self.writeline(f"{name} = environment.{name}")

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        variable = node.node.name if isinstance(node.node, nodes.Name) else None
        if node.attr in _DICT_NAMES:
            super().visit_Getattr(node, frame)
        elif variable == "loop" and node.attr in _LOOP_NAMES:
            self.write("(_value.")
            self.write(node.attr)
            self.write(" if type(_value := ")
            self.visit(node.node, frame)
            self.write(f") is LoopContext else environment.getattr(_value, {node.attr!r}))")
        elif variable in self._namespaces and node.attr[0] != "_":
            self.write("entry_of(")
            self.visit(node.node, frame)
            self.write(f", {node.attr!r})")
        else:
            self._look_up(node.node, node.attr, "getattr", frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            self._look_up(node.node, node.arg.value, "getitem", frame)
        else:
            super().visit_Getitem(node, frame)

    def _look_up(self, node: nodes.Expr, name: str, otherwise: str, frame: Frame) -> None:
        self.write(f"((_value[{name!r}] if {name!r} in _value else absent[{name!r}]) if type(_value := ")
        self.visit(node, frame)
        self.write(f") is dict else environment.{otherwise}(_value, {name!r}))")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        method, arguments = node.node, node.args
        is_method = isinstance(method, nodes.Getattr) and method.attr in _STRING_METHODS
        if not is_method or node.kwargs or node.dyn_args or node.dyn_kwargs or forward_caller:
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        assert isinstance(method, nodes.Getattr)
        self.write(f"(_text.{method.attr}(")
        self._visit_all(arguments, frame)
        self.write(") if type(_text := ")
        self.visit(method.node, frame)
        self.write(f") is str else environment.call(context, environment.getattr(_text, {method.attr!r}), ")
        self._visit_all(arguments, frame)
        self.write("_loop_vars=_loop_vars" if frame.loop_frame else "")
        self.write(", " if frame.loop_frame and frame.block_frame else "")
        self.write("_block_vars=_block_vars" if frame.block_frame else "")
        self.write("))")

    def _visit_all(self, arguments: Sequence[nodes.Expr], frame: Frame) -> None:
        for argument in arguments:
            self.visit(argument, frame)
            self.write(", ")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        self._visit_once(super().visit_For, node, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        self._visit_once(self._visit_output, node, frame)

    def _visit_output(self, node: nodes.Output, frame: Frame) -> None:
        if (function := mark_function(node)) is None:
            super().visit_Output(node, frame)
        elif self._has_marks:
            self.writeline(f"yield {function}(" if frame.buffer is None else f"lost({function}(", node)
            self._visit_all(node.nodes[0].args, frame)  # type: ignore[attr-defined]
            self.write(")" if frame.buffer is None else "))")

    def _visit_once(self, visit: Callable[..., None], node: nodes.Stmt, frame: Frame) -> None:
        """Visit a statement; if it prints the tools, write code that executes it once for each list of tools."""
        others = self._of_tools.get(id(node))
        if others is None or not frame.toplevel or frame.block_frame:
            visit(node, frame)
            return
        texts, number = self.temporary_identifier(), next(_STATEMENTS)
        self.writeline(f"{texts} = texts_of_tools(context, {frame.symbols.ref('tools')}, {sorted(others)})")
        self.writeline(f"if {number} not in {texts}:")
        self.indent()
        own = frame.copy()
        self.buffer(own)
        self._has_marks = False  # it has no messages
        visit(node, own)
        self._has_marks = True
        self.writeline(f"{texts}[{number}] = concat({own.buffer})")
        self.outdent()
        self.simple_write(f"{texts}[{number}]", frame, node)


# Of all templates in the process, since they share the tools.
_STATEMENTS = itertools.count()


def _namespace_of(node: nodes.Assign) -> list[str]:
    """The variable, if a namespace is assigned to it."""
    makes = isinstance(node.node, nodes.Call) and node.node.node == nodes.Name("namespace", "load")
    return [node.target.name] if makes and isinstance(node.target, nodes.Name) else []


class _Absent(dict[str, jinja2.Undefined]):
    """For a name, what an entry of a dict is that the dict does not have.

    Args:
        undefined: makes it.
        once: whether it is made once for each name. The test `sameas` could tell.
    """

    def __init__(self, undefined: Callable[..., jinja2.Undefined], once: bool):
        self._undefined, self._once = undefined, once

    def __missing__(self, name: str) -> jinja2.Undefined:
        value = self._undefined(obj={}, name=name)
        if self._once:
            self[name] = value
        return value


def _texts_of_tools(context: Context, tools: Any, others: Sequence[str]) -> dict[int, str]:
    """The texts of a list of tools, if other names have the values that they have in each context."""
    for name in others:
        if context.resolve_or_missing(name) is not context.environment.globals.get(name, missing):
            return {}
    return TOOL_TEXTS.texts(tools)


def attribute_of(otherwise: Callable[..., Any], undefined: Callable[..., Any], value: Any, name: str) -> Any:
    """Return an attribute of a value, or an entry of it, as `SandboxedEnvironment.getattr` does.

    Args:
        otherwise: that method, for values of other types than a template mostly has.
        undefined: makes the undefined value of the environment.
        value: the value.
        name: of the attribute.
    """
    kind = type(value)
    if kind is dict:
        if name not in _DICT_NAMES:
            return value[name] if name in value else undefined(obj=value, name=name)
        if name in _DICT_METHODS:
            return getattr(value, name)
    elif (kind is str and name in _STRING_METHODS) or (kind is LoopContext and name in _LOOP_NAMES):
        return getattr(value, name)
    elif isinstance(value, Namespace) and name[0] != "_":
        found = getattr(value, name, value)
        if type(found) in _PLAIN_TYPES:
            return found
    return otherwise(value, name)


def _entry_of(otherwise: Callable[..., Any]) -> Callable[[Any, str], Any]:
    """Make the function that finds an attribute of a namespace, as `SandboxedEnvironment.getattr` does."""
    attribute = object.__getattribute__

    def entry_of(value: Any, name: str) -> Any:
        try:
            found = attribute(value, "_Namespace__attrs").get(name, value)
        except AttributeError:  # it is something else
            return otherwise(value, name)
        return found if type(found) in _PLAIN_TYPES else otherwise(value, name)

    return entry_of


def _call(otherwise: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """What a function returns, as `SandboxedEnvironment.call` calls it."""
    is_method = type(function) is BuiltinMethodType and type(function.__self__) in (str, dict)
    if is_method and function.__name__ not in ("format", "format_map"):
        for name in _KEYWORDS_OF_JINJA:
            keywords.pop(name, None)
        return function(*arguments, **keywords)
    return otherwise(context, function, *arguments, **keywords)


def _tojson(otherwise: Callable[..., str]) -> Callable[..., str]:
    """transformers' filter tojson, with one encoder for all calls without other settings."""
    encode = _encoder()

    def tojson(value: Any, *arguments: Any, **keywords: Any) -> str:
        kind = type(value)
        if not arguments and (not keywords or keywords == {"ensure_ascii": False}):
            if kind is dict or kind is list:
                return encode(value)
            if kind is str:
                return json.encoder.encode_basestring(value)
        return otherwise(value, *arguments, **keywords)

    return tojson


def _encoder() -> Callable[[Any], str]:
    """What json.dumps(..., ensure_ascii=False) does with dicts and lists, without a new encoder for each."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    default = json.JSONEncoder().default
    if make is None:  # not in CPython
        return functools.partial(json.dumps, ensure_ascii=False)

    def encode(value: Any) -> str:
        try:
            chunks: Iterable[str] = encoder(value, 0)
        except Exception:
            seen.clear()  # it does not forget what it was in
            raise
        return "".join(chunks)

    seen: dict[int, Any] = {}
    encoder = make(seen, default, json.encoder.encode_basestring, None, ": ", ", ", False, False, True)
    return encode
