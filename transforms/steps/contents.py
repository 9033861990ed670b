"""A content as checks see it: its turns, their texts and calls."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from transforms.model.examples import REASONING_KEYS, Content, Conversation, PlainText


class Call(msgspec.Struct, gc=False):
    """A call: the number of its message, from 1; its id, the name of the tool, and the arguments."""

    number: int
    id: Any
    name: str
    arguments: Any

    def __str__(self) -> str:
        return f"message {self.number} calls {self.name}"


class Turn(msgspec.Struct, gc=False):
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
        roles, texts: of its messages.
        joined: the texts, with a null character between two of them.
        calls: of all messages.
        has_reasoning: whether a message has some apart from its text.
    """

    def __init__(self, content: Content):
        self.content = content
        plain = content.plain if type(content) is Conversation else None
        if plain is None:
            turns = self.turns = _read_turns(content)
            self.roles = tuple([turn.role for turn in turns])
            self.texts = [text for turn in turns for text in (turn.text, turn.reasoning) if text]
            self.calls = [call for turn in turns for call in turn.calls]
            self.has_reasoning = any(turn.reasoning for turn in turns)
        else:
            self.roles, self.texts = plain
            self.calls, self.has_reasoning = [], False
        self.joined = "\0".join(self.texts)

    @functools.cached_property
    def turns(self) -> list[Turn]:
        plain = enumerate(zip(self.roles, self.texts, strict=True), 1)
        return [Turn(number, role, text) for number, (role, text) in plain]

    @property
    def answers(self) -> list[tuple[int, str]]:
        """The texts of the assistant, each with the number of its message."""
        answers = [turn for turn in self.turns if turn.role == "assistant"]
        return [(turn.number, text) for turn in answers for text in (turn.text, turn.reasoning) if text]

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


def _read_turns(content: Content) -> list[Turn]:
    if isinstance(content, Conversation):
        return [_read_turn(number, message) for number, message in enumerate(content.messages, 1)]
    if isinstance(content, PlainText):
        return [Turn(1, "assistant", content.text)]
    return [Turn(1, "user", content.prompt), Turn(2, "assistant", content.completion)]  # type: ignore[union-attr]


def _read_turn(number: int, message: Mapping[str, Any]) -> Turn:
    role, text = message["role"], message.get("content")
    if type(text) is not str:
        parts = text if isinstance(text, list) else ()
        text = "".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)
    if len(message) == 2 and "content" in message:
        return Turn(number, role, text)
    reasoning, calls = "", []
    if role == "assistant":
        reasoning = next(filter(None, [message.get(key) for key in REASONING_KEYS]), "")
        functions = [(call.get("id"), call["function"]) for call in message.get("tool_calls") or ()]
        calls = [Call(number, id, function["name"], function["arguments"]) for id, function in functions]
    return Turn(number, role, text, reasoning, calls, message.get("tool_call_id"))


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
