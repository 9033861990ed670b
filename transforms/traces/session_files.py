"""Files of sessions: a file is one session, or has several.

A record is an object with the name of the format, `trace`, and the `session`: the JSON of the file, or of a part of it,
as it is. What it says is read when records are parsed, so that a rejected one is stored as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from transforms.files.formats import Chunk, InputFormat, json, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject
from transforms.traces import trace_format


def trace_input(name: str) -> InputFormat:
    """Make the input format of a format of traces. A file has it only if the option says so."""
    return InputFormat(
        suffixes=(), read=functools.partial(_read, name), position_unit="record", errors=(OSError, ValueError)
    )


def _read(
    name: str, file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int
) -> Iterator[Chunk]:
    """Yield the sessions of a file, in chunks. The position of a session is that of its first value, from 0."""
    sessions = _Sessions(name, max_record_bytes)
    for chunk in json.read(file, 0, None, chunk_bytes, max_record_bytes):
        items: list[Record | Reject] = [*chunk.records, *chunk.rejects]
        found = map(sessions.take, sorted(items, key=lambda item: item.position))
        yield _chunk((item for item in found if item is not None), chunk.bytes)
    if (whole_file := sessions.whole_file()) is not None:
        yield _chunk([whole_file], 0)


class _Sessions:
    """Makes the records of sessions. One that is the whole file is known at its end alone."""

    def __init__(self, name: str, max_record_bytes: int):
        self._name = name
        self._format = trace_format(name)
        self._longest = max_record_bytes
        self._is_recognized = False
        self._events: list[Record | Reject] = []
        self._held = 0

    def take(self, item: Record | Reject) -> Record | Reject | None:
        """Take a value; return it, if it is a session or a reject."""
        value = _decoded(item.raw) if isinstance(item, Record) else None
        if not self._is_recognized:
            if not isinstance(value, dict) or not self._format.recognizes(value):
                return self._unknown(item)
            self._is_recognized = True
        if isinstance(value, dict) and self._format.is_session(value):
            return _record(self._name, item.position, _raw(item))
        if isinstance(value, dict) or (self._events and isinstance(item, Record)):
            self._events.append(item)
            self._held += len(_raw(item))
            if self._held > self._longest:
                del self._events[1:]  # it is rejected as too long
            return None
        return item

    def whole_file(self) -> Record | Reject | None:
        """Return the session of which each value is an event; None if there is none."""
        if not self._events:
            return None
        first = self._events[0]
        if self._held > self._longest:
            return too_long(first.position, _raw(first), self._longest)
        return _record(self._name, first.position, b"[" + b",".join(map(_event, self._events)) + b"]")

    def _unknown(self, item: Record | Reject) -> Reject:
        if isinstance(item, Reject):
            return item
        detail = f"the file does not begin as {self._format.title} does (input_format {self._name})"
        return Reject(item.position, "unknown_trace", detail, _raw(item))


def _chunk(items: Iterable[Record | Reject], size: int) -> Chunk:
    found = [*items]
    records = [item for item in found if isinstance(item, Record)]
    return Chunk(records, [item for item in found if isinstance(item, Reject)], size)


def _record(name: str, position: int, session: bytes) -> Record:
    return Record(position, b'{"trace": "' + name.encode() + b'", "session": ' + session + b"}")


def _event(item: Record | Reject) -> bytes:
    """A value of a session; what is not JSON, as a string."""
    raw = _raw(item)
    is_json = isinstance(item, Record) and _decoded(raw) is not None
    return raw if is_json else msgspec.json.encode(raw.decode(errors="replace"))


def _raw(item: Record | Reject) -> bytes:
    raw = item.raw if isinstance(item, Record) else item.record
    assert isinstance(raw, bytes)
    return raw


def _decoded(raw: Any) -> Any:
    """A value; None if it is not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
