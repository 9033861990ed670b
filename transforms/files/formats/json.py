"""JSON that is not one record on each line: arrays of records, and objects one after another, in any layout.

The file is a stream of values. msgspec finds where each one ends; the elements of an array and the objects outside of
arrays are records. An array of messages is one record. A parser of the whole file would lose all of it to one malformed
record, and need memory for all of it. The end of a malformed record is found by `end_of_malformed`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from typing import BinaryIO, TypeAlias

import msgspec

from transforms.files.formats import KEPT_BYTES, SNIFFED_BYTES, Chunk, InputFormat, in_chunks, too_long
from transforms.files.json_values import KEY, has_records_by_id, next_after_value, with_id
from transforms.files.malformed import end_of_malformed
from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.records.json_text import NOT_JSON
from transforms.records.turns import is_message

_CHUNK = 1 << 20
_LOOKED_AT = 10

_NOT_BLANK = re.compile(rb"\S")
_CONTAINER = re.compile(rb"[\[{]")
_SIGN = re.compile(rb'["\[\]{},]')
_IN_STRING = re.compile(rb'["\\]')
# The bytes of a value, or what is wrong with the last one and its bytes.
_Value: TypeAlias = bytes | tuple[str, bytes]


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the records that begin at bytes start <= position < stop, in chunks.

    A record's position is its number in the file, from 0. The file is read from its start.
    """
    values = enumerate(_Reader(file, max_record_bytes).values())
    own = takewhile(lambda found: stop is None or found[1][0] < stop, values)
    items = (_item(number, found, max_record_bytes) for number, (begin, found) in own if begin >= start)
    yield from in_chunks(items, chunk_bytes)


def _item(number: int, found: _Value, max_record_bytes: int) -> tuple[Record | Reject, int]:
    if not isinstance(found, bytes):
        content = found[1][: max(max_record_bytes, KEPT_BYTES)]
        return Reject(number, "cut_short", found[0], content), len(content)
    if len(found) > max_record_bytes:
        return too_long(number, found, max_record_bytes), len(found)
    return Record(number, found), len(found)


