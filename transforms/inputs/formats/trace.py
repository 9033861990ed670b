"""Traces of agents: a file is a session, or has several, in one of the formats of `inputs.traces`.

A record is an object with the name of the format, `trace`, and the `session`: the JSON of the file, or of a part of it,
as it is. What it says is read when records are parsed, so that a rejected one is stored as a whole.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from transforms.inputs.formats import InputFormat, Part, json, too_long
from transforms.inputs.json_values import KEY, next_after_value
from transforms.inputs.traces import WHOLE_FILE, format_of_value, trace_format, trace_titles
from transforms.model.examples import Record
from transforms.model.outcomes import Reject

# Of a file whose values are to be grouped, so much is held in memory for each record that is allowed.
_MOST_HELD = 16
_DEEPEST = 8


def read(file: BinaryIO, start: int, stop: int | None, part_bytes: int, max_record_bytes: int) -> Iterator[Part]:
    """Yield the sessions of a file, in parts. The position of a session is that of its first value, from 0.

    Raises:
        ValueError: if there are more values than memory may hold, of sessions whose values are anywhere in the file.
    """
    sessions = _Sessions(max_record_bytes)
    for part in json.read(file, 0, None, part_bytes, max_record_bytes):
        items: list[Record | Reject] = [*part.records, *part.rejects]
        found = map(sessions.take, sorted(items, key=lambda item: item.position))
        yield _part((item for item in found if item is not None), part.bytes)
    for item in sessions.grouped():
        yield _part([item], 0)


class _Sessions:
    """Makes the records of sessions. Those of several values are known at the end of the file alone."""

    def __init__(self, max_record_bytes: int):
        self._longest = max_record_bytes
        self._name: str | None = None
        self._groups: dict[str, list[Record | Reject]] = {}
        self._held = 0

    def take(self, item: Record | Reject) -> Record | Reject | None:
        """Take a value; return it, if it is a session or a reject."""
        value = _decoded(item.raw) if isinstance(item, Record) else None
        if self._name is None and isinstance(value, dict):
            self._name = format_of_value(value)
        if self._name is None:
            return _unknown(item)
        if isinstance(value, dict):
            key = trace_format(self._name).session_of(value)
            if key is None:
                return _record(self._name, item.position, _raw(item))
        elif WHOLE_FILE in self._groups and (isinstance(item, Record) or item.reason == "cut_short"):
            key = WHOLE_FILE
        else:
            return item
        self._hold(key, item)
        return None

    def _hold(self, key: str, item: Record | Reject) -> None:
        group = self._groups.setdefault(key, [])
        group.append(item)
        self._held += len(_raw(item))
        if self._held > self._longest * (_MOST_HELD if len(self._groups) > 1 else 1):
            if len(self._groups) > 1:
                raise ValueError(
                    f"its sessions are anywhere in more than {self._held:,} bytes; sort them into several files, or "
                    "raise max_record_bytes"
                )
            del group[1:]  # it is rejected as too long

    def grouped(self) -> Iterator[Record | Reject]:
        """Yield the sessions of several values, in the order in which they begin."""
        is_alone = len(self._groups) == 1
        for group in self._groups.values():
            size = self._held if is_alone else sum(len(_raw(item)) for item in group)
            first = group[0]
            if size > self._longest:
                yield too_long(first.position, _raw(first), self._longest)
                continue
            assert self._name
            session = b"[" + b",".join(map(_event, group)) + b"]"
            yield _record(self._name, first.position, session)


def _part(items: Iterable[Record | Reject], size: int) -> Part:
    found = [*items]
    records = [item for item in found if isinstance(item, Record)]
    return Part(records, [item for item in found if isinstance(item, Reject)], size)


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


def _unknown(item: Record | Reject) -> Reject:
    if isinstance(item, Reject):
        return item
    detail = f"it begins no trace that is known; expected one of {', '.join(trace_titles())}"
    return Reject(item.position, "unknown_trace", detail, _raw(item))


def _decoded(raw: Any) -> Any:
    """A value; None if it is not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _recognizes(start: bytes) -> bool:
    content = start.removeprefix(BOM_UTF8).lstrip()
    return format_of_value(_beginning(content.removeprefix(b"[").lstrip())) is not None


def _beginning(content: bytes, depth: int = 0) -> Any:
    """Decode a value that may not end in the content: without what follows the end; None if that is all."""
    found = next_after_value(memoryview(content))
    if found is not None and found <= len(content):
        return _decoded(content[:found])
    if found is None or depth == _DEEPEST:
        return None
    if content.startswith(b'"'):
        return content[1:].decode(errors="replace")
    if content.startswith(b"["):
        return [_beginning(content[1:].lstrip(), depth + 1)]
    object_, at = dict[str, Any](), 1
    while content.startswith(b"{") and (key := KEY.match(content, at)):
        at = key.end()
        value = content[at:]
        object_[_decoded(key[1])] = _beginning(value, depth + 1)
        end = next_after_value(memoryview(value))
        if end is None or end >= len(value):
            break
        at += end + 1
    return object_


FORMAT = InputFormat(
    suffixes=(".traj",),
    read=read,
    recognizes=_recognizes,
    is_specific=True,
    suffix_is_certain=False,  # other tools have files of this name, too
    position_unit="record",
    errors=(OSError, ValueError),
)
