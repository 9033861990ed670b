"""Traced texts: strings that record what a chat template does to them, and templates that preserve them.

What they recorded are the guards under which the template would print any other texts in the same way (`compiled`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from transforms.chat.transformers_jinja import new_environment

# The characters around a sentinel, which stands for a text while a template is traced: OPEN, the number of the text,
# r (printed as it is) or s (printed stripped), CLOSE. A template that holds OPEN is not traced. A text may hold it,
# since texts are inserted after tracing.
OPEN, CLOSE = "\U0010f8f0", "\U0010f8f1"
SENTINEL = re.compile(f"{OPEN}([0-9]+)([rs]){CLOSE}")
_UNSEEN = "the template changes a text in a way that the tracer does not see"


class NotTraceable(BaseException):
    """A template does something to a text whose result for other texts is unknown.

    It is not an Exception, since Jinja catches some of those and goes on: an undefined attribute would be the result.
    """


@dataclass
class Guards:
    """What must hold for the texts of a conversation that a compiled template renders.

    Attributes:
        absent: strings that no text contains.
        trimmed: whether no text begins or ends with white space.
    """

    absent: set[str]
    trimmed: bool = False

    def hold(self, texts: list[str], trimmed: list[str]) -> bool:
        """Check the guards.

        Args:
            texts: the texts of a conversation.
            trimmed: the same texts without the white space around them.
        """
        if self.absent:
            joined = "\0".join(texts)
            if any(string in joined for string in self.absent):
                return False
        return not self.trimmed or trimmed == texts

    def failure(self, texts: list[str]) -> str:
        """Describe the guard that does not hold for some texts."""
        joined = "\0".join(texts)
        found = next((string for string in sorted(self.absent) if string in joined), None)
        return "a text begins or ends with white space" if found is None else f"a text contains {found!r}"


def _untraceable(action: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotTraceable(f"the template {action}")

    return method


class TracedText(str):
    """A text that records what a template does to it.

    Attributes:
        guards: where it records.
        is_whole: whether it is the text of one message, with nothing added.
    """

    guards: Guards
    is_whole: bool

    def _derive(self, text: str, is_whole: bool) -> TracedText:
        return traced_text(text, self.guards, is_whole)

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return str.__len__(self) > 0

    def __add__(self, other: str) -> str:
        return self if other == "" else self._derive(str.__add__(self, other), False)

    def __radd__(self, other: str) -> str:
        return self if other == "" else self._derive(str.__add__(other, self), False)

    def __contains__(self, string: object) -> bool:
        return self._guard_absent(string)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, str):
            return self is other
        return self._guard_absent(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: Any = _untraceable("uses a text as a key")

    def startswith(self, prefix: Any, *positions: Any) -> bool:  # type: ignore[override]
        return self._guard_absent(prefix, *positions)

    def endswith(self, suffix: Any, *positions: Any) -> bool:  # type: ignore[override]
        return self._guard_absent(suffix, *positions)

    def split(self, separator: Any = None, *limit: Any) -> list[str]:  # type: ignore[override]
        self._guard_absent(separator)
        return [self]

    rsplit = split  # type: ignore[assignment]

    def partition(self, separator: str) -> tuple[str, str, str]:
        self._guard_absent(separator)
        return self, "", ""

    def rpartition(self, separator: str) -> tuple[str, str, str]:
        self._guard_absent(separator)
        return "", "", self

    def replace(self, old: str, *new: Any) -> str:  # type: ignore[override]
        self._guard_absent(old)
        return self

    def removeprefix(self, prefix: str) -> str:
        self._guard_absent(prefix)
        return self

    removesuffix = removeprefix

    def strip(self, characters: str | None = None) -> str:
        return self._stripped(str.strip, characters)

    def lstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.lstrip, characters)

    def rstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.rstrip, characters)

    def _stripped(self, strip: Callable[..., str], characters: str | None) -> str:
        if characters is not None and characters.strip():
            raise NotTraceable(f"the template strips {characters!r} off a text")
        if strip is str.strip and characters is None and self.is_whole:
            return self._derive(str.replace(self, f"r{CLOSE}", f"s{CLOSE}"), True)
        # Stripping reaches the white space of a text itself only if the text has some at that edge.
        self.guards.trimmed = True
        return self._derive(strip(self, characters), self.is_whole)

    def _guard_absent(self, string: Any, *positions: Any) -> bool:
        """Record that no text contains a string, or each of a tuple of strings. Returns False, as a search would."""
        for one in string if isinstance(string, tuple) else (string,):
            if not self.is_whole:
                raise NotTraceable("the template searches a text after adding to it")
            if type(one) is not str or positions:
                raise NotTraceable("the template searches a text for something other than a constant string")
            if not one or str.__contains__(self, one):
                raise NotTraceable(f"the template searches a text for {one!r}")
            self.guards.absent.add(one)
        return False


_TRACED = {*vars(TracedText), "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__doc__"}
for _name in dir(str):
    if _name not in _TRACED and callable(getattr(str, _name)):
        setattr(TracedText, _name, _untraceable(f"calls {_name} of a text"))
TracedText.__rmod__ = _untraceable("formats a text with %")  # type: ignore[attr-defined]


def traced_text(text: str, guards: Guards, is_whole: bool) -> TracedText:
    """Make a traced text.

    Args:
        text: its characters.
        guards: where it records what a template does to it.
        is_whole: whether it is the text of one message, with nothing added.
    """
    traced = str.__new__(TracedText, text)
    traced.guards, traced.is_whole = guards, is_whole
    return traced


def split_at_texts(traced: str) -> tuple[list[str], list[tuple[int, bool]]]:
    """Split what a template printed for traced texts.

    Args:
        traced: what it printed.

    Returns:
        The literals before, between and after texts; and for each text between them its number, and whether it is
        stripped.

    Raises:
        NotTraceable: if a part of a sentinel is left.
    """
    pieces = SENTINEL.split(traced)
    literals = pieces[::3]
    if OPEN in "".join(literals):
        raise NotTraceable(_UNSEEN)
    return literals, [(int(number), kind == "s") for number, kind in zip(pieces[1::3], pieces[2::3], strict=True)]


def joined_with_texts(literals: list[str], texts: list[str]) -> str:
    """Return the literals with a text between each two of them; the reverse of `split_at_texts`."""
    parts = literals * 2
    parts[::2], parts[1::2] = literals, [*texts, ""]
    return "".join(parts)


def plain_text(text: str) -> str:
    """Return a text as an ordinary string."""
    return str.__str__(text) if isinstance(text, TracedText) else text


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
    if OPEN in source:
        raise NotTraceable(f"the template holds the character {OPEN!r}")
    environment: Any = new_environment(source)
    environment.filters = {name: _traceable_filter(name, filter) for name, filter in environment.filters.items()}
    tests_of_text = {name: functools.partial(_test_text, environment.tests[name]) for name in ("sequence", "iterable")}
    environment.tests = {**environment.tests, **tests_of_text, "in": _is_in}
    environment.globals = {**environment.globals, _JOIN: lambda *parts: _join(map(str, parts)), _IS_IN: _is_in}
    environment.call = functools.partial(_call, environment.call)
    environment.concat = _join
    tree = _ReplaceOperators().visit(environment.parse(source))
    code: Any = environment.compile(tree)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


_JOIN, _IS_IN = "chatmill_join", "chatmill_is_in"
# Jinja itself passes these with each call, for functions that take the context. No function of a template reads them.
_KEYWORDS_OF_JINJA = {"_loop_vars", "_block_vars"}
# Filters that return texts as they are, or only call methods of a text.
_TRACEABLE_FILTERS = {"trim", "string", "length", "count", "list", "first", "last", "reverse", "items", "map", "attr"}
_TRACEABLE_FILTERS |= {"selectattr", "rejectattr", "select", "reject", "default", "d"}


class _ReplaceOperators(NodeTransformer):
    """Replaces the operators ~ and in, which Jinja compiles to code that does not call methods of a traced text."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.Name(_JOIN, "load"), node.nodes, [], None, None, lineno=node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        if not any(operand.op in ("in", "notin") for operand in node.ops):
            return node
        if len(node.ops) > 1:
            raise NotTraceable("the template chains comparisons with in")
        is_in = nodes.Call(
            nodes.Name(_IS_IN, "load"), [node.expr, node.ops[0].expr], [], None, None, lineno=node.lineno
        )
        return is_in if node.ops[0].op == "in" else nodes.Not(is_in, lineno=node.lineno)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.left, nodes.Const) and isinstance(node.left.value, str):
            raise NotTraceable("the template formats with %")
        return node


