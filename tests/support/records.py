"""What parsing makes of one record, and records in which a value is another one, for the tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from transforms import Example, RecordError, parse

# What a value of a record is replaced by.
OTHERS = (None, 7, "x", True, [], {}, [{"a": [None, {"type": {}}]}], {"content": [1]})


def example_of(record: dict[str, Any], **options: Any) -> Example:
    """Return the example of a record, which must be the same from a line of JSON and from a row of a table."""
    of_json, of_row = (parse(form, **options)[0] for form in (json.dumps(record).encode(), record))
    assert (of_row.content, of_row.notes) == (of_json.content, of_json.notes)
    return of_json


def messages_of(*messages: dict[str, Any], column: str = "messages", **options: Any) -> list[dict[str, Any]]:
    """Return the messages that parsing makes of messages."""
    return example_of({column: list(messages)}, **options).content.messages  # type: ignore[union-attr]


def notes_of(*messages: dict[str, Any], **options: Any) -> dict[str, str | None]:
    """Return the notes that parsing makes of messages."""
    return dict(example_of({"messages": list(messages)}, **options).notes)


def reject_of(record: dict[str, Any], **options: Any) -> tuple[str, str]:
    """Return the reason and the detail of the reject of a record."""
    with pytest.raises(RecordError) as raised:
        example_of(record, **options)
    return raised.value.reason, raised.value.detail


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from paths_of(each, (*path, key))


def changed(record: Any, path: tuple[Any, ...], *other: Any) -> Any:
    """A record with another value at a path, or without the one there."""
    record = json.loads(json.dumps(record))
    parent = record
    for key in path[:-1]:
        parent = parent[key]
    if other:
        parent[path[-1]] = other[0]
    else:
        del parent[path[-1]]
    return record


def malformed(record: Any) -> Iterator[Any]:
    """Give a record with one value after another missing, and of another type."""
    for number, path in enumerate(paths_of(record)):
        yield changed(record, path)
        # Of all others one in turn: every form has many paths of each kind.
        yield changed(record, path, OTHERS[number % len(OTHERS)])
        yield changed(record, path, OTHERS[(3 * number + 1) % len(OTHERS)])
