"""Code that Jinja generates for a chat template, with look-ups at once, and operations on texts that are followed.

Jinja's sandbox looks for an attribute with an exception first and in a dict afterwards, and checks each access and each
call. Here what cannot be refused is looked up at once: an entry of a dict, a method of a string, a variable of a loop.
Everything else goes the way of the sandbox. What is printed is put into a list, in the parts in which it is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from transforms.chat.fast.tool_texts import find_statements_of_tools
from transforms.chat.rendering.environment import DICT_METHODS, DICT_NAMES, LOOP_NAMES
from transforms.chat.rendering.marks import MARK_FUNCTIONS, mark_function

# The variable that holds a `fast_jinja.Output`, and a filter for what a template loops over. No template uses these.
OUTPUT, EACH = "chatmill_output", "chatmill_each"
# Methods of strings: those that are followed, and those that return no text.
_FOLLOWED = frozenset(("strip", "lstrip", "rstrip", "split", "rsplit", "removeprefix", "removesuffix"))
_ASKING = frozenset(("count", "endswith", "find", "index", "rfind", "rindex", "startswith")) | {
    name for name in dir(str) if name.startswith("is")
}
# Filters that templates mostly give constants besides a text, as they do to the method replace.
GIVEN_CONSTANTS = frozenset(("join", "replace"))
# Statements and expressions whose output is not known here.
_OTHERS = (
    nodes.Block, nodes.EvalContextModifier, nodes.Extends, nodes.FromImport, nodes.Import, nodes.Include,
    nodes.MarkSafe, nodes.MarkSafeIfAutoescape, nodes.OverlayScope,
)  # fmt: skip
_OF_SOURCES = (*sorted(_FOLLOWED), "add", "concatenate", "each", "sliced", "text_of")
_OF_OUTPUT = ("absent", "entry_of", "getitem", "keep", "lost", "operate", "out", "tojson", "tools_texts")


def is_followed(tree: nodes.Template) -> bool:
    """Return whether it is known what each statement of a template prints."""
    return (
        next(tree.find_all(_OTHERS), None) is None
        and all(test.name != "sameas" for test in tree.find_all(nodes.Test))
        and all(map(_has_pairs, tree.find_all(nodes.For)))
    )


def gives_constants(tree: nodes.Template) -> bool:
    """Return whether the filters of `GIVEN_CONSTANTS`, and the method replace, are given nothing else."""
    return all(map(_is_given_constants, tree.find_all((nodes.Filter, nodes.Call))))


def _is_given_constants(node: Any) -> bool:
    if isinstance(node, nodes.Filter):
        is_concerned = node.name in GIVEN_CONSTANTS
    else:
        is_concerned = isinstance(node.node, nodes.Getattr) and node.node.attr == "replace"
    given = [*node.args, *(pair.value for pair in node.kwargs), node.dyn_args, node.dyn_kwargs]
    return not is_concerned or all(value is None or isinstance(value, nodes.Const) for value in given)


def _has_pairs(loop: nodes.For) -> bool:
    """Whether what a loop unpacks, if it does, is no text."""
    if isinstance(loop.target, nodes.Name):
        return True
    if isinstance(loop.iter, nodes.Call):
        return isinstance(loop.iter.node, nodes.Getattr) and loop.iter.node.attr == "items"
    return isinstance(loop.iter, nodes.Filter) and loop.iter.name in ("items", "dictsort")


class FastCode(CodeGenerator):
    """Generates code for a template that `is_followed`, with marks (`marks.mark_loops`)."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        self._namespaces = {name for assigned in node.find_all(nodes.Assign) for name in _namespace_of(assigned)}
        self._of_tools = find_statements_of_tools(node)
        self._statements = itertools.count()
        self._has_marks = True
        for loop in node.find_all(nodes.For):
            loop.iter = _each(loop.iter)
        for assigned in node.find_all(nodes.Assign):
            if isinstance(assigned.target, nodes.Tuple):
                assigned.node = _each(assigned.node)
        super().visit_Template(node, frame)

    def write_commons(self) -> None:
        super().write_commons()
        for function in MARK_FUNCTIONS:
            self.writeline(f"{function} = resolve({function!r})")
        self.writeline(f"output = resolve({OUTPUT!r})")
        self.writeline("concat = output.sources.join")
        for name in _OF_SOURCES:
            self.writeline(f"{name} = output.sources.{name}")
        for name in _OF_OUTPUT:
            self.writeline(f"{name} = output.{name}")
        self.writeline("write = out.append")
        self.writeline("LoopContext, ListLoop = output.loop_over, output.list_loop")

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        variable = node.node.name if isinstance(node.node, nodes.Name) else None
        if node.attr in DICT_NAMES:
            super().visit_Getattr(node, frame)
        elif variable == "loop" and node.attr in LOOP_NAMES:
            loop = frame.symbols.ref("loop")
            self.write(f"({loop}.{node.attr} if type({loop}) is ListLoop else ")
            super().visit_Getattr(node, frame)
            self.write(")")
        elif variable in self._namespaces and node.attr[0] != "_":
            self._visit_call("entry_of", [node.node, nodes.Const(node.attr)], frame)
        else:
            self._look_up(node.node, node.attr, "getattr", frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            parts = [part or nodes.Const(None) for part in (node.arg.start, node.arg.stop, node.arg.step)]
            self.write("sliced(")
            self.visit(node.node, frame)
            self._visit_call(", slice", parts, frame)
            self.write(")")
        elif isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            self._look_up(node.node, node.arg.value, "getitem", frame)
        else:
            self._visit_call("getitem", [node.node, node.arg], frame)

    def _look_up(self, node: nodes.Expr, name: str, otherwise: str, frame: Frame) -> None:
        if isinstance(node, nodes.Name):
            variable = frame.symbols.ref(node.name)
            test = f"type({variable})"
        else:
            variable, test = "_value", "type(_value := "
        self.write(f"(({variable}[{name!r}] if {name!r} in {variable} else absent[{name!r}]) if {test}")
        if variable == "_value":
            self.visit(node, frame)
            self.write(")")
        self.write(f" is dict else environment.{otherwise}(")
        if variable == "_value":
            self.write("_value")
        else:
            self.visit(node, frame)
        self.write(f", {name!r}))")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        method = node.node.attr if isinstance(node.node, nodes.Getattr) else ""
        if method in _FOLLOWED:
            of_type, call = "str", f"{method}(_value, "
        elif method in _ASKING or method in DICT_METHODS:
            of_type, call = "str" if method in _ASKING else "dict", f"_value.{method}("
        if not method or node.kwargs or node.dyn_args or node.dyn_kwargs or forward_caller:
            super().visit_Call(node, frame, forward_caller=forward_caller)
        elif method not in _FOLLOWED | _ASKING | DICT_METHODS:
            super().visit_Call(node, frame)
        else:
            self.write(f"({call}")
            self._visit_all(node.args, frame)
            self.write(") if type(_value := ")
            self.visit(node.node.node, frame)  # type: ignore[attr-defined]
            self.write(f") is {of_type} else environment.call(context, environment.getattr(_value, {method!r}), ")
            self._visit_all(node.args, frame)
            self.write("_loop_vars=_loop_vars" if frame.loop_frame else "")
            self.write("))")

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        is_alone = not (node.args or node.kwargs or node.dyn_args or node.dyn_kwargs) and node.node is not None
        if node.name == EACH:
            self._visit_call("each", [node.node], frame)  # type: ignore[list-item]
        elif node.name == "tojson" and is_alone:
            self._visit_call("tojson", [node.node], frame)  # type: ignore[list-item]
        elif node.name in ("string", "trim") and is_alone:
            self.write(f"({'strip(_value)' if node.name == 'trim' else '_value'} if type(_value := ")
            self.visit(node.node, frame)  # type: ignore[arg-type]
            self.write(f") is str else {self.filters[node.name]}(context, _value))")
        else:
            super().visit_Filter(node, frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        terms = _terms(node)
        if any(isinstance(term, nodes.Const) and not isinstance(term.value, str) for term in terms):
            super().visit_Add(node, frame)  # numbers
        else:
            self._visit_call("add", terms, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self._visit_call("concatenate", node.nodes, frame)

    def visit_Mul(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._visit_call("operate", [nodes.Const("*"), node.left, node.right], frame)

    def visit_Mod(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._visit_call("operate", [nodes.Const("%"), node.left, node.right], frame)

    def _visit_call(self, function: str, arguments: Iterable[nodes.Expr], frame: Frame) -> None:
        self.write(f"{function}(")
        self._visit_all(arguments, frame)
        self.write(")")

    def _visit_all(self, arguments: Iterable[nodes.Expr], frame: Frame) -> None:
        for argument in arguments:
            self.visit(argument, frame)
            self.write(", ")

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        self.writeline("write(" if frame.buffer is None else f"{frame.buffer}.append(", node)

    def end_write(self, frame: Frame) -> None:
        self.write(")")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        self._visit_once(super().visit_For, node, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        self._visit_once(self._visit_output, node, frame)

    def _visit_output(self, node: nodes.Output, frame: Frame) -> None:
        if (function := mark_function(node)) is not None:
            self._visit_mark(function, node, frame)
            return
        parts: list[nodes.Expr] = []
        for part in _printed(node.nodes):
            terms = _terms(part)
            if len(terms) == 1:
                parts.append(part)
                continue
            self._write_parts(parts, frame)
            parts = []
            self._write_sum(terms, frame)
        self._write_parts(parts, frame)

    def _visit_mark(self, function: str, node: nodes.Output, frame: Frame) -> None:
        if not self._has_marks:
            return
        call = node.nodes[0]
        assert isinstance(call, nodes.Call)
        self.newline(node)
        self._visit_call(f"{function}" if frame.buffer is None else f"lost({function}", call.args, frame)
        self.write("" if frame.buffer is None else ")")

    def _write_parts(self, parts: Sequence[nodes.Expr], frame: Frame) -> None:
        """Write code that prints some parts."""
        if len(parts) == 1:
            self.start_write(frame, parts[0])
            self._visit_printed(parts[0], frame)
            self.end_write(frame)
        elif parts:
            self.writeline(f"{frame.buffer or 'out'} += (", parts[0])
            for part in parts:
                self._visit_printed(part, frame)
                self.write(", ")
            self.write(")")

    def _visit_printed(self, part: nodes.Expr, frame: Frame) -> None:
        if isinstance(part, (nodes.Const, nodes.TemplateData)):
            self.write(repr(part.value if isinstance(part, nodes.Const) else part.data))
            return
        self.write("(_printed if type(_printed := ")
        self.visit(part, frame)
        self.write(") is str else text_of(_printed))")

    def _write_sum(self, terms: Sequence[nodes.Expr], frame: Frame) -> None:
        """Write code that prints a sum, each term for itself if they are texts."""
        names, types = [], []
        for term in terms:
            if _is_constant_text(term):
                names.append(repr(term.value))
            else:
                names.append(self.temporary_identifier())
                types.append(f"type({names[-1]})")
                self.writeline(f"{names[-1]} = ", term)
                self.visit(term, frame)
        self.writeline(f"if {' is '.join(types or ['str'])} is str:")
        self.indent()
        self.writeline(f"{frame.buffer or 'out'} += ({', '.join(names)})")
        self.outdent()
        self.writeline("else:")
        self.indent()
        self.start_write(frame)
        self.write(f"text_of(add({', '.join(names)}))")
        self.end_write(frame)
        self.outdent()

    def _visit_once(self, visit: Callable[..., None], node: nodes.Stmt, frame: Frame) -> None:
        """Visit a statement; if it prints the tools, write code that executes it once for each list of tools."""
        others = self._of_tools.get(id(node))
        if others is None or not frame.toplevel or frame.block_frame:
            visit(node, frame)
            return
        texts, number = self.temporary_identifier(), next(self._statements)
        self.writeline(f"{texts} = tools_texts(context, {frame.symbols.ref('tools')}, {sorted(others)})")
        self.writeline(f"if {number} not in {texts}:")
        self.indent()
        own = frame.copy()
        self.buffer(own)
        self._has_marks = False  # it has no messages
        visit(node, own)
        self._has_marks = True
        self.writeline(f"keep({texts}, {number}, concat({own.buffer}))")
        self.outdent()
        self.simple_write(f"{texts}[{number}]", frame, node)


def _each(value: Any) -> nodes.Filter:
    return nodes.Filter(value, EACH, [], [], None, None, lineno=value.lineno)


def _namespace_of(node: nodes.Assign) -> list[str]:
    """The variable, if a namespace is assigned to it."""
    makes = isinstance(node.node, nodes.Call) and node.node.node == nodes.Name("namespace", "load")
    return [node.target.name] if makes and isinstance(node.target, nodes.Name) else []


def _terms(node: nodes.Expr) -> list[nodes.Expr]:
    """The terms of a sum, from left to right. Constant texts next to each other are one term."""
    if not isinstance(node, nodes.Add):
        return [node]
    *terms, last = [*_terms(node.left), node.right]
    if _is_constant_text(last) and _is_constant_text(before := terms[-1]):
        return [*terms[:-1], nodes.Const(before.value + last.value, lineno=before.lineno)]
    return [*terms, last]


def _is_constant_text(node: nodes.Expr) -> TypeGuard[nodes.Const]:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _printed(parts: Iterable[nodes.Expr]) -> Iterable[nodes.Expr]:
    """The parts of a statement that prints; those of a concatenation are printed one by one."""
    for part in parts:
        if isinstance(part, nodes.Concat):
            yield from _printed(part.nodes)
        elif not isinstance(part, nodes.Const) or isinstance(part.value, str):
            yield part
        else:
            yield nodes.Const(str(part.value))
