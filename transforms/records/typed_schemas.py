"""Typed schemas: those whose columns have the types that most records have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from transforms.model.examples import (
    RESERVED_TEMPLATE_KWARGS,
    Content,
    Conversation,
    PlainText,
    PromptCompletion,
    TokenRow,
    decode_columns,
)
from transforms.records.hints import hint_of_tools
from transforms.records.messages import messages_of
from transforms.records.reading import Reading, ReadOptions
from transforms.records.token_rows import MASKS, OF_PACKED_ROWS, token_row
from transforms.records.tool_calls import known_tools, without_padding
from transforms.records.turns.marked import beginning_of

_TEXT: Any = Annotated[str, msgspec.Meta(min_length=1)]
_OF_INTEGERS = b"0123456789-, \t\r\n"
_OF_CONVERSATIONS: Mapping[str, Any] = {
    "tools": msgspec.Raw,
    "chat_template_kwargs": dict[str, Any] | Literal[""] | None,
    "enable_thinking": bool | None,
}
# The most tuples of roles that are kept.
_ROLES_KEPT = 1024

# Makes the content of a record: of a struct with its columns, of its JSON, and of the names that the columns have
# there. It raises ValueError or RecordError if the record is another one, so that it is read without types.
Maker: TypeAlias = Callable[[Any, bytes, Mapping[str, str]], Content]


class TypedSchema(NamedTuple):
    """A schema whose columns have certain types.

    Attributes:
        schema: its name.
        required: the types of the columns that each record has.
        make: makes the content.
        optional: the types of further columns, which are None in records that do not have them (Raw is empty). The
            other columns that the schema reads must have no content.
    """

    schema: str
    required: Mapping[str, Any]
    make: Maker
    optional: Mapping[str, Any] = {}

    def is_structured(self, column: str) -> bool:
        """Return whether a column's type is not what decoding without types makes."""
        if column in self.required:
            return self.required[column] not in (str, _TEXT)
        return self.optional.get(column) is msgspec.Raw


def typed_schemas(options: ReadOptions) -> Iterator[TypedSchema]:
    """Yield the typed schemas, in the order in which they are tried.

    Args:
        options: by which records are read.
    """
    role: Any = Literal[tuple(options.roles)]
    fields = [("role", role), ("content", str)]
    message = msgspec.defstruct("Message", fields, forbid_unknown_fields=True, gc=False)
    names_of_turns = {"role": "from", "content": "value"}
    turn = msgspec.defstruct("Turn", fields, forbid_unknown_fields=True, rename=names_of_turns, gc=False)
    part = msgspec.defstruct("Part", [("type", Literal["text"]), ("text", str)], forbid_unknown_fields=True, gc=False)
    fields = [("role", role), ("content", list[part])]  # type: ignore[valid-type]
    in_parts = msgspec.defstruct("MessageInParts", fields, forbid_unknown_fields=True, gc=False)
    for schema, column in (("messages", "messages"), ("sharegpt", "conversations")):
        if schema == "sharegpt":
            make = _conversation_maker(column, options.roles, keeps_order=False)
            yield TypedSchema(schema, {column: _not_empty(turn)}, make, {**_OF_CONVERSATIONS, "system": str | None})
        # A system message would be put before messages that keep the order of their keys.
        make = _conversation_maker(column, options.roles, keeps_order=True)
        yield TypedSchema(schema, {column: _not_empty(message)}, make, _OF_CONVERSATIONS)
        make = _parts_maker(column, options.roles)
        yield TypedSchema(schema, {column: _not_empty(in_parts)}, make, _OF_CONVERSATIONS)
        make = _other_messages_maker(column, options)
        yield TypedSchema(schema, {column: _not_empty(dict[str, Any])}, make, _OF_CONVERSATIONS)
    if options.as_chat:
        yield TypedSchema("prompt_completion", {"prompt": str, "completion": str}, _chat, {"system": str | None})
    else:
        yield TypedSchema("prompt_completion", {"prompt": str, "completion": str}, _prompt_completion)
    of_messages = {"prompt": list[message], "completion": _not_empty(message)}  # type: ignore[valid-type]
    yield TypedSchema("prompt_completion", of_messages, _prompt_messages_maker(options.roles))
    of_answers: dict[str, Any] = {"system": str | None, "history": list[tuple[str, str]] | None, "input": str | None}
    yield TypedSchema(
        "alpaca", {"instruction": str, "output": str}, _answer_maker("instruction", "input", "output"), of_answers
    )
    yield TypedSchema("text", {"text": _TEXT}, _plain_text)
    of_answers |= {"context": str | None} | dict.fromkeys(("query", "instruction", "response"), None)  # other questions
    make = _answer_maker("question", "input", "context", "answer")
    yield TypedSchema("question_answer", {"question": str, "answer": str}, make, of_answers)
    columns: dict[str, Any] = dict.fromkeys(("labels", *MASKS), msgspec.Raw)
    columns |= dict.fromkeys(("loss_weights", *OF_PACKED_ROWS), None)
    yield TypedSchema("tokenized", {"input_ids": msgspec.Raw}, _token_row_maker(options), columns)


