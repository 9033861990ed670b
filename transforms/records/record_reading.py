"""Reads a record: by a schema, or by its shape if no schema reads all of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from transforms.base.errors import RecordError
from transforms.model.examples import Content
from transforms.records.hints import hint_of_record
from transforms.records.media import check_no_media
from transforms.records.reading import Reading
from transforms.records.schemas import (
    CHOSEN,
    NO_PAIRS,
    SCHEMA_COLUMNS,
    columns_read,
    content_of,
    detected_schema,
    has_nothing,
)
from transforms.records.shapes import Found, find_shape
from transforms.records.shapes.columns import is_dialog, is_text
from transforms.records.unread import kind_of_name

# Finds the text that is not read: takes the columns that are, the schema, the content, the columns that are known not
# to be read, and what reads the record if that is not the schema. Raises RecordError if it may be what was meant.
FindUnread: TypeAlias = Callable[[Collection[str], str, Content, Collection[str], str], dict[str, int]]

# Why a schema does not read a record, if a shape may read it.
_OF_SCHEMAS = (
    *("unknown_schema", "missing_column", "not_read", "one_message", "bad_message", "bad_content", "bad_text"),
    *("bad_prompt_completion", "bad_alpaca", "bad_question_answer", "bad_preference"),
)


def read_record(
    record: Mapping[str, Any], schema: str, reading: Reading, find_unread: FindUnread
) -> tuple[str, Content, dict[str, int]]:
    """Read a record.

    Args:
        record: its columns, without those that are null.
        schema: one of SCHEMAS. With `auto`, and with `chosen`, a record that the schema does not read may have a
            shape of which a record of a known schema is made.
        reading: the options by which it is read, and where to put notes.
        find_unread: finds what of it is not read.

    Returns:
        What it was read as: the schema or the shape, with the form of its turns if they are not messages; its content;
        and the characters of the columns that have text and were not read.

    Raises:
        RecordError: if it cannot be read as a whole, or it is not certain what it says.
        RecordDropped: if its answer is labelled as bad.
    """
    notes = dict(reading.notes)
    try:
        found, content = content_of(record, schema, reading)
        unread = find_unread(columns_read(found, record), found, content, (), "")
        return _named(found, reading), content, unread
    except RecordError as error:
        if schema not in ("auto", CHOSEN) or error.reason not in _OF_SCHEMAS:
            raise
        for found_before in (reading.notes, reading.forms, reading.tools):
            found_before.clear()
        reading.notes.update(notes)
        try:
            read = _read_by_shape(record, schema, reading, find_unread, error)
        except RecordError as of_shape:
            if of_shape.reason == "not_read" and (hint := hint_of_record(record)):
                raise RecordError("not_read", hint) from None
            raise
        if read is None:
            if error.reason in ("unknown_schema", "missing_column") and (hint := hint_of_record(record)):
                raise RecordError(error.reason, hint) from None
            if error.reason == "unknown_schema" and (hint := _near_miss(record)):
                raise RecordError("unknown_schema", f"{error.detail.rpartition('. ')[0]}. {hint}") from None
            raise
        return read


def _read_by_shape(
    record: Mapping[str, Any], schema: str, reading: Reading, find_unread: FindUnread, error: RecordError
) -> tuple[str, Content, dict[str, int]] | None:
    """Read a record by its shape, None if it has none. error: why the schema does not read it."""
    try:
        found = find_shape(record, SCHEMA_COLUMNS if schema == "auto" else (schema,))
        if found is None or _lost(found, record, schema, error):
            return None
        if found.shape.schema == CHOSEN and schema == "auto":
            raise RecordError("preference_data", NO_PAIRS)
        check_no_media(record)
        _, content = content_of(found.record(), found.shape.schema, reading)
        # Of a question with one answer, another answer is not about it, as it is of a dialog that has an answer.
        is_dialog = found.shape.schema != "messages" or "messages" in found.shape.columns
        like = found.shape.schema if is_dialog else "question_answer"
        unread = find_unread(found.read, like, content, found.left, f"the shape {found.shape.name}")
        return _named(found.shape.name, reading), content, unread
    except RecordError as of_shape:
        if of_shape.reason in ("not_read", "ambiguous") and error.reason != "unknown_schema":
            return None  # the schema says more
        raise


def _near_miss(record: Mapping[str, Any]) -> str:
    """What a record may be that has no shape, and the option that says so; empty if nothing in it looks like that."""
    dialogs = [name for name, value in record.items() if is_dialog(value)]
    if len(dialogs) == 1:
        return f"{dialogs[0]} looks like messages; if it has them, add columns messages={dialogs[0]}"
    texts = [(name, kind_of_name(name)) for name, value in record.items() if is_text(value)]
    found = {kind: [name for name, of_name in texts if of_name == kind] for kind in ("prompt", "answer")}
    if all(len(names) == 1 for names in found.values()):
        columns = f"question={found['prompt'][0]},answer={found['answer'][0]}"
        return f"It looks like a question and its answer; if it is, add columns {columns}"
    return ""


def _lost(found: Found, record: Mapping[str, Any], schema: str, error: RecordError) -> list[str]:
    """The columns that the schema reads, and the shape does not: one may be malformed, which is why it was rejected."""
    of_record = detected_schema(record) if schema == "auto" else schema
    if of_record is None or error.reason == "missing_column":
        return []
    others = (columns_read(of_record, record) & record.keys()) - found.read - found.left
    return [name for name in others if error.reason != "not_read" or not has_nothing(record[name])]


def _named(name: str, reading: Reading) -> str:
    """The name of a schema or a shape, with the forms of its turns."""
    forms = dict.fromkeys(reading.forms)
    return f"{name} ({', '.join(forms)})" if forms else name
