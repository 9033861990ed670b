"""Parse: from a record to an example, or several."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import msgspec

from transforms.base.errors import RecordDropped, RecordError, call_user_function
from transforms.model.batches import Examples, Records
from transforms.model.counts import Statistics, TraceEvents
from transforms.model.examples import (
    NOT_FROM_A_RECORD,
    Content,
    Conversation,
    Example,
    Notes,
    Record,
    attempt,
    comparable_content,
    validation_limit,
)
from transforms.model.outcomes import Drop
from transforms.model.statistics import sum_events, sum_unread
from transforms.records.formatter import Formatter, load_formatter
from transforms.records.input_options import ParseOptions
from transforms.records.json_text import decode_beyond_range, duplicate_key, json_type
from transforms.records.reader import RecordReader, not_json
from transforms.records.reading import Reading
from transforms.records.turns import is_conversation
from transforms.steps.base import Step, for_sources
from transforms.traces import is_trace, read_trace

# The sample of records that is searched for duplicate keys: the first ones of a batch, and one in this many.
_FIRST, _ONE_OF = 16, 512
_NOTHING: dict[str, Any] = {}


class Parser:
    """Makes an example of each record; a record that cannot be understood is rejected.

    Args:
        options: how records are read.

    Raises:
        ParameterError: if one of them is not a possible value, or the formatter cannot be loaded.
    """

    def __init__(self, options: ParseOptions):
        self._options, self._reader = options, RecordReader(options)
        self._trace_reader = RecordReader(replace(options, schema="messages", columns=None, keep_columns=()))
        self._format = load_formatter(options.formatter) if options.formatter else None
        self._validation_below = validation_limit(options.validation_fraction)

    def __call__(self, batch: Records) -> Examples:
        drops = list[Drop]()

        def parse_record(record: Record) -> list[Example]:
            try:
                return self.parse_all(record)
            except RecordDropped as drop:
                drops.append(Drop(record.position, drop.reason, columns=drop.columns))
                return []

        parsed, rejects = attempt(batch.records, parse_record)
        examples = _with_duplicate_keys(list(chain.from_iterable(parsed)))
        outcomes = batch.outcomes.reject(rejects).drop(drops)
        notes = [(name, words, example.position) for example in examples for name, words in example.notes]
        firsts = {name: (position, words) for name, words, position in reversed(notes) if words is not None}
        for name, count in Counter(name for name, _, _ in notes).items():
            outcomes = outcomes.note(name, count, firsts.get(name))
        schemas = Counter([example.schema for example in examples])
        unread = sum_unread([example.unread for example in examples if example.unread])
        events = sum_events([example.trace_events for example in examples if example.trace_events])
        outcomes = outcomes.plus(statistics=Statistics(schemas=schemas, unread=unread, trace_events=events))
        return batch.succeeded_by(Examples, outcomes, examples=examples)

    def parse_all(self, record: Record) -> list[Example]:
        """Make the examples of a record: one, unless it has several.

        Raises:
            RecordError: if it cannot be understood, or one of them.
            RecordDropped: if no example is left.
        """
        notes: dict[str, str | None] = {"null_arguments_left_out": f"{record.nulls} of a call"} if record.nulls else {}
        fields, beyond = _decoded(record.raw)
        options, trace = self._options, None
        if "trace" in fields and is_trace(fields):
            trace = read_trace(fields, options.trace_branches, options.trace_tools)
            notes.update(trace.notes)
        kept = _kept(options.keep_columns, trace.columns if trace else fields, notes) if options.keep_columns else {}
        try:
            if self._format or trace:
                # A copy, so that its changes are not in a rejected record. JSON was decoded for it alone.
                own = copy.deepcopy(fields) if fields is record.raw else fields
                reads = self._read_several(trace.records if trace else [own], notes)
            else:
                reads = [self._reader.read(fields, notes, fields is not record.raw, beyond)]
        except RecordDropped as drop:
            drop.columns = kept
            raise
        except RecordError as error:
            if not beyond or self._format or error.reason == "invalid_json":
                raise
            raise not_json(beyond, error.detail) from None
        # Examples of one record are in one split, since they may share most of their content.
        below = self._validation_below
        validation = below > 0 and _hash(reads[0].contents[0], options.seed) < below
        noted: Notes = tuple(notes.items()) if notes else ()
        events: Mapping[str, TraceEvents] = _NOTHING
        if trace:  # what is not read of its events is counted with the first conversation
            events, reads[0].unread = trace.events, {**reads[0].unread, **trace.unread}
        examples: list[Example] = []
        for read in reads:
            schema, unread = trace.name if trace and not self._format else read.schema, read.unread
            for content in read.contents:
                number, raw = len(examples), record.raw
                examples.append(
                    Example(record.position, content, kept, validation, raw, noted, number, schema, unread, events)
                )
                noted, unread, events = (), _NOTHING, _NOTHING
        return examples

    def _read_several(self, records: list[dict[str, Any]], notes: dict[str, str | None]) -> list[Reading]:
        """Read the conversations of a trace, or what the formatter makes of records."""
        reader, each = self._trace_reader, "conversation {} of the trace"
        if self._format:
            reader, each = self._reader, "example {} of the formatter"
            records = [one for record in records for one in _formatted(self._format, record)]
        reads: list[Reading] = []
        dropped = RecordDropped("filtered")
        for number, fields in enumerate(records, 1):
            try:
                reads.append(reader.read(fields, notes))
            except RecordDropped as drop:
                dropped = drop
            except RecordError as error:
                if len(records) == 1:
                    raise
                raise RecordError(error.reason, f"{each.format(number)}: {error.detail}") from None
            except Exception as error:  # values that JSON does not have, such as numpy's, may raise anything
                if not self._format or isinstance(error, NOT_FROM_A_RECORD):
                    raise
                detail = f"it returned a value that cannot be read: {type(error).__name__}: {error}"
                raise RecordError("formatter", detail) from error
        if not reads:
            raise dropped
        if len(reads) < len(records):
            notes["formatter_examples_dropped"] = f"the first reason is {dropped.reason}"
        return reads


def _formatted(function: Formatter, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records that a formatter makes of one."""
    formatted = call_user_function(function, fields, "formatter")
    records = [] if formatted is None else formatted if isinstance(formatted, list) else [formatted]
    for record in records:
        if not isinstance(record, (dict, str)):
            returned = f"{'a list with ' * (record is not formatted)}{type(record).__name__}"
            expected = "expected a dict, a string, None, or a list of dicts and strings"
            raise RecordError("formatter", f"it returned {returned}; {expected}")
    return [{"text": record} if isinstance(record, str) else record for record in records]


