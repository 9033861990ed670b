"""Remedies: the change of options with which records that were rejected are read.

A table says for each reason what to change. For records that are not understood it has the names that datasets are
known to have: no other column is taken for a question, an answer or messages. A change is only shown if a trial with
the steps of the build keeps most of the rejected records, with something to train on, and leaves no text unread.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow.parquet as pq

from pipeline.viewing.view import visible
from transforms.base.errors import ParameterError, RecordDropped, RecordError, StoreError, UserError
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.inputs.formats import MAX_RECORD_BYTES
from transforms.inputs.shapes.columns import is_dialog
from transforms.storage.files import join, open_file

# Options and their new values. Those of a mapping are added to the ones that it has.
Changes: TypeAlias = dict[str, Any]
Options: TypeAlias = dict[str, Any]  # of a build, by name

# The files of rejects that are read for a remedy, the records of a reason in them, and how often one is tried.
_FILES, _RECORDS, _TRIES = 16, 64, 12
# The most characters of what the records of a reject say.
_SHOWN = 160
# The names that datasets have for a text, in small letters.
_TEXTS = ("text", "content", "document", "body", "raw_content", "article", "passage")
# Roles that are known only together with others: an agent may be a person.
_ROLES = {"assistant": "agent llm gpt-4 gpt4", "user": "customer client", "tool": "tool_output function_output"}


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
        folder: of the increment, committed or not, with its rejects.
        options: of the build.
        rejected: how many records were rejected, by reason; None if it is to be counted.

    Returns:
        The remedy; None if there is none.
    """
    with suppress(StoreError, UserError, OSError, ValueError):  # it is advice, and must not make a run fail
        counts = rejected or Counter(reject.reason for reject in _rejects(folder, None))
        for reason, _ in Counter(counts).most_common():
            rejects = [*_rejects(folder, reason)] if reason in REMEDIES else []
            if changes := rejects and _changes(folder, reason, rejects, options):
                does = REMEDIES[reason].does
                return Remedy(reason, changes, does if isinstance(does, str) else does(changes, rejects))
    return None


def _rejects(folder: Folder, reason: str | None) -> Iterator[Reject]:
    """The first rejects of a reason; without one, the reasons of all rejects in the first files."""
    columns = ["reason"] if reason is None else ["reason", "detail", "record"]
    found = 0
    for path in folder.files("rejects")[:_FILES]:
        with open_file(join(folder.output, path)) as file:
            for batch in pq.ParquetFile(file, pre_buffer=False).iter_batches(512, columns=columns, use_threads=False):
                for row in batch.to_pylist():
                    if reason is None:
                        yield Reject(row["reason"], "", b"")
                    elif row["reason"] == reason:
                        yield Reject(**row)
                        found += 1
                        if found == _RECORDS:
                            return


def _changes(folder: Folder, reason: str, rejects: Sequence[Reject], options: Options) -> Changes | None:
    """The changes for rejects of one reason, None if they would not help."""
    if reason in _OF_READING:
        changes: Changes = {}
        for reject in rejects if not options["formatter"] else ():  # otherwise records are what it returns
            changes = _for_record(reject, changes, options)
        candidates: Iterable[Changes] = [changes]
    else:
        candidates = (found for reject in rejects for found in REMEDIES[reason].find(reject, None, options))
    tried: list[Changes] = []  # most rejects of a reason have the same candidates, and a trial takes a second
    for changes in candidates:
        changes = {name: value for name, value in changes.items() if options[name] != value}
        if not changes or changes in tried:
            continue
        if reason not in _TRIED or _keeps_most(folder, rejects, changes):
            return changes
        tried.append(changes)
    return None


def _for_record(reject: Reject, changes: Changes, options: Options) -> Changes:
    """The changes with which a record can be read as well as those before it; without it, those before it."""
    left = [changes]
    for _ in range(_TRIES):
        if not left:
            break
        tried = left.pop()
        error, is_whole = _attempt(reject, tried, options)
        if error is None and is_whole:
            return tried
        if error is not None and error.reason in _OF_READING:
            found = Reject(error.reason, error.detail, reject.record)
            candidates = REMEDIES[error.reason].find(found, msgspec.json.decode(reject.record), options | tried)
            left += reversed([_merged(tried, more, options) for more in candidates])
    return changes


def _merged(changes: Changes, more: Changes, options: Options) -> Changes:
    of_maps = {
        name: {**(options[name] or {}), **changes.get(name, {}), **value}
        for name, value in more.items()
        if isinstance(value, dict)
    }
    return changes | more | of_maps


def _attempt(reject: Reject, changes: Changes, options: Options) -> tuple[RecordError | None, bool]:
    """Why a record cannot be read with changed options, None if it can; and whether all of its text is read then."""
    from pipeline.cli.sources import parse_options_of
    from transforms.model.examples import Record
    from transforms.steps.parse import Parser

    try:
        parser = Parser(**parse_options_of({name: (options | changes)[name] for name in _READ_BY}))
        return None, not any(example.unread for example in parser.parse_all(Record(0, reject.record)))
    except RecordError as error:
        return error, False
    except (ParameterError, RecursionError) as error:
        return RecordError("options", str(error)), False
    except RecordDropped:
        return None, True


