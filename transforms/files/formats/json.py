"""JSON that is not one record on each line: arrays of records, and objects one after another, in any layout.

The elements of an array and the objects outside of arrays are records. An array of messages is one record. A file on a
disk that is one array is mapped and decoded as a whole, into where its elements are. Others, and an array with NaN, are
a stream of values that the standard library reads; it says at which byte one is malformed.
"""

from __future__ import annotations

import json
import mmap
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, BinaryIO

import msgspec

from transforms.files.formats import MAX_RECORD_BYTES, SNIFFED_BYTES, Chunk, InputFormat, in_chunks, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.records.reader import has_messages
from transforms.records.turns import is_message
from transforms.storage.files import map_file

_AT_ONCE = 1 << 16  # an error of json counts the lines before it
_LOOKED_AT = 10
_LATIN_1 = "latin-1"  # in which each character is a byte

_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
# Numbers are not converted; a control character in a string costs its record.
_scan = json.JSONDecoder(strict=False, parse_int=str, parse_float=str).raw_decode
_BETWEEN = re.compile(rb"[\s,]*")
_SIGN = re.compile(r"[^ \t\n\r\f\v,]")
_CONTAINER = re.compile(r"[\[{]")
_NEXT_OBJECT = re.compile(r"\n(?=\{)")
_KEY = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the records that begin at bytes start <= position < stop, in chunks.

    A record's position is its number in the file, from 0. The file is read from its start.

    Raises:
        ValueError: if an array, or an object that has records by their ids, is malformed or cut short; or if a value
            has no end in max_record_bytes, or 64 MiB if they are more.
    """
    first, limit = file.read(SNIFFED_BYTES), max(max_record_bytes, MAX_RECORD_BYTES)
    # Who reads the first records alone does not need the others, which may be in a store.
    elements = _elements(file, first) if start or stop is None else None
    values = enumerate(_stream(file, first, limit) if elements is None else elements)
    own = takewhile(lambda found: stop is None or found[1][0] < stop, values)
    items = (_item(number, bytes(value), max_record_bytes) for number, (begin, value) in own if begin >= start)
    yield from in_chunks(items, chunk_bytes)


def _item(number: int, value: bytes, max_record_bytes: int) -> tuple[Record | Reject, int]:
    if len(value) > max_record_bytes:
        return too_long(number, value, max_record_bytes), len(value)
    return Record(number, value), len(value)


def _elements(file: BinaryIO, start: bytes) -> Iterator[tuple[int, Any]] | None:
    """The elements of a file on a disk that is one array, each after the byte at which it begins; None of another.

    start: its first bytes.
    """
    content = map_file(file) if _text(start).lstrip().startswith("[") else None
    if content is None:
        return None
    try:
        elements = _decode_array(memoryview(content)[len(start) - len(_text(start)) :])
    except (msgspec.DecodeError, RecursionError):
        return None
    begin = content.find(b"[")
    if elements and _is_message(bytes(elements[0])):
        return iter([(begin, content[begin:].rstrip())])
    return _with_positions(content, begin + 1, elements)


def _with_positions(content: mmap.mmap, end: int, elements: Sequence[msgspec.Raw]) -> Iterator[tuple[int, msgspec.Raw]]:
    for element in elements:
        begin = _BETWEEN.match(content, end).end()  # type: ignore[union-attr]
        yield begin, element
        end = begin + len(element)


def _is_message(value: bytes) -> bool:
    try:
        return is_message(msgspec.json.decode(value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class _More(Exception):
    """What is to be read begins in the text and does not end there."""


def _stream(file: BinaryIO, start: bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the values of a file, and for an array its elements, each after the byte at which it begins.

    Args:
        file: after its first bytes.
        start: these.
        limit: how many bytes of it are in memory to find the end of a value.
    """
    is_by_id = _has_records_by_id(_text(start))
    piece, text, closing = _text(start), "", ""
    offset, at = len(start) - len(piece), 0  # of the text in the file, and of what is next in the text
    is_last = False
    while not is_last:
        text, offset, at = text[at:] + piece, offset + at, 0
        is_last = not piece
        try:
            while found := _SIGN.search(text, at):
                at = found.start()
                if found[0] == closing:
                    at, closing = at + 1, ""
                elif not closing and found[0] == "[" and not _is_conversation(text, at, is_last):
                    at, closing = at + 1, "]"
                elif not closing and found[0] == "{" and is_by_id:
                    at, closing, is_by_id = at + 1, "}", False
                else:
                    value, end = _value(text, at, closing, is_last)
                    yield offset + at, value
                    at = end
            at = len(text)
        except _More:
            if len(text) - at > limit:
                raise ValueError(f"what begins at byte {offset + at:,} does not end in {limit:,} bytes") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{error.msg}, at byte {offset + error.pos:,}") from None
        piece = file.read(max(_AT_ONCE, len(text) - at)).decode(_LATIN_1)
    if closing:
        raise ValueError(f"the file ends before the {closing} of its records")


