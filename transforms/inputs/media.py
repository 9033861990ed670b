"""Columns of images, audio and video: a record that has any cannot be trained on as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError

_MEDIA = ("image", "audio", "video")
MEDIA_COLUMNS = tuple(column for medium in _MEDIA for column in (medium, f"{medium}s"))


def check_no_media(record: Mapping[str, Any]) -> None:
    """Check that no column of a record has an image, audio or video.

    Args:
        record: its columns. `image`, `images` and so on may be null, empty, or a list or object of nothing else.

    Raises:
        RecordError: if one has.
    """
    if record.keys().isdisjoint(MEDIA_COLUMNS):
        return
    medium = next((medium for medium in _MEDIA if _has(record, medium)), None)
    if medium:
        raise RecordError(medium, f"the record has a column of {medium}s that is not empty; only text can be tokenized")


def _has(record: Mapping[str, Any], medium: str) -> bool:
    return any(not _is_empty(record.get(column)) for column in (medium, f"{medium}s"))


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):  # of bytes and path, as datasets has them
        return all(map(_is_empty, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_empty, value))
    return value is None or value is False or (isinstance(value, str) and not value.strip()) or value == b""
