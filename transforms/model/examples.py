"""One record on its way through the steps: as it was read, as an example, as a text.

These are msgspec structs, which take a sixth of the time of frozen dataclasses to make: each record makes four. Python
does not look for garbage in them, since none of them is in a cycle.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from transforms.base.errors import InputError, RecordError, StoreError, Unavailable, UserError
from transforms.model.counts import TraceEvents
from transforms.model.outcomes import Drop, Reject

Span: TypeAlias = tuple[int, int]
# The roles of messages, and their texts.
PlainMessages: TypeAlias = tuple[tuple[str, ...], list[str]]
# The roles of messages, the number of parts that each of them has, and the texts of all parts.
MessagesInParts: TypeAlias = tuple[tuple[str, ...], tuple[int, ...], list[str]]

# The roles of messages, their contents, and their calls; None if no message has any.
ComparableMessages: TypeAlias = tuple[Sequence[str], Sequence[Any], Sequence[Any] | None]


# Names of counts, as in Outcomes.note, each with what was found, or None if the name says it.
Notes: TypeAlias = tuple[tuple[str, str | None], ...]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read.

    Attributes:
        position: in its file: the byte offset (JSON lines), or the number of the record, from 0 (other formats).
        raw: the bytes of its JSON, or the row of a table as a dict.
        nulls: an argument of a call that was null in the row, and is not in the dict; empty if there was none.
    """

    position: int
    raw: bytes | dict[str, Any]
    nulls: str = ""

    def rejected(self, error: RecordError) -> Reject:
        """Return the reject of this record for an error."""
        return Reject(self.position, error.reason, error.detail, raw_bytes(self.raw))


