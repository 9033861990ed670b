"""The instrumented environment: a copy of transformers' that prints the same, and says where each piece came from.

The texts of the record carry where their characters came from (`tracked_text`): what is made of them does, too.
A chat template loops over messages. Its syntax tree is given marks: at the beginning of each loop's body one that names
the loop's variable, after the loop one that closes it. They have no characters. Where they are shows for which message
each piece is printed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.filters import make_attrgetter
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

from transforms.base.errors import RecordError
from transforms.chat.rendering.environment import (
    DICT_METHODS,
    compile_tree,
    given_keywords,
    look_up_quickly,
    method_owner,
    new_environment,
)
from transforms.chat.rendering.renderings import KEY, Key, KnownTools, Piece, PrintedText, Rendering
from transforms.chat.rendering.tracked_text import (
    Mark,
    SourcedText,
    as_markup,
    derived,
    have_sources,
    interleaved,
    joined,
    list_runs,
    listed,
    tracked,
)
from transforms.model.examples import Conversation

# Kinds of marks: a pass of a loop begins, a variable in it is given a message, a loop ends.
_BEGIN: Final = 0
_SET: Final = 1
_END: Final = 2
# The message of a mark if it is none of the conversation: one that the template made, or a number.
_OTHER_MESSAGE, _NUMBER = -1, -2
# What an instrumented template calls, and variables: the numbers of messages, what is kept of the tools. No template
# can use these.
_MARK = "chatmill mark"
_ADD, _CONCATENATE, _FORMAT = "chatmill +", "chatmill ~", "chatmill %"
_NUMBERS, _KEPT = "chatmill numbers", "chatmill kept"
# Filters whose results have no new texts, or are made by methods of the texts.
_WITHOUT_NEW_TEXTS = {
    *("abs", "attr", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last"),
    *("length", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "select", "selectattr"),
    *("slice", "sort", "sum", "trim", "unique", "wordcount"),
}
_CONSTANTS = frozenset((str, int, bool, type(None)))
_new: Any = tuple.__new__  # in half the time that a NamedTuple takes


@functools.cache
def instrumented(source: str) -> jinja2.Template:
    """Compile a chat template in an instrumented environment. source: its text.

    Raises:
        RecordError: if it escapes what it prints, by which the sources are lost.
    """
    environment: Any = new_environment(source)
    tree = environment.parse(source)
    if tree.find(nodes.ScopedEvalContextModifier):
        why = "the template has {% autoescape %}, under which it is not followed where its texts are printed"
        raise RecordError("spans_not_established", f"{why}, so it is unknown what is trained on")
    filters = {
        name: filter if name in _WITHOUT_NEW_TEXTS else _tracking(name, filter)
        for name, filter in environment.filters.items()
    }
    environment.filters = {
        **filters,
        "tojson": _tracking_json(environment.filters["tojson"]),
        _MARK: _mark,
        _ADD: _add,
        _CONCATENATE: lambda *parts: joined(map(_as_printed, parts)),
        _FORMAT: _formatted,
    }
    environment.call = functools.partial(_call, environment.call)
    environment.concat = joined
    environment.finalize = _as_printed
    look_up_quickly(environment)
    return compile_tree(_MarkLoops().visit(_Operators().visit(tree)), environment)


def print_parts(template: jinja2.Template, values: Mapping[str, Any], tools: KnownTools | None = None) -> list[str]:
    """Return what an instrumented template prints, in the parts that it yields. Raises whatever the template raises.

    Args:
        template: of `instrumented`.
        values: its variables. The messages are recognised by their identity.
        tools: what is known of the tools among them.
    """
    numbers = {id(message): number for number, message in enumerate(values.get("messages", ()))}
    own = {_NUMBERS: numbers, _KEPT: tools.json if tools else {}}
    return [*template.root_render_func(template.new_context({**values, **own}))]


def read_parts(conversation: Conversation, messages: list[dict[str, Any]], parts: Iterable[str]) -> Rendering:
    """Return the rendering of a conversation that is printed in some parts. messages: as the template is given them."""
    texts: list[PrintedText] = []
    keys = set[Key]()
    marks: list[tuple[int, Mark]] = []
    at = 0
    for part in parts:
        if type(part) is str:
            at += len(part)
            continue
        for length, sources in list_runs(part):
            if not length:
                if type(sources) is Mark:
                    marks.append((at, sources))
                continue
            stop = at + length
            is_copy = len(sources) == 1 and sources[0][2] - sources[0][1] == length
            for key, first, last in sources:
                if type(key) is frozenset:
                    keys |= key
                elif key[1] == KEY:
                    keys.add(key)
                else:
                    texts.append(_new(PrintedText, (at, stop, key, first, last, is_copy)))
            at = stop
    return Rendering(conversation, messages, "".join(parts), _read_pieces(at, marks), texts, frozenset(keys))


def _read_pieces(length: int, marks: Iterable[tuple[int, Mark]]) -> list[Piece]:
    """`Rendering.pieces` of a text. length: of the text. marks: the offset of each, and the mark."""
    loops: list[tuple[int, int]] = []  # those that are open, each with its message
    message: int | None = None
    changes = [(0, message)]  # the offset of each change of the message
    for offset, (kind, loop, number) in marks:
        if kind == _SET:
            # `set message = messages[i]` names the message of a loop over numbers. In a loop over messages it only
            # reads another message.
            if loops and loops[-1] == (loop, _NUMBER):
                loops[-1] = loop, number
        else:
            if loops and loops[-1][0] == loop:
                loops.pop()
            elif (opened := next((i for i, (one, _) in enumerate(loops) if one == loop), None)) is not None:
                del loops[opened:]
            if kind == _BEGIN:
                loops.append((loop, number))
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


# Marks.


class _MarkLoops(NodeTransformer):
    """Puts marks into the loops of a template."""

    # What may print. Macros are called, and marked, on their own.
    _PRINTING = (nodes.Output, nodes.CallBlock, nodes.FilterBlock, nodes.Include, nodes.Block)

    def __init__(self) -> None:
        self._loops = 0
        self._inside: list[int] = []

    def visit_For(self, node: nodes.For) -> list[nodes.Node]:
        self._loops += 1
        loop = self._loops
        if next(node.find_all(self._PRINTING), None) is None:
            return [node]  # it looks for something
        self._inside.append(loop)
        self.generic_visit(node)
        self._inside.pop()
        names = [node.target] if isinstance(node.target, nodes.Name) else node.target.find_all(nodes.Name)
        node.body = [*(_print_mark(_BEGIN, loop, name.name) for name in names), *node.body]
        return [node, _print_mark(_END, loop)]

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        inside, self._inside = self._inside, []
        self.generic_visit(node)
        self._inside = inside
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        return node  # its text may be printed anywhere

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node | list[nodes.Node]:
        if self._inside and isinstance(node.target, nodes.Name) and isinstance(node.node, nodes.Getitem):
            return [node, _print_mark(_SET, self._inside[-1], node.target.name)]
        return node


def _print_mark(kind: int, loop: int, variable: str | None = None) -> nodes.Output:
    value = nodes.Const(None) if variable is None else nodes.Name(variable, "load")
    return nodes.Output([_filter(_MARK, value, nodes.Const(kind), nodes.Const(loop))])


def _filter(name: str, value: nodes.Expr, *arguments: nodes.Expr) -> nodes.Filter:
    """A call of a filter, which Jinja looks up once for each rendering, and does not check."""
    return nodes.Filter(value, name, [*arguments], [], None, None, lineno=value.lineno)


@functools.lru_cache(16384)
def _format_mark(kind: int, loop: int, message: int = 0) -> str:
    return tracked("", [(0, Mark(kind, loop, message))])


@jinja2.pass_context  # or Jinja would call it once for the end of a loop, when it compiles the template
def _mark(context: Any, value: Any, kind: int, loop: int) -> str:
    """A mark. value: of the variable; None at the end of a loop."""
    if kind == _END:
        return _format_mark(_END, loop)
    number = context.parent[_NUMBERS].get(id(value))
    if number is None and kind == _BEGIN:
        if isinstance(value, int):
            number = _NUMBER
        elif isinstance(value, dict) and "role" in value:
            number = _OTHER_MESSAGE
    return "" if number is None else _format_mark(kind, loop, number)


# Operators that Jinja and str compute without calling methods of a string's subclass, or for each two values.


class _Operators(NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(_CONCATENATE, *node.nodes)

    def visit_Mod(self, node: nodes.Mod) -> nodes.Node:
        self.generic_visit(node)
        return _filter(_FORMAT, node.left, node.right)

    def visit_Add(self, node: nodes.Add) -> nodes.Node:
        terms = [node.right]
        while isinstance(node.left, nodes.Add):
            node = node.left
            terms.append(node.right)
        terms.append(node.left)
        return _filter(_ADD, *(self.visit(term) for term in reversed(terms)))


def _add(*terms: Any) -> Any:
    for term in terms:
        if type(term) is not str and type(term) is not SourcedText:
            return functools.reduce(operator.add, terms)
    return joined(terms)


def _formatted(left: Any, right: Any) -> Any:
    result = left % right
    return derived(result, (left, right)) if type(result) is str else result


def _as_printed(value: Any) -> str:
    """A value as Jinja prints it."""
    if type(value) is SourcedText or type(value) is str:
        return value
    text = str(value)
    return text if isinstance(value, str) else derived(text, (value,))


# Calls and filters.


def _call(call: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """What a function returns, as the sandbox calls it. It checks nothing of methods of strings and dicts."""
    kind = type(owner := getattr(function, "__self__", None))
    if kind is SourcedText or (kind is str and _CONSTANTS.issuperset(map(type, arguments))):
        keywords = given_keywords(keywords)
        result = function(*arguments, **keywords)
        return derived(result, (owner, arguments, keywords)) if kind is not str and type(result) is str else result
    if kind is dict and function.__name__ in DICT_METHODS:
        return function(*arguments, **given_keywords(keywords))
    owner = method_owner(function)
    if not isinstance(owner, str):
        return call(context, function, *arguments, **keywords)
    arguments = tuple(map(listed, arguments))
    if function.__name__ in ("format", "format_map"):
        result = call(context, function, *arguments, **keywords)
        if result == owner:
            return owner
        result = result if isinstance(result, Markup) else str.__str__(result)
    elif type(owner) is str and function.__name__ in vars(SourcedText) and have_sources(arguments):
        return call(context, getattr(tracked(owner, list_runs(owner)), function.__name__), *arguments, **keywords)
    else:
        result = call(context, function, *arguments, **keywords)
        if type(result) is not str:
            return result
    return derived(result, (owner, arguments, given_keywords(keywords)))


def _tracking(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose result carries its sources."""

    @functools.wraps(filter)
    def tracking(*arguments: Any, **keywords: Any) -> Any:
        arguments = tuple(map(listed, arguments))
        if name == "replace" and type(arguments[1]) is str:
            context, text, *others = arguments
            arguments = (context, tracked(text, list_runs(text)), *others)
        result = filter(*arguments, **keywords)
        if name == "join" and type(result) is str:
            return _joined_by_filter(*arguments, **keywords)
        if name == "indent" and isinstance(arguments[0], SourcedText):
            return _indented(*arguments, **keywords)
        if name == "indent" and isinstance(result, Markup):
            result = Markup(str.__str__(result))  # whose lines are joined by markup without sources
        if name in ("safe", "title") and isinstance(arguments[0], SourcedText) and len(result) == len(arguments[0]):
            return tracked(result, arguments[0].runs)
        result = derived(result, (arguments, keywords)) if type(result) in (str, Markup) else result
        # Markup makes plain markup of what is added to it.
        return as_markup(result) if type(result) is Markup else result

    return tracking


