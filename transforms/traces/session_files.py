"""Files of sessions: a file is one session, or has several.

A record is an object with the name of the format, `trace`, and the `session`: the JSON of the file, or of a part of it,
as it is. What it says is read when records are parsed, so that a rejected one is stored as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from transforms.files.formats import Chunk, InputFormat, in_chunks, json, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.traces import trace_format


def trace_input(name: str) -> InputFormat:
    """Make the input format of a format of traces. A file has it only if the option says so."""

    def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, longest: int) -> Iterator[Chunk]:
        """Yield the sessions of a file, in chunks. The position of a session is that of its first value, from 0."""
        return in_chunks(_sessions(name, json.read(file, 0, None, 1, longest), longest), chunk_bytes)

    return InputFormat(suffixes=(), read=read, position_unit="record")


def _sessions(name: str, chunks: Iterator[Chunk], longest: int) -> Iterator[tuple[Record | Reject, int]]:
    """Yield sessions and rejects, each with its size. A session that is the whole file is known at its end alone.

    chunks: of one value each.
    """
    format, is_recognized = trace_format(name), False
    events: list[bytes] = []
    position, size = 0, 0  # of the first event, of all of them
    for chunk in chunks:
        yield from ((reject, chunk.bytes) for reject in chunk.rejects)
        for record in chunk.records:
            raw: Any = record.raw
            value = _decoded(raw)
            is_recognized = is_recognized or (isinstance(value, dict) and format.recognizes(value))
            if not is_recognized:
                detail = f"the file does not begin as {format.title} does (input_format {name})"
                yield Reject(record.position, "unknown_trace", detail, raw), len(raw)
            elif isinstance(value, dict) and format.is_session(value):
                yield _record(name, record.position, raw), len(raw)
            elif isinstance(value, dict) or events:
                position = position if events else record.position
                events.append(raw if value is not None else msgspec.json.encode(raw.decode(errors="replace")))
                size += len(raw)
                if size > longest:
                    del events[1:]  # it is rejected as too long
            else:
                yield record, len(raw)
    if size > longest:
        yield too_long(position, events[0], longest), size
    elif events:
        yield _record(name, position, b"[" + b",".join(events) + b"]"), size


def _record(name: str, position: int, session: bytes) -> Record:
    return Record(position, b'{"trace": "%b", "session": %b}' % (name.encode(), session))


def _decoded(raw: bytes) -> Any:
    """A value; None if it is not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
