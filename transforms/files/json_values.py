"""Where a JSON value ends in a text, and whether a file is one object that has records by their ids."""

from __future__ import annotations

import re
from codecs import BOM_UTF8

import msgspec

from transforms.records.reader import has_messages

# The key of an entry, and what is between it and the value.
KEY = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)

_decode = msgspec.json.Decoder(msgspec.Raw).decode
_FOLLOWED = re.compile(r"trailing characters \(byte (\d+)\)")


class _Identified(msgspec.Struct):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_id = msgspec.json.Decoder(_Identified).decode


def next_after_value(content: memoryview) -> int | None:
    """Find what follows a valid value and white space.

    Args:
        content: that begins with the value.

    Returns:
        The index, the length if nothing follows, more if the value does not end in the content; None if the value is
        malformed.
    """
    try:
        _decode(content)
        return len(content)
    except (msgspec.DecodeError, RecursionError) as error:
        if followed := _FOLLOWED.search(str(error)):
            return int(followed[1]) - 1
        return len(content) + 1 if str(error) == "Input data was truncated" else None


def has_records_by_id(start: bytes) -> bool:
    """Return whether a file is one object whose values are records: `{"d1": {"messages": [...]}, "d2": ...}`.

    Args:
        start: the first bytes of the file. All values that end there must look like records, and one must be followed
            by another.
    """
    content = start.removeprefix(BOM_UTF8).strip()
    at, records = 1, 0
    while content.startswith(b"{") and (key := KEY.match(content, at)):
        at = key.end()
        found = next_after_value(memoryview(content)[at:])
        if content[at : at + 1] not in (b"{", b""):
            return False
        if found is None or found > len(content) - at:
            return records > 0
        if not _is_record(content[at : at + found]):
            return False
        at, records = at + found + 1, records + 1
        if content[at - 1 : at] != b",":
            return records > 1 and content[at - 1 :] in (b"}", b"")
    return records > 1


def _is_record(value: bytes) -> bool:
    try:
        return has_messages(msgspec.json.decode(value))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def with_id(key: bytes, record: bytes) -> bytes:
    """Return a record with the key that it has in an object as its `id`, unless it has one or is malformed.

    Args:
        key, record: as JSON.
    """
    try:
        if _decode_id(record).id is not msgspec.UNSET:
            return record
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return record
    rest = record[1:].lstrip()
    return b'{"id": ' + key + (b"" if rest.startswith(b"}") else b", ") + rest
