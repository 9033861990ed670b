"""Codex: ~/.codex/sessions/**/rollout-*.jsonl. Its `response_item`s are what the model read and wrote.

Its `event_msg`s are what the interface showed, for the most part the same again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from transforms.records.turns.responses import add_item
from transforms.traces import Trace, TraceFormat
from transforms.traces.conversation import BRANCH, TraceConversation


class _Event(msgspec.Struct):
    type: str | None = None
    payload: dict[str, Any] | None = None
    id: str | None = None
    instructions: str | None = None


class _Text(msgspec.Struct):
    text: str | None = None


class _Meta(msgspec.Struct):
    id: str | None = None
    base_instructions: str | _Text | None = None
    instructions: str | None = None


class _Compacted(msgspec.Struct):
    message: str | None = None
    replacement_history: list[dict[str, Any]] | None = None


class _RolledBack(msgspec.Struct):
    num_turns: int = 0


def read(events: Sequence[Mapping[str, Any]]) -> Trace:
    """Read the events of a session. Raises msgspec.ValidationError."""
    trace = Trace()
    session = _Session(trace)
    for event, item in zip(msgspec.convert(events, list[_Event]), events, strict=True):
        session.read(event, item)
    trace.conversations = [*session.compacted, session.conversation, *session.rolled_back]
    return trace


class _Session:
    """Reads a session, event by event.

    Attributes:
        conversation: what it came to.
        compacted: what it was before it was compacted, once or several times.
        rolled_back: what the user took back.
    """

    def __init__(self, trace: Trace):
        self.conversation = TraceConversation()
        self.compacted: list[TraceConversation] = []
        self.rolled_back: list[TraceConversation] = []
        self._trace = trace
        self._instructions: tuple[int, str] | None = None

    def read(self, event: _Event, item: Mapping[str, Any]) -> None:
        """Read an event. item: it, as it is in the file: before 2025-09, each line was an item."""
        kind, payload = event.type, event.payload
        if kind is None:
            self._begin(self._trace.event("session_meta"), _Meta(id=event.id, instructions=event.instructions))
        elif payload is None:
            self._add(self._trace.event(_kind_of_item(item)), item)
        elif kind == "response_item":
            self._add(self._trace.event(f"{kind}/{_kind_of_item(payload)}"), payload)
        else:
            detail = payload.get("type")
            number = self._trace.event(f"{kind}/{detail}" if isinstance(detail, str) else kind)
            if kind == "session_meta":
                self._begin(number, msgspec.convert(payload, _Meta))
            elif kind == "compacted":
                self._compact(number, msgspec.convert(payload, _Compacted))
            elif kind == "event_msg" and detail == "thread_rolled_back":
                self._roll_back(msgspec.convert(payload, _RolledBack).num_turns)

    def _add(self, number: int, item: Mapping[str, Any]) -> None:
        self.conversation.at = number
        add_item(self.conversation, item)

    def _begin(self, number: int, meta: _Meta) -> None:
        self._trace.session_id = self._trace.session_id or meta.id
        given = meta.base_instructions
        text = given.text if isinstance(given, _Text) else given
        if text and not self.conversation.messages:
            self._instructions = number, text
            self._add(number, {"role": "system", "content": text})
        self.conversation.at = number
        self.conversation.leave("instructions", meta.instructions)  # of the user; they are in a message, too

    def _compact(self, number: int, compacted: _Compacted) -> None:
        """The model goes on with other messages: of the replacement, or the summary alone."""
        self.compacted.append(self.conversation)
        self.conversation = TraceConversation()
        if self._instructions:
            self._add(self._instructions[0], {"role": "system", "content": self._instructions[1]})
        for item in compacted.replacement_history or [{"role": "user", "content": compacted.message}]:
            self._add(number, item)
        self.conversation.shared = len(self.conversation.messages)

    def _roll_back(self, turns: int) -> None:
        """The user takes turns back: what they were is another branch."""
        starts = [i for i, message in enumerate(self.conversation.messages) if message["role"] == "user"]
        if 0 < turns <= len(starts):
            kept = self.conversation.branched(starts[-turns])
            kept.shared, self.conversation.shared = self.conversation.shared, starts[-turns]
            self.conversation.kind = BRANCH
            self.rolled_back.append(self.conversation)
            self.conversation = kept


def _kind_of_item(item: Mapping[str, Any]) -> str:
    """The kind of an item: its type, and its role if it is a message."""
    kind = str(item.get("type", "message"))
    return f"{kind} ({item.get('role')})" if kind == "message" else kind


def _recognizes(value: Mapping[str, Any]) -> bool:
    if value.get("type") == "session_meta":
        return "payload" in value
    return {"id", "timestamp", "instructions"} <= value.keys() <= {"id", "timestamp", "instructions", "git"}


FORMAT = TraceFormat("a session of Codex", _recognizes, read, is_session=lambda value: False)
