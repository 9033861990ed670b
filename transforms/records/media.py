"""Columns of images, audio and video: a record that has any cannot be trained on as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.json_text import strings_in

MEDIA = ("image", "audio", "video")
_ONLY_TEXT = "only text can be tokenized"
MEDIA_COLUMNS = {column: medium for medium in MEDIA for column in (medium, f"{medium}s")}
_FIELDS = {field: medium for medium in MEDIA for field in (medium, f"{medium}s", f"{medium}_url", f"input_{medium}")}
# Columns that may be metadata, but not of a record whose text has the placeholder of the file.
FILE_COLUMNS = {
    f"{medium}_{kind}": medium for medium in MEDIA for kind in ("path", "paths", "file", "files", "url", "urls")
}


def check_no_media(record: Mapping[str, Any], named: Mapping[str, str]) -> None:
    """Check that no column of a record has an image, audio or video: it may be empty, or have nothing in its lists.

    Args:
        record: its columns.
        named: those of them that are MEDIA_COLUMNS or FILE_COLUMNS, by these names.

    Raises:
        RecordError: if one has, or if a column names a file of which the text of the record has the placeholder, or has
            the bytes of one, as datasets writes images into tables.
    """
    for name, column in named.items():
        if _is_empty(record[column]):
            continue
        if medium := MEDIA_COLUMNS.get(name):
            raise RecordError(medium, f"the record has a column of {medium}s that is not empty; {_ONLY_TEXT}")
        medium = FILE_COLUMNS[name]
        if any(f"<{medium}>" in text for text in strings_in(record)):
            raise RecordError(medium, f"{column} names the file of the <{medium}> in the text; {_ONLY_TEXT}")
    for column, value in record.items():
        file = next((each for each in value if each is not None), None) if type(value) is list else value
        if type(file) is dict and type(file.get("bytes")) is bytes:
            raise RecordError("image", f"{column} has the bytes of an image, or of another file; {_ONLY_TEXT}")


def check_no_media_fields(item: dict[str, Any], where: str) -> None:
    """Check that no field of a message or of a part has an image, audio or video. Raises RecordError."""
    for field, value in item.items():
        if value and (medium := _FIELDS.get(field)):
            raise RecordError(medium, f"{where} has {medium}; {_ONLY_TEXT}")


def _is_empty(value: Any) -> bool:
    if isinstance(value, (dict, list, tuple)):  # a dict: of bytes and path, as datasets has them
        return all(map(_is_empty, value.values() if isinstance(value, dict) else value))
    return value is None or value is False or (isinstance(value, str) and not value.strip()) or value == b""
