"""Codex: ~/.codex/sessions/**/rollout-*.jsonl. Its `response_item`s are what the model read and wrote.

Its `event_msg`s are what the interface showed, for the most part the same again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.traces import Trace, TraceFormat
from transforms.traces.conversation import BRANCH, TraceConversation, object_in
from transforms.traces.responses_items import add_item, kind_of_item


def read(events: Sequence[Mapping[str, Any]]) -> Trace:
    """Read the events of a session. Raises RecordError."""
    trace = Trace()
    session = _Session(trace)
    for event in events:
        session.read(event)
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

    def read(self, event: Mapping[str, Any]) -> None:
        kind, payload = event.get("type"), event.get("payload")
        if kind is None or payload is None:  # before 2025-09, each line was an item
            if "type" in event:
                add_item(self._trace, self.conversation, self._trace.event(kind_of_item(event)), event)
            else:
                self._trace.event("session_meta")
                self._trace.session_id = self._trace.session_id or event.get("id")
                self._trace.unread["instructions"] += len(event.get("instructions") or "")
            return
        payload = object_in(payload, f"the payload of event {len(self._trace.kinds)}")
        if kind == "response_item":
            number = self._trace.event(f"{kind}/{kind_of_item(payload)}")
            add_item(self._trace, self.conversation, number, payload)
            return
        number = self._trace.event(f"{kind}/{payload['type']}" if isinstance(payload.get("type"), str) else str(kind))
        if kind == "session_meta":
            self._begin(number, payload)
        elif kind == "compacted":
            self._compact(number, payload)
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))

    def _begin(self, number: int, meta: Mapping[str, Any]) -> None:
        self._trace.session_id = self._trace.session_id or meta.get("id")
        instructions = meta.get("base_instructions")
        text = instructions.get("text") if isinstance(instructions, dict) else instructions
        if isinstance(text, str) and text and not self.conversation.messages:
            self._instructions = number, text
            self.conversation.say(number, "system", text)
        if isinstance(meta.get("instructions"), str):  # of the user; they are in a message, too
            self._trace.unread["instructions"] += len(meta["instructions"])

    def _compact(self, number: int, payload: Mapping[str, Any]) -> None:
        """The model goes on with other messages: of the replacement, or the summary alone."""
        self.compacted.append(self.conversation)
        self.conversation = TraceConversation()
        if self._instructions:
            self.conversation.say(self._instructions[0], "system", self._instructions[1])
        for item in payload.get("replacement_history") or [{"role": "user", "content": payload.get("message")}]:
            add_item(self._trace, self.conversation, number, object_in(item, f"an item of event {number}"))
        self.conversation.shared = len(self.conversation.messages)

    def _roll_back(self, turns: Any) -> None:
        """The user takes turns back: what they were is another branch."""
        starts = [i for i, message in enumerate(self.conversation.messages) if message["role"] == "user"]
        if isinstance(turns, int) and 0 < turns <= len(starts):
            kept = self.conversation.branched(starts[-turns])
            kept.shared, self.conversation.shared = self.conversation.shared, starts[-turns]
            self.conversation.kind = BRANCH
            self.rolled_back.append(self.conversation)
            self.conversation = kept


def _recognizes(value: Mapping[str, Any]) -> bool:
    if value.get("type") == "session_meta":
        return "payload" in value
    return {"id", "timestamp", "instructions"} <= value.keys() <= {"id", "timestamp", "instructions", "git"}


FORMAT = TraceFormat("a session of Codex", _recognizes, read, is_session=lambda value: False)
