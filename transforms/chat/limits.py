"""Limits of what a chat template may do while it renders: it is a program, and often one of a stranger.

They are in the code that Jinja generates. Each pass of a loop, and each call of a macro, is a step; so many are counted
before the clock is ever read, and the rest are slower. What may make a value longer than its parts (an operator, a
method, a filter) is asked for its size first.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from types import SimpleNamespace
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from transforms.chat.config import MAX_TEXT_BYTES
from transforms.errors import RecordError

# The templates of models have at most 20 KB. Jinja takes a second for each MB.
MAX_TEMPLATE_CHARACTERS = 1 << 20
# Of one rendering. A template that looks at each message for each message takes so many for 1,400 messages.
_MAX_STEPS = 2_000_000
# Of the processor, for templates whose steps take long. Those that do little in a step never reach it.
_MAX_SECONDS = 10
_FREE_STEPS, _STEPS_OF_CLOCK, _PARTS_AT_ONCE = 1000, 256, 16
_ANY_LENGTH = 1 << 16  # is short under any limit that is worth setting
_MAX_BITS = 1 << 16  # of a whole number
_POINTER = 8  # bytes of each item of a list

# Methods of strings whose result may be much longer than the string.
GROWING_METHODS = frozenset(
    ("center", "expandtabs", "format", "format_map", "join", "ljust", "replace", "rjust", "translate", "zfill")
)
_GROWING_FILTERS = ("batch", "center", "format", "indent", "join", "replace", "slice", "tojson", "wordwrap")
_STEP = "chatmill_step"
_IN_CODE = ("steps", "more_steps", "add", "sized", "Buffer")


class TemplateLimit(RecordError):
    """A template does more than it may."""


class _Rendering(threading.local):
    """What the template that this thread renders has done so far."""

    max_characters = MAX_TEXT_BYTES
    free_steps: Iterator[bool] = iter(())
    steps = 0
    until: float | None = None


_NOW = _Rendering()


def begin_rendering(max_characters: int) -> None:
    """Begin to count what a template does in this thread. max_characters: of its text, and of each of its values."""
    _NOW.max_characters, _NOW.until = max_characters, None
    _NOW.free_steps, _NOW.steps = repeat(True, _FREE_STEPS), _FREE_STEPS


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
        raise TemplateLimit(
            "template_limit",
            f"the chat template makes a text of more than {_NOW.max_characters:,} characters (max_text_bytes)",
        )


def sized(value: Any) -> Any:
    """Return a value. Raises TemplateLimit if it is too long."""
    if type(value) is str and len(value) <= _ANY_LENGTH:
        return value
    if isinstance(value, str):
        check_size(str.__len__(value))
    elif isinstance(value, (list, tuple)):
        check_size(len(value) * _POINTER)
    return value


def limit(environment: Any) -> None:
    """Set limits for the templates that an environment compiles from now on. The environment is changed."""
    environment.code_generator_class = LimitedCode
    environment.limits = SimpleNamespace(
        steps=lambda: _NOW.free_steps, more_steps=_more_steps, add=_add, sized=sized, Buffer=Buffer
    )
    environment.intercepted_binops = frozenset(("*", "**", "%"))
    environment.binop_table = {**environment.binop_table, "*": _times, "**": _power, "%": modulo}
    environment.call = functools.partial(_call, environment.call)
    environment.globals["lipsum"] = _limited_lipsum(environment.globals["lipsum"])
    for name in _GROWING_FILTERS:
        environment.filters[name] = _limited_filter(name, environment.filters[name])


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
    now = _NOW
    now.steps += 1
    if not now.steps % _STEPS_OF_CLOCK:
        used = time.thread_time()
        if now.until is None:
            now.until = used + _MAX_SECONDS
        elif used > now.until:
            raise TemplateLimit(
                "template_limit", f"the chat template takes more than {_MAX_SECONDS} s for one conversation"
            )
        if now.steps > _MAX_STEPS:
            raise TemplateLimit(
                "template_limit", f"the chat template takes more than {_MAX_STEPS:,} steps for one conversation"
            )
    return True


def _add(left: Any, right: Any) -> Any:
    value = left + right
    return value if type(value) is str and len(value) <= _ANY_LENGTH else sized(value)


def _times(left: Any, right: Any) -> Any:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple)) and isinstance(times, int):
            check_size(_length(value) * times * (1 if isinstance(value, str) else _POINTER))
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
        raise TemplateLimit("template_limit", f"the chat template makes a number of more than {_MAX_BITS:,} bits")


def _check_format(pattern: str, values: Iterable[Any]) -> None:
    """Check how long a formatted text may be: each field has some value, and the largest width."""
    values = list(values)
    fields = str.count(pattern, "{") + str.count(pattern, "%")
    widths = [int(digits) for digits in re.findall("[0-9]{1,9}", str.__str__(pattern))]
    widths += [value for value in values if isinstance(value, int)]
    lengths = [_length(value) for value in values]
    check_size(str.__len__(pattern) + max(fields * max(lengths, default=0), fields * max(widths, default=0)))


def _length(value: Any) -> int:
    if isinstance(value, str):
        return str.__len__(value)  # a traced text has no length that is known
    return len(value) if isinstance(value, (list, tuple, dict)) else 0


def _call(call: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call a function as the sandbox does. A method of a string is checked before."""
    if getattr(function, "__name__", None) not in GROWING_METHODS:
        return call(context, function, *arguments, **keywords)
    method = function if hasattr(function, "__self__") else getattr(function, "__wrapped__", None)  # that is format
    owner = getattr(method, "__self__", None)
    if isinstance(owner, str):
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
    length = _length(value)
    width = max((argument for argument in arguments if isinstance(argument, int)), default=0)
    longest = max(map(_length, arguments), default=0)
    if name in ("format", "format_map"):
        _check_format(str(value), [one for given in arguments for one in _values_of(given)])
    elif name == "join":  # the separator is the value of the method, and an argument of the filter
        parts, separator = (arguments[0], length) if isinstance(value, str) and arguments else (value, longest)
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
    elif name == "tojson":
        check_size(width << 16)  # the width of an indentation, of thousands of lines
    elif name in ("batch", "slice"):
        check_size(width * _POINTER)
    else:
        check_size(width)


def _values_of(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else (value,)


def _limited_lipsum(lipsum: Callable[..., str]) -> Callable[..., str]:
    def limited(n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> str:
        check_size(n * max * 16)
        return lipsum(n, html, min, max)

    return limited
