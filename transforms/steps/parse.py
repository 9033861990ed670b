"""Parse: from a record of any known schema to an example."""

from __future__ import annotations

import copy
import hashlib
import json
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import msgspec

from transforms.base.errors import RecordDropped, RecordError, call_user_function
from transforms.base.options import check_choice
from transforms.chat.config import ENGINES
from transforms.model.batches import Examples, Records
from transforms.model.counts import Statistics, TraceEvents
from transforms.model.examples import (
    Content,
    Conversation,
    Example,
    Notes,
    Record,
    attempt,
    said_by,
    validation_limit,
)
from transforms.model.outcomes import Drop
from transforms.model.statistics import sum_of_events, sum_of_unread
from transforms.records.formatter import load_formatter
from transforms.records.input_options import ParseOptions
from transforms.records.json_text import decode_beyond_range, duplicate_key, kind_of
from transforms.records.reading import Reading
from transforms.records.record_reading import FindUnread, read_record
from transforms.records.schemas import content_of
from transforms.records.train_flags import note_flags
from transforms.records.turns import is_conversation
from transforms.records.typed import TypedDecoder
from transforms.records.unread import decided_kinds, find_unread
from transforms.steps.base import Step, for_sources
from transforms.traces import ReadTrace, is_trace, read_trace

# The sample of records that is searched for duplicate keys: the first ones of a batch, and one in this many.
_FIRST, _ONE_OF = 16, 512
_schema_of = operator.attrgetter("schema")
_ALL_READ: dict[str, int] = {}
_NO_EVENTS: dict[str, TraceEvents] = {}
_NOTHING_KEPT: tuple[dict[str, str | None], Notes] = ({}, ())


class _Read(NamedTuple):
    """A record that was read: its schema or its shape, its content, and the characters of what was not read."""

    schema: str
    content: Content
    unread: Mapping[str, int]


