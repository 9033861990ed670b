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
from transforms.records.builder import TurnBuilder, joined, parts_in, result_content

TRACES = ("atif", "claude_code", "codex")

# What becomes of the conversations of a trace that are not its main ones.
TRACE_BRANCHES = ("examples", "main", "reject")
# What a conversation is in its trace: what the session came to, what was edited or tried again, what a subagent did.
MAIN, BRANCH, SUBAGENT = "main", "branch", "subagent"


class TraceConversation(TurnBuilder):
    """Messages in the OpenAI form, and the events that they were read from: calls and answers are paired by id.

    Args:
        kind: MAIN, BRANCH or SUBAGENT.

    Attributes:
        shared: the number of its first messages that an earlier conversation of the trace has, too.
        left: the characters of what was left of each event, by its number and the name.
    """

    def __init__(self, kind: str = MAIN):
        super().__init__()
        self.kind = kind
        self.shared = 0
        self.left: Counter[tuple[int, str]] = Counter()
        self._open_calls: dict[str, dict[str, Any]] = {}  # the messages of calls without an answer, by their ids
        self._repeated: list[str] = []  # the ids of calls whose answer can no longer come: a later call has the same id

    def say_text(self, role: str, content: Any) -> None:
        """Add a message that the model did not write: its content is a text, or parts."""
        self.say({"role": role, "content": joined(parts_in(content))})

    def call(self, id: Any, name: Any, arguments: Any, **flags: Any) -> dict[str, Any]:
        message = super().call(id, name, arguments, **flags)
        if isinstance(id, str) and id:
            self._repeated += [id] * (id in self._open_calls)
            self._open_calls[id] = message
        return message

    def answer(self, id: Any, content: Any, **keys: Any) -> bool:
        """Add the answer to a call, after the answers to the other calls of its turn. keys: they are left.

        Returns:
            False if there is no such call, or it has an answer: then nothing is added. Models repeat ids; the last
            call with an id is meant.
        """
        for key, value in keys.items():
            self.leave(key, value)
        caller = self._open_calls.pop(id, None) if isinstance(id, str) else None
        if caller is None:
            return False
        self.read.add(self.at)
        at = next(i for i in range(len(self.messages), 0, -1) if self.messages[i - 1] is caller)
        while at < len(self.messages) and self.messages[at]["role"] == "tool":
            at += 1
        self.messages.insert(at, {"role": "tool", "tool_call_id": id, "content": result_content(content)})
        if at == len(self.messages) - 1:
            self.end()
        return True

    def leave(self, name: str, value: Any) -> None:
        """Count what the model did not write, or not so, such as a summary of its reasoning."""
        if characters := _count_characters(value):
            self.left[self.at, name] += characters

    @property
    def is_answered(self) -> bool:
        """Whether the model wrote something that no earlier conversation has."""
        return any(m["role"] == "assistant" and m.get("weight") != 0 for m in self.messages[self.shared :])

    @property
    def unanswered(self) -> list[str]:
        """The ids of the calls that have no answer, such as the last ones of a session that was cut."""
        return [*self._repeated, *self._open_calls]

    def record(self) -> dict[str, Any]:
        """Return the record of this conversation. What an earlier one has is not trained on again."""
        messages = [
            {**m, "weight": 0} if i < self.shared and m["role"] == "assistant" else m
            for i, m in enumerate(self.messages)
        ]
        return {"messages": messages} | ({"tools": self.tools} if self.tools else {})


def _count_characters(value: Any) -> int:
    """Count the characters of the texts in a value, but for its types."""
    if isinstance(value, dict):
        value = [item for key, item in value.items() if key != "type"]
    return (
        sum(map(_count_characters, value)) if isinstance(value, list) else len(value) if isinstance(value, str) else 0
    )


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
        kinds = " and ".join(f"{count} conversations of the kind {kind}" for kind, count in sorted(others.items()))
        raise RecordError("trace_branches", f"the trace has {kinds}, next to its main one; trace_branches is reject")
    if branches == "main":
        chosen = [each for each in chosen if each.kind == MAIN] or chosen[:1]
    notes: dict[str, str | None] = {}
    for number, each in enumerate(chosen, 1):
        if each.tools is None and any("tool_calls" in message for message in each.messages):
            each.tools = [*tools] if tools else None
            notes |= {} if tools else {"traces_without_tools": None}
        if each.unanswered:
            note = f"conversation {number} has no answer to the call {each.unanswered[0]}"
            notes.setdefault("trace_calls_without_answer", note)
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
        unread=unread,
        notes=notes,
        columns={"trace": name, "session_id": trace.session_id},
    )
