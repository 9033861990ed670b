"""JSON in strings, as the OpenAI API, ShareGPT and tables have it inside a record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from transforms.base.errors import RecordError
from transforms.records.reading import Reading

# What decoding raises for a string that is not valid JSON, is nested too deeply, or is not valid Unicode.
_NOT_JSON = (msgspec.MsgspecError, RecursionError, UnicodeEncodeError)

_WITH_TEXTS = {str, list, dict}
# How Python, and thus pandas, writes a list or a dict in the cell of a table.
_LIKE_REPR = re.compile(r"\s*[\[{][\s\[{(]*('|(True|False|None)\b)")
_REPR = "a string with Python's repr, which is not JSON (write it with json.dumps)"


def is_repr(text: str) -> bool:
    """Return whether a text begins as Python's repr of a list or an object."""
    return bool(_LIKE_REPR.match(text))


def json_type(value: Any) -> str:
    """Name the type of a JSON value in JSON's words, for errors."""
    if isinstance(value, str) and is_repr(value):
        return _REPR
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else type(value).__name__)


def decode_json(text: str, reason: str, where: str, reading: Reading | None = None) -> Any:
    """Decode JSON in a string. Numbers and the order of keys stay as they are; a key that occurs twice is noted.

    Args:
        text: the JSON.
        reason: why the record is rejected if it is not valid.
        where: what has it, for errors.
        reading: the reading of the record.

    Raises:
        RecordError: if it is not valid JSON (NaN is not), or has a number that is out of range.
    """
    try:
        value = msgspec.json.decode(text)
    except _NOT_JSON as error:
        raise _not_json(text, error, reason, where) from None
    if reading and not (type(value) is dict and text.count(":") == len(value)) and (key := duplicate_key(text)):
        reading.notes.setdefault("duplicate_json_keys", f"{where} has {key!r} twice; the last one counts")
    return value


def _not_json(text: str, error: Exception, reason: str, where: str) -> RecordError:
    return RecordError(reason, f"{where} is {_REPR if is_repr(text) else f'a string that is not valid JSON: {error}'}")


def decode_several(text: str, reason: str, where: str, reading: Reading) -> list[Any]:
    """Decode a string of one or several JSON values, one after another, as decode_json does."""
    values, decoder, start = [], json.JSONDecoder(), 0
    while start < len(text):
        try:
            _, stop = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise _not_json(text[start:], error, reason, where) from None
        values.append(decode_json(text[start:stop], reason, where, reading))
        start = len(text) - len(text[stop:].lstrip())
    return values


def duplicate_key(text: str | bytes) -> str | None:
    """Return the first key that an object in valid JSON has twice, None if there is none."""
    with suppress(*_NOT_JSON):  # a number may be out of range in what is not read
        encoded = msgspec.json.encode(msgspec.json.decode(text))
        text = text.encode() if isinstance(text, str) else text
        if text.count(b":") == encoded.count(b":") and b"\\u" not in text:  # a key that is lost has a colon
            return None
    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len({*keys}) < len(keys):
            duplicates.append(next(key for key in keys if keys.count(key) > 1))

    with suppress(RecursionError):  # deeper than Python's decoder goes; it refuses integers of thousands of digits
        json.loads(text, object_pairs_hook=collect, parse_int=str)
    return duplicates[0] if duplicates else None


def decode_beyond_range(raw: bytes, error: Exception) -> tuple[Any, list[str]] | None:
    """Decode JSON with NaN, Infinity or numbers beyond 64 bits, which Python's json writes and reads.

    Returns:
        The value, and the keys of it whose values have one of these; None if this is not why it cannot be decoded.
    """
    if b"NaN" not in raw and b"Infinity" not in raw and "out of range" not in str(error):
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value, [name for name, item in value.items() if not _is_finite(item)] if isinstance(value, dict) else []


def _is_finite(value: Any) -> bool:
    try:
        return bool(json.dumps(value, allow_nan=False))
    except ValueError:
        return False


def strings_in(value: Any, with_names: bool = False) -> Iterator[str]:
    """Give all texts in a value in their order, whatever their names. with_names: whether these are texts, too."""
    left = [value]  # no recursion: a record may be nested more deeply than Python calls functions
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += reversed([*value, *value.values()] if with_names else [*value.values()])
        elif isinstance(value, list) and not _WITH_TEXTS.isdisjoint(map(type, value)):  # not of thousands of numbers
            left += reversed(value)
