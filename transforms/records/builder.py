"""Builds messages of pieces: reasoning, text, calls and their results, in the order in which they were said.

The APIs of Anthropic and Google, OpenAI's Responses, and sessions of agents have an answer as a list of such pieces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from transforms.base.errors import RecordError
from transforms.records.reading import Reading
from transforms.records.tool_calls import function_call
from transforms.records.train_flags import take_weight

# In a message, a template prints reasoning before text, and text before calls.
_ORDER = ("reasoning", "text", "calls")
# The types of parts that have text: of OpenAI's APIs.
_TEXT_TYPES = ("text", "input_text", "output_text", "reasoning_text", "summary_text")
# The keys of such a part that are not kept: those that are read, and what an API says about it.
_READ_KEYS = ("type", "text", "cache_control", "signature")


class TurnBuilder:
    """Collects pieces, and makes messages of them in the OpenAI form.

    Args:
        column: that has the turns, for errors: pieces of an answer in another order reject the record. Without it, as
            of a session, they are put into their order, and that is noted.
        reading: the reading of the record, for the flags of pieces. Without it, they are not read.

    Attributes:
        messages: those that are complete, and the turn of the model that may go on.
        at: the number of the turn or event that is read.
        read: the numbers of those of which something was read.
        tools: definitions of tools; None if there are none.
        is_reordered: whether a piece was put before others that the model wrote before it.
    """

    def __init__(self, column: str | None = None, reading: Reading | None = None):
        self.messages: list[dict[str, Any]] = []
        self.at = 0
        self.read: set[int] = set()
        self.tools: list[Any] | None = None
        self.is_reordered = False
        self._column = column
        self._reading = reading
        self._turn: Any = None  # what distinguishes the turn of the model that is open; None if none is
        self._stage = 0  # of its last piece, in _ORDER

    @property
    def where(self) -> str:
        """The turn that is read, for errors."""
        return f"{self._column}[{self.at}]"

    def say(self, message: dict[str, Any]) -> None:
        """Add a message that is complete: of another role, or a whole one of the assistant."""
        self.end()
        self.read.add(self.at)
        self.messages.append(message)

    def begin(self, turn: Any = None, **keys: Any) -> dict[str, Any]:
        """Begin a turn of the model, unless it is the one that is open, and return its message.

        Args:
            turn: what distinguishes it from a turn that follows it with no message between; None is the open one.
            keys: those that its message begins with.
        """
        self.read.add(self.at)
        if self._turn is None or turn not in (None, self._turn):
            self._turn, self._stage = True if turn is None else turn, 0
            self.messages.append({"role": "assistant", "content": "", **keys})
        return self.messages[-1]

    def end(self) -> None:
        """End the turn of the model."""
        self._turn = None

    def flags(self, piece: Mapping[str, Any]) -> dict[str, Any]:
        """What the flags of a piece say: a weight of 0 if it is not trained on. Raises RecordError."""
        weight = take_weight({**piece}, f"a {piece['type']} of {self.where}", self._reading)[1] if self._reading else 1
        return {} if weight == 1 else {"weight": weight}

    def think(self, text: str, **flags: Any) -> None:
        """Add reasoning of the model; with flags, as a part."""
        if not text:
            return
        message = self._with_piece("reasoning")
        if flags:
            message["content"] = [*parts_in(message["content"]), {"type": "reasoning", "text": text, **flags}]
        else:
            message["reasoning_content"] = "\n\n".join(filter(None, (message.get("reasoning_content"), text)))

    def write(self, content: Any) -> None:
        """Add a text of the model, or parts."""
        if parts := parts_in(content):
            message = self._with_piece("text")
            message["content"] = joined([*parts_in(message["content"]), *parts])

    def call(self, id: Any, name: Any, arguments: Any, **flags: Any) -> dict[str, Any]:
        """Add a call of the model: its arguments are an object, or JSON. Returns its message."""
        message = self._with_piece("calls")
        message.setdefault("tool_calls", []).append({**function_call(id, name, arguments), **flags})
        return message

    def answer(self, id: Any, content: Any, **keys: Any) -> bool:
        """Add the result of a call: a text, text parts, or any other value, which becomes JSON. keys: of its message.

        Returns:
            Whether it was added.
        """
        keys = {key: value for key, value in {"tool_call_id": id, **keys}.items() if value is not None}
        self.say({"role": "tool", "content": result_content(content), **keys})
        return True

    def leave(self, name: str, value: Any) -> None:
        """Keep what the model did not write, or not so, such as a summary of its reasoning, as a key of the turn."""
        if value:
            message = self.begin()
            message[name] = [message[name], value] if name in message else value

    def keep(self, **keys: Any) -> None:
        """Add further keys to the message of the turn that is open, if there is one."""
        if self._turn is not None:
            for key, value in keys.items():
                self.messages[-1].setdefault(key, value)

    def _with_piece(self, kind: str) -> dict[str, Any]:
        """The message of the model that takes a piece."""
        message, stage = self.begin(), _ORDER.index(kind)
        if stage < self._stage and self._column is not None:
            problem = f"an answer in {self.where} has {kind} after {_ORDER[self._stage]}"
            raise RecordError("bad_content", f"{problem}; expected reasoning, then text, then calls and their results")
        self.is_reordered |= stage < self._stage
        self._stage = max(stage, self._stage)
        return message


def parts_in(content: Any) -> list[Any]:
    """Return a content as a list of parts in the one form, without those that are empty or null."""
    parts: list[Any] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        elif isinstance(part, dict) and part.get("type") in _TEXT_TYPES:
            # A flag may be false, or 0.
            rest = {key: value for key, value in part.items() if key not in _READ_KEYS and (value or value == 0)}
            part = {"type": "text", "text": part.get("text"), **rest}
        if part not in (None, {"type": "text", "text": ""}):
            parts.append(part)
    return parts


def joined(parts: list[Any]) -> Any:
    """Return parts as the content of a message: a text if they are one text alone."""
    is_text = len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}
    return parts[0]["text"] if is_text and parts[0]["type"] == "text" else parts or ""


def result_content(content: Any) -> Any:
    """Return the content of a message of a tool: a text, or parts; JSON of what is neither."""
    are_parts = isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, dict) and "type" in part) for part in content
    )
    if are_parts or isinstance(content, (str, type(None))):
        return joined(parts_in(content))
    return json.dumps(content, ensure_ascii=False)
