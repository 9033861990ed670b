"""A conversation of a trace, made event by event: turns of the model are joined, calls and answers are paired by id."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from transforms.base.errors import RecordError

# What a conversation is in its trace: what the session came to, what was edited or tried again, what a subagent did.
MAIN, BRANCH, SUBAGENT = "main", "branch", "subagent"
# What parts of contents have besides what they say.
_MARK = "cache_control"


class TraceConversation:
    """Messages in the OpenAI form, and the events that they were read from.

    Args:
        kind: MAIN, BRANCH or SUBAGENT.

    Attributes:
        kind: as given.
        messages: those that are complete, and the turn of the model that may go on.
        events: the numbers of the events that were read.
        shared: the number of its first messages that an earlier conversation of the trace has, too.
        tools: definitions of tools; None if the trace has none.
        is_reordered: whether a turn had reasoning after text or calls, or text after calls, where the form has no
            place for it.
        unanswered: the ids of calls whose answer can no longer come, since a later call has the same id.
    """

    def __init__(self, kind: str = MAIN):
        self.kind = kind
        self.messages: list[dict[str, Any]] = []
        self.events: set[int] = set()
        self.shared = 0
        self.tools: list[Any] | None = None
        self.is_reordered = False
        self._turn: Any = None
        self.unanswered: list[str] = []
        self._open: dict[str, dict[str, Any]] = {}  # the messages of calls without an answer, by the ids of these

    def branched(self, length: int) -> TraceConversation:
        """Return a copy that has the first messages only, as a conversation that goes on differently."""
        other = copy.copy(self)
        other.messages, other.events, other._turn = self.messages[:length], set(self.events), None
        other._open, other.unanswered = {}, [*self.unanswered, *self._open]
        other.shared = length
        return other

    def say(self, event: int, role: str, content: Any) -> None:
        """Add a message that the model did not write.

        Args:
            event: its number.
            role: its role.
            content: a text, or parts.
        """
        self.events.add(event)
        self._turn = None
        self.messages.append({"role": role, "content": joined(content)})

    def write(
        self,
        event: int,
        content: Any = "",
        reasoning: str = "",
        calls: Iterable[dict[str, Any]] = (),
        turn: Any = True,
        trained: bool = True,
    ) -> None:
        """Add to the turn of the model, or begin one.

        Args:
            event: its number.
            content: a text, or parts.
            reasoning: what the model thought before.
            calls: of tools, as `function_call` makes them.
            turn: what distinguishes this turn from the next one, which follows it with no message between.
            trained: whether the model wrote it.
        """
        self.events.add(event)
        parts, calls = parts_of(content), [*calls]
        if self._turn is None or self._turn != turn:
            self._turn = turn
            self.messages.append({"role": "assistant", "content": "", **({} if trained else {"weight": 0})})
        message = self.messages[-1]
        before = parts_of(message["content"])
        self.is_reordered |= bool(
            (reasoning and (before or "tool_calls" in message)) or (parts and "tool_calls" in message)
        )
        if reasoning:
            earlier = message.get("reasoning_content")
            message["reasoning_content"] = f"{earlier}\n\n{reasoning}" if earlier else reasoning
        if parts:
            message["content"] = joined(before + parts)
        for each in calls:
            message.setdefault("tool_calls", []).append(each)
            if id := each.get("id"):
                self.unanswered += [id] * (id in self._open)
                self._open[id] = message

    def answer(self, event: int, call_id: Any, content: Any) -> bool:
        """Add the answer to a call, after the answers to the other calls of its turn.

        Args:
            event: its number.
            call_id: the id of the call.
            content: a text, or parts.

        Returns:
            False if there is no such call, or it has an answer: then nothing is added. Models repeat ids; the last
            call with an id is meant.
        """
        caller = self._open.pop(call_id, None) if isinstance(call_id, str) else None
        if caller is None:
            return False
        self.events.add(event)
        at = next(i for i in range(len(self.messages), 0, -1) if self.messages[i - 1] is caller)
        while at < len(self.messages) and self.messages[at]["role"] == "tool":
            at += 1
        self.messages.insert(at, {"role": "tool", "tool_call_id": call_id, "content": joined(content)})
        if at == len(self.messages) - 1:
            self._turn = None
        return True

    @property
    def is_answered(self) -> bool:
        """Whether the model wrote something that no earlier conversation has."""
        return any(m["role"] == "assistant" and m.get("weight") != 0 for m in self.messages[self.shared :])

    @property
    def unanswered_calls(self) -> list[str]:
        """The ids of the calls that have no answer, such as the last ones of a session that was cut."""
        return [*self.unanswered, *self._open]

    def record(self) -> dict[str, Any]:
        """Return the record of this conversation. What an earlier one has is not trained on again."""
        messages = [
            {**m, "weight": 0} if i < self.shared and m["role"] == "assistant" else m
            for i, m in enumerate(self.messages)
        ]
        return {"messages": messages} | ({"tools": self.tools} if self.tools else {})


def parts_of(content: Any) -> list[Any]:
    """Return a content as a list of parts; none if it is empty."""
    if content is None or content == "":
        return []
    return content if isinstance(content, list) else [content]


def joined(content: Any) -> Any:
    """Return a content as a text if it is one, and otherwise as parts, without the marks of caches."""
    parts = [_part(part) for part in parts_of(content)]
    is_text = all(isinstance(part, dict) and part.keys() == {"type", "text"} for part in parts)
    if len(parts) < 2 and is_text:
        return parts[0]["text"] if parts else ""
    return parts


def _part(part: Any) -> Any:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {key: part[key] for key in part if key != _MARK} if isinstance(part, dict) else part


def object_in(value: Any, where: str) -> dict[str, Any]:
    """Return a value that must be an object. Raises RecordError."""
    if not isinstance(value, dict):
        raise RecordError("bad_trace", f"{where} is {type(value).__name__}; expected an object")
    return value


def list_in(value: Any, where: str) -> list[Any]:
    """Return a value that must be a list. Raises RecordError."""
    if not isinstance(value, list):
        raise RecordError("bad_trace", f"{where} is {type(value).__name__}; expected a list")
    return value
