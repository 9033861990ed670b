"""Codex: ~/.codex/sessions/**/rollout-*.jsonl. Its `response_item`s are what the model read and wrote.

Its `event_msg`s are what the interface showed, for the most part the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from transforms.records.turns.apis import add_item
from transforms.traces import BRANCH, Trace, TraceConversation, TraceFormat


class _Event(msgspec.Struct):
    type: str | None = None
    payload: dict[str, Any] | None = None


class _Text(msgspec.Struct):
    text: str | None = None


class _Payload(msgspec.Struct):
    """What is read of the start of a session, of a summary that its messages are replaced by, of a step back."""

    id: str | None = None
    base_instructions: str | _Text | None = None
    instructions: str | None = None
    message: str | None = None
    replacement_history: list[dict[str, Any]] | None = None
    num_turns: int = 0


def read(lines: Sequence[Mapping[str, Any]]) -> Trace:
    """Read the events of a session. Raises msgspec.ValidationError."""
    session = _Session()
    for event, line in zip(msgspec.convert(lines, list[_Event]), lines, strict=True):
        # Before 2025-09, the first line was what is now the payload of an event, and others were items.
        if event.type and event.payload is not None:
            session.read(event.type, event.payload)
        else:
            session.read("" if event.type else "session_meta", line)
    session.trace.conversations += [session.conversation, *session.rolled_back]
    return session.trace


class _Session:
    """Reads a session, event by event.

    Attributes:
        trace: has the conversations that were compacted.
        conversation: the one that goes on.
        rolled_back: what the user took back.
    """

    def __init__(self) -> None:
        self.trace = Trace()
        self.conversation = TraceConversation()
        self.rolled_back: list[TraceConversation] = []
        self._items: list[tuple[int, Mapping[str, Any]]] = []  # of the conversation, each with the number of its event
        self._instructions: list[tuple[int, Mapping[str, Any]]] = []  # one at most

    def read(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Read an event. kind: its type; empty if it is an item alone."""
        is_item = kind in ("", "response_item")
        detail = _name_item_kind(payload) if is_item else payload.get("type")
        number = self.trace.event("/".join(filter(None, (kind, detail if isinstance(detail, str) else ""))))
        if is_item:
            self._add(number, payload)
        elif kind == "session_meta":
            self._begin(number, msgspec.convert(payload, _Payload))
        elif kind == "compacted":
            self._compact(number, msgspec.convert(payload, _Payload))
        elif kind == "event_msg" and detail == "thread_rolled_back":
            self._roll_back(msgspec.convert(payload, _Payload).num_turns)

    def _add(self, number: int, item: Mapping[str, Any]) -> None:
        self._items.append((number, item))
        self.conversation.at = number
        add_item(self.conversation, item)

    def _begin(self, number: int, payload: _Payload) -> None:
        self.trace.session_id = self.trace.session_id or payload.id
        instructions = payload.base_instructions
        text = instructions.text if isinstance(instructions, _Text) else instructions
        if text and not self.conversation.messages:
            self._add(number, {"role": "system", "content": text})
            self._instructions = self._items[-1:]
        self.conversation.at = number
        self.conversation.leave("instructions", payload.instructions)  # of the user; they are in a message, too

    def _go_on_from(self, items: Iterable[tuple[int, Mapping[str, Any]]]) -> TraceConversation:
        """Begin another conversation with items, and return the one before it."""
        before, self.conversation, self._items = self.conversation, TraceConversation(), []
        for number, item in items:
            self._add(number, item)
        return before

    def _compact(self, number: int, payload: _Payload) -> None:
        """The model goes on with other messages: of the replacement, or the summary alone."""
        replacement = payload.replacement_history or [{"role": "user", "content": payload.message}]
        items = [*self._instructions, *((number, item) for item in replacement)]
        self.trace.conversations.append(self._go_on_from(items))
        self.conversation.shared = len(self.conversation.messages)

    def _roll_back(self, turns: int) -> None:
        """The user takes turns back: what they were is another branch."""
        starts = [at for at, (_, item) in enumerate(self._items) if _name_item_kind(item) == "message (user)"]
        if 0 < turns <= len(starts):
            branch = self._go_on_from(self._items[: starts[-turns]])
            self.conversation.shared, branch.shared = branch.shared, len(self.conversation.messages)
            self.conversation.end()
            branch.kind = BRANCH
            self.rolled_back.append(branch)


def _name_item_kind(item: Mapping[str, Any]) -> str:
    """The kind of an item: its type, and its role if it is a message."""
    kind = str(item.get("type", "message"))
    return f"{kind} ({item.get('role')})" if kind == "message" else kind


def _recognizes(value: Mapping[str, Any]) -> bool:
    if value.get("type") == "session_meta":
        return "payload" in value
    return {"id", "timestamp", "instructions"} <= value.keys() <= {"id", "timestamp", "instructions", "git"}


FORMAT = TraceFormat("a session of Codex", _recognizes, read, is_session=lambda value: False)
