"""Input formats: one module each with a `FORMAT`, whose name is the name of the format; and the formats of traces.

No other file lists formats or suffixes. Their names are found without importing the modules, so that a command line
can show them at once.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple

from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.traces import TRACES

_NAMES = sorted([*TRACES, *(module.name for module in pkgutil.iter_modules(__path__))])

# `auto` goes by the file's name, or by its first bytes.
INPUT_FORMATS: tuple[str, ...] = ("auto", *_NAMES)

# The format of a file that no format recognizes and that may be text: a file of lines has no mark.
DEFAULT_FORMAT = "jsonl"

# More than a conversation of a million tokens has.
MAX_RECORD_BYTES = 64 << 20
# What is kept of a longer record: enough to recognize it.
KEPT_BYTES = 1 << 16

# Enough for the first records of most files, little enough for a request to each of thousands.
SNIFFED_BYTES = 1 << 16


class NotRecords(Exception):
    """A file that is intact, and whose rows are not to be read as records: why, and what to do."""


class Chunk(NamedTuple):
    """Some records of a file, in order, and rejects of those that Python cannot represent.

    bytes: about how much of the decompressed input it is.
    """

    records: list[Record]
    rejects: list[Reject]
    bytes: int = 0


@dataclass(frozen=True)
class InputFormat:
    """What the project knows of an input format.

    Args:
        suffixes: of the names of such files, in lower case, without that of a compression.
        read: yields the records that belong to the bytes start <= position < stop of a file, in chunks of about
            chunk_bytes of input. Takes the file, start, stop, chunk_bytes and max_record_bytes: a longer record is
            rejected (`too_long`). The format decides which record belongs to which byte, so that any cut of a file
            yields each record once. If stop is None, all records from start on are yielded. If files cannot be cut, or
            this one is compressed, the file may not be able to seek.
        recognizes: whether the first bytes of a file (SNIFFED_BYTES) show that it has this format; None if none do.
        can_be_cut: whether byte ranges of a file can be read independently.
        can_be_shared: whether several tasks can read a file from its start, each the records of its bytes. Otherwise
            a file that cannot be cut is in one task; `read` gets the start 0 and no stop.
        may_be_compressed: whether a file that is compressed as a whole can be read, as a stream.
        suffix_is_certain: whether a file with one of the suffixes has this format. Otherwise the first bytes decide.
        last_bytes: what every file of the format ends with, if it is not cut short.
        position_unit: what the position of a record counts: bytes, rows or records from the start of the file.
    """

    suffixes: tuple[str, ...]
    read: Callable[[BinaryIO, int, int | None, int, int], Iterator[Chunk]]
    recognizes: Callable[[bytes], bool] | None = None
    can_be_cut: bool = False
    can_be_shared: bool = False
    may_be_compressed: bool = True
    suffix_is_certain: bool = True
    last_bytes: bytes = b""
    position_unit: Literal["byte", "row", "record"] = "byte"


def in_chunks(items: Iterable[tuple[Record | Reject, int]], chunk_bytes: int) -> Iterator[Chunk]:
    """Yield records and rejects, each of which comes with its size, in chunks of about chunk_bytes."""
    chunk, size = Chunk([], []), 0
    for item, item_bytes in items:
        if isinstance(item, Record):
            chunk.records.append(item)
        else:
            chunk.rejects.append(item)
        size += item_bytes
        if size >= chunk_bytes:
            yield chunk._replace(bytes=size)
            chunk, size = Chunk([], []), 0
    yield chunk._replace(bytes=size)


def too_long(position: int, record: bytes, max_record_bytes: int) -> Reject:
    """Reject a record, of which at least the start is given, as longer than max_record_bytes. 64 KiB of it are kept."""
    detail = f"it is longer than {max_record_bytes:,} bytes (max_record_bytes), so only its start is kept"
    return Reject(position, "too_long", detail, record[:KEPT_BYTES])


@functools.cache
def input_format(name: str) -> InputFormat:
    """Import the format of a name, one of INPUT_FORMATS but `auto`."""
    if name in TRACES:
        return importlib.import_module("transforms.traces.session_files").trace_input(name)
    return importlib.import_module(f"{__name__}.{name}").FORMAT


def suffix_format() -> dict[str, str]:
    """Return the name of the format that each suffix belongs to."""
    return {suffix: name for name in _NAMES for suffix in input_format(name).suffixes}


def recognized_format(start: bytes, among: Iterable[str] | None = None) -> str | None:
    """Return which format, among some or all, the first bytes of a file show; None as with JSON lines."""
    for name in among or _NAMES:
        recognizes = input_format(name).recognizes
        if recognizes and recognizes(start):
            return name
    return None