# What the job itself gives to a chat template, or `apply_chat_template` takes for itself, so that no template sees it.
# These may not be in template_kwargs.
RESERVED_TEMPLATE_KWARGS = {
    *("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "conversation"),
    *("tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict", "tokenizer_kwargs"),
    *("return_assistant_tokens_mask", "sanitize_control_tokens"),
}

# The keys of a message that hold its reasoning.
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")


class Conversation(msgspec.Struct, eq=False, gc=False):
    """Messages as a chat template takes them.

    Attributes:
        lazy_messages: the messages; or, if they are plain or in parts, their roles, their texts, the messages or
            None, and the number of parts of each, None if they are plain. Use `messages`, `plain`, `in_parts` or
            `texts` to read them.
        tools: tool definitions, as a chat template takes them; None if there are none. Conversations of the same tools
            share them, so they are not to be changed.
        template_kwargs: arguments of the template that the record gives.
        completion_start: the number of messages that are the prompt, if the record has a prompt and a completion.
        made_messages: the messages, once somebody took them, who may change them.
    """

    lazy_messages: (
        list[dict[str, Any]] | tuple[tuple[str, ...], list[str], list[dict[str, Any]] | None, tuple[int, ...] | None]
    )
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    completion_start: int | None = None
    made_messages: list[dict[str, Any]] | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, with their keys in the order of the record, if it has messages in this form."""
        if not isinstance(self.lazy_messages, tuple):
            return self.lazy_messages
        if self.made_messages is None:
            roles, texts, messages, _ = self.lazy_messages
            if messages is None:
                messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
            self.made_messages = messages
        return self.made_messages

    @property
    def plain(self) -> PlainMessages | None:
        """The roles and the texts of the messages, if each has these two alone and both are strings; otherwise None."""
        if not isinstance(self.lazy_messages, tuple) or self.made_messages is not None:  # a caller may change these
            return plain(self.messages)
        return self.lazy_messages[:2] if self.lazy_messages[3] is None else None

    @property
    def in_parts(self) -> MessagesInParts | None:
        """The messages, if each has a role and parts alone, and each part a type and a text in this order."""
        if not isinstance(self.lazy_messages, tuple) or self.made_messages is not None:
            return in_parts(self.messages)
        roles, texts, _, lengths = self.lazy_messages
        return None if lengths is None else (roles, lengths, texts)

    @property
    def texts(self) -> list[str] | None:
        """The texts of the messages, if they are plain or in parts, so that there is no other text in them."""
        if isinstance(self.lazy_messages, tuple) and self.made_messages is None:
            return self.lazy_messages[1]
        messages: Any = self.plain or self.in_parts
        return messages and messages[-1]

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.lazy_messages[0] if isinstance(self.lazy_messages, tuple) else self.lazy_messages)

    def with_messages(self, messages: list[dict[str, Any]]) -> Conversation:
        """Return this conversation with other messages."""
        return Conversation(messages, self.tools, self.template_kwargs, self.completion_start)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conversation) and self._fields() == other._fields()

    def _fields(self) -> tuple[Any, ...]:
        return self.messages, self.tools, self.template_kwargs, self.completion_start


class ParsedArguments(dict[str, Any]):
    """The arguments of a call that a record has as JSON in a string: the text is for templates that print it."""

    def __init__(self, arguments: Mapping[str, Any], text: str):
        super().__init__(arguments)
        self.text = text


class PromptCompletion(msgspec.Struct, frozen=True, gc=False):
    """A prompt and its completion, as plain text."""

    prompt: str
    completion: str


class PlainText(msgspec.Struct, frozen=True, gc=False):
    """A text that is trained on as a whole."""

    text: str


class TokenRow(msgspec.Struct, frozen=True, gc=False):
    """A row of token ids, from a record that is tokenized already.

    Attributes:
        input_ids: int32, shape (tokens,).
        trained: bool, shape (tokens,).
    """

    input_ids: np.ndarray
    trained: np.ndarray


Content: TypeAlias = Conversation | PromptCompletion | PlainText | TokenRow


class Example(msgspec.Struct, frozen=True, gc=False):
    """One parsed record.

    Attributes:
        position: of the record, as in Record.
        content: what is trained on.
        columns: columns of the record that are carried along, as strings.
        validation: whether it belongs to the validation split.
        raw: the record as it was read, which is stored if a later step rejects it.
        notes: what is worth reporting of the record, which the manifest counts.
        number: among the examples of its record, which are consecutive, from 0.
        schema: by which it was read; empty if a step made it.
        unread: the characters of the columns that have text and were not read, by their names.
        trace_events: the events of the trace that it was read from, by kind; if it is the first example of that.
        detail: what was found of its record, for the file of exceptions.
    """

    position: int
    content: Content
    columns: dict[str, str | None]
    validation: bool
    raw: bytes | dict[str, Any]
    notes: Notes = ()
    number: int = 0
    schema: str = ""
    unread: Mapping[str, int] = msgspec.field(default_factory=dict)
    trace_events: Mapping[str, TraceEvents] = msgspec.field(default_factory=dict)
    detail: str | None = None

    def rejected(self, error: RecordError) -> Reject:
        """Return the reject of this example's record for an error."""
        return Reject(self.position, error.reason, error.detail, raw_bytes(self.raw))

    def dropped(self, reason: str) -> Drop:
        """Return the drop of this example's record for a reason."""
        return Drop(self.position, reason, columns=self.columns)


class Text(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The text of one example, and the spans of it that are trained on.

    Attributes:
        example: the example.
        text: what is tokenized; empty if the record is tokenized already.
        spans: (start, stop) in characters, ascending and disjoint. With special_tokens, those before the text have the
            offsets (-1, 0), and those after it (len(text), len(text) + 1). With token_ids, spans count tokens.
        special_tokens: whether the tokenizer adds its own special tokens, and an EOS if there is none.
        prompt: the text that the model is given, if a completion is trained on.
        token_ids: int32, shape (tokens,), if the record is tokenized already.
        parts: the part of a turn that each span is, as its code in `rows.parts`; None if that is not asked for.
        with_stand_ins: the text with stand-ins for its added tokens, see `tokens.plain`, if it holds others that are to
            be plain text; None if there are none.
        signature: the `chat.traced.signatures.Signature` by which it was rendered, which comparing its turns needs too;
            None if there is none.
    """

    example: Example
    text: str
    spans: list[Span]
    special_tokens: bool = False
    prompt: str | None = None
    token_ids: np.ndarray | None = None
    parts: list[int] | None = None
    with_stand_ins: str | None = None
    signature: Any = None

    def __eq__(self, other: object) -> bool:
        """Whether two texts are the same, however they were rendered."""
        fields = [name for name in self.__struct_fields__ if name != "signature"]
        return isinstance(other, Text) and all(getattr(self, name) == getattr(other, name) for name in fields)


def encodable(text: Text) -> Text:
    """Return a text itself. Raises RecordError if it cannot be encoded as UTF-8."""
    if not text.text.isascii():
        try:
            text.text.encode()
        except UnicodeEncodeError as error:
            raise RecordError("invalid_unicode", f"the text cannot be encoded: {error}") from None
    return text


def plain(messages: Sequence[Any]) -> PlainMessages | None:
    """Return the roles and the texts of messages, if each has these two alone and both are strings; otherwise None."""
    roles, texts = [], []
    for message in messages:  # twice as fast as comparing sets of keys
        if type(message) is not dict or len(message) != 2:
            return None
        role, text = message.get("role"), message.get("content")
        if type(role) is not str or type(text) is not str:
            return None
        roles.append(role)
        texts.append(text)
    return tuple(roles), texts


def in_parts(messages: Sequence[Any]) -> MessagesInParts | None:
    """Return messages if each has a role and parts alone, and each part a type and a text in this order."""
    roles, lengths, texts = [], [], []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if len(message) != 2 or type(role) is not str or not are_text_parts(content):
            return None
        for part in content:
            if next(iter(part)) != "type":
                return None
            texts.append(part["text"])
        roles.append(role)
        lengths.append(len(content))
    return tuple(roles), tuple(lengths), texts


def are_text_parts(content: Any) -> bool:
    """Return whether a content is a list of parts that are all text."""
    if type(content) is not list:
        return False
    for part in content:  # three times as fast as all()
        if type(part) is not dict or len(part) != 2 or part.get("type") != "text" or type(part.get("text")) is not str:
            return False
    return True


def comparable_messages(conversation: Conversation) -> ComparableMessages:
    """Return what the messages of a conversation say: what duplicates have in common.

    These differ in the ids of calls, and in whether a content is a text, parts of text, or, if it is empty, null.
    """
    if plain := conversation.plain:
        return *plain, None
    messages = conversation.messages
    calls = [_calls(message) for message in messages]
    contents = [_content(message.get("content")) for message in messages]
    return [message["role"] for message in messages], contents, calls if any(calls) else None


def _content(content: Any) -> Any:
    return "".join(part["text"] for part in content) if are_text_parts(content) else content or ""


def _calls(message: dict[str, Any]) -> list[Any] | None:
    calls = message.get("tool_calls") or None
    return calls and [
        call.get("function", {key: value for key, value in call.items() if key != "id"}) for call in calls
    ]


def comparable_content(content: Content) -> ComparableMessages | str | list[int]:
    """Return what a content says: what its messages say, its text, or its token ids."""
    if isinstance(content, Conversation):
        return comparable_messages(content)
    if isinstance(content, PromptCompletion):
        return content.prompt + content.completion
    return content.text if isinstance(content, PlainText) else content.input_ids.tolist()


def validation_limit(fraction: float) -> int:
    """Return the limit of the hashes of records for validation, which are below it. fraction: of all records."""
    return int(fraction * 2**64)


# Errors that no record causes.
NOT_FROM_A_RECORD = (UserError, InputError, Unavailable, StoreError, MemoryError)


def attempt(items: list[Any], function: Callable[[Any], Any]) -> tuple[list[Any], list[Reject]]:
    """Call a function with each record or example.

    Args:
        items: Records or Examples.
        function: takes one of them.

    Returns:
        What it returns for each, and a reject for each record for which it raises something once or several times. A
        record has several examples if a formatter made them; it is rejected as a whole.

    Raises:
        UserError, InputError, Unavailable, StoreError, MemoryError: if it does: they do not come from the record.
    """
    results: list[Any] = []
    rejects: dict[int, Reject] = {}
    failed: list[int] = []
    for item in items:
        try:
            results.append(function(item))
            continue
        except RecordError as error:
            reject = item.rejected(error)
        except RecursionError as error:
            reject = item.rejected(RecordError("nested_too_deeply", f"{error}"))
        except NOT_FROM_A_RECORD:
            raise
        except Exception as error:  # whatever a record causes, it is that record's
            at = traceback.extract_tb(error.__traceback__)[-1]
            detail = f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"
            reject = item.rejected(RecordError("malformed", detail))
        failed.append(len(results) + len(failed))
        rejects.setdefault(item.position, reject)
    if rejects:
        done = np.delete(np.array([item.position for item in items]), failed)
        results = [result for position, result in zip(done.tolist(), results, strict=True) if position not in rejects]
    return results, [*rejects.values()]


def raw_bytes(raw: bytes | dict[str, Any]) -> bytes:
    """Return a record as bytes: as it was read, or the row of a table as JSON."""
    if isinstance(raw, bytes):
        return raw
    # msgspec is faster, but refuses what a Parquet file may contain (lone surrogates, NaN as a key).
    import json

    return json.dumps(raw, ensure_ascii=True, default=str).encode()
