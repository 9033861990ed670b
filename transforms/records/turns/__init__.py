"""Forms of turns: what people have in place of messages. One module for each family of forms.

A form recognizes a list of turns by the kinds of their keys, never by the name of a dataset, and makes messages in the
OpenAI form of it. All checks of messages come after that, so they hold for each form: roles, contents, calls, media,
weights. What a form does not know of a turn stays in the message under its own name, and is counted there if the
template does not print it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from transforms.base.errors import RecordError
from transforms.records.hints import hint_of_turns
from transforms.records.names import OF_TREES
from transforms.records.reading import Reading
from transforms.records.turns import anthropic, gemini, named, olmo, responses

_SAID = {"content", "tool_calls", "parts"}


class TurnForm(NamedTuple):
    """A form of turns; tests/data/samples.jsonl has a record of each.

    Attributes:
        name: of the form, for counts and errors.
        recognizes: whether a list of objects has this form.
        messages: makes messages of them. Takes the turns, the column that has them, for errors, and the reading, which
            gets the tool definitions that are in them. Raises RecordError if a turn is malformed.
    """

    name: str
    recognizes: Callable[[list[Any]], bool]
    messages: Callable[[list[Any], str, Reading], list[Any]]


_FORMS = (
    TurnForm("anthropic", anthropic.recognizes, anthropic.messages),
    TurnForm("exchanges", named.are_exchanges, named.messages_of_exchanges),
    TurnForm("fields", named.are_fields, named.messages_of_fields),
    TurnForm("gemini", gemini.recognizes, gemini.messages),
    TurnForm("olmo", olmo.recognizes, olmo.messages),
    TurnForm("responses", responses.recognizes, responses.messages),
)


def has_form(turns: list[Any]) -> bool:
    """Return whether turns have a form other than that of messages."""
    return next(_forms(without_nulls(turns)), None) is not None


def read_turns(turns: list[Any], column: str, reading: Reading) -> list[Any]:
    """Return the messages of turns of any form; turns without a form as they are, as messages in the OpenAI form.

    Args:
        turns: the turns of a record.
        column: that has them, for errors.
        reading: of the record; it gets the name of the form, and the tools in them.

    Raises:
        RecordError: if they have two forms, so that it is not certain what they say; if a turn is malformed; or if a
            formatter reads them.
    """
    given = without_nulls(turns)
    forms = [*_forms(given)]
    if len(forms) > 1:
        names = " and ".join(form.name for form in forms)
        raise RecordError("ambiguous", f"{column} has turns of {names}; expected one form. Give a formatter")
    if forms:
        reading.forms.append(forms[0].name)
        return forms[0].messages(given, column, reading)
    if hint := hint_of_turns(given):
        raise RecordError("bad_message", f"{column}: {hint}")
    return turns


def _forms(turns: list[Any]) -> Iterator[TurnForm]:
    if turns and all(isinstance(turn, dict) for turn in turns):
        yield from (form for form in _FORMS if form.recognizes(turns))


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
    """Return whether a list is one conversation, and not a list of records: messages, or turns with a role."""
    return bool(values) and all(map(is_message, values))


def is_message(value: Any) -> bool:
    """Return whether a value is one message, in the OpenAI form or that of ShareGPT, and not one of a tree."""
    if not isinstance(value, dict) or any(name in value for name in OF_TREES):
        return False
    has_role = "role" in value and not _SAID.isdisjoint(value)
    return has_role or {"from", "value"} <= value.keys()