class _Reader:
    """Yields the values of a stream, and for an array its elements, each after the byte at which it begins.

    If the file ends inside a value, the last one that is yielded is a description of it and its bytes.
    """

    def __init__(self, file: BinaryIO, max_record_bytes: int):
        self._file = file
        self._longest = max_record_bytes
        start = file.read(SNIFFED_BYTES)
        self._is_by_id = has_records_by_id(start)
        self._buffer = start.removeprefix(BOM_UTF8)
        self._offset = len(start) - len(self._buffer)  # position in the file of the buffer's first byte
        self._at = 0  # what precedes this index of the buffer has been yielded

    @property
    def _position(self) -> int:
        return self._offset + self._at

    def values(self) -> Iterator[tuple[int, _Value]]:
        while sign := self._next():
            begin = self._position
            if sign == b"[" and self._is_conversation():
                yield begin, self._value(b"")
            elif sign == b"[":
                yield from self._elements(b"]")
            elif self._is_by_id and sign == b"{":
                self._is_by_id = False
                yield from self._elements(b"}")
            elif sign == b"{":
                yield begin, self._value(b"")
            # A comma between objects says nothing. Other text is not a record: it is rejected, and so not lost.
            elif (text := self._text()) != b",":
                yield begin, text

    def _is_conversation(self) -> bool:
        """Whether the array is one record: a list of messages, as its first element shows."""
        while True:
            element = self._buffer[self._at + 1 :].lstrip()
            if element and not element.startswith(b"{"):
                return False
            end = next_after_value(memoryview(element)) if element else len(element) + 1
            if end is None:
                return False
            if end <= len(element):
                with suppress(*NOT_JSON, UnicodeDecodeError):
                    return is_message(msgspec.json.decode(element[:end].rstrip()))
                return False
            if self._is_too_long() or not self._read_more():
                return False

    def _elements(self, closing: bytes) -> Iterator[tuple[int, _Value]]:
        """The elements of an array; those of an object, if that is what the closing bracket ends, with their ids."""
        begin = self._position
        self._at += 1
        while (sign := self._next()) not in (closing, b""):
            at = self._position
            key = self._key() if closing == b"}" and sign == b'"' else b""
            element = b"" if sign == b"," else self._value(closing)
            yield at, with_id(key, element) if key and isinstance(element, bytes) else element
            if not isinstance(element, bytes):
                return
            if self._next() == b",":
                self._at += 1
        if not sign:
            kind = "array" if closing == b"]" else "object"
            yield self._position, (f"the file ends inside the {kind} that begins at byte {begin:,}", b"")
        self._at += 1

    def _next(self) -> bytes:
        """Go to the next byte that is not white space, and return it; at the end of the file, return nothing."""
        while not (found := _NOT_BLANK.search(self._buffer, self._at)):
            self._at = len(self._buffer)
            if not self._read_more():
                return b""
        self._at = found.start()
        return found[0]

    def _key(self) -> bytes:
        """Go to the value of the next entry of an object, and return its key; nothing if there is no such entry."""
        while not (found := KEY.match(self._buffer, self._at)):
            if self._is_too_long() or not self._read_more():
                return b""
        self._at = found.end()
        return found[1]

    def _value(self, closing: bytes) -> _Value:
        """The next value. closing: the bracket that ends what the value is an element of, if it is one."""
        begin, is_last = self._position, False
        while (end := self._end(closing, is_last)) is None:
            if is_last:
                return f"the file ends inside the record that begins at byte {begin:,}", self._take(len(self._buffer))
            if self._is_too_long():
                start = self._buffer[self._at : self._at + self._longest + 1]
                if self._skip(closing):
                    return start
                return f"the file ends inside the record that begins at byte {begin:,}", start[:KEPT_BYTES]
            is_last = not self._read_more()
        return self._take(end)

    def _skip(self, closing: bytes) -> bool:
        """Go to the end of a value and keep nothing of it; False if the file ends before."""
        depth, in_string, at = 0, False, self._at
        while True:
            while found := (_IN_STRING if in_string else _SIGN).search(self._buffer, at):
                sign, at = found[0], found.end()
                if in_string:
                    at += sign == b"\\"
                    in_string = sign != b'"'
                elif sign == b'"':
                    in_string = True
                elif sign in b"[{":
                    depth += 1
                elif not depth and closing and sign in b"," + closing:
                    self._at = found.start()
                    return True
                elif sign in b"]}":
                    depth -= 1
                    if not depth and not closing:
                        self._at = at
                        return True
            at = max(at - len(self._buffer), 0)  # after an escape that the buffer ends with
            self._at = len(self._buffer)
            if not self._read_more():
                return False

    def _end(self, closing: bytes, is_last: bool) -> int | None:
        """Find where the value ends in the buffer; None if it does not. is_last: whether the file ends there."""
        found = next_after_value(memoryview(self._buffer)[self._at :])
        if found is not None:
            end, size = self._at + found, len(self._buffer)
            if (end < size and (not closing or self._buffer[end] in b"," + closing)) or (
                end == size and (is_last or not closing)
            ):
                return end
            if end >= size and not is_last:
                return None  # without a search in all of it
        return end_of_malformed(self._buffer, self._at, closing)

    def _text(self) -> bytes:
        start = b""  # of a text that is too long
        while not (found := _CONTAINER.search(self._buffer, self._at)):
            if start or self._is_too_long():
                start, self._at = start or self._buffer[self._at : self._at + self._longest + 1], len(self._buffer)
            if not self._read_more():
                break
        text = self._take(found.start() if found else len(self._buffer))
        return start or text

    def _take(self, end: int) -> bytes:
        taken = self._buffer[self._at : end].strip()
        self._at = end
        return taken

    def _is_too_long(self) -> bool:
        return len(self._buffer) - self._at > max(self._longest, _CHUNK)

    def _read_more(self) -> bool:
        """Read as much as is in the buffer, so that a long record is not searched often; False at the file's end."""
        more = self._file.read(max(_CHUNK, len(self._buffer) - self._at))
        self._buffer, self._offset, self._at = self._buffer[self._at :] + more, self._offset + self._at, 0
        return bool(more)


def _recognizes(start: bytes) -> bool:
    """Return whether a file begins with an array, or with an object that is not alone on its line."""
    content = start.removeprefix(BOM_UTF8).strip()
    if content.startswith(b"["):
        return _is_array_of_records(content)
    if has_records_by_id(content):
        return True
    at = records = 0
    while content[at : at + 1] == b"{" and records < _LOOKED_AT:
        found = next_after_value(memoryview(content)[at:])
        if found is None or found > len(content) - at:
            return at == 0 and _spans_lines(content, is_malformed=found is None)
        record, next_record = content[at : at + found].rstrip(), content[at + found : at + found + 1]
        if b"\n" in record:
            return True
        if next_record and b"\n" not in content[at + len(record) : at + found]:
            return next_record in (b"{", b"[", b",")
        at += found
        records += 1
    return False


def _spans_lines(content: bytes, is_malformed: bool) -> bool:
    """Return whether the first object, whose end is not known, goes on after its line."""
    line, _, further = content.partition(b"\n")
    if not is_malformed:
        return bool(further)
    # In JSON lines, the next line is another object, or this one looks complete.
    return line.rstrip().endswith((b"{", b"[", b",")) and not further.lstrip().startswith(b"{")


def _is_array_of_records(content: bytes) -> bool:
    """Return whether an array is one of records; if arrays are on lines, each line is a record, which is rejected."""
    found = next_after_value(memoryview(content))
    if found is None:
        return content[1:].lstrip().startswith((b"{", b"["))
    return b"\n" in content[:found].rstrip() or not content[found:].startswith(b"[")


FORMAT = InputFormat(
    suffixes=(".json",),
    read=read,
    recognizes=_recognizes,
    suffix_is_certain=False,  # many files of JSON lines are named .json
    can_be_shared=True,
    position_unit="record",
    errors=(OSError, ValueError),
)