def _not_empty(kind: type) -> Any:
    return Annotated[list[kind], msgspec.Meta(min_length=1)]  # type: ignore[valid-type]


def _conversation_maker(column: str, role_of: Mapping[str, str], keeps_order: bool) -> Maker:
    """Make a maker of plain messages. keeps_order: whether their keys have the order of the record."""
    renamed = _renamer(role_of)

    def make(record: Any, raw: bytes, names: Mapping[str, str]) -> Conversation:
        turns = getattr(record, column)
        given, texts = tuple([turn.role for turn in turns]), [turn.content for turn in turns]
        roles = renamed(given)
        source = (raw, (names[column],)) if keeps_order and roles == given else None
        if record.system:
            if "system" in roles or "developer" in roles:
                raise ValueError("the record has two system messages")
            _check_is_text(record.system)
            roles, texts = ("system", *roles), [record.system, *texts]
        return _conversation((roles, texts, source, None), record)

    return make


def _parts_maker(column: str, role_of: Mapping[str, str]) -> Maker:
    """Make a maker of messages whose contents are parts."""
    renamed = _renamer(role_of)

    def make(record: Any, raw: bytes, names: Mapping[str, str]) -> Conversation:
        turns, name = getattr(record, column), names[column]
        given = tuple([turn.role for turn in turns])
        roles = renamed(given)
        if roles != given:
            raise ValueError("messages that are renamed have another order of keys")
        texts = [part.text for turn in turns for part in turn.content]
        json = bytes(decode_columns(raw)[name])
        if len(texts) != json.count(b'{"type": "text", "text": "') + json.count(b'{"type":"text","text":"'):
            raise ValueError("a part may have its keys in another order")
        return _conversation((roles, texts, (raw, (name,)), tuple([len(turn.content) for turn in turns])), record)

    return make


def _other_messages_maker(column: str, options: ReadOptions) -> Maker:
    """Make a maker of messages with calls, reasoning, parts of content and so on."""

    def make(record: Any, raw: bytes, names: Mapping[str, str]) -> Conversation:
        reading = Reading(options)
        messages = messages_of(getattr(record, column), column, reading)
        if reading.notes or reading.forms:
            raise ValueError("there is something to note")
        return _conversation(messages, record)

    return make


def _conversation(lazy_messages: Any, record: Any) -> Conversation:
    """Make the conversation of a record with the columns _OF_CONVERSATIONS."""
    tools = known_tools(bytes(record.tools)) if record.tools else None
    arguments = {name: value for name, value in (record.chat_template_kwargs or {}).items() if value is not None}
    if record.enable_thinking is not None:
        arguments = {"enable_thinking": record.enable_thinking, **arguments}
    if not RESERVED_TEMPLATE_KWARGS.isdisjoint(arguments):
        raise ValueError("the record has arguments that the job sets")
    if tools and hint_of_tools(tools, _first_message(lazy_messages)):
        raise ValueError("the system message has tools, too")
    if tools and isinstance(lazy_messages, list) and without_padding(lazy_messages, tools)[1]:
        raise ValueError("there is something to note")
    return Conversation(lazy_messages, tools, arguments)


