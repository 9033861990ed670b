"""A JSON array of records, read as a stream: its elements are found by their brackets and strings alone.

A parser of the whole array would lose all of it to one malformed record, and need memory for all of it. This scanner
only finds where an element ends. An element that is malformed inside costs only itself, unless it opens a bracket or a
string that it does not close: then all that follows becomes one reject.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

from transforms.inputs.formats import InputFormat, Part
from transforms.model.examples import Record

# A whole string; the quote of a string that continues beyond the buffer; or a bracket or comma outside of strings.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_CHUNK = 1 << 20


def read(file: BinaryIO, start: int, stop: int | None, part_bytes: int) -> Iterator[Part]:
    """Yield all elements of the array, in parts. A record's position is the first byte of its element."""
    records: list[Record] = []
    size = 0
    for record in _elements(file):
        records.append(record)
        size += len(record.raw)
        if size >= part_bytes:
            yield Part(records, [])
            records, size = [], 0
    yield Part(records, [])


def _elements(file: BinaryIO) -> Iterator[Record]:
    buffer = file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
    offset = 0 if buffer else len(BOM_UTF8)  # position in the file of the buffer's first byte
    depth = scanned = start = 0
    while True:
        chunk = b""
        for token in _TOKEN.finditer(buffer, scanned):
            kind = token[0]
            if kind == b'"' and not (chunk := file.read(_CHUNK)):
                break
            if kind == b'"':
                scanned = token.start()
                break
            scanned = token.end()
            if kind in (b"[", b"{"):
                depth += 1
                if depth == 1:
                    yield from _element(buffer, start, token.start(), offset, required=False)
                    start = scanned
            elif kind in (b"]", b"}") and depth > 1:
                depth -= 1
            elif depth == 1 and kind in (b",", b"]"):
                yield from _element(buffer, start, token.start(), offset, required=kind == b",")
                start = scanned
                depth -= kind == b"]"
        else:
            scanned = len(buffer)
            chunk = file.read(_CHUNK)
        if not chunk:
            # Text around an array is not a record: as an element it is rejected, and so not lost silently. The same
            # holds for the bracket that is missing if the file is cut short after a whole element.
            yield from _element(buffer, start, len(buffer), offset, required=False)
            if depth == 1 and scanned == len(buffer) and not buffer.rstrip().endswith(b"]"):
                yield Record(offset + len(buffer), b"")
            return
        buffer, offset, scanned, start = buffer[start:] + chunk, offset + start, scanned - start, 0


def _element(buffer: bytes, start: int, stop: int, offset: int, required: bool) -> Iterator[Record]:
    raw = buffer[start:stop]
    element = raw.strip()
    if element or required:
        yield Record(offset + start + len(raw) - len(raw.lstrip()), element)


FORMAT = InputFormat(
    suffixes=(".json",),
    read=read,
    recognizes=lambda start: start.removeprefix(BOM_UTF8).lstrip().startswith(b"["),
    suffix_is_certain=False,  # many files of JSON lines are named .json
)
