"""One record on its way: as it was read, as an example, as a text.

These are msgspec's structs, which are made six times faster than frozen dataclasses: there are four of each record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from transforms.errors import RecordError
from transforms.model.outcomes import Reject

Span: TypeAlias = tuple[int, int]
Plain: TypeAlias = tuple[tuple[str, ...], list[str]]


class Record(msgspec.Struct, frozen=True):
    """One record as it was read. raw: the bytes of its JSON, or the row of a Parquet or Arrow file as a dict."""

    position: int
    raw: bytes | dict[str, Any]

    def rejected(self, error: RecordError) -> Reject:
        return _rejected(self, error)


class _Messages(msgspec.Struct):
    messages: list[dict[str, Any]]


_decode_messages = msgspec.json.Decoder(_Messages).decode


class Conversation(msgspec.Struct, frozen=True, eq=False):
    """Messages as a chat template takes them.

    said: them, or where they are plain, their roles and texts, and the JSON of the record that has them.
    completion_start: the number of messages that are the prompt, where the record had prompt and completion.
    """

    said: list[dict[str, Any]] | tuple[tuple[str, ...], list[str], bytes]
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    completion_start: int | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Decoded when they are first asked for, which of most conversations nobody does, with their keys in order."""
        if isinstance(self.said, tuple):
            made = _decode_messages(self.said[2]).messages
            msgspec.structs.force_setattr(self, "said", made)  # the one truth from now on, whoever changes it
        return self.said  # type: ignore[return-value]

    @property
    def plain(self) -> Plain | None:
        """The role and the text of each message, where none has, or is, anything else; None else."""
        return self.said[:2] if isinstance(self.said, tuple) else plain(self.said)

    def with_messages(self, messages: list[dict[str, Any]]) -> Conversation:
        return Conversation(messages, self.tools, self.template_kwargs, self.completion_start)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conversation) and self._all() == other._all()

    def _all(self) -> tuple[Any, ...]:
        return self.messages, self.tools, self.template_kwargs, self.completion_start


class PromptCompletion(msgspec.Struct, frozen=True):
    """A prompt and its completion as plain text."""

    prompt: str
    completion: str


class PlainText(msgspec.Struct, frozen=True):
    """A text that is trained on as a whole."""

    text: str


class TokenRow(msgspec.Struct, frozen=True):
    """A row that came tokenized. trained: bool (tokens,)."""

    input_ids: np.ndarray
    trained: np.ndarray


class Example(msgspec.Struct, frozen=True):
    """One record, understood.

    columns: the input columns that are carried along, as strings.
    raw: the record as it was read, to be written down where it is rejected later.
    lacks: the columns that options name and the record does not have.
    """

    position: int
    content: Conversation | PromptCompletion | PlainText | TokenRow
    columns: dict[str, str | None]
    validation: bool
    raw: bytes | dict[str, Any]
    lacks: tuple[str, ...] = ()

    def rejected(self, error: RecordError) -> Reject:
        return _rejected(self, error)


class Text(msgspec.Struct, frozen=True):
    """The text of one example, and the character spans of it that are trained on.

    spans: ascending, disjoint (start, stop). Where special_tokens are added, -1 stands for those in front of the text
        and len(text) for those behind it.
    special_tokens: whether the tokenizer adds its own, and an EOS where it is missing.
    prompt: what the model is given, where a completion is trained on.
    token_ids: int32 (tokens,) where the record came tokenized; then spans count tokens, and text is empty.
    """

    example: Example
    text: str
    spans: list[Span]
    special_tokens: bool = False
    prompt: str | None = None
    token_ids: np.ndarray | None = None


def plain(messages: Sequence[Any]) -> Plain | None:
    """The role and the text of each message, where none has, or is, anything else, as is so of most; None else."""
    roles, texts = [], []
    for message in messages:  # a loop, which is twice as fast here as sets of what is there
        if type(message) is not dict or len(message) != 2:
            return None
        role, text = message.get("role"), message.get("content")
        if type(role) is not str or type(text) is not str:
            return None
        roles.append(role)
        texts.append(text)
    return tuple(roles), texts


def attempt(sources: list[Any], function: Callable[[Any], Any]) -> tuple[list[Any], list[Reject]]:
    """What the function makes of each record or example, and a reject for each that it raises RecordError for."""
    made, rejects = [], []
    for source in sources:
        try:
            made.append(function(source))
        except RecordError as error:
            rejects.append(source.rejected(error))
        except RecursionError as error:
            rejects.append(source.rejected(RecordError("nested_too_deeply", f"{error}")))
    return made, rejects


def _rejected(source: Record | Example, error: RecordError) -> Reject:
    return Reject(source.position, error.reason, error.detail, raw_bytes(source.raw))


def raw_bytes(raw: bytes | dict[str, Any]) -> bytes:
    """The record as bytes: its own, or the JSON of a row that had none."""
    if isinstance(raw, bytes):
        return raw
    # msgspec, which is faster, refuses what a Parquet file may hold (lone surrogates, NaN as a key).
    import json

    return json.dumps(raw, ensure_ascii=True, default=str).encode()
