"""Forms of turns: what people have in place of messages. One module for each family of forms.

A module of this package has `FORMS`, a tuple of TurnForm. A form recognizes a list of turns by the kinds of their keys,
never by the name of a dataset, and makes messages in the OpenAI form of it. All checks of messages come after that, so
they hold for each form: roles, contents, calls, media, weights. What a form does not know of a turn stays in the
message under its own name, and is counted there if the template does not print it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from transforms.base.errors import RecordError
from transforms.records.hints import hint_of_turns

# Of one message of a tree or a log, whose order a list does not say.
OF_TREES = ("parent", "parent_id", "message_id", "replies")
_SAID = {"content", "tool_calls", "parts"}


class Messages(NamedTuple):
    """What a form made of turns: the messages, and the tool definitions that were in them."""

    messages: list[Any]
    tools: Sequence[Any] = ()


class TurnForm(NamedTuple):
    """A form of turns; tests/data/samples.jsonl has a record of each.

    Attributes:
        name: of the form, for counts and errors.
        recognizes: whether a list of turns, which is not empty, has this form.
        messages: makes messages of it. Takes the turns, and the column that has them, for errors. Raises RecordError if
            a turn is malformed.
    """

    name: str
    recognizes: Callable[[list[Any]], bool]
    messages: Callable[[list[Any], str], Messages]


@functools.cache
def turn_forms() -> tuple[TurnForm, ...]:
    """Return all forms, by the names of their modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(form for module in modules for form in getattr(module, "FORMS", ()))


def form_of(turns: list[Any], column: str) -> TurnForm | None:
    """Find the form of turns; None if they have none of them, as messages in the OpenAI form have.

    Args:
        turns: the turns of a record.
        column: that has them, for errors.

    Raises:
        RecordError: if they have two forms, so that it is not certain what they say; or one that a formatter reads.
    """
    found = [form for form in turn_forms() if turns and form.recognizes(turns)]
    if len(found) > 1:
        names = " and ".join(form.name for form in found)
        raise RecordError("ambiguous", f"{column} has turns of {names}; expected one form. Give a formatter")
    if not found and (hint := hint_of_turns(turns)):
        raise RecordError("bad_message", f"{column}: {hint}")
    return found[0] if found else None


def messages_of_turns(turns: list[Any], column: str) -> Messages:
    """Return the messages of turns of any form, and the tools in them; turns without a form as they are.

    Args:
        turns: the turns of a record.
        column: that has them, for errors.

    Raises:
        RecordError: if they have two forms, or a turn is malformed.
    """
    given = without_nulls(turns)
    form = form_of(given, column)
    return form.messages(given, column) if form else Messages(turns)


def without_nulls(turns: list[Any]) -> list[Any]:
    """Return turns without the keys of theirs, and of their parts, that are null: Arrow gives each the keys of all.

    A content that is null stays. What calls are given is not looked at.
    """

    def given(item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        return {
            key: [*map(given, value)] if key in ("content", "parts") and isinstance(value, list) else value
            for key, value in item.items()
            if value is not None or key == "content"
        }

    return [*map(given, turns)]


def is_conversation(values: list[Any]) -> bool:
    """Return whether a list is one conversation, and not a list of records: messages, or turns with a role.

    Args:
        values: of JSON.
    """
    return bool(values) and all(map(is_message, values))


def is_message(value: Any) -> bool:
    """Return whether a value is one message, in the OpenAI form or that of ShareGPT, and not one of a tree."""
    if not isinstance(value, dict) or any(name in value for name in OF_TREES):
        return False
    has_role = "role" in value and not _SAID.isdisjoint(value)
    return has_role or {"from", "value"} <= value.keys()
