"""JSON lines: one record on each line, found in byte ranges or in a stream.

A line belongs to the range in which its first byte is, so any cut of a file into ranges yields each line once. Only a
newline ends a line; a carriage return before it is white space; lines of white space are not records.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

from transforms.inputs.formats import InputFormat, Part
from transforms.model.examples import Record


def read(file: BinaryIO, start: int, stop: int | None, part_bytes: int) -> Iterator[Part]:
    """Yield the lines that begin at bytes start <= position < stop, as one part; without a stop, in several parts."""
    if stop is not None:
        yield Part(_lines_of_range(file, start, stop), [], stop - start)
        return
    position = 0
    while content := file.read(part_bytes):
        if not content.endswith(b"\n"):
            content += file.readline()
        yield Part(_lines(content, position), [], len(content))
        position += len(content)


def _lines_of_range(file: BinaryIO, start: int, stop: int) -> list[Record]:
    if start == 0:
        position, content = 0, file.read(stop)
    else:
        file.seek(start - 1)
        content = file.read(stop - start + 1)
        line_start = content.find(b"\n") + 1
        if line_start == 0:
            return []
        position, content = start - 1 + line_start, content[line_start:]
    if content and not content.endswith(b"\n"):
        content += file.readline()
    return _lines(content, position)


def _lines(content: bytes, position: int) -> list[Record]:
    """position: of the content's first byte in the file."""
    records = []
    for line in content.split(b"\n"):
        record = (line if position else line.removeprefix(BOM_UTF8)).strip()
        if record:
            records.append(Record(position, record))
        position += len(line) + 1
    return records


FORMAT = InputFormat(
    suffixes=(".jsonl", ".ndjson"),
    read=read,
    can_be_cut=True,
    suffix_is_certain=False,  # pretty-printed objects have such names too
)