def _with_duplicate_keys(examples: list[Example]) -> list[Example]:
    """Note the duplicate keys of records, of which decoders take the last one.

    To look for them takes longer than to parse, so a sample is searched; if one of it has some, all are searched.
    """
    sample = chain(examples[:_FIRST], examples[_FIRST::_ONE_OF])
    is_found = any(_with_duplicate_key(example) is not example for example in sample)
    return [*map(_with_duplicate_key, examples)] if is_found else examples


def _with_duplicate_key(example: Example) -> Example:
    """Note the key that an object of a record has twice, if it is not noted already."""
    is_noted = example.number or "duplicate_json_keys" in dict(example.notes)
    if type(example.raw) is not bytes or is_noted or not (key := duplicate_key(example.raw)):
        return example
    words = f"the record has {key!r} twice in an object; the last one counts"
    return msgspec.structs.replace(example, notes=(("duplicate_json_keys", words), *example.notes))


def _decoded(raw: bytes | dict[str, Any]) -> tuple[dict[str, Any], Collection[str]]:
    """Decode a record. Returns its columns, and the names of those with NaN, Infinity or a number out of range."""
    beyond: Collection[str] = ()
    if isinstance(raw, dict):
        return raw, beyond
    try:
        fields = msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        raise RecordError("invalid_unicode", f"the record is not UTF-8: {error}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        decoded = decode_beyond_range(raw, error)
        if decoded is None:
            raise RecordError("invalid_json", f"the record is not JSON: {error}") from None
        fields, beyond = decoded
    if isinstance(fields, list) and is_conversation(fields):
        return {"messages": fields}, beyond
    if not isinstance(fields, dict):
        raise RecordError("not_an_object", f"the record is {json_type(fields)}; expected a JSON object")
    return fields, beyond


def _kept(names: Sequence[str], fields: Mapping[str, Any], notes: dict[str, str | None]) -> dict[str, str | None]:
    """Return the columns to keep of a record, with a note of each that is missing, which may be mistyped."""
    kept: dict[str, str | None] = {}
    for name in names:
        value = fields.get(name)
        if value is None or isinstance(value, str):
            kept[name] = value
            continue
        try:  # as JSON, so that a column has one type in all shards
            kept[name] = json.dumps(value, ensure_ascii=False, default=str)
        except (RecursionError, TypeError, ValueError) as error:
            raise RecordError("bad_column", f"column {name} cannot be kept: {error}") from None
    notes.update({f"records_without_{name}": None for name in sorted(kept) if kept[name] is None})
    return kept


def _hash(content: Content, seed: int) -> int:
    """Hash a content: the same for duplicates with another schema, id, tools or order of keys."""
    says: Any = comparable_content(content)
    if isinstance(content, Conversation):
        roles, contents, calls = says
        says = [*zip(roles, contents, calls or repeat(None), strict=False)]
    try:
        encoded = msgspec.json.encode(says, order="sorted")
    except UnicodeEncodeError as error:
        raise RecordError("invalid_unicode", f"the text is not Unicode: {error}") from None
    except (TypeError, RecursionError) as error:
        raise RecordError("formatter", f"it returned a value that is not valid JSON: {error}") from None
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8, key=str(seed).encode()).digest(), "big")


class ParseConversations(Step):
    """Make an example of each record: a conversation, a prompt and completion, a plain text, or a tokenized row.

    PCollection[Chunks[Records]] -> PCollection[Chunks[Examples]]. A record that cannot be understood is rejected, with
    the reason.

    Args:
        sources: for each source of the records, by its number, the parameters that have another value for it; all but
            keep_columns, validation_fraction and seed.
        options: those of a build, by name: schema, as_chat, columns, roles, message_fields, train_field,
            tool_arguments, formatter, trace_branches, trace_tools, validation_fraction, seed, keep_columns.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Records, Examples

    def __init__(self, *, sources: Sequence[Mapping[str, Any]] = (), **options: Any):
        parsing = ParseOptions(**options)
        sources = [{"options": each} for each in for_sources(parsing, sources)]
        super().__init__(Parser, sources, options=parsing)
