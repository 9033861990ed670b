"""The schemas of chat corpora: how a record with certain columns becomes the content of an example.

A schema is one function here, with a decorator that says its name and its columns. `auto` tries the schemas in the
order of this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from transforms.errors import RecordError
from transforms.inputs.messages import NOT_JSON, kind_of, messages_of
from transforms.model.examples import RESERVED_TEMPLATE_KWARGS, Conversation, PlainText, PromptCompletion, TokenRow

Content: TypeAlias = Conversation | PromptCompletion | PlainText | TokenRow

# Makes the content of a record. The second argument is the role that each name stands for.
Reader: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, str]], Content]


class _Schema(NamedTuple):
    required: frozenset[str]
    columns: tuple[str, ...]  # all that it reads
    read: Reader


_SCHEMAS: dict[str, _Schema] = {}

# Columns that any conversation may have.
_OF_CONVERSATIONS = ("tools", "chat_template_kwargs")


def schema(name: str, columns: Sequence[str], optional: Sequence[str] = ()) -> Callable[[Reader], Reader]:
    """Register a function as the reader of a schema.

    Args:
        name: of the schema.
        columns: those that a record must have, and by which `auto` recognizes it.
        optional: further columns that the function reads.

    Returns:
        A decorator. The function takes a record without its null columns, and the role that each name stands for. It
        raises RecordError if the record does not fit.
    """

    def register(read: Reader) -> Reader:
        _SCHEMAS[name] = _Schema(frozenset(columns), (*columns, *optional), read)
        return read

    return register


def content_of(record: Mapping[str, Any], schema: str, roles: Mapping[str, str]) -> Content:
    """Read the content of a record.

    Args:
        record: its columns, without those that are null.
        schema: one of SCHEMAS; `auto` is the first one whose columns the record has.
        roles: the role that each name stands for.

    Raises:
        RecordError: if the record does not fit the schema.
    """
    if schema == "auto":
        schema = next((name for name, known in _SCHEMAS.items() if known.required <= record.keys()), "")
        if not schema:
            raise RecordError(
                "unknown_schema",
                f"the columns are {', '.join(map(str, record)) or 'none'}; expected "
                + "; or ".join(" and ".join(sorted(known.required)) for known in _SCHEMAS.values())
                + ". Name others with columns, such as messages=dialog, or give a formatter",
            )
    required, _, read = _SCHEMAS[schema]
    if missing := sorted(required - record.keys()):
        raise RecordError("missing_column", f"schema {schema} needs {' and '.join(missing)}, which the record lacks")
    return read(record, roles)


def plain_decoder(roles: Mapping[str, str]) -> Callable[[bytes], Conversation]:
    """Make a decoder for records of plain messages, which most are. It takes half the time of content_of.

    Args:
        roles: the role that each name stands for.

    Returns:
        A function that decodes the JSON of a record to the same content as content_of does, or raises ValueError if
        the record has anything else. Numbers in columns that are not read may be out of range.
    """
    names = tuple(name for name, role in roles.items() if name == role)
    message = msgspec.defstruct("Message", [("role", Literal[names]), ("content", str)], forbid_unknown_fields=True)
    messages = Annotated[list[message], msgspec.Meta(min_length=1)]  # type: ignore[valid-type]
    # What makes the content another one: columns of conversations, and those of schemas that `auto` tries before.
    earlier = itertools.takewhile(lambda name: name != "messages", _SCHEMAS)
    others = {*_OF_CONVERSATIONS}.union(*(_SCHEMAS[name].required for name in earlier)) - {"messages"}
    absent = [(column, None, None) for column in sorted(others)]
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(
        msgspec.defstruct("Record", [("messages", messages), *absent])
    ).decode

    def decode_plain(raw: bytes) -> Conversation:
        turns = decode(raw).messages
        if not raw.isascii():
            raw.decode()  # msgspec does not check the columns that it skips
        return Conversation((tuple([turn.role for turn in turns]), [turn.content for turn in turns], raw))

    return decode_plain


_MASKS = ("completion_mask", "assistant_masks", "attention_mask")


@schema("tokenized", ["input_ids"], ["labels", *_MASKS])
def _tokenized(record: Mapping[str, Any], roles: Mapping[str, str]) -> TokenRow:
    ids = _integers(record["input_ids"], "input_ids")
    if not len(ids):
        raise RecordError("empty", "input_ids is empty")
    if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
        raise RecordError(
            "bad_tokens", f"input_ids has {ids[ids < 0][0] if ids.min() < 0 else ids.max()}, which is not a token id"
        )
    trained = np.ones(len(ids), bool)
    if "labels" in record:
        labels = _integers(record["labels"], "labels", len(ids))
        trained = labels != -100
        wrong = np.flatnonzero(trained & (labels != ids))
        if len(wrong):
            at = wrong[0]
            raise RecordError("bad_tokens", f"label {at} is {labels[at]}; expected the token's id {ids[at]}, or -100")
    for name in _MASKS:
        if name in record:
            mask = _integers(record[name], name, len(ids))
            if not np.isin(mask, (0, 1)).all():
                raise RecordError("bad_tokens", f"{name} has other numbers than 0 and 1")
            if name == "attention_mask" and not mask.all():
                raise RecordError("bad_tokens", "attention_mask has 0: the row is padded; expected it without padding")
            trained &= mask.astype(bool)
    return TokenRow(ids.astype(np.int32), trained)


@schema("messages", ["messages"], _OF_CONVERSATIONS)
def _messages(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation:
    return _conversation(messages_of(record["messages"], "messages", roles), record)


@schema("prompt_completion", ["prompt", "completion"], _OF_CONVERSATIONS)
def _prompt_completion(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation | PromptCompletion:
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if not prompt + completion:
            raise RecordError("empty", "prompt and completion are both empty")
        return PromptCompletion(prompt, completion)
    if not isinstance(prompt, list) or not isinstance(completion, list):
        raise RecordError(
            "bad_prompt_completion",
            f"prompt is {kind_of(prompt)}, completion is {kind_of(completion)}; expected strings, or lists of messages",
        )
    if not completion:
        raise RecordError("empty", "completion has no messages")
    prompt_messages = messages_of(prompt, "prompt", roles)
    messages = prompt_messages + messages_of(completion, "completion", roles)
    return _conversation(messages, record, completion_start=len(prompt_messages))


@schema("sharegpt", ["conversations"], ["system", *_OF_CONVERSATIONS])
def _sharegpt(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation:
    turns = record["conversations"]
    if isinstance(turns, list):
        turns = [_renamed(turn) if isinstance(turn, dict) else turn for turn in turns]
    messages = messages_of(turns, "conversations", roles)
    return _conversation(_system(record) + messages, record)


@schema("alpaca", ["instruction", "output"], ["input", "history", "system", *_OF_CONVERSATIONS])
def _alpaca(record: Mapping[str, Any], roles: Mapping[str, str]) -> Conversation:
    """Read as the Alpaca dataset's readers do: the input goes below the instruction; history is earlier turns."""
    for column in ("instruction", "input", "output"):
        if not isinstance(record.get(column, ""), str):
            raise RecordError("bad_alpaca", f"{column} is {kind_of(record[column])}; expected a string")
    history = record.get("history") or []
    if not isinstance(history, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in history
    ):
        raise RecordError("bad_alpaca", "history is not a list of [instruction, output] pairs of strings")
    question = "\n".join(text for text in (record["instruction"], record.get("input", "")) if text)
    pairs = [*history, [question, record["output"]]]
    messages = [
        message
        for instruction, output in pairs
        for message in ({"role": "user", "content": instruction}, {"role": "assistant", "content": output})
    ]
    return _conversation(_system(record) + messages, record)


