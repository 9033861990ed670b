"""Watched texts: strings that notice what a chat template does to them, and templates that pass them on.

What they noticed are the conditions under which the template would print other texts in their places (`shapes`).
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

# The characters that a sentinel stands between. No template holds them; a text may, since it is put in afterwards.
OPEN, CLOSE = "\U0010f8f0", "\U0010f8f1"
SENTINEL = re.compile(f"{OPEN}([0-9]+)([rs]){CLOSE}")


class NotFollowed(BaseException):
    """A template does something to a text of which the outcome for other texts is not known.

    No Exception, since Jinja takes some of those for an answer.
    """


@dataclass
class Conditions:
    """What holds for the texts of all conversations that are rendered alike.

    absent: strings that none of them holds. trimmed: none of them begins or ends with white space.
    """

    absent: set[str]
    trimmed: bool = False

    def hold(self, texts: list[str], trimmed: list[str]) -> bool:
        """Whether they do for some texts, and the same without their outer white space."""
        if self.absent:
            joined = "\0".join(texts)
            if any(string in joined for string in self.absent):
                return False
        return not self.trimmed or trimmed == texts


def _not_followed(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise NotFollowed(f"{name} of a text")

    return method


class Watched(str):
    """A text that notes what a template does to it. alone: whether it is one message's text, with nothing added."""

    conditions: Conditions
    alone: bool

    def like(self, text: str, alone: bool) -> Watched:
        return watched(text, self.conditions, alone)

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:
        return str.__len__(self) > 0

    def __add__(self, other: str) -> str:
        return self if other == "" else self.like(str.__add__(self, other), False)

    def __radd__(self, other: str) -> str:
        return self if other == "" else self.like(str.__add__(other, self), False)

    def __contains__(self, string: object) -> bool:
        return self._lacks(string)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, str):
            return self is other
        return self._lacks(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: Any = _not_followed("hash")

    def startswith(self, prefix: Any, *places: Any) -> bool:  # type: ignore[override]
        return self._lacks(prefix, *places)

    def endswith(self, suffix: Any, *places: Any) -> bool:  # type: ignore[override]
        return self._lacks(suffix, *places)

    def split(self, separator: Any = None, *limit: Any) -> list[str]:  # type: ignore[override]
        self._lacks(separator)
        return [self]

    rsplit = split  # type: ignore[assignment]

    def partition(self, separator: str) -> tuple[str, str, str]:
        self._lacks(separator)
        return self, "", ""

    def rpartition(self, separator: str) -> tuple[str, str, str]:
        self._lacks(separator)
        return "", "", self

    def replace(self, old: str, *new: Any) -> str:  # type: ignore[override]
        self._lacks(old)
        return self

    def removeprefix(self, prefix: str) -> str:
        self._lacks(prefix)
        return self

    removesuffix = removeprefix

    def strip(self, characters: str | None = None) -> str:
        return self._stripped(str.strip, characters)

    def lstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.lstrip, characters)

    def rstrip(self, characters: str | None = None) -> str:
        return self._stripped(str.rstrip, characters)

    def _stripped(self, how: Callable[..., str], characters: str | None) -> str:
        if characters is not None and characters.strip():
            raise NotFollowed("other characters than white space stripped off a text")
        if how is str.strip and characters is None and self.alone:
            return self.like(str.replace(self, f"r{CLOSE}", f"s{CLOSE}"), True)
        # White space that stands beside a text here would for another be followed by its own.
        self.conditions.trimmed = True
        return self.like(how(self, characters), self.alone)

    def _lacks(self, string: Any, *places: Any) -> bool:
        """False, for a string that no text of this shape may hold, or for each of several."""
        for one in string if isinstance(string, tuple) else (string,):
            if not self.alone or type(one) is not str or places:
                raise NotFollowed("a look into a text")
            if not one or str.__contains__(self, one):
                raise NotFollowed(f"a look for {one!r} in a text")
            self.conditions.absent.add(one)
        return False


_FOLLOWED = {*vars(Watched), "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__doc__"}
for _name in dir(str):
    if _name not in _FOLLOWED and callable(getattr(str, _name)):
        setattr(Watched, _name, _not_followed(_name))