def _joined_by_filter(context: Any, values: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        values = map(make_attrgetter(context.environment, attribute), values)
    return interleaved(_as_printed(d), [*map(_as_printed, values)])


def _indented(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """The lines of a text as the filter indent gives them, which joins them by a string without sources."""
    indention = width if isinstance(width, str) else " " * width
    start, *lines = (text + "\n").splitlines()
    lines = [indention + line if line or blank else line for line in lines]
    return interleaved("\n", [indention + start if first else start, *lines])


def _tracking_json(tojson: Callable[..., str]) -> Callable[..., str]:
    """The filter tojson. What it makes of the tools is kept."""

    @jinja2.pass_context
    def tracking(context: Any, value: Any, *arguments: Any, **keywords: Any) -> str:
        kept = context.parent[_KEPT].get(id(value))
        settings = repr((arguments, keywords)) if kept is not None else ""
        if kept is not None and settings in kept:
            return kept[settings]
        text = derived(tojson(value, *arguments, **keywords), (value, arguments, keywords))
        if kept is not None:
            text = kept[settings] = _with_joint_keys(text)
        return text

    return tracking


def _with_joint_keys(text: str) -> str:
    """A text that was made of others, with one source for all of these that have keys of further texts."""
    runs = []
    for length, sources in list_runs(text):
        keys = frozenset(key for key, _, _ in sources if key[1] == KEY)
        others = tuple(source for source in sources if source[0] not in keys)
        runs.append((length, (*others, (keys, 0, 0)) if keys else sources))
    return tracked(text, runs)