@schema("text", ["text"])
def _text(record: Mapping[str, Any], roles: Mapping[str, str]) -> PlainText:
    text = record["text"]
    if not isinstance(text, str):
        raise RecordError("bad_text", f"text is {kind_of(text)}; expected a string")
    if not text:
        raise RecordError("empty", "text is empty")
    return PlainText(text)


SCHEMAS = ("auto", *_SCHEMAS)
INPUT_COLUMNS = tuple(dict.fromkeys(column for known in _SCHEMAS.values() for column in known.columns))


def _renamed(turn: dict[str, Any]) -> dict[str, Any]:
    """Rename the keys of a ShareGPT turn to those of a message."""
    names = {"from": "role", "value": "content"}
    return {names.get(key, key): value for key, value in turn.items() if names.get(key) not in turn}


def _system(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    system = record.get("system")
    if system is not None and not isinstance(system, str):
        raise RecordError("bad_message", f"system is {kind_of(system)}; expected a string")
    return [{"role": "system", "content": system}] if system else []


def _conversation(
    messages: list[dict[str, Any]], record: Mapping[str, Any], completion_start: int | None = None
) -> Conversation:
    if not messages:
        raise RecordError("empty", "there are no messages")
    tools = _decoded(record.get("tools"), "tools") or None
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise RecordError("bad_tools", "tools is not a list of objects, nor the JSON of one")
    arguments = _decoded(record.get("chat_template_kwargs"), "chat_template_kwargs") or {}
    if not isinstance(arguments, dict):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs is {kind_of(arguments)}; expected an object")
    if arguments and (taken := sorted(RESERVED_TEMPLATE_KWARGS & arguments.keys())):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs has {', '.join(taken)}, which the job sets")
    return Conversation(messages, tools, arguments, completion_start)


def _decoded(value: Any, column: str) -> Any:
    """Decode a value that is a string of JSON, as tables have it if its type varies from row to row."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value) if value.strip() else None
    except NOT_JSON as error:
        raise RecordError(
            f"bad_{column.removeprefix('chat_')}", f"{column} is a string that is not valid JSON: {error}"
        ) from None


def _integers(values: Any, column: str, length: int | None = None) -> np.ndarray:
    """Check that values are integers, as many as there are tokens: int64, shape (values,)."""
    if not isinstance(values, list) or not all(type(value) in (int, bool) for value in values):
        raise RecordError("bad_tokens", f"{column} is not a list of integers")
    if length is not None and len(values) != length:
        raise RecordError("bad_tokens", f"{column} has {len(values)} values for {length} tokens")
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise RecordError("bad_tokens", f"{column} has a number beyond 64 bits") from None
