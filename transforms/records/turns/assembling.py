"""Assembles messages of pieces: reasoning, text, calls and their results, in the order in which they were said.

The APIs of Anthropic and Google, and OpenAI's Responses, have an answer as a list of such pieces. In a message,
a template prints reasoning before text, and text before calls, so pieces in another order are rejected.
"""

from __future__ import annotations

import json
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.tool_calls import function_call

_ORDER = ("reasoning", "text", "calls")


class Assembler:
    """Collects pieces, and makes messages of them.

    Args:
        column: that has the turns, for errors.
    """

    def __init__(self, column: str):
        self._column = column
        self._messages: list[dict[str, Any]] = []
        self._answer: dict[str, Any] | None = None  # of the assistant, which takes further pieces
        self._stage = 0  # of its last piece, in _ORDER

    def add_message(self, message: dict[str, Any]) -> None:
        """Add a message as it is: of another role, or the whole message of the assistant."""
        self.end_turn()
        self._messages.append(message)

    def add_text(self, text: str, **keys: Any) -> None:
        """Add a text of the assistant, and further keys of its message."""
        answer = self._at("text")
        parts = answer.setdefault("content", [])
        parts.append({"type": "text", "text": text})
        answer.update(keys)

    def add_reasoning(self, text: str, **about: Any) -> None:
        """Add reasoning of the assistant, and what is said about it, under further keys."""
        answer = self._at("reasoning") if text or self._answer is None else self._answer
        if text:
            answer["reasoning_content"] = "\n\n".join(filter(None, (answer.get("reasoning_content"), text)))
        for key, value in about.items():
            answer[key] = [answer[key], value] if key in answer else value

    def add_call(self, name: Any, arguments: Any, id: Any = None) -> None:
        """Add a tool call of the assistant: its arguments as an object, or as JSON."""
        self._at("calls").setdefault("tool_calls", []).append(function_call(id, name, arguments))

    def add_result(self, content: Any, id: Any = None, name: Any = None) -> None:
        """Add the result of a call: a text, text parts, or any other value, which becomes JSON."""
        self.end_turn()
        if not isinstance(content, (str, list)) or (isinstance(content, list) and not _are_parts(content)):
            content = "" if content is None else json.dumps(content, ensure_ascii=False)
        known = {"tool_call_id": id, "name": name}
        message = {"role": "tool", "content": content}
        self._messages.append(message | {key: value for key, value in known.items() if value is not None})

    def add_keys(self, **keys: Any) -> None:
        """Add further keys to the message of the assistant that was begun, if there is one."""
        if self._answer is not None:
            for key, value in keys.items():
                self._answer.setdefault(key, value)

    def end_turn(self) -> None:
        """End the message of the assistant."""
        if self._answer is not None:
            parts = self._answer.pop("content", [])
            content = parts[0]["text"] if len(parts) == 1 else parts or ""
            self._messages[-1] = {"role": "assistant", "content": content, **self._answer}
        self._answer = None

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages."""
        self.end_turn()
        return self._messages

    def _at(self, kind: str) -> dict[str, Any]:
        """The message of the assistant that takes a piece."""
        stage = _ORDER.index(kind)
        if self._answer is not None and stage < self._stage:
            at = f"{self._column}[{len(self._messages) - 1}]"
            found = f"an answer in {at} has {kind} after {_ORDER[self._stage]}"
            raise RecordError("bad_content", f"{found}; expected reasoning, then text, then calls and their results")
        if self._answer is None:
            self._answer = {"role": "assistant"}
            self._messages.append(self._answer)
        self._stage = stage
        return self._answer


def _are_parts(content: list[Any]) -> bool:
    return all(isinstance(part, dict) and "type" in part for part in content)