def _first_message(lazy_messages: Any) -> list[dict[str, Any]]:
    if isinstance(lazy_messages, list):
        return lazy_messages[:1]
    roles, texts, _, lengths = lazy_messages
    parts = texts[: lengths[0]] if lengths else texts[:1]
    return [{"role": roles[0], "content": [{"text": text} for text in parts]}]


def _prompt_messages_maker(role_of: Mapping[str, str]) -> Maker:
    renamed = _renamer(role_of)

    def make(record: Any, raw: bytes, names: Mapping[str, str]) -> Conversation:
        turns = record.prompt + record.completion
        roles = tuple([turn.role for turn in turns])
        if roles != renamed(roles):
            raise ValueError("of messages that are renamed, some would have another order of keys")
        source = (raw, (names["prompt"], names["completion"]))
        texts = [turn.content for turn in turns]
        return Conversation((roles, texts, source, None), completion_start=len(record.prompt))

    return make


def _renamer(role_of: Mapping[str, str]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Make a function from the names of the roles of a conversation to the roles; many have the same ones."""
    return functools.lru_cache(_ROLES_KEPT)(lambda names: tuple([role_of[name] for name in names]))


def _plain_text(record: Any, raw: bytes, names: Mapping[str, str]) -> PlainText:
    if beginning_of(record.text):
        raise ValueError("it may be a conversation")
    return PlainText(record.text)


def _prompt_completion(record: Any, raw: bytes, names: Mapping[str, str]) -> PromptCompletion:
    if not record.prompt and not record.completion:
        raise ValueError("both are empty")
    _check_is_text(record.prompt, record.completion)
    return PromptCompletion(record.prompt, record.completion)


def _check_is_text(*texts: str | None) -> None:
    """Raise ValueError if a text may be the JSON of a list."""
    for text in texts:
        if text and (text[0] == "[" or (text[0].isspace() and text.lstrip().startswith("["))):
            raise ValueError("it may be the JSON of a list")


def _chat(record: Any, raw: bytes, names: Mapping[str, str]) -> Conversation:
    _check_is_text(record.prompt, record.completion)
    dialog = _dialog(record.system, (), record.prompt, record.completion)
    return Conversation(dialog, completion_start=len(dialog[0]) - 1)


def _answer_maker(*columns: str) -> Maker:
    """Make a maker of a question, whose columns are joined, and of its answer, which the last column has."""
    *questions, answer = columns

    def make(record: Any, raw: bytes, names: Mapping[str, str]) -> Conversation:
        texts = [getattr(record, column, None) for column in questions]  # one may stand for another column
        question = "\n".join([text for text in texts if text])
        return Conversation(_dialog(record.system, record.history or (), question, getattr(record, answer)))

    return make


def _dialog(
    system: str | None, history: Sequence[tuple[str, str]], question: str, answer: str
) -> tuple[tuple[str, ...], list[str], None, None]:
    _check_is_text(system)
    texts = [*[text for pair in history for text in pair], question, answer]
    roles = ("user", "assistant") * (len(texts) // 2)
    return (("system", *roles), [system, *texts], None, None) if system else (roles, texts, None, None)


def _token_row_maker(options: ReadOptions) -> Maker:
    columns = ("input_ids", "labels", *MASKS)

    def make(record: Any, raw: bytes, names: Mapping[str, str]) -> TokenRow:
        lists = {name: _integers(bytes(json)) for name in columns if (json := getattr(record, name))}
        reading = Reading(options)
        row = token_row(lists, reading)
        if reading.notes:
            raise ValueError("there is something to note")
        return row

    return make


def _integers(json: bytes) -> np.ndarray:
    """Decode the JSON of a list of integers: int64, shape (values,). To make a Python list takes twice as long."""
    if json.translate(None, _OF_INTEGERS) != b"[]" or not json[1:-1].strip():
        raise ValueError("it is not a list of integers")
    values = np.fromstring(json[1:-1], np.int64, sep=",")
    if len(values) != json.count(b",") + 1:
        raise ValueError("some of the values are not integers")
    return values