def _join(parts: Any) -> str:
    parts = [part for part in parts if str.__len__(part)]
    texts = [part for part in parts if isinstance(part, TracedText)]
    if not all(isinstance(part, TracedText) or OPEN not in part for part in parts):
        raise NotTraceable(_UNSEEN)
    if not texts:
        return "".join(parts)
    return parts[0] if len(parts) == 1 else texts[0]._derive("".join(parts), False)


def _is_in(value: Any, container: Any) -> bool:
    is_other_string = isinstance(container, str) and not isinstance(container, TracedText)
    if is_other_string and (isinstance(value, TracedText) or OPEN in container):
        raise NotTraceable("the template searches another string for a text")
    return value in container


def _call(call: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refuse methods of other strings on a traced text, since they read its characters without calling its methods."""
    owner = getattr(function, "__self__", None)
    is_other_string = isinstance(owner, str) and not isinstance(owner, TracedText)
    given = [*arguments, *(value for name, value in keywords.items() if name not in _KEYWORDS_OF_JINJA)]
    if is_other_string and any(map(_may_hold_text, given)):
        raise NotTraceable(f"the template calls {function.__name__} of another string with a text")
    return call(context, function, *arguments, **keywords)


def _test_text(test: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, TracedText) or test(value)


def _traceable_filter(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
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
