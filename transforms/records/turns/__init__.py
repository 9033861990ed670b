"""Forms of turns: what people have in place of messages.

A form recognizes a list of turns by the kinds of their keys, never by the name of a dataset, and makes messages in the
OpenAI form of it. All checks of messages come after that, so they hold for each form: roles, contents, calls, media,
weights. What a form does not know of a turn stays in the message under its own name, and is counted there if the
template does not print it. tests/data/samples.jsonl has a record of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from transforms.base.errors import RecordError
from transforms.records.builder import TurnBuilder
from transforms.records.hints import hint_for_turns
from transforms.records.names import TREE_COLUMNS
from transforms.records.reading import Reading
from transforms.records.turns import apis, named, olmo

# The names of the forms, for counts and errors; what recognizes a list of objects, and what adds one to a TurnBuilder.
_Form: TypeAlias = tuple[str, Callable[[list[Any]], bool], Callable[[TurnBuilder, dict[str, Any]], Any]]
FORMS: tuple[_Form, ...] = (
    ("anthropic", apis.are_block_messages, apis.add_message),
    ("exchanges", named.are_exchanges, named.add_exchange),
    ("fields", named.are_fields, named.add_fields),
    ("gemini", apis.are_contents, apis.add_content),
    ("olmo", olmo.recognizes, olmo.add),
    ("responses", apis.are_items, apis.add_item),
)


def has_form(turns: list[Any]) -> bool:
    """Return whether turns have a form other than that of messages."""
    return bool(_find_forms([*map(_without_nulls, turns)]))


def read_turns(turns: list[Any], column: str, reading: Reading) -> list[Any]:
    """Return the messages of turns of any form; turns without a form as they are, as messages in the OpenAI form.

    The reading gets the name of the form, and the tools in them.

    Raises:
        RecordError: if they have two forms, so that it is not certain what they say; if a turn is malformed; or if a
            formatter reads them.
    """
    without_nulls = [*map(_without_nulls, turns)]
    forms = _find_forms(without_nulls)
    if len(forms) > 1:
        names = " and ".join(name for name, _, _ in forms)
        raise RecordError("ambiguous", f"{column} has turns of {names}; expected one form. Give a formatter")
    if not forms:
        if hint := hint_for_turns(without_nulls):
            raise RecordError("bad_message", f"{column}: {hint}")
        return turns
    [(name, _, add)], builder = forms, TurnBuilder(column, reading)
    for builder.at, turn in enumerate(without_nulls):
        add(builder, turn)
    reading.forms += (name,)
    reading.tools += tuple(builder.tools or ())
    return builder.messages


def _find_forms(turns: list[Any]) -> list[_Form]:
    are_objects = bool(turns) and all(isinstance(turn, dict) for turn in turns)
    return [form for form in FORMS if form[1](turns)] if are_objects else []


def _without_nulls(item: Any) -> Any:
    """A turn without its keys, and those of its parts, that are null: Arrow gives each the keys of all.

    A content that is null stays. What calls are given is not looked at.
    """
    if not isinstance(item, dict):
        return item
    turn = {key: value for key, value in item.items() if value is not None or key == "content"}
    for key in ("content", "parts"):
        if isinstance(turn.get(key), list):
            turn[key] = [*map(_without_nulls, turn[key])]
    return turn


def is_conversation(values: list[Any]) -> bool:
    """Return whether a list is one conversation, and not a list of records: messages, or turns with a role."""
    return bool(values) and all(map(is_message, values))


def is_message(value: Any) -> bool:
    """Return whether a value is one message, in the OpenAI form or that of ShareGPT, and not one of a tree."""
    if not isinstance(value, dict) or any(name in value for name in TREE_COLUMNS):
        return False
    has_role = "role" in value and any(name in value for name in ("content", "tool_calls", "parts"))
    return has_role or {"from", "value"} <= value.keys()
