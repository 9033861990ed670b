"""Arguments: what a chat template does with the arguments that a record gives, by its source.

Each record may have its own, such as a date or instructions. What is known about the template is found once for all
records whose arguments cannot change it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from jinja2 import nodes
from msgspec.structs import replace

from transforms.chat.rendering.environment import compile_template
from transforms.model.examples import Conversation
from transforms.records.json_text import strings_in

# Stands for any text; a character for private use that is no sentinel of `traced`.
ANY_TEXT = "\U0010fffd"

# The tests whose result is the same for all texts.
_TESTS = {"defined", "undefined", "none", "string"}
# What hands a text on: to the output, or to a decision that is the same for all texts but empty ones.
_HANDING_ON = (nodes.Add, nodes.And, nodes.Concat, nodes.CondExpr, nodes.Not, nodes.Or)
# What may do more with the output of its body than to print it.
_TAKING_OUTPUT = (nodes.AssignBlock, nodes.Block, nodes.CallBlock, nodes.FilterBlock, nodes.Macro)


def names_read(source: str) -> frozenset[str]:
    """Return the names of all variables of a chat template, of this source. It reads no others."""
    return _read(source).names


def with_read_arguments(conversation: Conversation, source: str) -> Conversation:
    """Return a conversation without the arguments that its chat template, of this source, does not read."""
    given = conversation.template_kwargs
    names = names_read(source) if given else ()
    read = {name: value for name, value in given.items() if name in names}
    return conversation if len(read) == len(given) else replace(conversation, template_kwargs=read)


def with_any_texts(conversation: Conversation, source: str, is_any: Callable[[str], bool] = bool) -> Conversation:
    """Return a conversation with ANY_TEXT for those of its arguments that are texts, and that its template only prints.

    Args:
        conversation: the conversation.
        source: the text of the template.
        is_any: whether a text may be replaced; no empty one, and none of white space alone, is.
    """
    given = conversation.template_kwargs
    if not any(type(value) is str for value in given.values()):
        return conversation
    printed = _read(source).printed
    values = {
        name: ANY_TEXT
        if type(value) is str and name in printed and not value.isspace() and value and is_any(value)
        else value
        for name, value in given.items()
    }
    return conversation if values == given else replace(conversation, template_kwargs=values)


def unread_arguments(conversation: Conversation, source: str, of_job: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Give the names of arguments that a chat template does not name, and the characters of their texts.

    Args:
        conversation: which has arguments of its own.
        source: the text of the template.
        of_job: those of the job.
    """
    read = names_read(source)
    for name, value in {**of_job, **conversation.template_kwargs}.items():
        if name not in read and (characters := sum(map(len, strings_in(value)))):
            yield f"chat_template_kwargs.{name}", characters


class _Read(NamedTuple):
    """The names that a chat template reads, and those of them that it only prints, or asks whether they are given."""

    names: frozenset[str]
    printed: frozenset[str]


@functools.lru_cache(16)
def _read(source: str) -> _Read:
    """What a chat template reads. source: its text."""
    names, others = set[str](), set[str]()

    def visit(node: nodes.Node, is_printed: bool, is_output: bool) -> None:
        """is_printed: whether the value of the node is handed on alone. is_output: whether output is printed here."""
        if isinstance(node, nodes.Name):
            names.add(node.name)
            if node.ctx == "load" and not is_printed:
                others.add(node.name)
        is_output = is_output and not isinstance(node, _TAKING_OUTPUT)
        trims = isinstance(node, nodes.Filter) and node.name == "trim" and not node.args
        hands_on = is_printed and (trims or isinstance(node, _HANDING_ON))
        hands_on |= (isinstance(node, nodes.Output) and is_output) or (
            isinstance(node, nodes.Test) and node.name in _TESTS
        )
        for child in node.iter_child_nodes():
            decides = isinstance(node, (nodes.If, nodes.CondExpr)) and child is node.test
            visit(child, hands_on or decides, is_output)

    visit(compile_template(source).environment.parse(source), False, True)
    return _Read(frozenset(names), frozenset(names - others))