class Parser:
    """Makes an example of each record; a record that cannot be understood is rejected.

    Usual records are parsed by typed decoders.

    Args:
        engine: one of ENGINES; `reference` uses no typed decoders.
        options: how records are read.

    Raises:
        ParameterError: if one of them is not a possible value, or the formatter cannot be loaded.
    """

    def __init__(self, options: ParseOptions, engine: str = "auto"):
        check_choice("engine", engine, ENGINES)
        self._engine = engine
        self._options = options
        self._read_options = options.read_options()
        self._columns = options.columns or {}
        self._format = load_formatter(options.formatter) if options.formatter else None
        self._keeps_columns = bool(options.keep_columns)
        self._validation_below = validation_limit(options.validation_fraction)
        self._seed = str(options.seed).encode()
        self._typed = TypedDecoder(options)
        self._decided = decided_kinds(self._columns) if options.schema == "auto" else None

    def __call__(self, batch: Records) -> Examples:
        drops = list[Drop]()
        is_typed = not self._format and self._engine != "reference"

        def examples_of(record: Record) -> list[Example]:
            try:
                return self.parse_all(record, is_typed)
            except RecordDropped as drop:
                drops.append(Drop(record.position, drop.reason, columns=drop.columns))
                return []

        parsed, rejects = attempt(batch.records, examples_of)
        examples = _with_duplicate_keys(list(chain.from_iterable(parsed)))
        outcomes = batch.outcomes.reject(rejects).drop(drops)
        notes = [(name, found, example.position) for example in examples for name, found in example.notes]
        firsts = {name: (position, found) for name, found, position in reversed(notes) if found is not None}
        for name, count in Counter(name for name, _, _ in notes).items():
            outcomes = outcomes.note(name, count, firsts.get(name))
        outcomes = outcomes.plus(statistics=_statistics(examples))
        return batch.succeeded_by(Examples, outcomes, examples=examples)

    def parse(self, record: Record) -> Example:
        """Make the first example of a record. Raises RecordError, or RecordDropped."""
        return self.parse_all(record)[0]

    def parse_all(self, record: Record, is_typed: bool = True) -> list[Example]:
        """Make the examples of a record: one, unless a formatter returns several.

        Args:
            record: the record.
            is_typed: whether typed decoders may parse it.

        Raises:
            RecordError: if it cannot be understood, or one of them.
            RecordDropped: if no example is left.
        """
        if is_typed and type(record.raw) is bytes and (typed := self._typed.decode(record.raw)):
            schema, content, columns, others = typed
            try:
                unread = find_unread(others, schema, content, self._decided) if others else _ALL_READ
            except RecordError:  # it may have a shape in which that is read
                pass
            else:
                # Most jobs need neither: a call takes as long as 1% of the rest.
                kept, notes = self._kept(columns) if self._keeps_columns else _NOTHING_KEPT
                validation = self._is_for_validation(content)
                of_record = record.position, content, kept, validation, record.raw, notes, 0, schema, unread
                return [Example(*of_record, _NO_EVENTS)]
        reading = Reading(self._read_options)
        fields, beyond = _decoded(record.raw)
        if record.nulls:
            reading.notes["null_arguments_left_out"] = f"{record.nulls} of a call"
        trace = self._trace(fields) if is_trace(fields) else None
        if is_typed and fields is not record.raw and not trace:
            self._typed.learn(fields)
        kept, notes = self._kept(fields if trace is None else trace.columns)
        reading.notes.update(notes)
        try:
            if trace:
                read = self._contents_of_trace(trace, reading)
            elif self._format:
                # A copy, so that its changes are not in a rejected record. JSON was decoded for it alone.
                formatted = self._formatted(copy.deepcopy(fields) if fields is record.raw else fields)
                read = self._contents(formatted, reading)
            else:
                read = [self._content(fields, reading, beyond)]
        except RecordDropped as drop:
            drop.columns = kept
            raise
        # Examples of one record are in one split, since they may share most of their content.
        validation = self._is_for_validation(read[0].content)
        noted = tuple(reading.notes.items())
        return [
            Example(
                *(record.position, made.content, kept, validation, record.raw, () if number else noted, number),
                schema=made.schema,
                unread=made.unread,
                trace_events=_NO_EVENTS if number or not trace else trace.events,
            )
            for number, made in enumerate(read)
        ]

    def _kept(self, fields: Mapping[str, Any]) -> tuple[dict[str, str | None], Notes]:
        """The columns to keep of a record, and a note of each that is missing, which may be mistyped."""
        if not self._keeps_columns:
            return _NOTHING_KEPT
        kept = {name: _as_string(name, fields.get(name)) for name in self._options.keep_columns}
        return kept, tuple((f"records_without_{name}", None) for name in sorted(kept) if kept[name] is None)

    def _content(self, fields: dict[str, Any], reading: Reading, beyond: Collection[str] = ()) -> _Read:
        """Read a record. beyond: its columns with numbers that JSON does not have, which none that is read may have."""
        named = fields
        if self._columns:
            found = {ours: fields[theirs] for ours, theirs in self._columns.items() if theirs in fields}
            taken = set(self._columns.values())
            missing = sorted(theirs for theirs in taken if fields.get(theirs) is None)
            reading.notes.update({f"records_without_{name}": None for name in missing})
            named = {name: value for name, value in fields.items() if name not in taken} | found
        record = {name: value for name, value in named.items() if value is not None}
        try:
            return _Read(*read_record(record, self._options.schema, reading, self._unread_of(fields, beyond, reading)))
        except RecordError as error:
            raise (_not_json(beyond, error.detail) if beyond and error.reason != "invalid_json" else error) from None

    def _unread_of(self, fields: Mapping[str, Any], beyond: Collection[str], reading: Reading) -> FindUnread:
        """A function that finds what of a record is not read."""

        def find(
            ours: Collection[str], schema: str, content: Content, left: Collection[str], by: str
        ) -> dict[str, int]:
            # A record without the renamed column is read by the name in the schema.
            theirs = {ours: name for ours, name in self._columns.items() if name in fields}
            read = {theirs.get(name, name) for name in ours}
            if read_beyond := [name for name in beyond if name in read]:
                raise _not_json(read_beyond, "expected a number or null")
            others = [
                (name, value)
                for name, value in fields.items()
                if name not in read and name not in self._options.keep_columns
            ]
            note_flags(others, reading)
            return find_unread(others, schema, content, self._decided, {theirs.get(name, name) for name in left}, by)

        return find

    def _trace(self, fields: Mapping[str, Any]) -> ReadTrace:
        return read_trace(fields, self._options.trace_branches, self._options.trace_tools)

    def _contents_of_trace(self, trace: ReadTrace, reading: Reading) -> list[_Read]:
        """Read the conversations of a trace. What is not read of its events is counted with the first one."""
        reading.notes.update(trace.notes)
        if self._format:
            formatted = [made for record in trace.records for made in self._formatted(record)]
            contents = self._contents(formatted, reading)
        else:
            contents = []
            for number, record in enumerate(trace.records, 1):
                try:
                    contents.append(_Read(trace.name, content_of(record, "messages", reading)[1], _ALL_READ))
                except RecordError as error:
                    where = f"conversation {number} of the trace: " if len(trace.records) > 1 else ""
                    raise RecordError(error.reason, f"{where}{error.detail}") from None
        return [contents[0]._replace(unread={**contents[0].unread, **trace.unread}), *contents[1:]]

    def _contents(self, records: list[dict[str, Any]], reading: Reading) -> list[_Read]:
        """Read the records that a formatter made of one."""
        contents: list[_Read] = []
        dropped = RecordDropped("filtered")
        for number, fields in enumerate(records, 1):
            try:
                contents.append(self._content(fields, reading))
            except RecordError as error:
                if len(records) == 1:
                    raise
                raise RecordError(error.reason, f"example {number} of the formatter: {error.detail}") from None
            except RecordDropped as drop:
                dropped = drop
            except Exception as error:  # values that JSON does not have, such as numpy's, may raise anything
                found = f"it returned a value that cannot be read: {type(error).__name__}: {error}"
                raise RecordError("formatter", found) from error
        if not contents:
            raise dropped
        if len(contents) < len(records):
            reading.notes["formatter_examples_dropped"] = f"the first reason is {dropped.reason}"
        return contents

    def _formatted(self, fields: dict[str, Any]) -> list[dict[str, Any]]:
        """The records that the formatter makes of one."""
        assert self._format
        formatted = call_user_function(self._format, fields, "formatter")
        if formatted is None:
            return []
        records = formatted if isinstance(formatted, list) else [formatted]
        for made in records:
            if not isinstance(made, (dict, str)):
                found = f"a list with {type(made).__name__}" if made is not formatted else type(made).__name__
                expected = "expected a dict, a string, None, or a list of dicts and strings"
                raise RecordError("formatter", f"it returned {found}; {expected}")
        return [{"text": made} if isinstance(made, str) else made for made in records]

    def _is_for_validation(self, content: Content) -> bool:
        """Whether a content is for validation: its hash decides."""
        if not self._validation_below:
            return False
        digest = hashlib.blake2b(_canonical(content), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big") < self._validation_below


def _statistics(examples: Sequence[Example]) -> Statistics:
    """How many examples were read by each schema, and what was not read of their records."""
    schemas = Counter(map(_schema_of, examples))
    unread = sum_of_unread([example.unread for example in examples if example.unread])
    events = sum_of_events([example.trace_events for example in examples if example.trace_events])
    return Statistics(schemas=schemas, unread=unread, trace_events=events)


def _with_duplicate_keys(examples: list[Example]) -> list[Example]:
    """Note the duplicate keys of records, of which decoders take the last one.

    To look for them takes longer than to parse, so a sample is searched; if one of it has some, all are searched.
    """
    everything = range(len(examples))
    for numbers in (chain(everything[:_FIRST], everything[_FIRST::_ONE_OF]), everything):
        searched = [number for number in numbers if _is_searched(examples[number])]
        found = {number: key for number in searched if (key := duplicate_key(examples[number].raw))}  # type: ignore[arg-type]
        if not found:
            return examples
    examples = list(examples)
    for number, key in found.items():
        notes = (("duplicate_json_keys", _twice(key)), *examples[number].notes)
        examples[number] = msgspec.structs.replace(examples[number], notes=notes)
    return examples


def _is_searched(example: Example) -> bool:
    """Whether an example is the first one of a record of JSON, without the note."""
    noted = any(name == "duplicate_json_keys" for name, _ in example.notes)
    return type(example.raw) is bytes and not example.number and not noted


def _twice(key: str) -> str:
    return f"the record has {key!r} twice in an object; the last one counts"


def _not_json(columns: Collection[str], detail: str) -> RecordError:
    found = f"{' and '.join(columns)} has NaN, Infinity or a number out of range, which is not valid JSON"
    return RecordError("invalid_json", f"{found}; {detail}")


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
        found = decode_beyond_range(raw, error)
        if found is None:
            raise RecordError("invalid_json", f"the record is not JSON: {error}") from None
        fields, beyond = found
    if isinstance(fields, list) and is_conversation(fields):
        return {"messages": fields}, beyond
    if not isinstance(fields, dict):
        raise RecordError("not_an_object", f"the record is {kind_of(fields)}; expected a JSON object")
    return fields, beyond


def _as_string(column: str, value: Any) -> str | None:
    """A string as it is, any other value as JSON, so that a column has one type in all shards."""
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError) as error:
        raise RecordError("bad_column", f"column {column} cannot be kept: {error}") from None


