"""Limits of what a chat template may do while it renders: it is a program, and often one of a stranger.

They are in the code that Jinja generates. Each pass of a loop, and each call of a macro, is a step. What may make a
value longer than its parts (an operator, a method, a filter) is asked for its size first. A list that holds another one
twice takes no memory until it is printed or compared: each that a template makes is measured as if it were printed, so
that whatever is done with a value takes a bounded time. A watch ends what does too much of that.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.filters import make_attrgetter
from jinja2.runtime import Macro
from jinja2.utils import Namespace

from transforms.chat.config import MAX_TEXT_BYTES
from transforms.errors import RecordError
from transforms.inputs.deadline import OutOfTime, call_within

# The templates of models have at most 20 KB. Jinja takes a second for each MB.
MAX_TEMPLATE_CHARACTERS = 1 << 20
# Of one rendering. A template that looks at each message for each message takes so many for 1,400 messages.
_MAX_STEPS = 2_000_000
# Of the processor, for templates whose steps take long. Those that do little in a step never reach it.
_MAX_SECONDS = 10
_FREE_STEPS, _PARTS_AT_ONCE = 1000, 16
_ANY_LENGTH = 1 << 16  # is short under any limit that is worth setting
_MAX_BITS = 1 << 16  # of a whole number
_ITEM = 64  # bytes of most that is in a list or a dict

_T = TypeVar("_T")

# Methods of strings whose result may be much longer than the string.
GROWING_METHODS = frozenset(
    ("center", "expandtabs", "format", "format_map", "join", "ljust", "replace", "rjust", "translate", "zfill")
)
_GROWING_FILTERS = ("batch", "center", "format", "indent", "join", "replace", "slice", "tojson", "wordwrap")
_FILTERS_OF_ITEMS = ("batch", "map", "slice")  # make new values one by one
_STEP = "chatmill_step"
_IN_CODE = ("steps", "more_steps", "add", "sized", "Buffer")


class TemplateLimit(RecordError):
    """A template does more than it may."""


class _Rendering(threading.local):
    """What the template that this thread renders has done so far."""

    max_characters = MAX_TEXT_BYTES
    free_steps: Iterator[bool] = iter(())
    steps = 0


_NOW = _Rendering()


def limited(max_characters: int, render: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function that renders a template once, or compiles one.

    Args:
        max_characters: of its text, and of each of its values.
        render: the function.
        arguments: its arguments.

    Raises:
        TemplateLimit: if the template does more than it may.

    Raises whatever the function raises, too.
    """
    _NOW.max_characters = max_characters
    _NOW.free_steps, _NOW.steps = repeat(True, _FREE_STEPS), _FREE_STEPS
    try:
        return call_within(_MAX_SECONDS, render, *arguments, of_processor=True)
    except OutOfTime:
        _refuse(f"takes more than {_MAX_SECONDS} s of the processor")


def _refuse(what: str) -> NoReturn:
    raise TemplateLimit("template_limit", f"the chat template {what}")


def collected(parts: Iterable[str]) -> list[str]:
    """Return what a template prints. Raises TemplateLimit if that is too long."""
    found: list[str] = []
    size, parts = 0, iter(parts)
    while some := [*islice(parts, _PARTS_AT_ONCE)]:
        size += sum(map(str.__len__, some))
        check_size(size)
        found += some
    return found


def check_size(size: int) -> None:
    """Raise TemplateLimit if a value has more characters, or bytes, than one may have."""
    if size > _NOW.max_characters:
        _refuse(f"makes a text of more than {_NOW.max_characters:,} characters (max_text_bytes)")


def sized(value: Any) -> Any:
    """Return a value. Raises TemplateLimit if it is too long, or holds too much."""
    if type(value) is str and len(value) <= _ANY_LENGTH:
        return value
    if isinstance(value, (str, bytes)):
        check_size(_length(value))
    else:
        _bytes_of(value)
    return value


class _Sum(list[Any]):
    """Two lists as one, whose size is known: a template may add to a list for each message."""

    __slots__ = ("bytes",)

    def __init__(self, left: list[Any], right: list[Any]):
        self.bytes = _bytes_of(left) + _bytes_of(right)
        _check_bytes(self.bytes)
        super().__init__(left)
        self += right


def _bytes_of(value: Any) -> int:
    """About how long a value is when it is printed, and how large: what it holds many times counts as often."""
    size, found = 0, [value]
    while found:
        value = found.pop()
        if isinstance(value, (str, bytes)):
            size += _length(value)
        elif isinstance(value, int):
            size += value.bit_length() // 3
        elif type(value) is _Sum:
            size += value.bytes
        elif isinstance(value, (list, tuple, dict)):
            size += _ITEM * len(value)
            _check_bytes(size)
            found += value
            found += value.values() if isinstance(value, dict) else ()
    _check_bytes(size)
    return size


