"""Columns of images, audio and video: a record that has any cannot be trained on as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transforms.base.errors import RecordError

MEDIA = ("image", "audio", "video")
_ONLY_TEXT = "only text can be tokenized"
MEDIA_COLUMNS = tuple(column for medium in MEDIA for column in (medium, f"{medium}s"))
_FIELDS = {field: medium for medium in MEDIA for field in (medium, f"{medium}s", f"{medium}_url", f"input_{medium}")}
# Columns that may be metadata, but not of a record whose text has the placeholder of the file.
FILE_COLUMNS = tuple(
    f"{medium}_{kind}" for medium in MEDIA for kind in ("path", "paths", "file", "files", "url", "urls")
)


def check_no_media(record: Mapping[str, Any]) -> None:
    """Check that no column of a record has an image, audio or video.

    Args:
        record: its columns. `image`, `images` and so on may be null, empty, or a list or object of nothing else.

    Raises:
        RecordError: if one has, or if a column names a file of which the text of the record has the placeholder, or has
            the bytes of one, as datasets writes images into tables.
    """
    if not record.keys().isdisjoint(MEDIA_COLUMNS):
        for medium in MEDIA:
            if _has(record, medium):
                raise RecordError(medium, f"the record has a column of {medium}s that is not empty; {_ONLY_TEXT}")
    for column, value in record.items():
        if _is_file(value):
            raise RecordError("image", f"{column} has the bytes of an image, or of another file; {_ONLY_TEXT}")
    if record.keys().isdisjoint(FILE_COLUMNS):
        return
    for column in FILE_COLUMNS:
        for medium in MEDIA:
            if column.startswith(medium) and not _is_empty(record.get(column)) and _mentions(record, f"<{medium}>"):
                raise RecordError(medium, f"{column} names the file of the <{medium}> in the text; {_ONLY_TEXT}")


def check_no_media_fields(item: dict[str, Any], where: str) -> None:
    """Check that no field of a message or of a part has an image, audio or video. Raises RecordError."""
    if _FIELDS.keys().isdisjoint(item):
        return
    found = {_FIELDS.get(key) for key, value in item.items() if value}
    medium = next((medium for medium in MEDIA if medium in found), None)
    if medium:
        raise RecordError(medium, f"{where} has {medium}; {_ONLY_TEXT}")


def _has(record: Mapping[str, Any], medium: str) -> bool:
    return any(not _is_empty(record.get(column)) for column in (medium, f"{medium}s"))


def _is_file(value: Any) -> bool:
    if type(value) is list:
        value = next((each for each in value if each is not None), None)
    return type(value) is dict and type(value.get("bytes")) is bytes


def _mentions(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return text in value
    if isinstance(value, Mapping):
        value = value.values()
    return isinstance(value, Iterable) and not isinstance(value, bytes) and any(_mentions(each, text) for each in value)


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):  # of bytes and path, as datasets has them
        return all(map(_is_empty, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_empty, value))
    return value is None or value is False or (isinstance(value, str) and not value.strip()) or value == b""
