"""Contents as checks see them: their texts, turns and calls, and which of them are worth a look."""

from __future__ import annotations

import functools
import re
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from transforms.model.examples import REASONING_KEYS, Content, Conversation, PlainText


class Call(NamedTuple):
    """A call: the number of its message, from 1; its id, the name of the tool, and the arguments."""

    number: int
    id: Any
    name: str
    arguments: Any

    def __str__(self) -> str:
        return f"message {self.number} calls {self.name}"


class Turn(NamedTuple):
    """A message: its number, from 1; its role and texts; its calls, and the id of the call that it answers."""

    number: int
    role: str
    text: str
    reasoning: str = ""
    calls: Sequence[Call] = ()
    answered: Any = None


class Seen:
    """A content as checks see it.

    Attributes:
        content: not of token ids.
        is_plain: whether it has messages with a role and a text alone.
        roles, texts: of its messages.
    """

    def __init__(self, content: Content):
        self.content = content
        plain = content.plain if type(content) is Conversation else None
        self.is_plain = plain is not None
        self.roles, self.texts = plain or (
            tuple(turn.role for turn in self.turns),
            [text for turn in self.turns for text in turn[2:4] if text],
        )

    @functools.cached_property
    def turns(self) -> list[Turn]:
        content = self.content
        if self.is_plain:  # whose messages are made only if they are needed
            return [Turn(*each) for each in zip(range(1, len(self.roles) + 1), self.roles, self.texts, strict=True)]
        if isinstance(content, Conversation):
            return [_read_turn(number, message) for number, message in enumerate(content.messages, 1)]
        if isinstance(content, PlainText):
            return [Turn(1, "assistant", content.text)]
        return [Turn(1, "user", content.prompt), Turn(2, "assistant", content.completion)]  # type: ignore[union-attr]

    @property
    def answers(self) -> list[tuple[int, str]]:
        """The texts of the assistant, each with the number of its message."""
        return [(turn.number, text) for turn in self.turns if turn.role == "assistant" for text in turn[2:4] if text]

    @functools.cached_property
    def calls(self) -> list[Call]:
        return [call for turn in self.turns for call in turn.calls]

    @property
    def enable_thinking(self) -> Any:
        """The argument of templates that turns reasoning on or off, if the record has it."""
        return self.content.template_kwargs.get("enable_thinking") if isinstance(self.content, Conversation) else None

    @functools.cached_property
    def tools(self) -> dict[str, Any]:
        """The parameters of the declared tools, by name; those of other types may be named by their type alone."""
        tools = [tool.get("function", tool) for tool in getattr(self.content, "tools", None) or ()]
        return {tool.get("name", tool.get("type")): tool.get("parameters") for tool in tools}

    @functools.cached_property
    def misfits(self) -> list[tuple[bool, str]]:
        """What is wrong with the arguments of calls: whether one is missing, and the words."""
        return [misfit for call in self.calls for misfit in _find_misfits(call, self.tools.get(call.name))]


def _read_turn(number: int, message: Mapping[str, Any]) -> Turn:
    text, calls = message.get("content"), message.get("tool_calls") or ()
    if type(text) is not str:
        parts = text if isinstance(text, list) else ()
        text = "".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)
    if calls:
        functions = [(call.get("id"), call["function"]) for call in calls]
        calls = [Call(number, id, function["name"], function["arguments"]) for id, function in functions]
    reasoning = ""
    if len(message) > 2:
        reasoning = next((each for key in REASONING_KEYS if isinstance(each := message.get(key), str) and each), "")
    return Turn(number, message["role"], text, reasoning, calls, message.get("tool_call_id"))


def _find_misfits(call: Call, schema: Any) -> Iterator[tuple[bool, str]]:
    arguments = call.arguments
    try:
        if isinstance(arguments, str):  # with tool_arguments keep
            arguments = msgspec.json.decode(arguments)
        validator = _make_validator(msgspec.json.encode(schema)) if isinstance(schema, dict) else None
        if validator is not None and not validator.is_valid(arguments):
            for error in validator.iter_errors(arguments):
                place = "".join(f"[{step!r}]" for step in error.instance_path)
                yield error.kind.name == "required", f"{call}: {place or 'arguments'}: {error.message}"
    except msgspec.DecodeError as error:
        yield False, f"{call}: arguments: {error}"
    except (ValueError, TypeError, RecursionError):  # values that JSON does not have, such as dates of Parquet
        return


@functools.lru_cache(1024)
def _make_validator(schema: bytes) -> Any:
    """Compile a JSON schema; None if it is not one, or refers to another document, which nothing downloads."""
    import jsonschema_rs

    def refuse(uri: str) -> Any:
        raise ValueError(uri)

    try:
        return jsonschema_rs.validator_for(schema.decode(), retriever=refuse)
    except ValueError:
        return None


class Contents:
    """Contents, of which checks choose those that they look at: all at once, since most have nothing to find.

    Attributes:
        seen: them; `others` are the numbers of those that are not plain.
        texts: those of all of them, one after the other; `joined` has each after a line break.
        lengths: of the texts, in characters, int64, shape (texts,).
        owners: the number of the content of each text, int64, shape (texts,).
    """

    def __init__(self, contents: Sequence[Content]):
        self.seen = [Seen(content) for content in contents]
        self.others = self.where(lambda seen: not seen.is_plain)
        self.texts = [*chain.from_iterable([seen.texts for seen in self.seen])]
        self.joined = "\n".join(["", *self.texts])
        self.lengths = np.fromiter(map(len, self.texts), np.int64, len(self.texts))
        counts = np.array([len(seen.texts) for seen in self.seen], np.int64)
        self.owners = np.repeat(np.arange(len(counts)), counts)

    @functools.cached_property
    def _starts(self) -> list[int]:
        """Where each text begins in `joined`."""
        return (np.cumsum(self.lengths + 1) - self.lengths).tolist()

    def with_any(self, *parts: str) -> Iterator[int]:
        """Yield the numbers of the contents that have one of some parts in a text, or from the line break before it."""
        # One character is looked up ten times as fast as several, and a rare one may be nowhere.
        for part in (part for part in parts if all(character in self.joined for character in part)):
            at = self.joined.find(part)
            while at >= 0:
                text = self._text_at(at + len(part) - 1)
                yield int(self.owners[text])
                at = self.joined.find(part, max(self._starts[text] + int(self.lengths[text]), at + 1))

    def with_match(self, pattern: re.Pattern[str], begin: str) -> Iterator[int]:
        """Yield the numbers of the contents in which a pattern finds something. begin: what it begins with."""
        matches = pattern.finditer(self.joined) if begin in self.joined else ()
        return (int(self.owners[self._text_at(match.start())]) for match in matches)

    def _text_at(self, position: int) -> int:
        return bisect(self._starts, position) - 1

    def where(self, holds: Callable[[Seen], bool]) -> list[int]:
        """Return the numbers of the contents for which something holds."""
        return [number for number, seen in enumerate(self.seen) if holds(seen)]
