"""What parsing makes of one record, for the tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transforms.base.errors import RecordError
from transforms.model.examples import Example, Record
from transforms.steps.parse import Parser


def example_of(record: dict[str, Any], **options: Any) -> Example:
    """Return the example of a record, which must be the same from a line of JSON and from a row of a table."""
    of_json = Parser(**options).parse(Record(40, json.dumps(record).encode()))
    of_row = Parser(**options).parse(Record(40, record))
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
