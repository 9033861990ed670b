"""transformers' Jinja environment, faster: the same values and the same text, and where its texts came from."""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import BuiltinMethodType
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.runtime import Context, LoopContext, Macro, missing
from jinja2.utils import Cycler, Joiner, Namespace

from transforms.chat.fast.fast_code import GIVEN_CONSTANTS, OUTPUT, FastCode, gives_constants, is_followed
from transforms.chat.fast.identity import NotFollowed, Sources
from transforms.chat.fast.tool_texts import KnownTools
from transforms.chat.rendering.environment import (
    PLAIN_TYPES,
    compile_tree,
    given_keywords,
    look_up_quickly,
    new_environment,
    owner_of,
)
from transforms.chat.rendering.marks import mark_functions, mark_loops, read_pieces
from transforms.chat.rendering.renderings import Piece, PrintedText
from transforms.chat.rendering.texts import Key

# Filters whose results hold what they are given, if that is no text.
_OF_ITEMS = frozenset(
    ("dictsort", "first", "items", "last", "list", "map", "reject", "rejectattr", "select", "selectattr")
)
# Filters that return no text.
_OF_NUMBERS = frozenset(("abs", "count", "float", "int", "length", "round"))
_OPERATORS = {"*": operator.mul, "%": operator.mod}


class ListLoop(LoopContext):
    """The variable `loop` of a loop over a list: it knows the values before and after each without keeping them."""

    def __iter__(self) -> Iterator[tuple[Any, ListLoop]]:  # type: ignore[override]
        for number, value in enumerate(self._iterable):
            self.index0 = number
            yield value, self

    @property
    def last(self) -> bool:
        return self.index0 + 1 == len(self._iterable)  # type: ignore[arg-type]

    @property
    def _before(self) -> Any:  # type: ignore[override]
        return self._iterable[self.index0 - 1]  # type: ignore[index]

    def _peek_next(self) -> Any:
        return missing if self.last else self._iterable[self.index0 + 1]  # type: ignore[index]


def loop_over(values: Iterable[Any], *others: Any) -> LoopContext:
    """Return the variable `loop` of a loop.

    Args:
        values: what it loops over. What is not a list may depend on what the loop does.
        others: the other arguments of LoopContext.
    """
    return (ListLoop if type(values) is list else LoopContext)(values, *others)


class Output:
    """What the code of a template calls while it renders, and what it prints.

    Args:
        template: the template.
        sources: where the texts came from that it is given.
        tools: what is known of the tools that it is given.

    Attributes:
        out: the parts that are printed.
        marks: how many parts are printed before each mark, and what `marks.read_pieces` reads of it.
        text: all of them, once everything is printed.
    """

    def __init__(self, template: jinja2.Template, sources: Sources, tools: KnownTools | None) -> None:
        environment: Any = template.environment
        self.sources = sources
        self.out: list[str] = []
        self.marks: list[tuple[int, tuple[str, int, int]]] = []
        self.absent, self.entry_of = environment.absent, environment.entry_of
        self.loop_over, self.list_loop = loop_over, ListLoop
        self._environment = environment
        self._tools = tools
        self.text = ""

    def mark(self, kind: str, first: int, second: int) -> str:
        self.marks.append((len(self.out), (kind, first, second)))
        return kind

    def lost(self, mark: str) -> None:
        """A mark in a macro, or in another text that is not printed where it is made."""
        if mark:
            raise NotFollowed("the template prints messages in a place that is not followed, such as a macro")

    def finish(self) -> None:
        """Make the text."""
        self.text = "".join(self.out)

    @functools.cached_property
    def _offsets(self) -> list[int]:
        return [0, *itertools.accumulate(map(len, self.out))]

    def pieces(self) -> list[Piece]:
        """Return `Rendering.pieces` of the text."""
        offsets = self._offsets
        return read_pieces(len(self.text), [(offsets[count], mark) for count, mark in self.marks])

    def texts(self) -> tuple[list[PrintedText], frozenset[Key], bool]:
        """Return `Rendering.texts`, `Rendering.keys` and `Rendering.prints_all` of the text."""
        return self.sources.texts_in(self.out, self._offsets)

    def getitem(self, value: Any, key: Any) -> Any:
        """An item of a value, as `SandboxedEnvironment.getitem` finds it."""
        if type(value) is list and type(key) is int and -len(value) <= key < len(value):
            return value[key]
        return self.sources.item(value, self._environment.getitem(value, key))

    def operate(self, name: str, left: Any, right: Any) -> Any:
        """What an operator makes of two values, which may be a text in another form."""
        found = _OPERATORS[name](left, right)
        if isinstance(found, str):
            self.sources.refuse(left, right)
        return found

    def tojson(self, value: Any) -> str:
        """The filter tojson without other settings."""
        kind = type(value)
        if kind is str:
            text = json.encoder.encode_basestring(value)
        else:
            text = _encode(value) if kind is dict or kind is list else self._environment.to_json(value)
        return self.sources.made(text, value)

    def tools_texts(self, context: Context, tools: Any, others: Sequence[str]) -> Any:
        """The texts that statements print of the tools, if other names have the values that they always have."""
        for name in others:
            if context.resolve_or_missing(name) is not context.environment.globals.get(name, missing):
                return {}
        return self._tools.texts if self._tools is not None and self._tools.tools is tools else {}

    def keep(self, texts: dict[int, str], number: int, text: str) -> None:
        """Keep the text of a statement for other conversations, if `tools_texts` found the same tools."""
        if self._tools is not None and texts is self._tools.texts:
            self._tools.keep(number, text, self.sources)
        else:
            texts[number] = text