def _check_bytes(size: int) -> None:
    if size > (most := max(MAX_TEXT_BYTES, _NOW.max_characters)):
        _refuse(f"makes a list, or a dict, of more than {most:,} bytes")


def limit(environment: Any) -> None:
    """Set limits for the templates that an environment compiles from now on. The environment is changed."""
    environment.code_generator_class = LimitedCode
    environment.limits = SimpleNamespace(
        steps=lambda: _NOW.free_steps, more_steps=_more_steps, add=_add, sized=sized, Buffer=Buffer
    )
    environment.intercepted_binops = frozenset(("*", "**", "%"))
    environment.binop_table = {**environment.binop_table, "*": _times, "**": _power, "%": modulo}
    environment.call = functools.partial(_call, environment.call)
    environment.globals |= {"lipsum": _limited_lipsum(environment.globals["lipsum"]), "namespace": _Namespace}
    for name in _GROWING_FILTERS:
        environment.filters[name] = _limited_filter(name, environment.filters[name])
    for name in _FILTERS_OF_ITEMS:
        environment.filters[name] = _filter_of_items(environment.filters[name])
    environment.filters["sum"] = _limited_sum(environment.filters["sum"])


class LimitedCode(CodeGenerator):
    """Generates code that counts its steps, and checks how long values become."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        step = nodes.EnvironmentAttribute(_STEP)
        for repeated in [*node.find_all((nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block))]:
            repeated.body = [nodes.ExprStmt(step, lineno=repeated.lineno), *repeated.body]  # type: ignore[attr-defined]
            if isinstance(repeated, nodes.For) and repeated.test is not None:
                repeated.test = nodes.And(step, repeated.test)
        super().visit_Template(node, frame)

    def write_commons(self) -> None:
        super().write_commons()
        for name in _IN_CODE:
            self.writeline(f"{name} = environment.limits.{name}" + "()" * (name == "steps"))

    def visit_EnvironmentAttribute(self, node: nodes.EnvironmentAttribute, frame: Frame) -> None:
        if node.name == _STEP:
            self.write("(next(steps, False) or more_steps())")
        else:
            super().visit_EnvironmentAttribute(node, frame)

    def buffer(self, frame: Frame) -> None:
        frame.buffer = self.temporary_identifier()
        self.writeline(f"{frame.buffer} = Buffer()")

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        if isinstance(node.left, nodes.Const) or isinstance(node.right, nodes.Const):
            super().visit_Add(node, frame)  # no longer than the template makes it
            return
        self.write("add(")
        self.visit(node.left, frame)
        self.write(", ")
        self.visit(node.right, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("sized(")
        super().visit_Concat(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._visit_sized(super().visit_List, node, node.items, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        self._visit_sized(super().visit_Tuple, node, [] if node.ctx == "store" else node.items, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._visit_sized(
            super().visit_Dict, node, [each for pair in node.items for each in (pair.key, pair.value)], frame
        )

    def _visit_sized(
        self, visit: Callable[..., None], node: nodes.Expr, items: Sequence[nodes.Expr], frame: Frame
    ) -> None:
        is_constant = all(isinstance(item, nodes.Const) for item in items)  # no longer than the template makes it
        self.write("(" if is_constant else "sized(")
        visit(node, frame)
        self.write(")")


class Buffer(list[str]):
    """What a template, a macro or a block of it prints."""

    size = 0

    def append(self, part: str) -> None:
        self.extend((part,))

    def extend(self, parts: Sequence[str]) -> None:  # type: ignore[override]
        self.size += sum(map(str.__len__, parts))
        check_size(self.size)
        super().extend(parts)


def _more_steps() -> bool:
    """Count a step after those that are free."""
    _NOW.steps += 1
    if _NOW.steps > _MAX_STEPS:
        _refuse(f"takes more than {_MAX_STEPS:,} steps for one conversation")
    return True


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, list) and isinstance(right, list):
        return _Sum(left, right)
    return sized(left + right)


def _times(left: Any, right: Any) -> Any:
    for value, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(value, (list, tuple)):
            _check_bytes(_bytes_of(value) * times)
        elif isinstance(times, int):
            check_size(_length(value) * times)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * right)
    return left**right


def modulo(left: Any, right: Any) -> Any:
    """What the operator % returns. Raises TemplateLimit if that is too long."""
    if isinstance(left, str):
        _check_format(left, right if isinstance(right, tuple) else (right,))
    return left % right


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        _refuse(f"makes a number of more than {_MAX_BITS:,} bits")


def _check_format(pattern: str, values: Iterable[Any]) -> None:
    """Check how long a formatted text may be: each field has some value, and the largest width."""
    values = list(values)
    fields = str.count(pattern, "{") + str.count(pattern, "%")
    widths = [int(digits) for digits in re.findall("[0-9]{1,9}", str.__str__(pattern))]
    widths += [value for value in values if isinstance(value, int)]
    lengths = [_length(value) for value in values]
    check_size(str.__len__(pattern) + max(fields * max(lengths, default=0), fields * max(widths, default=0)))


def _length(value: Any) -> int:
    """How long a value is when it is printed; 0 for a number or the like."""
    if isinstance(value, str):
        return str.__len__(value)  # a traced text has no length that is known
    if isinstance(value, bytes):
        return len(value)
    return _bytes_of(value) if isinstance(value, (list, tuple, dict)) else 0


def _call(call: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call a function as the sandbox does. A method of a string is checked before."""
    if isinstance(function, Macro):
        _bytes_of([arguments, keywords])  # which may be its varargs and kwargs
    if getattr(function, "__name__", None) not in GROWING_METHODS:
        return sized(call(context, function, *arguments, **keywords))
    method = function if hasattr(function, "__self__") else getattr(function, "__wrapped__", None)  # that is format
    owner = getattr(method, "__self__", None)
    if isinstance(owner, (str, bytes)):
        if function.__name__ == "join" and arguments and isinstance(arguments[0], Iterator):
            arguments = ([*arguments[0]], *arguments[1:])
        _check_growth(function.__name__, owner, [*arguments, *_given(keywords)])
    return call(context, function, *arguments, **keywords)


