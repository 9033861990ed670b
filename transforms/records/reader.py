"""Reads records by the table of layouts.

The columns of a record that are not null are the key of a plan, which is made once: the layouts that the record may
have, in the order of the table, and the columns that each of their fields may have. To read a record is then to look up
its columns, and to see of what kind their values are.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from transforms.base.errors import RecordDropped, RecordError
from transforms.records.hints import ONLY_BY_FORMATTER, hint_for_record
from transforms.records.input_options import ParseOptions
from transforms.records.json_text import decode_json, is_repr, json_type, strings_in
from transforms.records.kinds import QUESTION, SWITCH, TOOLS, TURNS, UNFIT, Kind
from transforms.records.layouts import CHOSEN, DIALOG, LAYOUTS, SCHEMA_COLUMNS, Field, Layout
from transforms.records.media import FILE_COLUMNS, MEDIA_COLUMNS, check_no_media
from transforms.records.messages import read_messages
from transforms.records.names import ANSWERS, QUESTIONS, plain_name
from transforms.records.preference import LABELS, is_undesirable
from transforms.records.reading import ROLE_NAMES, Reading, ReadOptions
from transforms.records.tool_calls import read_tools
from transforms.records.train_flags import note_flag

# Layouts without an answer that a label could be about: `label` is a class there.
_WITHOUT_ANSWER = ("tokenized", "text", CHOSEN)
# The columns that are named in an error: an object may have thousands.
_SHOWN_COLUMNS = 20
_MOST_PLANS = 1024
_NO_PAIRS = (
    "the record has a chosen and a rejected answer, which are not for supervised training as they are; with schema "
    "chosen, the chosen answer is trained on. For DPO and reward models, trainers tokenize pairs themselves"
)
# The columns that --schema names.
_EXPECTED = "; or ".join(dict.fromkeys(" and ".join(columns) for _, columns in SCHEMA_COLUMNS.values()))


class _Slot(NamedTuple):
    """A field, and the columns that may be it, each after the name that it has in the table.

    own: the names of them where a value of another kind is an error.
    """

    name: str
    field: Field
    columns: Sequence[tuple[str, str]]
    own: Collection[str]
    is_required: bool


class _Candidate(NamedTuple):
    """A layout that a record may have.

    others: the columns that none of its fields may have. is_certain: whether each of these may have one column alone.
    """

    layout: Layout
    slots: Sequence[_Slot]
    others: Collection[str]
    is_certain: bool


class _Plan(NamedTuple):
    """How records with some columns are read. labels, media: our names and the columns; notes: of each record."""

    candidates: Sequence[_Candidate]
    labels: Mapping[str, str]
    media: Mapping[str, str]
    notes: Mapping[str, None]


class _Unfit(NamedTuple):
    """A column of a layout whose value is of another kind. is_own: its name is ours, or it is not valid JSON."""

    layout: Layout
    kind: Kind
    column: str
    is_own: bool


class RecordReader:
    """Reads records by the options of a build."""

    def __init__(self, options: ParseOptions):
        self._options, self._renamed, self._kept = options, dict(options.columns or {}), frozenset(options.keep_columns)
        self._layout, self._chosen = SCHEMA_COLUMNS.get(options.schema, ("", ()))
        self._plan = functools.lru_cache(_MOST_PLANS)(self._make_plan)
        self._read_options = ReadOptions(
            ROLE_NAMES | dict(options.roles or {}),
            options.message_fields or {},
            options.tool_arguments,
            options.train_field,
            options.as_chat,
        )

    def read(
        self,
        record: Mapping[str, Any],
        notes: dict[str, str | None],
        is_json: bool = False,
        beyond: Collection[str] = (),
    ) -> Reading:
        """Read a record: the reading has what was made of it.

        Args:
            record: its columns.
            notes: takes what is worth reporting of it.
            is_json: whether it was JSON.
            beyond: its columns with numbers that JSON does not have, which none that is read may have.

        Raises:
            RecordError: if it has no layout, or is malformed, or it is not certain what it says.
            RecordDropped: if its answer is labelled as bad.
        """
        key = tuple(record)
        if not is_json or None in record.values():  # an array of a formatter is not to be compared
            key = tuple([name for name in key if record[name] is not None])
        candidates, labels, media, plan_notes = self._plan(key)
        notes |= plan_notes
        reading = Reading(self._read_options, notes, is_json and not beyond)
        layout, unused = self._bind(candidates, record, reading)
        if media or not is_json:
            check_no_media(record, media)
        if labels and layout.name not in _WITHOUT_ANSWER and is_undesirable(record, labels, reading):
            raise RecordDropped("undesirable")
        if beyond and (read := [name for name in beyond if name not in unused and name not in self._kept]):
            raise not_json(read, "expected a number or null")
        content = layout.make(reading, **reading.values)
        reading.contents = content if isinstance(content, list) else (content,)
        reading.schema = layout.name
        if reading.forms:
            reading.schema += f" ({', '.join(dict.fromkeys(reading.forms))})"
        if unused:
            reading.unread = _count(record, unused, reading)
        return reading

    def _make_plan(self, key: tuple[str, ...]) -> _Plan:
        """Make the plan of records with some columns."""
        renamed = {ours: theirs for ours, theirs in self._renamed.items() if theirs in key}
        by_name: dict[str, list[str]] = {}  # a column has the name that is exactly ours before another
        for column in sorted(key, key=lambda column: plain_name(column) != column):
            if column not in renamed.values():
                by_name.setdefault(plain_name(column), []).append(column)
        decided = {*renamed, *(by_name.keys() & self._chosen)}
        by_name |= {ours: [theirs] for ours, theirs in renamed.items()}
        candidates = [
            self._candidate(layout, by_name, decided, key)
            for layout in LAYOUTS
            if self._layout in ("", layout.name)
            and not any(by_name.keys().isdisjoint(field.names) for field in layout.required.values())
        ]
        # What --columns or --schema names is read, if there is a layout that reads it.
        candidates.sort(key=lambda one: -len(decided & {slot.columns[0][0] for slot in one.slots}))
        if self._options.schema == "auto" and not renamed and any(columns <= {*key} for columns in ONLY_BY_FORMATTER):
            candidates = []
        return _Plan(
            candidates,
            {name: by_name[name][0] for name in LABELS if name in by_name},
            {name: by_name[name][0] for name in (*MEDIA_COLUMNS, *FILE_COLUMNS) if name in by_name},
            {f"records_without_{theirs}": None for theirs in self._renamed.values() if theirs not in key},
        )

    def _candidate(
        self, layout: Layout, by_name: Mapping[str, list[str]], decided: set[str], key: Sequence[str]
    ) -> _Candidate:
        slots: list[_Slot] = []
        firsts = {field.names[0] for field in layout.fields.values()}
        for name, field in layout.fields.items():
            columns = [(each, column) for each in field.names for column in by_name.get(each, ())]
            # After another column, a name that another field has first, as `input`, says nothing of this one.
            columns = columns[:1] + [one for one in columns[1:] if one[0] not in firsts - {field.names[0]}]
            columns = [one for one in columns if one[0] in decided][:1] or columns
            own = {*field.names[: field.own], *(decided if field.kind is not SWITCH else ())}  # it may be a text
            if columns:
                slots.append(_Slot(name, field, columns, own, name in layout.required))
        given = [column for slot in slots for _, column in slot.columns]
        others = [column for column in key if column not in given and column not in self._kept]
        return _Candidate(layout, slots, others, len({*given}) == len(slots) == len(given))

    def _bind(
        self, candidates: Sequence[_Candidate], record: Mapping[str, Any], reading: Reading
    ) -> tuple[Layout, Collection[str]]:
        """Find the layout of a record, and the columns that it does not read. Raises RecordError."""
        unfit: list[_Unfit] = []
        for candidate in candidates:
            if wrong := self._take(candidate, record, reading):
                unfit.append(wrong)
                continue
            layout, slots, unused, is_certain = candidate
            if layout.fits and not layout.fits(reading, reading.values):
                continue
            if layout.name == CHOSEN and self._options.schema == "auto":
                raise RecordError("preference_data", _NO_PAIRS)
            if not is_certain or len(reading.columns) < len(slots):
                unused = self._leave(candidate, record, reading)
            for one in unfit:  # it may be what was meant, and malformed
                if one.is_own and one.column in unused and not isinstance(record[one.column], (bool, int, float)):
                    raise _malformed(one, record, reading)
            return layout, unused
        raise self._refused(record, unfit, reading)

    def _take(self, candidate: _Candidate, record: Mapping[str, Any], reading: Reading) -> _Unfit | None:
        """Take for each field the first column that fits, and that no field before it has. Returns what does not."""
        columns: dict[str, tuple[str, str]] = {}
        values: dict[str, Any] = {}
        further: dict[str, Any] = {}
        taken = columns.values()  # with their names, since --columns may give a column to two fields
        _, slots, _, is_certain = candidate
        for name, field, choices, own, is_required in slots:
            kind = field.kind
            for each in choices:
                column = each[1]
                value = kind.fits(record[column], column, reading)
                if value is UNFIT or (not is_certain and each in taken):
                    continue
                is_last = is_certain or not _is_empty(value)
                if is_last or name not in columns:
                    columns[name] = each
                    if value or value is False or is_required:
                        (further if name in DIALOG else values)[name] = value
                if is_last:
                    break
            else:
                if name in columns:
                    continue
                malformed = [each for each in choices if kind.is_malformed(record[each[1]])]
                for each in (*malformed, *choices):
                    is_own = each in malformed or each[0] in own
                    if (is_required or (is_own and not _is_empty(record[each[1]]))) and each not in taken:
                        return _Unfit(candidate.layout, kind, each[1], is_own)
        reading.columns, reading.values, reading.further = columns, values, further
        return None

    def _leave(self, candidate: _Candidate, record: Mapping[str, Any], reading: Reading) -> list[str]:
        """Return the columns that a layout leaves. Raises RecordError if one may be a field, too."""
        read = {column for _, column in reading.columns.values()} | self._kept
        for name, field, choices, *_ in candidate.slots:
            if len(choices) == 1 or name not in reading.columns:
                continue
            rivals = [reading.column(name)]
            fitting = {column: field.kind.fits(record[column], column, reading) for _, column in choices}
            for column, value in fitting.items():
                if column in read or value is UNFIT or _is_empty(value):
                    continue
                if _say_the_same(fitting[rivals[0]], value, field.kind, reading):
                    read.add(column)
                else:
                    rivals.append(column)
            if len(rivals) > 1:
                problem = f"{' and '.join(rivals)} may each be its {field.names[0]}, and differ"
                options = " or ".join(self._option({field.names[0]: column}) for column in rivals)
                raise RecordError("ambiguous", f"{problem}; choose one: {options}")
        return [column for column, value in record.items() if value is not None and column not in read]

    def _refused(self, record: Mapping[str, Any], unfit: Sequence[_Unfit], reading: Reading) -> RecordError:
        """Return why a record has no layout, and what to do."""
        record = {name: value for name, value in record.items() if value is not None}
        reason = "unknown_schema" if self._options.schema == "auto" else "missing_column"
        if hint := hint_for_record(record):
            return RecordError(reason, hint)
        if own := next((one for one in unfit if one.is_own), None):
            return _malformed(own, record, reading)
        for column, value in record.items():
            if isinstance(value, list) and value and isinstance(value[0], dict) and has_messages(value[0]):
                problem = f"the records are in the list {column} of an object"
                return RecordError("unknown_schema", f"{problem}; expected that list alone, or its elements")
        more = f" and {len(record) - _SHOWN_COLUMNS:,} more" if len(record) > _SHOWN_COLUMNS else ""
        problem = f"the columns are {', '.join(map(str, islice(record, _SHOWN_COLUMNS))) or 'none'}{more}"
        if self._options.schema == "auto":
            problem = f"{problem}; expected {_EXPECTED}"
        else:
            problem = f"schema {self._options.schema} needs {' and '.join(self._chosen)}; {problem}"
        wrong = f"{_another(unfit[0], record)}. " if unfit else ""
        return RecordError(reason, f"{problem}. {wrong}{self._advice(record, reading)}")

    def _advice(self, record: Mapping[str, Any], reading: Reading) -> str:
        """Return the option by which a record is read, if it has one column of the right kind for each field."""
        dialogs = [column for column, value in record.items() if TURNS.fits(value, column, reading) not in (UNFIT, [])]
        texts = [
            column
            for column, value in record.items()
            if type(value) is str and value.strip() not in ("", "null") and not value.lstrip().startswith(("[", "{"))
        ]
        questions = [column for column in record if plain_name(column) in QUESTIONS]
        answers = [column for column in record if plain_name(column) in (*ANSWERS, "completion")]
        columns: dict[str, str] = {}
        if len(dialogs) == 1 and not answers:
            columns = {"messages": dialogs[0]}
        elif dialogs or any(map(TURNS.is_malformed, record.values())):
            columns = {}
        elif len(texts) == 1 and texts[0] not in questions + answers:
            columns = {"text": texts[0]}
        elif len(texts) == 2:
            question, answer = reversed(texts) if texts[0] in answers or texts[1] in questions else texts
            columns = {} if question in questions else {"question": question}
            columns |= {} if plain_name(answer) in ANSWERS else {"answer": answer}
        can_be_named = columns and all("," not in column and column == column.strip() for column in columns.values())
        if can_be_named and self._is_read_with(columns, record, reading):
            words = " and ".join(f"{column} has the {ours}" for ours, column in columns.items())
            return f"If {words}, add {self._option(columns)}"
        for column, value in record.items():
            if type(value) is str and is_repr(value):
                return f"{column} is {json_type(value)}"
        if self._options.schema != "auto":
            return f"Name them with --columns, such as --columns {self._chosen[0]}=YOURS, or leave --schema out"
        return "Name its columns with --columns, such as --columns messages=dialog, or give a formatter"

    def _is_read_with(self, columns: Mapping[str, str], record: Mapping[str, Any], reading: Reading) -> bool:
        """Whether a layout reads a record if --columns has these, too."""
        reader = RecordReader(dataclasses.replace(self._options, columns={**self._renamed, **columns}))
        is_read = False
        for candidate in reader._plan(tuple(record)).candidates:
            if candidate.layout.name != "one_message" and not reader._take(candidate, record, reading):
                is_read |= columns.keys() <= {name for name, _ in reading.columns.values()}
        return is_read

    def _option(self, columns: Mapping[str, str]) -> str:
        """Return the option that names columns, with those that are named already."""
        named = {**self._renamed, **columns}
        return f"--columns {shlex.quote(','.join(f'{ours}={theirs}' for ours, theirs in named.items()))}"


def has_messages(record: Mapping[str, Any]) -> bool:
    """Return whether the columns of an object are those of a record, other than a text."""
    return any({*columns} <= record.keys() for name, columns in SCHEMA_COLUMNS.values() if name != "text")


def not_json(columns: Collection[str], detail: str) -> RecordError:
    """Return the error of columns with numbers that JSON does not have."""
    problem = f"{' and '.join(columns)} has NaN, Infinity or a number out of range, which is not valid JSON"
    return RecordError("invalid_json", f"{problem}; {detail}")


def _say_the_same(value: Any, other: Any, kind: Kind, reading: Reading) -> bool:
    """Whether two values of a field say the same: dialogs may do so in two forms."""
    if value == other or kind is not TURNS:
        return bool(value == other)

    def comparable(turns: Any) -> Any:
        apart = Reading(reading.options, {})
        messages = read_messages(turns, "", apart)
        # Arrow gives each message the keys of all.
        return [{key: each for key, each in one.items() if each is not None} for one in messages], apart.tools

    with suppress(RecordError):
        return bool(comparable(value) == comparable(other))
    return False


def _is_empty(value: Any) -> bool:
    """Whether a value has no content, in tables too."""
    return value is None or (type(value) in (str, list, dict) and (not value or value == "[]" or value == "{}"))


def _malformed(unfit: _Unfit, record: Mapping[str, Any], reading: Reading) -> RecordError:
    """Return the error of a value of another kind than that of its field."""
    value, kind, column = record[unfit.column], unfit.kind, unfit.column
    try:
        if kind is TURNS:
            read_messages(value, column, reading)
        elif kind is TOOLS:
            if isinstance(value, str):
                decode_json(value, "bad_tools", column)
            read_tools(value, reading)
    except RecordError as error:
        return error
    return RecordError("malformed", f"as {unfit.layout.name}: {_another(unfit, record)}")


def _another(unfit: _Unfit, record: Mapping[str, Any]) -> str:
    """Say what a column is, and what was expected."""
    value, expected = record[unfit.column], unfit.kind.words
    actual = "the JSON of messages" if unfit.kind is QUESTION and isinstance(value, str) else json_type(value)
    return (
        f"{unfit.column} is not {expected}"
        if actual in expected
        else f"{unfit.column} is {actual}; expected {expected}"
    )


def _count(record: Mapping[str, Any], unused: Collection[str], reading: Reading) -> Mapping[str, int]:
    """Count the characters of the columns that nothing takes."""
    unread: dict[str, int] = {}
    for name in unused:
        value, characters = record[name], 0
        if type(value) is str:
            is_label = name in LABELS and value.lower() in ("true", "false")
            characters = 0 if is_label or value.isspace() else len(value)
        else:
            if type(value) is list or type(value) is dict:
                characters = sum([len(text) for text in strings_in(value) if not text.isspace()])
        note_flag(name, value, reading)
        if characters:
            unread[name] = characters
    return unread
