"""Remedies: the change of options with which records that were rejected are read.

A table says for each reason what to change, or guesses it from a record: its columns, its fields, its roles. A guess is
only shown if most of the rejected records can be read with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow.parquet as pq

from transforms.dataset.layout import Folder
from transforms.errors import ParameterError, RecordDropped, RecordError, StoreError
from transforms.inputs.formats import MAX_RECORD_BYTES
from transforms.inputs.reading import ROLE_NAMES
from transforms.storage.files import join, names_below, open_file

# Options and their new values. Those of a mapping are added to the ones that it has.
Changes: TypeAlias = dict[str, Any]
Options: TypeAlias = dict[str, Any]  # of a build, by name

# The files of rejects that are read for a remedy, the records of a reason in them, and how often one is tried.
_FILES, _RECORDS, _TRIES = 16, 64, 12
_ROLES = {
    "assistant": "assistant bot model ai agent chatbot chatgpt gpt-4 gpt4 claude gemini llm answer response output",
    "user": "user customer client person question prompter prompt input instruction visitor caller patient student",
    "system": "system sys context instructions",
    "tool": "tool api tool_result tool_results tool_output function_output observation ipython",
}
_ROLE_FIELDS = ("role", "from", "speaker", "author", "sender", "type", "who", "name", "user")
_TEXT_FIELDS = ("content", "value", "text", "message", "utterance", "body", "msg", "sentence", "response")
_QUESTIONS = ("question", "prompt", "instruction", "query", "input", "user", "human", "problem", "source", "q")
_ANSWERS = ("answer", "completion", "response", "output", "reply", "assistant", "bot", "solution", "target", "a")
_TEXTS = ("text", "content", "document", "body", "raw_content", "article", "passage")


class Reject(NamedTuple):
    """A rejected record: the reason, what was found, and its bytes."""

    reason: str
    detail: str
    record: bytes


class Remedy(NamedTuple):
    """What to change for rejects of a reason, and what a build then does with them."""

    reason: str
    changes: Changes
    does: str


def find_remedy(folder: Folder, options: Options, rejected: Mapping[str, int] | None = None) -> Remedy | None:
    """Find the remedy for the most frequent reason for which there is one.

    Args:
        folder: of the dataset, or of a build that failed, with its rejects.
        options: of the build.
        rejected: how many records were rejected, by reason; None if it is to be counted.

    Returns:
        The remedy; None if there is none.
    """
    with suppress(StoreError, OSError, ValueError):  # it is advice, and must not make a run fail
        counts = rejected or Counter(reject.reason for reject in _rejects(folder, None))
        for reason, _ in Counter(counts).most_common():
            if reason in REMEDIES and (changes := _changes(reason, [*_rejects(folder, reason)], options)):
                return Remedy(reason, changes, REMEDIES[reason].does)
    return None


def _rejects(folder: Folder, reason: str | None) -> Iterator[Reject]:
    """The first rejects of a reason; without one, the reasons of all rejects in the first files."""
    below = join(folder.output, "rejects")
    columns = ["reason"] if reason is None else ["reason", "detail", "record"]
    found = 0
    for name in sorted(names_below(below))[:_FILES]:
        with open_file(join(below, name)) as file:
            for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches(512, columns=columns, use_threads=False):
                for row in batch.to_pylist():
                    if reason is None:
                        yield Reject(row["reason"], "", b"")
                    elif row["reason"] == reason:
                        yield Reject(**row)
                        found += 1
                        if found == _RECORDS:
                            return


def _changes(reason: str, rejects: Sequence[Reject], options: Options) -> Changes | None:
    """The changes for rejects of one reason, None if they would not help."""
    of_reading = reason in _OF_READING
    if of_reading and options["formatter"]:
        return None  # records are what it returns
    changes: Changes = {}
    for reject in rejects:
        changes = (
            _for_record(reject, changes, options) if of_reading else REMEDIES[reason].find(reject, None, options) or {}
        )
        if not of_reading and changes:
            break
    changes = {name: value for name, value in changes.items() if options[name] != value}
    readable = sum(_error_of(reject, changes, options) is None for reject in rejects) if of_reading else len(rejects)
    return changes if changes and 2 * readable > len(rejects) else None


def _for_record(reject: Reject, changes: Changes, options: Options) -> Changes:
    """The changes with which a record can be read as well as those before it; without it, those before it."""
    tried = changes
    for _ in range(_TRIES):
        error = _error_of(reject, tried, options)
        if error is None:
            return tried
        remedy = REMEDIES.get(error.reason) if error.reason in _OF_READING else None
        found = Reject(error.reason, error.detail, reject.record)
        more = remedy.find(found, msgspec.json.decode(reject.record), options | tried) if remedy else None
        if not more:
            break
        of_maps = {
            name: {**(options[name] or {}), **tried.get(name, {}), **value}
            for name, value in more.items()
            if isinstance(value, dict)
        }
        tried = tried | more | of_maps
    return changes


def _error_of(reject: Reject, changes: Changes, options: Options) -> RecordError | None:
    """Why a record cannot be read with changed options; None if it can."""
    from pipeline.sources import parse_options_of
    from transforms.model.examples import Record
    from transforms.steps.parse import Parser

    try:
        parser = Parser(**parse_options_of({name: (options | changes)[name] for name in _READ_BY}))
        parser.parse(Record(0, reject.record))
    except RecordError as error:
        return error
    except (ParameterError, RecursionError) as error:
        return RecordError("options", str(error))
    except RecordDropped:
        pass
    return None


def _to(**changes: Any) -> Callable[..., Changes]:
    """The same changes for each record of a reason."""
    return lambda reject, record, options: changes


_plain = _to(special_tokens_in_content="plain")


def _columns(reject: Reject, record: Any, options: Options) -> Changes | None:
    """Columns of a record that have messages, a question and its answer, or a text."""
    for name, value in record.items():
        if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
            return _typed({"messages": name}, "columns")
    strings = {name.lower(): name for name, value in record.items() if isinstance(value, str)}
    question, answer = (
        next((strings[word] for word in words if word in strings), None) for words in (_QUESTIONS, _ANSWERS)
    )
    if question and answer:
        return _typed({"question": question, "answer": answer}, "columns")
    text = next((strings[word] for word in _TEXTS if word in strings), None)
    return _typed({"text": text}, "columns") if text and not question and not answer else None


def _fields(reject: Reject, record: Any, options: Options) -> Changes | None:
    """Fields of messages that have the role and the text."""
    lists = [value for value in record.values() if isinstance(value, list) and value]
    turns = next((value for value in lists if all(isinstance(turn, dict) for turn in value)), None)
    if turns is None:
        return None
    named = {}
    for ours, words in (("role", _ROLE_FIELDS), ("content", _TEXT_FIELDS)):
        found = (name for word in words for name in turns[0] if name.lower() == word)
        name = next((name for name in found if all(isinstance(turn.get(name), str) for turn in turns)), None)
        if name is None:
            return None
        if name not in words[:2]:  # those are known
            named[ours] = name
    return _typed(named, "message_fields") if named else None


def _roles(reject: Reject, record: Any, options: Options) -> Changes | None:
    """The role that an unknown one stands for: by its name, otherwise by the message before it."""
    found = re.search(r'\[(\d+)\] has role "(.*?)"', reject.detail)
    if not found:
        return None
    name = found[2]
    role = next((role for role, words in _ROLES.items() if name.lower() in words.split()), None)
    role = role or ROLE_NAMES.get(name.lower())
    return _typed({name: role}, "roles") if role else None


def _typed(value: dict[str, str], option: str) -> Changes | None:
    """A change of an option that is a mapping; None if a name cannot be typed in it."""
    is_typed = not any(re.search("[,=]|^ | $", side) for pair in value.items() for side in pair)
    return {option: value} if is_typed and value else None


def _longer_records(reject: Reject, record: Any, options: Options) -> Changes | None:
    return {"max_record_bytes": 16 * (options["max_record_bytes"] or MAX_RECORD_BYTES)}


def _longer_texts(reject: Reject, record: Any, options: Options) -> Changes | None:
    return {"max_text_bytes": 16 * options["max_text_bytes"]} if "max_text_bytes" in reject.detail else None


def _more_seconds(reject: Reject, record: Any, options: Options) -> Changes | None:
    return {"formatter_seconds": 10 * options["formatter_seconds"]} if "formatter_seconds" in reject.detail else None


class _Entry(NamedTuple):
    """A line of the table: finds the changes for a reject, its record and the options; what the build then does."""

    find: Callable[[Reject, Any, Options], Changes | None]
    does: str


# Each reason of docs/records.md for which an option helps.
REMEDIES = {
    "unknown_schema": _Entry(_columns, "reads them"),
    "missing_column": _Entry(_to(schema="auto"), "reads each by its own columns"),
    "unknown_role": _Entry(_roles, "reads them"),
    "bad_message": _Entry(_fields, "reads them"),
    "bad_content": _Entry(_fields, "reads them"),
    "bad_tool_calls": _Entry(
        _to(tool_arguments="keep"), "gives the arguments of their calls to the template as strings"
    ),
    "bad_prompt_completion": _Entry(_to(as_chat=True), "renders them with the chat template"),
    "preference_data": _Entry(_to(schema="preference", preference="chosen"), "trains on the chosen answers"),
    "too_long": _Entry(_longer_records, "reads longer ones"),
    "formatter": _Entry(_more_seconds, "gives the formatter more time"),
    "forged_turn": _Entry(_plain, "encodes the special tokens in them as plain text"),
    "special_tokens_in_content": _Entry(_plain, "encodes the special tokens in them as plain text"),
    "template_limit": _Entry(_longer_texts, "allows longer texts"),
    "not_printed": _Entry(_to(unprinted="report"), "keeps them, without what the template does not print"),
    "loss_not_applicable": _Entry(_to(loss_on="auto"), "trains on what each has"),
    "differs_from_inference": _Entry(_to(parity="expand"), "writes a row for each context that a server renders"),
    "not_expandable": _Entry(_to(parity="report"), "keeps them as they are, and counts them"),
}
# Those of records that cannot be read, so that it can be tried whether a change helps; and the options of reading.
_OF_READING = (
    "unknown_schema",
    "missing_column",
    "unknown_role",
    "bad_message",
    "bad_content",
    "bad_tool_calls",
    "bad_prompt_completion",
    "preference_data",
)
_READ_BY = ("schema", "columns", "roles", "message_fields", "train_field", "tool_arguments", "preference", "as_chat")
