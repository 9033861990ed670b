"""Traces of agents: logs of sessions, in which each event is read as part of a conversation, or counted by its kind.

Each format is a module here, with a `FORMAT`, a TraceFormat.
"""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from transforms.base.errors import RecordDropped, RecordError
from transforms.model.counts import TraceEvents
from transforms.traces.conversation import BRANCH, MAIN, TraceConversation

TRACES = ("atif", "claude_code", "codex")

# What becomes of the conversations of a trace that are not its main ones.
TRACE_BRANCHES = ("examples", "main", "reject")

# The record of a session: the name of its format, and its events or the object that has them.
_COLUMNS = {"trace", "session"}
_CUT_SHORT = "cut short"


@dataclass
class Trace:
    """What was read of a session.

    Attributes:
        kinds: of each event, in the order of the session.
        conversations: the main one first, then others; compacted sessions have several main ones.
        session_id: of the session, if it has one.
    """

    kinds: list[str] = field(default_factory=list)
    conversations: list[TraceConversation] = field(default_factory=list)
    session_id: str | None = None

    def event(self, kind: str) -> int:
        """Take note of the next event, and return its number."""
        self.kinds.append(kind)
        return len(self.kinds) - 1


@dataclass(frozen=True)
class TraceFormat:
    """What the project knows of a format of traces.

    Args:
        title: what people call its sessions.
        recognizes: whether the first value of a file (a line, an element of its array, or all of it) shows this format.
        read: reads a session: the value that it is, or all values of the file.
        is_session: whether a value of the file is a session; otherwise it is an event of the one that the file is.
    """

    title: str
    recognizes: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Any], Trace]
    is_session: Callable[[Mapping[str, Any]], bool]


class ReadTrace(msgspec.Struct, frozen=True):
    """The records of a session.

    Attributes:
        name: of its format.
        records: one for each conversation, with messages in the OpenAI form.
        events: how many of each kind were read, and not read; `NAME/KIND`.
        unread: the characters of what was not read of other events, by name.
        notes: as of records.reading.Reading.
        columns: what may be kept of it as columns.
    """

    name: str
    records: list[dict[str, Any]]
    events: Mapping[str, TraceEvents]
    unread: Mapping[str, int]
    notes: Mapping[str, str | None]
    columns: Mapping[str, Any]


@functools.cache
def trace_format(name: str) -> TraceFormat:
    """Import the format of a name."""
    return importlib.import_module(f"{__name__}.{name}").FORMAT


def is_trace(record: Mapping[str, Any]) -> bool:
    """Return whether a record is the session of a trace."""
    return record.keys() == _COLUMNS and record["trace"] in TRACES


def read_trace(record: Mapping[str, Any], branches: str, tools: Sequence[Any] | None) -> ReadTrace:
    """Read a session.

    Args:
        record: for which is_trace holds.
        branches: one of TRACE_BRANCHES. `examples`: each conversation is a record, and what several have in common is
            trained on in the first of them. `main`: the events of other conversations are not read. `reject`: a
            session that has others is rejected.
        tools: definitions for sessions that have calls and no tools.

    Raises:
        RecordError: if it cannot be understood, or is to be rejected.
        RecordDropped: if the model wrote nothing in it.
    """
    name = record["trace"]
    try:
        trace = _read(trace_format(name), record["session"])
    except msgspec.ValidationError as error:
        raise RecordError("bad_trace", f"{error}") from None
    chosen = [each for each in trace.conversations if each.is_answered]
    if not chosen:
        raise RecordDropped("no_trained_tokens")  # agents write files for sessions in which nothing was said
    others = [each for each in chosen if each.kind != MAIN]
    if others and branches == "reject":
        counts = Counter(each.kind for each in others)
        found = " and ".join(f"{count} conversations of the kind {kind}" for kind, count in sorted(counts.items()))
        raise RecordError("trace_branches", f"the trace has {found}, next to its main one; trace_branches is reject")
    if branches == "main":
        chosen = [each for each in chosen if each.kind == MAIN] or chosen[:1]
    notes: dict[str, str | None] = {}
    for number, each in enumerate(chosen, 1):
        if each.tools is None and any("tool_calls" in message for message in each.messages):
            if tools:
                each.tools = [*tools]
            else:
                notes["traces_without_tools"] = None
        if unanswered := each.unanswered_calls:
            found = f"conversation {number} has no answer to the call {unanswered[0]}"
            notes.setdefault("trace_calls_without_answer", found)
        if each.is_reordered:
            notes.setdefault("trace_parts_reordered", f"conversation {number} has reasoning or text after a later part")
        if each.kind == BRANCH:
            notes["traces_with_branches"] = None
    return ReadTrace(
        name=name,
        records=[each.record() for each in chosen],
        events=_events(name, trace.kinds, set().union(*(each.read for each in chosen))),
        unread=_left(name, trace.conversations),
        notes=notes,
        columns={"trace": name, "session_id": trace.session_id},
    )


def _read(format: TraceFormat, session: Any) -> Trace:
    """Read a session; of a log that was cut short, all but the last event, which is not JSON."""
    if not isinstance(session, list):
        return format.read(session)
    # What follows on further lines would be lost with it.
    is_cut = bool(session) and isinstance(session[-1], str) and "\n" not in session[-1].strip()
    events = session[:-1] if is_cut else session
    if damaged := next((number for number, event in enumerate(events) if not isinstance(event, dict)), None):
        raise RecordError("bad_trace", f"event {damaged} is not a JSON object; expected one in each line")
    trace = format.read(events)
    if is_cut:
        trace.event(_CUT_SHORT)
    return trace


def _events(name: str, kinds: Sequence[str], read: set[int]) -> dict[str, TraceEvents]:
    counts = Counter((kind, number in read) for number, kind in enumerate(kinds))
    return {f"{name}/{kind}": TraceEvents(counts[kind, True], counts[kind, False]) for kind in sorted({*kinds})}


def _left(name: str, conversations: Sequence[TraceConversation]) -> dict[str, int]:
    """The characters of what was left of events, by name. Several conversations may have an event."""
    left = dict[tuple[int, str], int]()
    for each in conversations:
        left |= each.left
    sums = Counter[str]()
    for (_, key), count in left.items():
        sums[f"{name}/{key}"] += count
    return {key: sums[key] for key in sorted(sums) if sums[key]}