def _given(keywords: dict[str, Any]) -> Iterator[Any]:
    """The keywords without those that Jinja adds to each call."""
    return (value for name, value in keywords.items() if name not in ("_loop_vars", "_block_vars"))


def _limited_filter(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    given = 1 if hasattr(filter, "jinja_pass_arg") else 0  # the environment, before the value

    @functools.wraps(filter)
    def limited(*arguments: Any, **keywords: Any) -> Any:
        value, *others = arguments[given:]
        if name == "join" and isinstance(value, Iterator):
            value = [*value]
            arguments = (*arguments[:given], value, *others)
        _check_growth(name, value, [*others, *keywords.values()])
        return filter(*arguments, **keywords)

    return limited


def _check_growth(name: str, value: Any, arguments: list[Any]) -> None:
    """Check how long the result of a method or a filter may be."""
    length = _length(value) if isinstance(value, (str, bytes)) else 0
    width = max((argument for argument in arguments if isinstance(argument, int)), default=0)
    longest = max(map(_length, arguments), default=0)
    if name in ("format", "format_map"):
        _check_format(str(value), [one for given in arguments for one in _values_of(given)])
    elif name == "join":  # the separator is the value of the method, and an argument of the filter
        parts, separator = (arguments[0], length) if isinstance(value, (str, bytes)) and arguments else (value, longest)
        if isinstance(parts, (list, tuple)):
            check_size(sum(map(_length, parts)) + separator * len(parts))
    elif name == "replace":
        if (length + 1) * longest > _NOW.max_characters and len(arguments) > 1 and isinstance(value, str):
            old, new = arguments[:2]
            check_size(length + str.count(value, str(old)) * _length(new))
    elif name == "translate":
        values = [each for given in arguments for each in _values_of(given)]
        check_size(length * max(map(_length, values), default=1))
    elif name in ("expandtabs", "indent", "wordwrap"):
        breaks = str.count(value, "\t" if name == "expandtabs" else "\n") + 1 if isinstance(value, str) else 1
        check_size(length + (length if name == "wordwrap" else breaks) * max(longest, width * (name != "wordwrap")))
    elif name == "tojson":  # the width of an indentation, and the separators
        texts = (text for given in arguments for text in (given if isinstance(given, (list, tuple)) else [given]))
        if per_line := width + max(map(_length, texts), default=0):
            check_size(_lines(value) * per_line)
    elif name in ("batch", "slice"):
        _check_bytes(width * (_ITEM + longest))
    else:
        check_size(width)


def _lines(value: Any, depth: int = 1) -> int:
    """How many lines JSON is printed in, each counted as often as it is indented."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return depth + sum(_lines(item, depth + 1) for item in items)


def _values_of(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else (value,)


def _filter_of_items(filter: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
    """A filter that makes values one by one, of which all together may not be too large."""

    @functools.wraps(filter)
    def limited(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        size = 0
        for item in filter(*arguments, **keywords):
            size += _ITEM + _bytes_of(item)
            _check_bytes(size)
            yield item

    return limited


def _limited_sum(sum: Callable[..., Any]) -> Callable[..., Any]:
    """Jinja's filter sum, which adds lists as the operator + does."""

    @functools.wraps(sum)
    def limited(environment: Any, values: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        if not isinstance(start, (list, tuple)):
            return sum(environment, values, attribute, start)
        found = values if attribute is None else map(make_attrgetter(environment, attribute), values)
        return functools.reduce(_add, found, start)

    return limited


class _Namespace(Namespace):
    def __repr__(self) -> str:
        _refuse("prints a namespace")  # its values change, so that its size is unknown to what holds it


def _limited_lipsum(lipsum: Callable[..., str]) -> Callable[..., str]:
    def limited(n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> str:
        check_size(n * max * 16)
        return lipsum(n, html, min, max)

    return limited
