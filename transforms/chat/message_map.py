"""Trace: which characters of a template's text were printed for which message.

A chat template loops over messages. It is parsed, and its syntax tree given marks: at the beginning of each loop's body
one that names the loop's variable, at the end of the loop one that closes it. Rendering prints them as characters that
the text does not hold; taken out again, they leave the text and tell, for each piece of it, the message it is for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from transforms.errors import RecordError

# What a loop's variable is, where it is no message of the conversation: one that the template made, or a number.
_STRANGER, _NUMBER = -1, -2
# Names that no template uses, for what its marks call.
_BEGIN, _SET, _END = "chatmill_begin", "chatmill_set", "chatmill_end"


@dataclass(frozen=True)
class Trace:
    """text: without the marks. pieces: (start, stop, message) in the order of the text, without gaps.

    message is the number of the message that a piece was printed for, None for what was printed for none. contents: for
    each content that was marked, the places of its beginning and its end, None where the template left it out.
    """

    text: str
    pieces: list[tuple[int, int, int | None]]
    contents: dict[int, tuple[int | None, int | None]]

    def pieces_of_messages(self) -> dict[int, list[tuple[int, int]]]:
        """The (start, stop) of what was printed for each message."""
        places: dict[int, list[tuple[int, int]]] = {}
        for start, stop, message in self.pieces:
            if message is not None:
                places.setdefault(message, []).append((start, stop))
        return places

    def end_of_messages(self) -> int:
        """Where the last piece ends that was printed for a message."""
        return max((stop for _, stop, message in self.pieces if message is not None), default=0)


@dataclass(frozen=True)
class Marks:
    """The two characters between which marks stand: a kind and numbers, which no template changes."""

    open: str
    close: str

    def functions(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What the marks in an instrumented template call. Messages are known by their identity."""
        numbers = {id(message): number for number, message in enumerate(messages)}
        opened: set[int] = set()  # a loop over something else prints nothing: it may stand in a macro that is compared

        def begin(loop: int, value: Any) -> str:
            if isinstance(value, Mapping) and "role" in value:
                number = numbers.get(id(value), _STRANGER)
            elif isinstance(value, int):
                number = _NUMBER
            else:
                return ""
            opened.add(loop)
            return self._mark("0", loop, number)

        def assigned(loop: int, value: Any) -> str:
            return self._mark("1", loop, numbers[id(value)]) if id(value) in numbers and loop in opened else ""

        def end(loop: int) -> str:
            if loop not in opened:
                return ""
            opened.discard(loop)
            return self._mark("2", loop, 0)

        return {_BEGIN: begin, _SET: assigned, _END: end}

    def in_content(self, message: dict[str, Any], number: int) -> dict[str, Any]:
        """The message with marks around its content, or its parts; one without any text stays as it is."""
        content = message.get("content")
        if isinstance(content, str) and content.strip():
            return {**message, "content": self._around(content, number)}
        if isinstance(content, list):
            parts = [
                {**part, "text": self._around(part["text"], number)} if part["text"].strip() else part
                for part in content
            ]
            return {**message, "content": parts}
        return message

    def _around(self, content: str, number: int) -> str:
        """A text with marks inside its outer white space, which templates trim."""
        core = content.strip()
        before, _, after = content.partition(core)
        return f"{before}{self._mark('3', number, 0)}{core}{self._mark('4', number, 0)}{after}"

    def _mark(self, kind: str, first: int, second: int) -> str:
        return f"{self.open}{kind}.{first}.{second}{self.close}"


def unused_marks(text: str) -> Marks:
    """Marks of characters that a text does not hold, from the planes for private use. Raises RecordError."""
    free = (chr(code) for code in range(0xF0000, 0x10FFFE) if chr(code) not in text)
    try:
        return Marks(next(free), next(free))
    except StopIteration:
        reason = "the text holds all characters for private use, of which two are needed to trace it"
        raise RecordError("spans_not_established", reason) from None


def instrumented(source: str, environment: jinja2.Environment) -> jinja2.Template:
    """The template with marks in its loops, compiled as the environment compiles it."""
    tree = _MarkLoops().visit(environment.parse(source))
    tree.set_environment(environment)
    code: Any = environment.compile(tree)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


class _MarkLoops(NodeTransformer):
    def __init__(self) -> None:
        self._loops = 0
        self._inside: list[int] = []

    def visit_For(self, node: nodes.For) -> list[nodes.Node]:
        self._loops += 1
        loop = self._loops
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
        return node  # what a block sets is compared and trimmed, and marks would be text to that

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
    return nodes.Output([nodes.Call(nodes.Name(function, "load"), arguments, [], None, None)])


def read_trace(marked: str, marks: Marks) -> Trace:
    """The trace that the text of an instrumented template holds."""
    found = re.compile(f"{marks.open}([0-4])\\.([0-9]+)\\.(-?[0-9]+){marks.close}")
    parts = found.split(marked)
    texts = parts[::4]
    length = len(texts[0])
    pieces: list[tuple[int, int, int | None]] = []
    contents: dict[int, tuple[int | None, int | None]] = {}
    loops: list[tuple[int, int | None]] = []  # those that are open, each with its message
    message: int | None = None
    start = 0
    for kind, first, second, text in zip(parts[1::4], parts[2::4], parts[3::4], texts[1:], strict=True):
        number = int(first)
        if kind in "34":
            begin, end = contents.get(number, (None, None))
            contents[number] = (length if kind == "3" and begin is None else begin, length if kind == "4" else end)
        elif kind == "1":
            # `set message = messages[i]` in a loop over numbers; in a loop over messages, a look at another one.
            if loops and loops[-1] == (number, _NUMBER):
                loops[-1] = (number, int(second))
        else:
            opened = next((i for i, (loop, _) in enumerate(loops) if loop == number), None)
            if opened is not None:
                del loops[opened:]
            if kind == "0":
                loops.append((number, None if second == str(_STRANGER) else int(second)))
        innermost = next((message for _, message in reversed(loops) if message != _NUMBER), None)
        if innermost != message:
            _append(pieces, start, length, message)
            start, message = length, innermost
        length += len(text)
    _append(pieces, start, length, message)
    return Trace("".join(texts), pieces, contents)


def _append(pieces: list[tuple[int, int, int | None]], start: int, stop: int, message: int | None) -> None:
    """Add a piece, to the one before it where that is for the same message."""
    if pieces and pieces[-1][2] == message:
        start = pieces.pop()[0]
    if stop > start:
        pieces.append((start, stop, message))
