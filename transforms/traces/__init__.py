"""Traces of agents: logs of sessions, in which each event is read as part of a conversation, or counted by its kind.

Each format is a module here, with a `FORMAT`, a TraceFormat.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from transforms.base.errors import RecordDropped, RecordError
from transforms.model.counts import TraceEvents
from transforms.traces.conversation import BRANCH, MAIN, TraceConversation

TRACES = ("atif", "claude_code", "codex")

# What becomes of the conversations of a trace that are not its main ones.
TRACE_BRANCHES = ("examples", "main", "reject")


@dataclass
class Trace:
    """What was read of a session.

    kinds: of each event, in the order of the session. conversations: the main one first, then others; compacted
    sessions have several main ones. session_id: of the session, if it has one.
    """

    kinds: list[str] = field(default_factory=list)
    conversations: list[TraceConversation] = field(default_factory=list)
    session_id: str | None = None

    def event(self, kind: str) -> int:
        """Take note of the next event, and return its number."""
        self.kinds.append(kind)
        return len(self.kinds) - 1


class TraceFormat(NamedTuple):
    """What the project knows of a format of traces.

    title: what people call its sessions. recognizes: whether the first value of a file (a line, an element of its
    array, or all of it) shows this format. read: reads a session: the value that it is, or all values of the file.
    is_session: whether a value of the file is a session; otherwise it is an event of the one that the file is.
    """

    title: str
    recognizes: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Any], Trace]
    is_session: Callable[[Mapping[str, Any]], bool]


class ReadTrace(NamedTuple):
    """The records of a session.

    name: of its format. records: one for each conversation, with messages in the OpenAI form. events: how many of each
    kind were read, and not read; `NAME/KIND`. unread: the characters of what was not read of other events, by name.
    notes: as of records.reading.Reading. columns: what may be kept of it as columns.
    """

    name: str
    records: list[dict[str, Any]]
    events: Mapping[str, TraceEvents]
    unread: Mapping[str, int]
    notes: Mapping[str, str | None]
    columns: Mapping[str, Any]


def trace_format(name: str) -> TraceFormat:
    """Import the format of a name."""
    return importlib.import_module(f"{__name__}.{name}").FORMAT


def is_trace(record: Mapping[str, Any]) -> bool:
    """Return whether a record is the session of a trace, as session_files makes it."""
    return record.keys() == {"trace", "session"} and record["trace"] in TRACES


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
    name, session = record["trace"], record["session"]
    # Of a log that was cut short, the last event is not JSON. What follows on further lines would be lost with it.
    last = session[-1] if isinstance(session, list) and session else None
    is_cut = isinstance(last, str) and "\n" not in last.strip()
    try:
        trace = trace_format(name).read(session[:-1] if is_cut else session)
    except msgspec.ValidationError as error:
        raise RecordError("bad_trace", f"{error}") from None
    if is_cut:
        trace.event("cut short")
    chosen = [each for each in trace.conversations if each.is_answered]
    if not chosen:
        raise RecordDropped("no_trained_tokens")  # agents write files for sessions in which nothing was said
    others = Counter(each.kind for each in chosen if each.kind != MAIN)
    if others and branches == "reject":
        found = " and ".join(f"{count} conversations of the kind {kind}" for kind, count in sorted(others.items()))
        raise RecordError("trace_branches", f"the trace has {found}, next to its main one; trace_branches is reject")
    if branches == "main":
        chosen = [each for each in chosen if each.kind == MAIN] or chosen[:1]
    notes: dict[str, str | None] = {}
    for number, each in enumerate(chosen, 1):
        if each.tools is None and any("tool_calls" in message for message in each.messages):
            each.tools = [*tools] if tools else None
            notes |= {} if tools else {"traces_without_tools": None}
        if each.unanswered:
            found = f"conversation {number} has no answer to the call {each.unanswered[0]}"
            notes.setdefault("trace_calls_without_answer", found)
        if each.is_reordered:
            notes.setdefault("trace_parts_reordered", f"conversation {number} has reasoning or text after a later part")
        if each.kind == BRANCH:
            notes["traces_with_branches"] = None
    read = set[int]().union(*(each.read for each in chosen))
    events = Counter((f"{name}/{kind}", number in read) for number, kind in enumerate(trace.kinds))
    left = dict[tuple[int, str], int]()  # several conversations may have an event
    for each in trace.conversations:
        left |= each.left
    unread = Counter[str]()
    for (_, key), count in sorted(left.items(), key=lambda item: item[0][1]):
        unread[f"{name}/{key}"] += count
    return ReadTrace(
        name=name,
        records=[each.record() for each in chosen],
        events={kind: TraceEvents(events[kind, True], events[kind, False]) for kind, _ in sorted(events)},
        unread={key: count for key, count in unread.items() if count},
        notes=notes,
        columns={"trace": name, "session_id": trace.session_id},
    )