def compile_fast(source: str) -> jinja2.Template:
    """Compile a chat template for `render_fast`.

    Args:
        source: the text of the template.

    Raises:
        NotFollowed: if it is not known what its statements print.
        jinja2.TemplateSyntaxError: if the source is not valid Jinja.
    """
    if (template := _compiled(source)) is None:
        raise NotFollowed("the template has statements that are not followed")
    return template


@functools.cache
def _compiled(source: str) -> jinja2.Template | None:
    environment: Any = new_environment(source)
    tree = environment.parse(source)
    if not is_followed(tree):
        return None
    environment.code_generator_class = FastCode
    environment.absent = _Absent(environment.undefined)
    look_up_quickly(environment)
    environment.entry_of = _entry_of(environment.getattr)
    environment.call = functools.partial(_call, environment.call)
    environment.to_json = environment.filters["tojson"]
    followed = {name: _following(name, filter) for name, filter in environment.filters.items()}
    environment.filters = {**followed, **{name: environment.filters[name] for name in _OF_NUMBERS}}
    environment.gives_constants = gives_constants(tree)
    return compile_tree(mark_loops(tree), environment)


def render_fast(
    template: jinja2.Template,
    values: Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]],
    output: Output,
) -> None:
    """Render a template that `compile_fast` compiled.

    Args:
        template: the template.
        values: its variables.
        messages: the messages among them; they are recognised by their identity.
        output: a new one, which takes what is printed.

    Raises:
        NotFollowed: if it is not known what is printed.

    Raises whatever the template raises, too.
    """
    functions = mark_functions(output.mark, messages)
    for _ in template.root_render_func(template.new_context({**values, **functions, OUTPUT: output})):
        pass  # it prints into the output
    output.finish()


class _Absent(dict[str, jinja2.Undefined]):
    """For a name, what an entry of a dict is that the dict does not have.

    Args:
        undefined: makes it.
    """

    def __init__(self, undefined: Callable[..., jinja2.Undefined]):
        self._undefined = undefined

    def __missing__(self, name: str) -> jinja2.Undefined:
        value = self[name] = self._undefined(obj={}, name=name)
        return value


def _entry_of(otherwise: Callable[..., Any]) -> Callable[[Any, str], Any]:
    """Make the function that finds an attribute of a namespace, as `SandboxedEnvironment.getattr` does."""
    attribute = object.__getattribute__

    def entry_of(value: Any, name: str) -> Any:
        try:
            found = attribute(value, "_Namespace__attrs").get(name, value)
        except AttributeError:  # it is something else
            return otherwise(value, name)
        return found if type(found) in PLAIN_TYPES else otherwise(value, name)

    return entry_of


def _call(otherwise: Callable[..., Any], context: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    """What a function returns, as `SandboxedEnvironment.call` calls it. Texts that it would change are refused."""
    if isinstance(function, type) and issubclass(function, Namespace):
        return function(*arguments, **given_keywords(keywords))
    found = otherwise(context, function, *arguments, **keywords)
    owner = owner_of(function)
    if isinstance(function, (type, Macro, LoopContext)) or isinstance(owner, (LoopContext, Cycler, Joiner, Extension)):
        if isinstance(function, LoopContext):  # of a loop that calls itself
            context.parent[OUTPUT].sources.each(arguments[0])
        return found
    if type(function) is BuiltinMethodType and type(owner) is dict:
        return found
    given = [*arguments, *given_keywords(keywords).values()]
    if isinstance(owner, str):
        given = [owner, *(_without_constants(context, given) if function.__name__ == "replace" else given)]
    _check(context, found, given)
    return found


def _without_constants(context: Any, given: Iterable[Any]) -> list[Any]:
    """What is given without constants of no characters, which look like texts of the record that have none."""
    return [value for value in given if value != "" or not context.environment.gives_constants]


def _check(context: Any, found: Any, given: Sequence[Any]) -> None:
    """Raise NotFollowed if something may have been made of a text in what was given."""
    if given and found is not given[0] and type(found) not in (bool, int, float, type(None)) and found != "":
        context.parent[OUTPUT].sources.refuse(*given)


def _following(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses texts that it would change in a way that is not followed."""
    passed = getattr(getattr(filter, "jinja_pass_arg", None), "name", "")

    @jinja2.pass_context
    def following(context: Any, *arguments: Any, **keywords: Any) -> Any:
        sources: Sources = context.parent[OUTPUT].sources
        if name == "trim" and not keywords and type(arguments[0]) is str:
            return sources.strip(*arguments)
        if name == "safe":
            return sources.marked_up(arguments[0])
        if name == "join" and not keywords and len(arguments) == 2 and _are_texts(*arguments):
            values, separator = arguments
            return sources.join([part for value in values for part in (separator, value)][1:])
        if passed:
            own = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}[passed]
            found = filter(own, *arguments, **keywords)
        else:
            found = filter(*arguments, **keywords)
        if name == "tojson":
            return sources.made(found, arguments[0])
        if name in _OF_ITEMS:
            sources.each(arguments[0])
        else:
            first, *others = arguments
            given = [*others, *keywords.values()]
            _check(context, found, [first, *(_without_constants(context, given) if name in GIVEN_CONSTANTS else given)])
        return found

    return following


def _are_texts(values: Any, separator: Any) -> bool:
    """Whether values are a list of texts, and what joins them is one, too; none of them is markup."""
    return type(values) is list and all(type(value) is str for value in (*values, separator))


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


_encode = _encoder()