def _keeps_most(folder: Folder, rejects: Sequence[Reject], changes: Changes) -> bool:
    """Whether the job with changed options keeps most of the rejects, each with trained tokens, and reads all text."""
    from pipeline.job.graph import steps_of
    from pipeline.job.job_json import job_of, read_job
    from transforms.model.batches import Records, Slice, Split
    from transforms.model.examples import Record
    from transforms.model.outcomes import Outcomes

    snapshot = Log(folder).newest()
    job = job_of(folder, snapshot) if snapshot and snapshot.has(folder.increment) else read_job(folder)
    if job is None:
        return False
    of_job = msgspec.structs.replace(job, options=dataclasses.replace(job.options, **changes), sources=())
    records = [Record(number, reject.record) for number, reject in enumerate(rejects)]
    split = Split(0, (Slice("rejects", "jsonl", None, 0, 1),))
    batch: Any = Records(split, 0, True, Outcomes(read=len(records)), records)
    for name, step in steps_of(of_job, folder, "reference").items():
        if name != "pack":
            batch = step.function()(batch)
    kept = {*batch.source.positions[batch.trained_tokens > 0].tolist()}
    return 2 * len(kept) > len(records) and not batch.outcomes.statistics.unread


def _to(**changes: Any) -> Callable[..., list[Changes]]:
    """The same changes for each record of a reason."""
    return lambda reject, record, options: [changes]


_plain = _to(special_tokens_in_content="plain")


def _columns(reject: Reject, record: Any, options: Options) -> Iterator[Changes]:
    """A column of a record that has messages or a text, by the names that it may have."""
    dialogs = [name for name, value in record.items() if is_dialog(value)]
    if len(dialogs) == 1:
        yield from _typed({"messages": dialogs[0]}, "columns")
    names = {name.lower(): name for name in record}
    for name in _TEXTS:
        if name in names:
            yield from _typed({"text": names[name]}, "columns")


def _roles(reject: Reject, record: Any, options: Options) -> Iterator[Changes]:
    """The role that an unknown one stands for, by its name."""
    found = re.search(r'\[(\d+)\] has role "(.*?)"', reject.detail)
    if not found:
        return
    name = found[2]
    role = next((role for role, words in _ROLES.items() if name.lower() in words.split()), None)
    yield from _typed({name: role} if role else {}, "roles")


def _typed(value: dict[str, str], option: str) -> Iterator[Changes]:
    """A change of an option that is a mapping; none if a name cannot be typed in it."""
    is_typed = not any(re.search("[,=]|^ | $", side) for pair in value.items() for side in pair)
    if is_typed and value:
        yield {option: value}


def _printed(reject: Reject, record: Any, options: Options) -> Iterator[Changes]:
    """Another name for a key with reasoning that is not printed; otherwise the record without what is not printed."""
    if found := re.search(r"message_fields, such as (reasoning_content)=(\S+),", reject.detail):
        yield from _typed({**(options["message_fields"] or {}), found[1]: found[2]}, "message_fields")
    yield {"unprinted": "report"}


def _longer_records(reject: Reject, record: Any, options: Options) -> Iterator[Changes]:
    yield {"max_record_bytes": 16 * (options["max_record_bytes"] or MAX_RECORD_BYTES)}


def _with_or_without_the_unprinted(changes: Changes, rejects: Sequence[Reject]) -> str:
    """What is lost of records that are kept, such as a system prompt."""
    if "unprinted" not in changes:
        return "reads them"
    found = Counter(reject.detail.rpartition("; ")[0].partition(" does not print ")[2] for reject in rejects)
    what = visible(" ".join(found.most_common(1)[0][0].split()))
    if len(what) > _SHOWN:
        what = f"{what[:_SHOWN]}…"
    example = "for example " * (len(found) > 1)
    return f"keeps them, without what the template does not print ({example}{what})"


class _Entry(NamedTuple):
    """A line of the table: finds changes for a reject, its record and the options; what the build then does."""

    find: Callable[[Reject, Any, Options], Iterable[Changes]]
    does: str | Callable[[Changes, Sequence[Reject]], str]


# Each reason of docs/records.md for which an option helps.
REMEDIES = {
    "unknown_schema": _Entry(_columns, "reads them"),
    "missing_column": _Entry(_to(schema="auto"), "reads each by its own columns"),
    "unknown_role": _Entry(_roles, "reads them"),
    "bad_tool_calls": _Entry(
        _to(tool_arguments="keep"), "gives the arguments of their calls to the template as strings"
    ),
    "bad_prompt_completion": _Entry(_to(as_chat=True), "renders them with the chat template"),
    "preference_data": _Entry(_to(schema="preference"), "writes both answers, and chosen the chosen ones alone"),
    "too_long": _Entry(_longer_records, "reads longer ones"),
    "forged_turn": _Entry(_plain, "encodes the special tokens in them as plain text"),
    "special_tokens_in_content": _Entry(_plain, "encodes the special tokens in them as plain text"),
    "not_printed": _Entry(_printed, _with_or_without_the_unprinted),
    "loss_not_applicable": _Entry(_to(loss_on="auto"), "trains on what each has"),
    "differs_from_inference": _Entry(_to(parity="expand"), "writes a row for each context that a server renders"),
    "not_expandable": _Entry(_to(parity="report"), "keeps them as they are, and counts them"),
}
# Those of records that cannot be read, so that it can be tried whether a change helps; and the options of reading.
_OF_READING = (
    "unknown_schema",
    "missing_column",
    "unknown_role",
    "bad_tool_calls",
    "bad_prompt_completion",
    "preference_data",
)
_TRIED = (*_OF_READING, "not_printed")
_READ_BY = ("schema", "columns", "roles", "message_fields", "train_field", "tool_arguments", "as_chat")
