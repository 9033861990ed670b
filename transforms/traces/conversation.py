"""A conversation of a trace, made event by event: turns of the model are joined, calls and answers are paired by id."""

from __future__ import annotations

from collections import Counter
from typing import Any

from transforms.records.builder import TurnBuilder, joined, parts_in, result_content

# What a conversation is in its trace: what the session came to, what was edited or tried again, what a subagent did.
MAIN, BRANCH, SUBAGENT = "main", "branch", "subagent"


class TraceConversation(TurnBuilder):
    """Messages in the OpenAI form, and the events that they were read from.

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

    def call(self, id: Any, name: Any, arguments: Any) -> dict[str, Any]:
        message = super().call(id, name, arguments)
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
        self.left[self.at, name] += _characters(value)

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


def _characters(value: Any) -> int:
    """The characters of the texts in a value."""
    if isinstance(value, dict):
        value = [item for key, item in value.items() if key != "type"]
    return sum(map(_characters, value)) if isinstance(value, list) else len(value) if isinstance(value, str) else 0
