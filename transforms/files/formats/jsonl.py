"""JSON lines: one record on each line, found in byte ranges or in a stream.

A line belongs to the range in which its first byte is, so any cut of a file into ranges yields each line once. Only a
newline ends a line; a carriage return before it is white space; lines of white space are not records.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

from transforms.files.formats import Chunk, InputFormat, too_long
from transforms.model.examples import Record
from transforms.storage.compression import skip_to

_SKIPPED_AT_ONCE = 1 << 20


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the lines that begin at bytes start <= position < stop, in chunks; without a stop, all from start on.

    A line of more than max_record_bytes is rejected. It is never in memory as a whole, nor read after the stop.
    """
    position = start
    if start:
        skip_to(file, start - 1)
        position = _seek_next_line(file, start - 1, stop)
    if stop is not None:  # chunks of the same size
        chunk_bytes = -(-(stop - start) // max(1, -(-(stop - start) // chunk_bytes)))
    while stop is None or position < stop:
        content = file.read(chunk_bytes if stop is None else min(chunk_bytes, stop - position))
        if not content:
            return
        if not content.endswith(b"\n"):
            content += file.readline(max_record_bytes)
        yield _chunk(content, position, max_record_bytes)
        position += len(content)
        if not content.endswith(b"\n"):  # its last line is longer, or the last one of the file
            position = _seek_next_line(file, position, stop)


def _seek_next_line(file: BinaryIO, position: int, stop: int | None) -> int:
    """Read up to the next line, or to the stop or the end of the file if they come first. Return the position."""
    while stop is None or position < stop:
        piece = file.readline(_SKIPPED_AT_ONCE)
        position += len(piece)
        if not piece or piece.endswith(b"\n"):
            break
    return position


def _chunk(content: bytes, position: int, max_record_bytes: int) -> Chunk:
    """position: of the content's first byte in the file."""
    records, rejects = [], []
    check = len(content) > max_record_bytes
    for line in content.split(b"\n"):
        if check and len(line) > max_record_bytes:
            rejects.append(too_long(position, line, max_record_bytes))
        elif record := (line if position else line.removeprefix(BOM_UTF8)).strip():
            records.append(Record(position, record))
        position += len(line) + 1
    return Chunk(records, rejects, len(content))


FORMAT = InputFormat(
    suffixes=(".jsonl", ".ndjson"),
    read=read,
    can_be_cut=True,
    can_be_shared=True,
    suffix_is_certain=False,  # pretty-printed objects have such names too
)
