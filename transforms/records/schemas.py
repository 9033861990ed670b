"""The schemas of chat corpora: how a record with certain columns becomes the content of an example.

A schema is one function here, with a decorator that says its name and its columns. `auto` tries the schemas in the
order of this file. Before all of them it looks for pairs of answers, and after them for other names of a question and
its answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from transforms.base.errors import RecordDropped, RecordError
from transforms.model.examples import (
    RESERVED_TEMPLATE_KWARGS,
    Content,
    Conversation,
    PlainText,
    PromptCompletion,
    TokenRow,
)
from transforms.records.cells import with_lists
from transforms.records.hints import hint_of_tools
from transforms.records.json_text import decode_json, kind_of
from transforms.records.media import MEDIA_COLUMNS, check_no_media
from transforms.records.messages import are_exchanges, messages_of, turns_of
from transforms.records.names import COMPLETION_IDS
from transforms.records.preference import (
    LABELS,
    is_pair,
    is_undesirable,
    split_chosen,
    with_pair,
)
from transforms.records.reading import SWITCHES, Reading
from transforms.records.token_rows import MASKS, OF_PACKED_ROWS, token_row
from transforms.records.tool_calls import tools_of, without_padding
from transforms.records.turns.marked import beginning_of

# Makes the content of a record.
Reader: TypeAlias = Callable[[Mapping[str, Any], Reading], Content]


class Columns(NamedTuple):
    """The columns of a schema: those that a record must have, and all that it reads."""

    required: frozenset[str]
    all: tuple[str, ...]


# Of each schema, in the order in which `auto` tries them.
SCHEMA_COLUMNS: dict[str, Columns] = {}
_READERS: dict[str, Reader] = {}

# Columns that any conversation may have. OpenAI's older API has functions instead of tools.
_OF_CONVERSATIONS = ("tools", "functions", "chat_template_kwargs")
# Whether the model is to reason: columns that are read if they are one of SWITCHES, or a boolean.
_SWITCHES = ("reasoning", "enable_thinking")
# Schemas without an answer that a label could be about: `label` is a class there.
WITHOUT_ANSWER = ("tokenized", "text", "chosen")
# The columns that are named in an error: an object may have thousands.
_SHOWN_COLUMNS = 20
# Names that datasets have for a question and its answer.
_QUESTIONS = (("question", "answer"), ("query", "response"), ("instruction", "response"), ("question", "response"))
_QUESTION_NAMES = ("question", "query", "instruction", "answer", "response")
# Columns with what a pair of answers is about, in the order in which they are looked for.
_PROMPTS = ("prompt", "conversations", "messages", "question", "instruction")
# Of a pair, one of these columns is the prompt; of a question, one is the system message.
_MAY_BE_READ = {"chosen": {*_PROMPTS}, "question_answer": {"system_prompt"}}
# Columns that a message has and a document has not.
OF_ONE_MESSAGE = ("role", "from", "speaker", "sender", "parent", "parent_id", "replies", "message_id")
# The schema of a chosen and a rejected answer, of which the chosen one is read.
CHOSEN = "chosen"
NO_PAIRS = (
    "the record has a chosen and a rejected answer, which are not for supervised training as they are; with schema "
    "chosen, the chosen answer is trained on. For DPO and reward models, trainers tokenize pairs themselves"
)
# Cells without content, in tables too.
_NOTHING: tuple[Any, ...] = ("", "[]", "{}", [], {}, None)


def schema(name: str, columns: Sequence[str], optional: Sequence[str] = ()) -> Callable[[Reader], Reader]:
    """Register a function as the reader of a schema.

    Args:
        name: of the schema.
        columns: those that a record must have, and by which `auto` recognizes it.
        optional: further columns that the function reads.

    Returns:
        A decorator. The function takes a record without its null columns, and its reading. It raises RecordError if the
        record does not fit.
    """

    def register(read: Reader) -> Reader:
        SCHEMA_COLUMNS[name] = Columns(frozenset(columns), (*columns, *optional))
        _READERS[name] = read
        return read

    return register


def content_of(record: Mapping[str, Any], schema: str, reading: Reading) -> tuple[str, Content]:
    """Read the content of a record.

    Args:
        record: its columns, without those that are null.
        schema: one of SCHEMAS; `auto` is the first one whose columns the record has.
        reading: the options by which it is read, and where to put notes.

    Returns:
        The schema by which it was read, and the content.

    Raises:
        RecordError: if the record does not fit the schema, or is not for supervised training on text.
        RecordDropped: if its answer is labelled as bad.
    """
    record = with_lists(record, reading)
    detected = schema == "auto"
    if detected:
        schema = _detected(record)
    if schema == CHOSEN:
        record = with_pair(record)
        if detected:
            raise RecordError("preference_data", NO_PAIRS)
    if schema == "question_answer":
        record = _with_question(record, detected)
    if missing := sorted(SCHEMA_COLUMNS[schema].required - record.keys()):
        raise RecordError("missing_column", f"schema {schema} needs {' and '.join(missing)}, which the record lacks")
    check_no_media(record)
    if schema not in WITHOUT_ANSWER and is_undesirable(record, reading):
        raise RecordDropped("undesirable")
    return schema, _READERS[schema](record, reading)


def detected_schema(record: Mapping[str, Any]) -> str | None:
    """Return the schema by which `auto` reads a record, by its columns; None if there is none."""
    try:
        return _detected(record)
    except RecordError:
        return None


def switch_of(record: Mapping[str, Any], name: str) -> bool | None:
    """Return what a column of _SWITCHES says; None if it says something else, or nothing."""
    value = record.get(name)
    if isinstance(value, bool) and name == "enable_thinking":
        return value
    return SWITCHES.get(value) if isinstance(value, str) else None


def has_nothing(value: Any) -> bool:
    """Return whether a cell has no content, in tables too."""
    return value in _NOTHING


def columns_read(schema: str, record: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns that are certainly read of a record.

    Args:
        schema: by which it was read.
        record: its columns.
    """
    read = _read_of_each(schema)
    is_plain_text = schema == "prompt_completion" and isinstance(record.get("prompt"), str)
    switches = {name for name in _SWITCHES if switch_of(record, name) is not None or record.get(name) in _NOTHING}
    read -= set(_SWITCHES) - (set() if is_plain_text else switches)
    return read | {"output"} if schema == CHOSEN and "chosen" not in record else read


