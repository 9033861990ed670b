"""transformers' Jinja environment for chat templates, and copies of it.

No other module uses what transformers keeps private. Texts are rendered by `apply_chat_template` itself. What else is
found about a template, such as which message printed what, needs its environment: `_compile_jinja_template` makes that
(its sandbox, filters, globals, and the tag `generation`), and templates are compiled again in copies of it.
tests/unit/test_templates.py compares what they print with `apply_chat_template`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace

from transforms.base.errors import UserError
from transforms.base.once import once
from transforms.model.examples import REASONING_KEYS, Span

CLOCK = "strftime_now"
Clock = Callable[[str], str]
_REASONING = frozenset(REASONING_KEYS)
# The generation tracker and the clock are parts of the environment, and all threads that render a template share that.
# Without a lock, the blocks of one conversation would be recorded for another: runners run bundles in threads.
_RENDERING = threading.Lock()
# What the sandbox allows of each type. Names of a dict's own attributes come before its entries in Jinja.
_DICT_NAMES = frozenset(dir(dict))
DICT_METHODS = frozenset(("get", "items", "keys", "values"))
_LOOP_NAMES = frozenset(("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem"))
_STRING_METHODS = frozenset(name for name in dir(str) if name[0] != "_") - {"format", "format_map"}
_PLAIN_TYPES = frozenset((str, int, float, bool, type(None), dict, list))
# Jinja itself passes these with each call, for functions that take the context. No function of a template reads them.
_KEYWORDS_OF_JINJA = ("_loop_vars", "_block_vars")


@once
def compile_template(source: str) -> jinja2.Template:
    """Compile a chat template, once in a process, as transformers' `apply_chat_template` does. source: its text.

    Raises:
        jinja2.TemplateSyntaxError: if the source is not valid Jinja.
        UserError: if it is nested too deeply, or takes too much memory.
    """
    from transformers.utils.chat_template_utils import _compile_jinja_template

    try:
        return _compile_jinja_template(source)
    except (RecursionError, SyntaxError, MemoryError):  # of Jinja's parser, or of Python's
        raise UserError("the chat template is nested too deeply, or takes too much memory.") from None


def new_environment(source: str) -> SandboxedEnvironment:
    """Copy the environment in which a chat template is compiled, so that it can be changed. source: its text."""
    environment: Any = compile_template(source).environment
    with _RENDERING:  # or the copy could take over an active generation tracker
        return environment.overlay()


class Given(NamedTuple):
    """What transformers renders.

    Attributes:
        tokenizer: of transformers.
        source: the text of the template.
        messages, tools: of the conversation.
        arguments: what the template reads besides, and not the tokenizer's special tokens.
        clock: what `strftime_now` calls; None leaves that of transformers.
    """

    tokenizer: Any
    source: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    arguments: Mapping[str, Any]
    clock: Clock | None


def apply_chat_template(given: Given, add_generation_prompt: bool) -> str:
    """Render a conversation by `apply_chat_template` of transformers. Raises whatever that and the template raise."""
    tokenizer, source, messages, tools, arguments, clock = given
    prompt = {"tools": tools, "add_generation_prompt": add_generation_prompt}
    compile_template(source)
    with _RENDERING, _fixed_clock(source, clock) as template:
        if not messages:  # transformers refuses these, and some templates print what they begin with
            own = {**tokenizer.special_tokens_map, "documents": None, **arguments}
            return template.render(messages=[], **prompt, **own)
        return tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **prompt, **arguments)


def render_generation_blocks(given: Given) -> tuple[str, list[Span]]:
    """Render a conversation and record its generation blocks, as `return_assistant_tokens_mask` of transformers does.

    Returns:
        The text, and the (start, stop) characters of each generation block, in the order in which the blocks close.

    Raises whatever transformers and the template raise.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    own: Any = {**given.tokenizer.special_tokens_map, **given.arguments, "return_assistant_tokens_mask": True}
    compile_template(given.source)
    with _RENDERING, _fixed_clock(given.source, given.clock):
        rendered: Any = render_jinja_template(
            [given.messages],  # type: ignore[list-item]
            tools=given.tools,  # type: ignore[arg-type]
            chat_template=given.source,
            **own,
        )
    (text,), (spans,) = rendered
    return text, spans


def with_reasoning_aliases(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in which reasoning is under each name to which the installed transformers copies it."""
    if all(map(_REASONING.isdisjoint, messages)):
        return messages
    from transformers.utils import chat_template_utils

    copied = getattr(chat_template_utils, "_alias_reasoning_fields", None)  # transformers copies it since 5.20
    return copied(messages) if copied else messages


def render(template: jinja2.Template, values: Mapping[str, Any]) -> str:
    """Render a template that was compiled in a copy of transformers' environment. Raises whatever it raises."""
    return template.environment.concat(template.root_render_func(template.new_context(values)))  # type: ignore


@contextmanager
def _fixed_clock(source: str, clock: Clock | None) -> Iterator[jinja2.Template]:
    """Inside, strftime_now calls a clock in the template that transformers renders, which is yielded.

    Its environment belongs to transformers, so that its own clock is put back. transformers keeps a number of compiled
    templates, so that it may not be the one that `compile_template` returned.
    """
    from transformers.utils.chat_template_utils import _compile_jinja_template

    template = _compile_jinja_template(source)
    functions = template.environment.globals
    own = functions[CLOCK]
    functions[CLOCK] = clock or own
    try:
        yield template
    finally:
        functions[CLOCK] = own


def look_up_quickly(environment: Any) -> None:
    """Change a Jinja environment, which is a copy, so that it looks up what the sandbox cannot refuse at once.

    The sandbox looks for an attribute with an exception first and in a dict afterwards, and checks each access.
    """
    attribute, item, undefined = environment.getattr, environment.getitem, environment.undefined

    def getattr_quickly(value: Any, name: str) -> Any:
        kind = type(value)
        if kind is dict:
            if name not in _DICT_NAMES:
                return value[name] if name in value else undefined(obj=value, name=name)
            if name in DICT_METHODS:
                return getattr(value, name)
        elif isinstance(value, str):
            if name in _STRING_METHODS:
                return getattr(value, name)
        elif isinstance(value, LoopContext):
            if name in _LOOP_NAMES:
                return getattr(value, name)
        elif isinstance(value, Namespace) and name[0] != "_":
            field = getattr(value, name, value)
            if type(field) in _PLAIN_TYPES or isinstance(field, str):
                return field
        return attribute(value, name)

    def getitem_quickly(value: Any, key: Any) -> Any:
        kind = type(value)
        if kind is dict and type(key) is str:
            if key in value:
                return value[key]
            if key not in _DICT_NAMES:
                return undefined(obj=value, name=key)
        elif kind is list and type(key) is int and -len(value) <= key < len(value):
            return value[key]
        return item(value, key)

    environment.getattr, environment.getitem = getattr_quickly, getitem_quickly


def method_owner(function: Any) -> Any:
    """Return the object whose method a function is; None if it is not a method. The sandbox wraps format."""
    return getattr(getattr(function, "__wrapped__", function), "__self__", None)


def given_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a call that the template gives."""
    return {name: value for name, value in keywords.items() if name not in _KEYWORDS_OF_JINJA}


def compile_tree(tree: nodes.Template, environment: Any) -> jinja2.Template:
    """Compile a template in a copy of the environment that parsed it."""
    tree.set_environment(environment)
    return jinja2.Template.from_code(environment, environment.compile(tree), dict(environment.globals))