def _canonical(content: Content) -> bytes:
    """The content of an example; the same for duplicates with another schema, id, tools or order of keys."""
    says: Any = said_by(content)
    if isinstance(content, Conversation):
        roles, contents, calls = says
        says = [*zip(roles, contents, calls or repeat(None), strict=False)]
    try:
        return msgspec.json.encode(says, order="sorted")
    except UnicodeEncodeError as error:
        raise RecordError("invalid_unicode", f"the text is not Unicode: {error}") from None
    except (TypeError, RecursionError) as error:
        raise RecordError("formatter", f"it returned a value that is not valid JSON: {error}") from None


class ParseConversations(Step):
    """Make an example of each record: a conversation, a prompt and completion, a plain text, or a tokenized row.

    PCollection[Chunks[Records]] -> PCollection[Chunks[Examples]]. A record that cannot be understood is rejected, with
    the reason.

    Args:
        engine: `reference` parses each record in the general way; `auto` decodes usual ones by their types. The
            output is the same.
        sources: for each source of the records, by its number, the parameters that have another value for it; all but
            keep_columns, validation_fraction, seed and engine.
        options: those of a build, by name: schema, as_chat, columns, roles, message_fields, train_field,
            tool_arguments, formatter, trace_branches, trace_tools, validation_fraction, seed, keep_columns.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Records, Examples

    def __init__(
        self,
        *,
        engine: str = "auto",
        sources: Sequence[Mapping[str, Any]] = (),
        **options: Any,
    ):
        parsing = ParseOptions(**options)
        check_choice("engine", engine, ENGINES)
        sources = [{"options": each} for each in for_sources(parsing, sources)]
        super().__init__(Parser, sources, options=parsing, engine=engine)
