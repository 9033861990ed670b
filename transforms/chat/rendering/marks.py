"""Marks: find for which message each piece of a text is printed.

A chat template loops over messages. Its syntax tree is given marks: at the beginning of each loop's body a mark that
names the loop's variable, after the loop one that closes it. Rendering prints the marks between characters that the
text does not hold. Without the marks, the text is what it was; their offsets show which message each piece belongs to.
The texts of the record carry where their characters came from (`provenance`), which shows what of them is printed.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from transforms.base.errors import RecordError
from transforms.chat.rendering.environment import compile_tree, look_up_quickly
from transforms.chat.rendering.probes import PrintedContent
from transforms.chat.rendering.provenance import is_copy, parse_with_sources, runs_of, track_sources
from transforms.chat.rendering.renderings import Piece, PrintedText

# The variable of a loop if it is not a message of the conversation: a message that the template made, or a number.
_OTHER_MESSAGE, _NUMBER = -1, -2
_BEGIN_KIND, _SET_KIND, _END_KIND = "0", "1", "2"
# The functions that marks call. No template uses these names.
MARK_FUNCTIONS = _BEGIN, _SET, _END = "chatmill_begin", "chatmill_set", "chatmill_end"
# Such functions that print no marks.
NO_MARKS: dict[str, Any] = dict.fromkeys(MARK_FUNCTIONS, lambda *_: "")


@dataclass(frozen=True)
class Marks:
    """How marks are written: between two characters, a kind and two numbers, which no template changes.

    Attributes:
        open: the character before.
        close: the character after.
    """

    open: str
    close: str

    def write(self, kind: str, first: int, second: int) -> str:
        """Write a mark."""
        return f"{self.open}{kind}.{first}.{second}{self.close}"


def mark_functions(
    mark: Callable[[str, int, int], str], messages: Sequence[Mapping[str, Any]]
) -> dict[str, Callable[..., str]]:
    """Make the functions that the marks in a template call.

    Args:
        mark: writes a mark, from its kind, the number of the loop, and that of the message.
        messages: the messages that the template is given; they are recognised by their identity.
    """
    numbers = {id(message): number for number, message in enumerate(messages)}
    opened: set[int] = set()  # a loop over anything else prints no mark: a macro's text may be compared

    def begin(loop: int, value: Any) -> str:
        number = numbers.get(id(value))
        if number is None:
            if isinstance(value, Mapping) and "role" in value:
                number = _OTHER_MESSAGE
            elif isinstance(value, int):
                number = _NUMBER
            else:
                return ""
        opened.add(loop)
        return mark(_BEGIN_KIND, loop, number)

    def assigned(loop: int, value: Any) -> str:
        return mark(_SET_KIND, loop, numbers[id(value)]) if id(value) in numbers and loop in opened else ""

    def end(loop: int) -> str:
        if loop not in opened:
            return ""
        opened.discard(loop)
        return mark(_END_KIND, loop, 0)

    return {_BEGIN: begin, _SET: assigned, _END: end}


def unused_marks(text: str) -> Marks:
    """Choose two characters of the planes for private use that a text does not hold.

    Raises:
        RecordError: if it holds all of them.
    """
    free = (chr(code) for code in range(0xF0000, 0x10FFFE) if chr(code) not in text)
    try:
        return Marks(next(free), next(free))
    except StopIteration:
        reason = "the text holds all characters for private use, and two are needed to mark its messages"
        raise RecordError("spans_not_established", reason) from None


def template_with_marks(source: str, environment: jinja2.Environment) -> jinja2.Template:
    """Compile a template with marks in its loops, so that its text carries where its characters came from.

    Args:
        source: the text of the template.
        environment: compiles it, and is changed.
    """
    track_sources(environment)
    look_up_quickly(environment)
    environment.call = functools.partial(_call, environment.call)  # type: ignore[attr-defined]
    return compile_tree(mark_loops(parse_with_sources(source, environment)), environment)


def _call(otherwise: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """What a function returns, as the environment calls it. A mark need not be checked as those of templates are."""
    if getattr(function, "__module__", None) == __name__:
        return function(*arguments)
    return otherwise(context, function, *arguments, **keywords)


def mark_loops(tree: nodes.Template) -> nodes.Template:
    """Put marks into the loops of a template. The tree is changed."""
    return _MarkLoops().visit(tree)


# What may print. Macros are called, and marked, on their own.
_PRINTING = (nodes.Output, nodes.CallBlock, nodes.FilterBlock, nodes.Include, nodes.Block)


class _MarkLoops(NodeTransformer):
    def __init__(self) -> None:
        self._loops = 0
        self._inside: list[int] = []

    def visit_For(self, node: nodes.For) -> list[nodes.Node]:
        self._loops += 1
        loop = self._loops
        if next(node.find_all(_PRINTING), None) is None:
            return [node]  # it looks for something
        self._inside.append(loop)
        self.generic_visit(node)
        self._inside.pop()
        node.body = [*(_output(_BEGIN, loop, name) for name in _names(node.target)), *node.body]
        return [node, _output(_END, loop)]

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        inside, self._inside = self._inside, []
        self.generic_visit(node)
        self._inside = inside
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        return node  # templates compare and strip the text of such a block, and marks would be a part of it

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node | list[nodes.Node]:
        if self._inside and isinstance(node.target, nodes.Name) and isinstance(node.node, nodes.Getitem):
            return [node, _output(_SET, self._inside[-1], node.target.name)]
        return node


def _names(target: nodes.Node) -> list[str]:
    return [name.name for name in ([target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name))]


def _output(function: str, loop: int, variable: str | None = None) -> nodes.Output:
    arguments: list[nodes.Expr] = [nodes.Const(loop)]
    if variable is not None:
        arguments.append(nodes.Name(variable, "load"))
    # Not by its name, which Jinja would look up again in each pass of a loop.
    found = nodes.Getitem(nodes.ContextReference(), nodes.Const(function), "load")
    return nodes.Output([nodes.Call(found, arguments, [], None, None)])


def mark_function(node: nodes.Output) -> str | None:
    """Return the name of the function that a mark calls, None if what is printed is not a mark."""
    call = node.nodes[0]
    found = call.node if isinstance(call, nodes.Call) else None
    if isinstance(found, nodes.Getitem) and isinstance(found.node, nodes.ContextReference):
        return found.arg.value  # type: ignore[attr-defined]
    return None


def read_marked(marked: str, marks: Marks) -> tuple[str, list[Piece], list[PrintedText]]:
    """Take the marks out of a text.

    Args:
        marked: what a template with marks printed.
        marks: how they are written.

    Returns:
        The text without them, and its pieces and texts as `Rendering` has them.
    """
    found = re.compile(f"{marks.open}([0-2])\\.([0-9]+)\\.(-?[0-9]+){marks.close}")
    parts = found.split(marked)
    texts = parts[::4]
    numbers = zip(parts[1::4], map(int, parts[2::4]), map(int, parts[3::4]), strict=True)
    text = "".join(texts)
    pieces = read_pieces(len(text), zip(accumulate(map(len, texts)), numbers, strict=False))
    return text, pieces, _read_sources(marked, [mark.span() for mark in found.finditer(marked)])


def read_pieces(length: int, marks: Iterable[tuple[int, tuple[str, int, int]]]) -> list[Piece]:
    """Find for which message each piece of a text was printed.

    Args:
        length: of the text.
        marks: the offset of each, and its kind, its first and its second number.

    Returns:
        `Rendering.pieces`.
    """
    loops: list[tuple[int, int]] = []  # those that are open, each with its message
    message: int | None = None
    changes = [(0, message)]  # the offset of each change of the message
    for offset, (kind, number, second) in marks:
        if kind == _SET_KIND:
            # `set message = messages[i]` names the message of a loop over numbers. In a loop over messages it only
            # reads another message.
            if loops and loops[-1] == (number, _NUMBER):
                loops[-1] = number, second
        else:
            if loops and loops[-1][0] == number:
                loops.pop()
            elif (opened := next((i for i, (loop, _) in enumerate(loops) if loop == number), None)) is not None:
                del loops[opened:]
            if kind == _BEGIN_KIND:
                loops.append((number, second))
        innermost = loops[-1][1] if loops else _OTHER_MESSAGE
        if innermost == _NUMBER:
            innermost = next((one for _, one in reversed(loops) if one != _NUMBER), _OTHER_MESSAGE)
        if innermost != message:
            message = None if innermost == _OTHER_MESSAGE else innermost
            changes.append((offset, message))
    changes.append((length, None))
    pieces: list[Piece] = []
    for (start, message), (stop, _) in pairwise(changes):
        if start < stop:
            if pieces and pieces[-1][2] == message:
                start = pieces.pop()[0]
            pieces.append((start, stop, message))
    return pieces


def _read_sources(marked: str, marks: Sequence[tuple[int, int]]) -> list[PrintedText]:
    """`Rendering.texts` of a text with marks."""
    ends = [stop for _, stop in marks]
    lengths = [0, *accumulate(stop - start for start, stop in marks)]
    texts: list[PrintedText] = []
    at = 0
    for length, sources in runs_of(marked):
        start, at = at, at + length
        if sources and length:
            begin, end = (offset - lengths[bisect.bisect_right(ends, offset)] for offset in (start, at))
            copied = is_copy(length, sources)
            texts += [PrintedText(begin, end, key, first, last, copied) for key, first, last in sources]
    return texts


def how_printed(text: str, number: int) -> PrintedContent:
    """Return how the content of a message was printed. number: of the message."""
    runs = [(is_copy(length, sources), key) for length, sources in runs_of(text) for key, *_ in sources]
    of_content = [is_copied for is_copied, key in runs if key[:2] == (number, "content")]
    return PrintedContent(bool(of_content), any(of_content), str.__str__(text))