@functools.cache
def _read_of_each(schema: str) -> frozenset[str]:
    return frozenset((*SCHEMA_COLUMNS[schema].all, *LABELS, *MEDIA_COLUMNS)) - _MAY_BE_READ.get(schema, set())


def _detected(record: Mapping[str, Any]) -> str:
    """Find the schema of a record by its columns. Raises RecordError."""
    if is_pair(record):
        return CHOSEN
    if any(isinstance(record.get(name), list) for name in COMPLETION_IDS) and "input_ids" not in record:
        raise RecordError(
            "unknown_schema", "the record has token ids of a completion; expected those of its prompt, too"
        )
    for name, known in SCHEMA_COLUMNS.items():
        if known.required <= record.keys() and name != CHOSEN:
            if name == "text":
                _check_is_document(record)
            return name
    if any({*pair} <= record.keys() for pair in _QUESTIONS):
        return "question_answer"
    for column, value in record.items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and has_messages(value[0]):
            problem = f"the records are in the list {column} of an object; expected that list alone, or its elements"
            raise RecordError("unknown_schema", problem)
    if any({*names} <= record.keys() for names in (("role", "content"), ("from", "value"))):
        raise RecordError("one_message", "the record is one message; expected a conversation, as a list of messages")
    columns = ", ".join(map(str, islice(record, _SHOWN_COLUMNS))) or "none"
    more = f" and {len(record) - _SHOWN_COLUMNS:,} more" if len(record) > _SHOWN_COLUMNS else ""
    raise RecordError(
        "unknown_schema",
        f"the columns are {columns}{more}; expected "
        + "; or ".join(" and ".join(sorted(known.required)) for known in SCHEMA_COLUMNS.values())
        + ". Name others with columns, such as messages=dialog, or give a formatter",
    )