Watched.__rmod__ = _not_followed("%")  # type: ignore[attr-defined]


def watched(text: str, conditions: Conditions, alone: bool) -> Watched:
    made = str.__new__(Watched, text)
    made.conditions, made.alone = conditions, alone
    return made


def unwatched(text: str) -> str:
    return str.__str__(text) if isinstance(text, Watched) else text


@functools.cache
def watching(source: str) -> jinja2.Template:
    """The template, compiled so that what is made of a watched text is a watched text. Raises NotFollowed."""
    if OPEN in source:
        raise NotFollowed("a template that holds a sentinel")
    environment: Any = new_environment(source)
    environment.filters = {name: _watching_filter(name, made) for name, made in environment.filters.items()}
    of_texts = {name: functools.partial(_test_of_text, environment.tests[name]) for name in ("sequence", "iterable")}
    environment.tests = {**environment.tests, **of_texts, "in": _is_in}
    environment.globals = {**environment.globals, _JOIN: lambda *parts: _concat(map(str, parts)), _IS_IN: _is_in}
    environment.call = functools.partial(_call, environment.call)
    environment.concat = _concat
    tree = _JoinWatched().visit(environment.parse(source))
    code: Any = environment.compile(tree)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


_JOIN, _IS_IN = "chatmill_join", "chatmill_is_in"
# What Jinja itself passes with each call, for functions that ask for their context; no function here sees it.
_OF_JINJA = {"_loop_vars", "_block_vars"}
# Filters that hand texts on as they are, or ask them by their methods.
_FILTERS = {"trim", "string", "length", "count", "list", "first", "last", "reverse", "items", "map", "attr"}
_FILTERS |= {"selectattr", "rejectattr", "select", "reject", "default", "d"}


class _JoinWatched(NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Call(nodes.Name(_JOIN, "load"), node.nodes, [], None, None, lineno=node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        if not any(operand.op in ("in", "notin") for operand in node.ops):
            return node
        if len(node.ops) > 1:
            raise NotFollowed("a comparison of several")
        is_in = nodes.Call(
            nodes.Name(_IS_IN, "load"), [node.expr, node.ops[0].expr], [], None, None, lineno=node.lineno
        )
        return is_in if node.ops[0].op == "in" else nodes.Not(is_in, lineno=node.lineno)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.left, nodes.Const) and isinstance(node.left.value, str):
            raise NotFollowed("% of a text")
        return node


def _concat(parts: Any) -> str:
    parts = [part for part in parts if str.__len__(part)]
    texts = [part for part in parts if isinstance(part, Watched)]
    if not all(isinstance(part, Watched) or OPEN not in part for part in parts):
        raise NotFollowed("a text that was made another one unseen")
    if not texts:
        return "".join(parts)
    return parts[0] if len(parts) == 1 else texts[0].like("".join(parts), False)


def _is_in(value: Any, container: Any) -> bool:
    unseeing = isinstance(container, str) and not isinstance(container, Watched)
    if unseeing and (isinstance(value, Watched) or OPEN in container):
        raise NotFollowed("a look for a text")
    return value in container


def _call(call: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Sees to the methods of other strings, which look into a text without asking it."""
    owner = getattr(function, "__self__", None)
    unseeing = isinstance(owner, str) and not isinstance(owner, Watched)
    given = [*arguments, *(value for name, value in keywords.items() if name not in _OF_JINJA)]
    if unseeing and any(map(_may_hold_text, given)):
        raise NotFollowed(f"{function.__name__} of another string with a text")
    return call(context, function, *arguments, **keywords)


def _test_of_text(test: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, Watched) or test(value)


def _watching_filter(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
    if name in _FILTERS:
        return made
    own = 2 if name == "replace" else 0  # what it asks, behind the context

    @functools.wraps(made)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        if any(_may_hold_text(value) for value in (*arguments[own:], *keywords.values())):
            raise NotFollowed(f"the filter {name} of a text")
        return made(*arguments, **keywords)

    return checked


def _may_hold_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_may_hold_text, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_may_hold_text, value))
    known = (str, int, float, type(None), jinja2.Environment, jinja2.runtime.Context, nodes.EvalContext)
    return isinstance(value, Watched) or not isinstance(value, known)
