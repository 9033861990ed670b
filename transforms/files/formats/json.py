"""JSON that is not one record on each line: arrays of records, and objects one after another, in any layout.

The elements of an array and the objects outside of arrays are records. An array of messages is one record. A file on a
disk that is one array is mapped and decoded as a whole, into where its elements are. Others, and an array with NaN, are
a stream of values that the standard library reads; it says at which byte one is malformed.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
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
_NEXT = re.compile(r"[^ \t\n\r\f\v,]|\Z")
_CONTAINER = re.compile(r"[\[{]")
_NEXT_OBJECT = re.compile(r"\n(?=\{)")
_KEY = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
# An object that goes on after its line. In JSON lines, the next one is another object, or this one looks complete.
_PRETTY = re.compile(r"[^\n]*[{\[,:]\s*\n\s*[^{\s]")


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the records that begin at bytes start <= position < stop, in chunks.

    A record's position is its number in the file, from 0. The file is read from its start.

    Raises:
        ValueError: if an array, or an object that has records by their ids, is malformed or cut short; or if a value
            has no end in max_record_bytes, or 64 MiB if they are more.
    """
    first, limit = file.read(SNIFFED_BYTES), max(max_record_bytes, MAX_RECORD_BYTES)
    # Who reads the first records alone does not decode the others.
    elements = _elements(file, first) if start or stop is None else None

    def items() -> Iterator[tuple[Record | Reject, int]]:
        for number, (begin, value) in enumerate(_stream(file, first, limit) if elements is None else elements):
            if stop is not None and begin >= stop:
                return
            if begin >= start:
                is_long, content = len(value) > max_record_bytes, bytes(value)
                yield too_long(number, content, max_record_bytes) if is_long else Record(number, content), len(content)

    yield from in_chunks(items(), chunk_bytes)


def _elements(file: BinaryIO, start: bytes) -> Iterator[tuple[int, Any]] | None:
    """The elements of a file on a disk that is one array, each after the byte at which it begins; None of another.

    start: its first bytes.
    """
    content = map_file(file) if _text(start).lstrip().startswith("[") else None
    if content is None:
        return None
    at = content.find(b"[")
    try:
        elements = _decode_array(memoryview(content)[len(start) - len(_text(start)) :])
        if elements and is_message(msgspec.json.decode(elements[0])):
            return iter([(at, content[at:].rstrip())])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

    def with_positions() -> Iterator[tuple[int, Any]]:
        end = at + 1
        for element in elements:
            begin = _BETWEEN.match(content, end).end()  # type: ignore[union-attr]
            yield begin, element
            end = begin + len(element)

    return with_positions()


class _More(Exception):
    """What is to be read begins in the text and does not end there."""


def _stream(file: BinaryIO, start: bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the values of a file, and for an array its elements, each after the byte at which it begins.

    file: after its first bytes, the start. limit: how many bytes of it are in memory to find the end of a value.
    """
    text, closing, is_last = _text(start), "", False
    offset, at = len(start) - len(text), 0  # of the text in the file, and of what is next in the text
    is_by_id = _has_records_by_id(text.strip())
    while True:
        at = _NEXT.search(text, at).start()  # type: ignore[union-attr]
        try:
            if at == len(text):
                if is_last:
                    break
                raise _More
            if text[at] == closing:
                at, closing = at + 1, ""
            elif not closing and text[at] == "[" and not _is_conversation(text, at, is_last):
                at, closing = at + 1, "]"
            elif not closing and text[at] == "{" and is_by_id:
                at, closing, is_by_id = at + 1, "}", False
            else:
                value, end = _value(text, at, closing, is_last)
                yield offset + at, value
                at = end
        except _More:
            if len(text) - at > limit:
                raise ValueError(f"what begins at byte {offset + at:,} does not end in {limit:,} bytes") from None
            piece = file.read(max(_AT_ONCE, len(text) - at)).decode(_LATIN_1)
            text, offset, at, is_last = text[at:] + piece, offset + at, 0, not piece
        except json.JSONDecodeError as error:
            raise ValueError(f"{error.msg}, at byte {offset + error.pos:,}") from None
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
        next_one = (_NEXT_OBJECT if text[at] in "[{" else _CONTAINER).search(text, at)
        if not next_one and not is_last:
            raise _More from None
        end = next_one.start() if next_one else len(text)
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
    try:
        return is_message(_scanned(text, _NEXT.search(text, at + 1).start(), is_last)[0])  # type: ignore[union-attr]
    except json.JSONDecodeError:
        return False


def _text(start: bytes) -> str:
    return start.removeprefix(BOM_UTF8).decode(_LATIN_1)


def _recognizes(start: bytes) -> bool:
    """Return whether a file begins with an array, or with an object that is not alone on its line."""
    text = _text(start).strip()
    if text.startswith("["):  # if arrays are on lines, each line is a record, which is rejected
        _, end = _first_value(text, 0)
        rest = text[end or 1 :].lstrip()
        return ("\n" in text[:end] or not rest.startswith("[")) if end else rest[:1] in ("{", "[", "")
    if _has_records_by_id(text):
        return True
    at = 0
    for _ in range(_LOOKED_AT):
        if not text.startswith("{", at):
            return False
        _, end = _first_value(text, at)
        if not end:
            return not at and bool(_PRETTY.match(text))
        following = len(text) - len(text[end:].lstrip())
        if "\n" in text[at:end]:
            return True
        if "\n" not in text[end:following]:
            return text.startswith(("{", "[", ","), following)
        at = following
    return False


def _first_value(text: str, at: int) -> tuple[Any, int]:
    """Return a value and where it ends, which is 0 if it does not, or is malformed."""
    try:
        return _scan(text, at)
    except (ValueError, RecursionError):
        return None, 0


def _has_records_by_id(text: str) -> bool:
    """Return whether a file is one object whose values are records: `{"d1": {"messages": [...]}, "d2": ...}`.

    text: its start. All values that end there must look like records, and one must be followed by another.
    """
    at, records, rest = 1, 0, ","
    while text.startswith("{") and rest.startswith(",") and (key := _KEY.match(text, at)):
        value, end = _first_value(text, key.end())
        if not end:
            return records > 0 and text[key.end() :][:1] in ("{", "")
        if not (isinstance(value, dict) and has_messages(value)):
            return False
        rest = text[end:].lstrip()
        at, records = len(text) - len(rest) + 1, records + 1
    return records > 1 and (rest.startswith(",") or rest in ("}", ""))


FORMAT = InputFormat(
    suffixes=(".json",),
    read=read,
    recognizes=_recognizes,
    suffix_is_certain=False,  # many files of JSON lines are named .json
    can_be_shared=True,
    position_unit="record",
)