def _check_is_document(record: Mapping[str, Any]) -> None:
    """Check that a record with a text is not a conversation, or one message of it. Raises RecordError."""
    if isinstance(text := record["text"], str) and (begin := beginning_of(text)):
        problem = f"the text begins with {begin!r}: it is a conversation. With schema text, it is read as a document"
        raise RecordError("unknown_schema", problem)
    found = [name for name in OF_ONE_MESSAGE if name in record]
    if found or record.get("type") == "message":
        raise RecordError(
            "one_message",
            f"the record has a text and {', '.join(found) or 'the type message'}: it is one message of a conversation. "
            "Join the messages of each conversation in one record; or read each text as a document, with schema text",
        )


def has_messages(record: Mapping[str, Any]) -> bool:
    """Return whether the columns of an object are those of a record, other than a text."""
    return any(isinstance(record.get(column), list) for column in ("messages", "conversations")) or any(
        known.required <= record.keys() for name, known in SCHEMA_COLUMNS.items() if name != "text"
    )


@schema(
    CHOSEN,
    ["chosen", "rejected"],
    [
        "prompt",
        "messages",
        "conversations",
        "instruction",
        "input",
        "history",
        "question",
        "system",
        *_OF_CONVERSATIONS,
        *_SWITCHES,
    ],
)
def _chosen(record: Mapping[str, Any], reading: Reading) -> Content:
    reading.notes["preference_chosen"] = None
    prompt, answer = record.get("prompt"), record["chosen"]
    column = _prompt_column(record)
    others = [name for name in ("question", "instruction", "input") if column not in (None, name, "instruction")]
    if lost := [name for name in others if record.get(name) not in (*_NOTHING, record[column or name])]:
        raise RecordError(
            "bad_preference", f"{' and '.join((str(column), *lost))} may each be the prompt; expected one"
        )
    if isinstance(prompt, str) and isinstance(answer, str) and "system" not in record:
        return _prompt_completion({**record, "completion": answer}, reading)
    chosen, rejected = (_answer(record[name], name, reading) for name in ("chosen", "rejected"))
    messages, start = split_chosen(_with_system(_prompt(record, reading), record), chosen, rejected)
    return _conversation(messages, record, reading, completion_start=start)


@schema("tokenized", ["input_ids"], ["labels", "loss_weights", *MASKS, *OF_PACKED_ROWS])
def _tokenized(record: Mapping[str, Any], reading: Reading) -> TokenRow:
    return token_row(record, reading)


@schema("messages", ["messages"], ["system", *_OF_CONVERSATIONS, *_SWITCHES])
def _messages(record: Mapping[str, Any], reading: Reading) -> Conversation:
    messages = messages_of(record["messages"], "messages", reading)
    return _conversation(_with_system(messages, record), record, reading)


