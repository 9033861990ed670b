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
from transforms.storage.compression import skip_to


def read(file: BinaryIO, start: int, stop: int | None, part_bytes: int) -> Iterator[Part]:
    """Yield the lines that begin at bytes start <= position < stop, in parts; without a stop, all from start on."""
    position = start
    if start:
        skip_to(file, start - 1)
        position += len(file.readline()) - 1
    if stop is not None:  # parts of the same size
        part_bytes = -(-(stop - start) // max(1, -(-(stop - start) // part_bytes)))
    while stop is None or position < stop:
        content = file.read(part_bytes if stop is None else min(part_bytes, stop - position))
        if not content:
            return
        if not content.endswith(b"\n"):
            content += file.readline()
        yield Part(_lines(content, position), [], len(content))
        position += len(content)


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
    can_be_shared=True,
    suffix_is_certain=False,  # pretty-printed objects have such names too
)