def _value(text: str, at: int, closing: str, is_last: bool) -> tuple[bytes, int]:
    """Return the bytes of a value, and where it ends; outside of arrays, also of one that is malformed."""
    key = _KEY.match(text, at) if closing == "}" else None
    begin = key.end() if key else at
    if closing == "}" and not key:
        raise json.JSONDecodeError("Expecting a key", text, at) if is_last else _More
    try:
        value, end = _scanned(text, begin, is_last)
    except json.JSONDecodeError:
        if closing:
            raise
        # Where the next value may begin. What is before it is not lost: it is a record, which is rejected.
        found = (_NEXT_OBJECT if text[at] in "[{" else _CONTAINER).search(text, at)
        if not found and not is_last:
            raise _More from None
        end = found.start() if found else len(text)
        return text[at:end].strip().encode(_LATIN_1), end
    element = text[begin:end]
    if key and isinstance(value, dict) and "id" not in value:
        element = f'{{"id": {key[1]}{", " if value else ""}{element[1:].lstrip()}'
    return element.encode(_LATIN_1), end


def _scanned(text: str, at: int, is_last: bool) -> tuple[Any, int]:
    try:
        value, end = _scan(text, at)
    except RecursionError:
        raise json.JSONDecodeError("what is nested too deeply begins there", text, at) from None
    except json.JSONDecodeError as error:
        if is_last or (text[error.pos : error.pos + 1] not in ('"', "") and error.pos < len(text) - _LOOKED_AT):
            raise
        raise _More from None
    if end == len(text) and not is_last:  # a number may go on
        raise _More
    return value, end


def _is_conversation(text: str, at: int, is_last: bool) -> bool:
    """Whether an array is one record: a list of messages, as its first element shows."""
    if found := _SIGN.search(text, at + 1):
        try:
            return is_message(_scanned(text, found.start(), is_last)[0])
        except json.JSONDecodeError:
            return False
    if not is_last:
        raise _More
    return False


def _text(start: bytes) -> str:
    return start.removeprefix(BOM_UTF8).decode(_LATIN_1)


def _recognizes(start: bytes) -> bool:
    """Return whether a file begins with an array, or with an object that is not alone on its line."""
    text = _text(start).strip()
    if text.startswith("["):
        return _is_array_of_records(text)
    if _has_records_by_id(text):
        return True
    at = 0
    for _ in range(_LOOKED_AT):
        if text[at : at + 1] != "{":
            return False
        if (end := _end(text, at)) is None:
            return at == 0 and _spans_lines(text)
        if "\n" in text[at:end]:
            return True
        at = len(text) - len(text[end:].lstrip())
        if text[at : at + 1] and "\n" not in text[end:at]:
            return text[at] in "{[,"
    return False


def _end(text: str, at: int) -> int | None:
    """Find where a value ends; None if it does not, or is malformed."""
    try:
        return _scan(text, at)[1]
    except (ValueError, RecursionError):
        return None


def _spans_lines(text: str) -> bool:
    """Return whether the first object, whose end is not known, goes on after its line."""
    line, newline, further = text.partition("\n")
    # In JSON lines, the next line is another object, or this one looks complete.
    return bool(newline) and line.rstrip().endswith(("{", "[", ",", ":")) and not further.lstrip().startswith("{")


def _is_array_of_records(text: str) -> bool:
    """Return whether an array is one of records; if arrays are on lines, each line is a record, which is rejected."""
    if (end := _end(text, 0)) is None:
        return text[1:].lstrip()[:1] in ("{", "[", "")
    return "\n" in text[:end] or not text[end:].lstrip().startswith("[")


def _has_records_by_id(text: str) -> bool:
    """Return whether a file is one object whose values are records: `{"d1": {"messages": [...]}, "d2": ...}`.

    Args:
        text: the start of the file. All values that end there must look like records, and one must be followed by
            another.
    """
    text = text.strip()
    at, records = 1, 0
    while text.startswith("{") and (key := _KEY.match(text, at)):
        at = key.end()
        if text[at : at + 1] not in ("{", ""):
            return False
        if (end := _end(text, at)) is None:
            return records > 0
        if not has_messages(_scan(text, at)[0]):
            return False
        records += 1
        at = len(text) - len(text[end:].lstrip()) + 1
        if text[at - 1 : at] != ",":
            return records > 1 and text[at - 1 :] in ("}", "")
    return records > 1


FORMAT = InputFormat(
    suffixes=(".json",),
    read=read,
    recognizes=_recognizes,
    suffix_is_certain=False,  # many files of JSON lines are named .json
    can_be_shared=True,
    position_unit="record",
    errors=(OSError, ValueError),
)