@schema("prompt_completion", ["prompt", "completion"], ["system", *_OF_CONVERSATIONS, *_SWITCHES])
def _prompt_completion(record: Mapping[str, Any], reading: Reading) -> Conversation | PromptCompletion:
    prompt, completion = record["prompt"], record["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if not prompt + completion:
            raise RecordError("empty", "prompt and completion are both empty")
        if not reading.options.as_chat:
            if lost := [name for name in ("system", *_OF_CONVERSATIONS) if record.get(name) not in _NOTHING]:
                raise RecordError(
                    "bad_prompt_completion",
                    f"prompt and completion are strings, and {' and '.join(lost)} has no place in plain text; expected "
                    "messages, or as_chat",
                )
            return PromptCompletion(prompt, completion)
        before = [*_system(record), {"role": "user", "content": prompt}]
        return _conversation([*before, {"role": "assistant", "content": completion}], record, reading, len(before))
    if not isinstance(prompt, list) or not isinstance(completion, list):
        raise RecordError(
            "bad_prompt_completion",
            f"prompt is {kind_of(prompt)}, completion is {kind_of(completion)}; expected strings, or lists of messages",
        )
    if not completion:
        raise RecordError("empty", "completion has no messages")
    answers = messages_of(completion, "completion", reading)
    messages = _with_system(messages_of(prompt, "prompt", reading) + answers, record)
    return _conversation(messages, record, reading, completion_start=len(messages) - len(answers))


@schema("sharegpt", ["conversations"], ["system", *_OF_CONVERSATIONS, *_SWITCHES])
def _sharegpt(record: Mapping[str, Any], reading: Reading) -> Conversation:
    messages = messages_of(record["conversations"], "conversations", reading)
    return _conversation(_with_system(messages, record), record, reading)


@schema("alpaca", ["instruction", "output"], ["input", "history", "system", *_OF_CONVERSATIONS, *_SWITCHES])
def _alpaca(record: Mapping[str, Any], reading: Reading) -> Conversation:
    return _answered(record, ("instruction", "input"), "output", "alpaca", reading)


@schema("text", ["text"])
def _text(record: Mapping[str, Any], reading: Reading) -> PlainText:
    text = record["text"]
    if not isinstance(text, str):
        raise RecordError("bad_text", f"text is {kind_of(text)}; expected a string")
    if not text:
        raise RecordError("empty", "text is empty")
    return PlainText(text)


@schema(
    "question_answer",
    ["question", "answer"],
    ["context", "input", "history", "system", "system_prompt", "choices", "options", *_OF_CONVERSATIONS, *_SWITCHES],
)
def _question_answer(record: Mapping[str, Any], reading: Reading) -> Conversation:
    if choices := next((name for name in ("choices", "options") if record.get(name)), None):
        problem = f"{choices} has what the question offers, which this schema does not read; give a formatter"
        raise RecordError("bad_question_answer", problem)
    if "system_prompt" in record:
        record = {"system": record["system_prompt"], **record}
    return _answered(record, ("question", "input", "context"), "answer", "question_answer", reading)


SCHEMAS = ("auto", *SCHEMA_COLUMNS)
INPUT_COLUMNS = tuple(
    dict.fromkeys((*(column for known in SCHEMA_COLUMNS.values() for column in known.all), *LABELS, *MEDIA_COLUMNS))
)


def _with_question(record: Mapping[str, Any], detected: bool) -> Mapping[str, Any]:
    """Give a question and its answer the names of the schema. Raises RecordError if there are several of them."""
    names = next((pair for pair in _QUESTIONS if {*pair} <= record.keys()), _QUESTIONS[0])
    if names == _QUESTIONS[0] and not detected:
        return record
    used = [record.get(name) for name in names]
    if others := [name for name in _QUESTION_NAMES if name not in names and record.get(name) not in (*_NOTHING, *used)]:
        raise RecordError(
            "bad_question_answer",
            f"the record has {', '.join((*names, *others))}; expected one question and one answer. Choose them with "
            f"schema question_answer, and columns such as question={names[0]} and answer={names[1]}",
        )
    return {**record, "question": used[0], "answer": used[1]} if names != _QUESTIONS[0] else record


def _answered(
    record: Mapping[str, Any], questions: Sequence[str], answer: str, schema: str, reading: Reading
) -> Conversation:
    """Make a conversation of the columns of a question, joined with newlines, and that of its answer."""
    message = {"role": "assistant", "content": _checked_text(record, answer, schema)}
    return _conversation([*_system(record), *_instructed(record, questions, schema), message], record, reading)


def _instructed(record: Mapping[str, Any], questions: Sequence[str], schema: str) -> list[dict[str, Any]]:
    """Read as the Alpaca dataset's readers do: the input goes below the instruction; history is earlier turns."""
    texts = [_checked_text(record, column, schema) for column in questions]
    history = record.get("history") or []
    if not are_exchanges(history):
        raise RecordError(f"bad_{schema}", "history is not a list of [instruction, output] pairs of strings")
    return [*turns_of(history), {"role": "user", "content": "\n".join(text for text in texts if text)}]


def _checked_text(record: Mapping[str, Any], column: str, schema: str) -> str:
    text = record.get(column, "")
    if not isinstance(text, str):
        raise RecordError(f"bad_{schema}", f"{column} is {kind_of(text)}; expected a string")
    return text


def _prompt(record: Mapping[str, Any], reading: Reading) -> list[dict[str, Any]]:
    """Read what the answers of a pair are answers to; nothing if the record has no column for it."""
    column = _prompt_column(record)
    if column is None or column == "instruction":
        return _instructed(record, ("instruction", "input"), "alpaca") if column else []
    prompt = record[column]
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else messages_of(prompt, column, reading)


def _prompt_column(record: Mapping[str, Any]) -> str | None:
    return next((name for name in _PROMPTS if name in record), None)


def _answer(value: Any, column: str, reading: Reading) -> list[dict[str, Any]]:
    """Read one answer of a pair: a text, a message, or messages."""
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    return messages_of([value] if isinstance(value, dict) else value, column, reading)


def _with_system(messages: list[dict[str, Any]], record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Put the column `system` before messages that have no system message. Raises RecordError if they have another."""
    system = _system(record)
    found = [message.get("content") for message in messages if message["role"] in ("system", "developer")]
    if system and found and found[0] != system[0]["content"]:
        raise RecordError("bad_message", "the column system and the system message have different texts")
    return messages if found else system + messages


def _system(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    system = record.get("system")
    if system is not None and not isinstance(system, str):
        raise RecordError("bad_message", f"system is {kind_of(system)}; expected a string")
    return [{"role": "system", "content": system}] if system else []


def _conversation(
    messages: list[dict[str, Any]], record: Mapping[str, Any], reading: Reading, completion_start: int | None = None
) -> Conversation:
    if not messages:
        raise RecordError("empty", "there are no messages")
    if record.get("tools") and record.get("functions"):
        raise RecordError("bad_tools", "the record has both tools and functions; expected one of them")
    tools = tools_of(record.get("tools") or record.get("functions"), reading)
    if reading.tools:
        in_turns = tools_of(reading.tools, reading)
        if tools not in (None, in_turns):
            raise RecordError("bad_tools", "the record has tools, and its turns have others; expected one of them")
        tools = in_turns
    if hint := hint_of_tools(tools, messages):
        found = "the system message has tools in its text, which a template would print again"
        raise RecordError("bad_tools", f"{found}; {hint}")
    messages, null = without_padding(messages, tools)
    if null:
        reading.notes["null_arguments_left_out"] = f"{null} of a call, which its tool does not have"
    arguments = record.get("chat_template_kwargs")
    if isinstance(arguments, str):  # as tables have it if its type varies from row to row
        arguments = arguments.strip() and decode_json(arguments, "bad_template_kwargs", "chat_template_kwargs", reading)
    arguments = arguments or {}
    if not isinstance(arguments, dict):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs is {kind_of(arguments)}; expected an object")
    arguments = {name: value for name, value in arguments.items() if value is not None}  # as Arrow gives them to all
    if arguments and (taken := sorted(RESERVED_TEMPLATE_KWARGS & arguments.keys())):
        raise RecordError("bad_template_kwargs", f"chat_template_kwargs has {', '.join(taken)}, which the job sets")
    for name in _SWITCHES:
        if (switch := switch_of(record, name)) is not None:
            arguments = {"enable_thinking": switch, **arguments}
    return Conversation(messages, tools, arguments, completion_start)
