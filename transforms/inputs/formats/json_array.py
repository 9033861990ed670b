"""A JSON array of records, streamed: its elements are found by their brackets and strings alone.

No parser is kept here: one that reads the whole array loses all of it to one bad record, and memory with it. The
scanner only finds where an element ends, so what is malformed inside of one costs that element and nothing else, unless
it opens a bracket or a string that it does not close: then all that follows is one reject.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

from transforms.model.examples import Record

# A whole string; or the quote of one that goes on beyond the buffer; or a bracket or comma outside of strings.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_CHUNK = 1 << 20


def read_stream(file: BinaryIO, part_bytes: int) -> Iterator[list[Record]]:
    """The elements of the array, in parts of about part_bytes. position: the element's first byte in the file."""
    part: list[Record] = []
    size = 0
    for record in _elements(file):
        part.append(record)
        size += len(record.raw)
        if size >= part_bytes:
            yield part
            part, size = [], 0
    yield part


def _elements(file: BinaryIO) -> Iterator[Record]:
    buffer = file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
    offset = 0 if buffer else len(BOM_UTF8)  # of the buffer's first byte in the file
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
            # What stands around an array is no record, and is written down as one that is rejected; so is the bracket
            # that is missing where a file is cut short behind a whole element.
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
