"""Reads records by the table of layouts.

The columns of a record that are not null are the key of a plan, which is made once: the layouts that the record may
have, in the order of the table, the columns that each of their fields may have, and those that no field has. To read a
record is then to look up its columns, and to see of what kind their values are.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from transforms.base.errors import InputError, RecordDropped, RecordError, StoreError, Unavailable, UserError
from transforms.model.examples import Content
from transforms.records.hints import hint_of_certain_columns, hint_of_record
from transforms.records.json_text import kind_of, strings_in
from transforms.records.kinds import QUESTION, SWITCH, TOOLS, TURNS, UNFIT, Kind
from transforms.records.layouts import CHOSEN, LAYOUTS, Layout
from transforms.records.media import FILE_COLUMNS, MEDIA_COLUMNS, check_no_media
from transforms.records.messages import messages_of
from transforms.records.names import ANSWERS, QUESTIONS, plain_name
from transforms.records.preference import LABELS, is_undesirable
from transforms.records.reading import Reading, ReadOptions
from transforms.records.tool_calls import tools_of
from transforms.records.train_flags import note_flag

# The names of --schema: the layout that each chooses, and the columns that it takes if they are there.
_SCHEMAS: dict[str, tuple[str, tuple[str, ...]]] = {
    CHOSEN: (CHOSEN, ("chosen", "rejected")),
    "tokenized": ("tokenized", ("input_ids",)),
    "messages": ("messages", ("messages",)),
    "prompt_completion": ("prompt_completion", ("prompt", "completion")),
    "sharegpt": ("messages", ("conversations",)),
    "alpaca": ("question_answer", ("instruction", "output")),
    "text": ("text", ("text",)),
    "question_answer": ("question_answer", ("question", "answer")),
}
SCHEMAS = ("auto", *_SCHEMAS)
# The names of columns that --columns knows.
INPUT_COLUMNS = tuple(
    dict.fromkeys(
        [
            *(name for _, columns in _SCHEMAS.values() for name in columns),
            *(
                name
                for layout in LAYOUTS
                if layout.name != "one_message"
                for field in (*layout.required.values(), *layout.optional.values())
                for name in field.names[: max(field.own, 1)]
            ),
            *("system_prompt", "options", *LABELS, *MEDIA_COLUMNS),
        ]
    )
)
# Layouts without an answer that a label could be about: `label` is a class there.
_WITHOUT_ANSWER = ("tokenized", "text", CHOSEN)
# The columns that are named in an error: an object may have thousands.
_SHOWN_COLUMNS = 20
_MOST_PLANS = 1024
_NO_PAIRS = (
    "the record has a chosen and a rejected answer, which are not for supervised training as they are; with schema "
    "chosen, the chosen answer is trained on. For DPO and reward models, trainers tokenize pairs themselves"
)
_ALL_READ: dict[str, int] = {}
_NOT_OF_A_LAYOUT = (
    RecordError,
    RecordDropped,
    RecursionError,
    MemoryError,
    UserError,
    InputError,
    Unavailable,
    StoreError,
)
_Names = tuple[str, ...]


class Read(NamedTuple):
    """A record that was read.

    Attributes:
        schema: the layout by which it was read, and the forms of its turns if they are not messages.
        contents: what was made of it.
        unread: the characters of the columns that have text and that nothing takes.
    """

    schema: str
    contents: Sequence[Content]
    unread: Mapping[str, int]


class _Bound(NamedTuple):
    """A field, our name for it, and the columns that a record has for it: the names in the table, and theirs."""

    field: str
    name: str
    columns: tuple[tuple[str, str], ...]
    kind: Kind
    own: Collection[str]
    is_required: bool
    is_decided: bool


class _Candidate(NamedTuple):
    """A layout that records with some columns may have.

    Attributes:
        layout: the layout.
        fields: of the layout, those that the record has columns for.
        usual: of each field its column, and what its value is by its kind; nothing if a column is left over that may be
            that of a field, too.
        names, columns: of the fields, in usual records.
        unused: the other columns.
    """

    layout: Layout
    fields: tuple[_Bound, ...]
    usual: tuple[tuple[str, str, Callable[..., Any], _Bound], ...]
    names: dict[str, str]
    columns: dict[str, str]
    unused: _Names


class _Plan(NamedTuple):
    """How records with some columns are read. is_usual: by the first candidate, if all values fit."""

    candidates: tuple[_Candidate, ...]
    is_usual: bool
    labels: Mapping[str, str]
    media: Mapping[str, str]
    hint: str


class _Taken(msgspec.Struct, frozen=True, gc=False):
    """What the fields of a layout take: their values, our names of their columns and theirs; and the other columns."""

    candidate: _Candidate
    values: dict[str, Any]
    names: dict[str, str]
    columns: dict[str, str]
    unused: _Names
    ambiguous: tuple[tuple[_Bound, list[str]], ...] = ()


class _Unfit(msgspec.Struct, frozen=True, gc=False):
    """A column of a layout whose value is of another kind. is_own: whether its name is ours."""

    candidate: _Candidate
    bound: _Bound
    column: str
    is_own: bool


class RecordReader:
    """Reads records.

    Args:
        options: by which their content is read.
        schema: one of SCHEMAS; `auto` is the first layout whose columns a record has.
        columns: the name of a column in the records, by our name for it.
        keep_columns: columns that are carried along, so that they are not counted.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: str = "auto",
        columns: Mapping[str, str] | None = None,
        keep_columns: Collection[str] = (),
    ):
        self._options, self._schema, self._kept = options, schema, frozenset(keep_columns)
        self._renamed = dict(columns or {})
        self._layout, self._chosen = _SCHEMAS.get(schema, ("", ()))
        self._plans: dict[_Names, _Plan] = {}

    def read(
        self,
        record: Mapping[str, Any],
        notes: dict[str, str | None] | None = None,
        is_json: bool = False,
        beyond: Collection[str] = (),
    ) -> Read:
        """Read a record.

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
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._plan_for(key)
        reading = Reading(self._options, is_json and not beyond, notes={} if notes is None else notes)
        if self._renamed:
            missing = [theirs for theirs in self._renamed.values() if record.get(theirs) is None]
            reading.notes.update({f"records_without_{theirs}": None for theirs in missing})
        usual = _take_usual(plan.candidates[0], record, reading) if plan.is_usual else None
        taken = usual if type(usual) is _Taken else self._take(plan, record, reading)
        layout = taken.candidate.layout
        if plan.media or not is_json:
            named = {ours: record[theirs] for ours, theirs in plan.media.items()}
            check_no_media({name: value for name, value in record.items() if value is not None} | named)
        labels = {ours: record[theirs] for ours, theirs in plan.labels.items()} if plan.labels else None
        if labels and layout.name not in _WITHOUT_ANSWER and is_undesirable(labels, reading):
            raise RecordDropped("undesirable")
        if beyond and (read := [name for name in beyond if name not in taken.unused and name not in self._kept]):
            raise not_json(read, "expected a number or null")
        reading.columns, reading.names = taken.columns, taken.names
        try:
            made = layout.make(reading, **taken.values)
        except _NOT_OF_A_LAYOUT:
            raise
        except Exception as error:  # whatever a record does to its layout is that record's
            raise RecordError("malformed", f"as {layout.name}: {type(error).__name__}: {error}") from error
        schema = f"{layout.name} ({', '.join(dict.fromkeys(reading.forms))})" if reading.forms else layout.name
        unread = _count(record, taken.unused, reading) if taken.unused else _ALL_READ
        return Read(schema, made if isinstance(made, list) else (made,), unread)

    def _plan_for(self, key: _Names) -> _Plan:
        """Make the plan of records with some columns."""
        renamed = {ours: theirs for ours, theirs in self._renamed.items() if theirs in key}
        by_name: dict[str, list[str]] = {}  # a column has the name that is exactly ours before another
        for column in sorted(key, key=lambda column: plain_name(column) != column):
            if column not in renamed.values():
                by_name.setdefault(plain_name(column), []).append(column)
        chosen = {name: by_name[name][0] for name in self._chosen if name in by_name} | renamed
        known = by_name.keys() | chosen.keys()
        found = [
            self._candidate(layout, by_name, chosen, key)
            for layout in LAYOUTS
            if self._layout in ("", layout.name)
            and not any(known.isdisjoint(field.names) for field in layout.required.values())
        ]
        # What --columns or --schema names is read, if there is a layout that reads it.
        found.sort(key=lambda candidate: -len(chosen.keys() & _decided(candidate)))
        hint = hint_of_certain_columns(key) if self._schema == "auto" and not renamed else ""
        labels = {name: by_name[name][0] for name in LABELS if name in by_name}
        media = {name: by_name[name][0] for name in (*MEDIA_COLUMNS, *FILE_COLUMNS) if name in by_name}
        is_usual = bool(found) and not found[0].layout.fits
        return _Plan(
            tuple(found),
            is_usual and (self._schema != "auto" or found[0].layout.name != CHOSEN) and not hint,
            labels | {name: renamed[name] for name in LABELS if name in renamed},
            media | {name: renamed[name] for name in MEDIA_COLUMNS if name in renamed},
            hint,
        )

    def _candidate(
        self, layout: Layout, by_name: Mapping[str, list[str]], chosen: Mapping[str, str], key: _Names
    ) -> _Candidate:
        """The fields of a layout, with the columns of a record."""
        fields: list[_Bound] = []
        of_layout = {**layout.required, **layout.optional}
        firsts = {field.names[0] for field in of_layout.values()}
        for field, (names, kind, own) in of_layout.items():
            columns = [(name, column) for name in names if name not in chosen for column in by_name.get(name, ())]
            # A name that another field has first, as `input`, says nothing of this one, if it has a column.
            others = firsts - {names[0]} if columns else ()
            decided = next(((name, chosen[name]) for name in names if name in chosen and name not in others), None)
            if decided or columns:
                is_required = field in layout.required
                found = (decided,) if decided else tuple(columns)
                fields.append(_Bound(field, names[0], found, kind, names[:own], is_required, decided is not None))
        usual: dict[str, tuple[str, str]] = {}
        taken = dict[str, str]()
        for bound in fields:
            if left := [one for one in bound.columns if _is_left(bound, *one, taken)]:
                usual[bound.field] = left[0]
                taken[left[0][1]] = left[0][0]
        is_usual = taken.keys() >= {column for bound in fields for _, column in bound.columns} - self._kept
        binds = tuple(
            (bound.field, usual[bound.field][1], bound.kind.fits, bound) for bound in fields if bound.field in usual
        )
        unused = tuple(name for name in key if name not in taken and name not in self._kept)
        named, given = ({field: one[which] for field, one in usual.items()} for which in (0, 1))
        return _Candidate(layout, tuple(fields), binds if is_usual else (), named, given, unused)

    def _take(self, plan: _Plan, record: Mapping[str, Any], reading: Reading) -> _Taken:
        """Find the layout of a record. Raises RecordError."""
        if plan.hint:
            raise RecordError("unknown_schema", plan.hint)
        unfit: list[_Unfit] = []
        for candidate in plan.candidates:
            taken = _take_usual(candidate, record, reading) or self._take_first(candidate, record, reading)
            if isinstance(taken, _Unfit):
                unfit.append(taken)
                continue
            layout = candidate.layout
            if layout.fits and not layout.fits(reading, taken.values):
                continue
            if layout.name == CHOSEN and self._schema == "auto":
                raise RecordError("preference_data", _NO_PAIRS)
            for one in unfit:  # it may be what was meant, and malformed
                if one.is_own and one.column in taken.unused and not isinstance(record[one.column], (bool, int, float)):
                    raise _malformed(one, record, reading)
            for bound, columns in taken.ambiguous:
                options = " or ".join(self._option({bound.name: column}) for column in columns)
                found = f"{' and '.join(columns)} may each be its {bound.name}, and differ"
                raise RecordError("ambiguous", f"{found}; choose one: {options}")
            return taken
        raise self._refused(record, unfit, reading)

    def _take_first(self, candidate: _Candidate, record: Mapping[str, Any], reading: Reading) -> _Taken | _Unfit:
        """Take of the columns that each field may have the first that fits, and that no field before it has."""
        values, names, columns = dict[str, Any](), dict[str, str](), dict[str, str]()
        others: list[tuple[_Bound, list[str]]] = []
        taken, same = dict[str, str](), set[str]()
        for bound in candidate.fields:
            found = [
                (name, column, value)
                for name, column in bound.columns
                if _is_left(bound, name, column, taken)
                and (value := bound.kind.fits(record[column], column, reading)) is not UNFIT
            ]
            if not found:
                for name, column in bound.columns:
                    if column not in taken and (wrong := _wrong(candidate, bound, name, column, record[column])):
                        return wrong
                continue
            said = [one for one in found if not _is_empty(one[2])]
            name, column, value = (said or found)[0]
            taken[column] = name
            columns[bound.field], names[bound.field] = column, name
            if value or value is False or bound.is_required:
                values[bound.field] = value
            equal = {other for _, other, its_value in said[1:] if _say_the_same(value, its_value, bound.kind, reading)}
            same |= equal
            others.append((bound, [other for _, other, _ in said[1:] if other not in equal | self._kept]))
        left = [(bound, [column for column in found if column not in taken]) for bound, found in others]
        ambiguous = tuple((bound, [columns[bound.field], *found]) for bound, found in left if found)
        read = taken.keys() | same | self._kept
        unused = tuple([name for name, value in record.items() if value is not None and name not in read])
        return _Taken(candidate, values, names, columns, unused, ambiguous)

    def _refused(self, record: Mapping[str, Any], unfit: Sequence[_Unfit], reading: Reading) -> RecordError:
        """Why a record has no layout."""
        record = {name: value for name, value in record.items() if value is not None}
        reason = "unknown_schema" if self._schema == "auto" else "missing_column"
        if hint := hint_of_record(record):
            return RecordError(reason, hint)
        if own := next((one for one in unfit if one.is_own), None):
            return _malformed(own, record, reading)
        for column, value in record.items():
            if isinstance(value, list) and value and isinstance(value[0], dict) and has_messages(value[0]):
                problem = (
                    f"the records are in the list {column} of an object; expected that list alone, or its elements"
                )
                return RecordError("unknown_schema", problem)
        shown = ", ".join(map(str, islice(record, _SHOWN_COLUMNS))) or "none"
        more = f" and {len(record) - _SHOWN_COLUMNS:,} more" if len(record) > _SHOWN_COLUMNS else ""
        found = f"the columns are {shown}{more}"
        if self._schema != "auto":
            found = f"schema {self._schema} needs {' and '.join(self._chosen)}; {found}"
        else:
            known = dict.fromkeys(" and ".join(columns) for _, columns in _SCHEMAS.values())
            found = f"{found}; expected {'; or '.join(known)}"
        if one := next((one for one in unfit if one.bound.is_required), None):
            found = f"{found}. {_another(one.column, record[one.column], one.bound.kind)}"
        return RecordError(reason, f"{found}. {self._advice(record, reading)}")

    def _advice(self, record: Mapping[str, Any], reading: Reading) -> str:
        """The option by which a record may be read: if it has one column of the right kind for each field."""
        texts = [
            column
            for column, value in record.items()
            if type(value) is str and not _is_empty(value) and TOOLS.fits(value, column, reading) is UNFIT
        ]
        dialogs = [column for column, value in record.items() if TURNS.fits(value, column, reading) not in (UNFIT, [])]
        found: dict[str, str] = {}
        if len(dialogs) == 1:
            found = {"messages": dialogs[0]}
        elif len(texts) == 1:
            found = {"text": texts[0]}
        elif len(texts) == 2:
            first, second = (plain_name(column) for column in texts)
            if first in ANSWERS or second in QUESTIONS:
                texts.reverse()
            known = {"question": QUESTIONS, "answer": ANSWERS}
            found = dict(zip(known, texts, strict=True))
            found = {ours: theirs for ours, theirs in found.items() if plain_name(theirs) not in known[ours]}
        if found and self._is_read_with(found, record, reading):
            words = " and ".join(f"{column} has the {ours}" for ours, column in found.items())
            return f"If {words}, add {self._option(found)}"
        if self._schema != "auto":
            return f"Name them with --columns, such as --columns {self._chosen[0]}=YOURS, or leave --schema out"
        return "Name its columns with --columns, such as --columns messages=dialog, or give a formatter"

    def _is_read_with(self, columns: Mapping[str, str], record: Mapping[str, Any], reading: Reading) -> bool:
        """Whether --columns with these has a record read, and leaves no question without its answer."""
        answers = {column for column in record if plain_name(column) in (*ANSWERS, "completion")}
        for ours, theirs in columns.items():
            if "," in theirs or theirs != theirs.strip():  # which the option cannot name
                return False
            if (ours == "messages" and answers) or (
                ours == "text" and (theirs in answers or plain_name(theirs) in QUESTIONS)
            ):
                return False
        reader = RecordReader(self._options, self._schema, {**self._renamed, **columns}, self._kept)
        taken = [
            reader._take_first(candidate, record, reading)
            for candidate in reader._plan_for(tuple(record)).candidates
            if candidate.layout.name != "one_message"
        ]
        return any(isinstance(one, _Taken) and {*columns} <= {*one.names.values()} for one in taken)

    def _option(self, columns: Mapping[str, str]) -> str:
        """The option that names columns, with those that are named already."""
        named = {**self._renamed, **columns}
        return f"--columns {shlex.quote(','.join(f'{ours}={theirs}' for ours, theirs in named.items()))}"


def has_messages(record: Mapping[str, Any]) -> bool:
    """Return whether the columns of an object are those of a record, other than a text."""
    return any({*columns} <= record.keys() for name, columns in _SCHEMAS.values() if name != "text")


def not_json(columns: Collection[str], detail: str) -> RecordError:
    """Return the error of columns with numbers that JSON does not have."""
    found = f"{' and '.join(columns)} has NaN, Infinity or a number out of range, which is not valid JSON"
    return RecordError("invalid_json", f"{found}; {detail}")


def _take_usual(candidate: _Candidate, record: Mapping[str, Any], reading: Reading) -> _Taken | _Unfit | None:
    """Take the column of each field that it has first; None if that one does not fit, or is empty, of several."""
    values = {}
    for field, column, fits, bound in candidate.usual:
        value = fits(record[column], column, reading)
        if value is UNFIT:
            is_certain = bound.is_required and len(bound.columns) == 1
            return _wrong(candidate, bound, *bound.columns[0], record[column]) if is_certain else None
        if value or value is False:
            values[field] = value
        elif bound.is_required or len(bound.columns) > 1:
            return None
    return _Taken(candidate, values, candidate.names, candidate.columns, candidate.unused) if candidate.usual else None


def _is_left(bound: _Bound, name: str, column: str, taken: Mapping[str, str]) -> bool:
    """Whether a field may have a column: no field before it has it, or --columns gives it to both, by two names."""
    return column not in taken or (bound.is_decided and taken[column] != name)


def _say_the_same(value: Any, other: Any, kind: Kind, reading: Reading) -> bool:
    """Whether two values of a field say the same: dialogs may do so in two forms."""
    if value == other or kind is not TURNS:
        return bool(value == other)
    first, second = Reading(reading.options), Reading(reading.options)
    try:
        are_same = _given(messages_of(value, "", first)) == _given(messages_of(other, "", second))
    except (RecordError, msgspec.ValidationError):
        return False
    return are_same and first.tools == second.tools


def _given(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the keys that are null, as Arrow gives each of them all keys of all."""
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


def _wrong(candidate: _Candidate, bound: _Bound, name: str, column: str, value: Any) -> _Unfit | None:
    """A value of another kind than that of its field, if the field is required, or its name is ours."""
    is_own = (bound.is_decided and bound.kind is not SWITCH) or name in bound.own  # --columns reasoning may be a text
    if bound.is_required or (is_own and not _is_empty(value)):
        return _Unfit(candidate, bound, column, is_own)
    return None


def _is_empty(value: Any) -> bool:
    """Whether a value has no content, in tables too."""
    return value is None or (type(value) in (str, list, dict) and (not value or value == "[]" or value == "{}"))


def _decided(candidate: _Candidate) -> set[str]:
    return {bound.columns[0][0] for bound in candidate.fields if bound.is_decided}


def _malformed(unfit: _Unfit, record: Mapping[str, Any], reading: Reading) -> RecordError:
    """The error of a value of another kind than that of its field."""
    value, kind, column = record[unfit.column], unfit.bound.kind, unfit.column
    try:
        if kind is TURNS:
            messages_of(value, column, reading)
        elif kind is TOOLS:
            tools_of(value, reading)
    except RecordError as error:
        return error
    return RecordError("malformed", f"as {unfit.candidate.layout.name}: {_another(column, value, kind)}")


def _another(column: str, value: Any, kind: Kind) -> str:
    """What a column is, and what was expected."""
    found = "the JSON of messages" if kind is QUESTION and isinstance(value, str) else kind_of(value)
    return f"{column} is not {kind.words}" if found in kind.words else f"{column} is {found}; expected {kind.words}"


def _count(record: Mapping[str, Any], unused: _Names, reading: Reading) -> Mapping[str, int]:
    """Count the characters of the columns that nothing takes."""
    unread: dict[str, int] = {}
    for name in unused:
        value = record[name]
        if type(value) is str:
            is_label = name in LABELS and value.lower() in ("true", "false")
            if value and not value.isspace() and not is_label:
                unread[name] = len(value)
            continue
        is_nested = type(value) is list or type(value) is dict
        if is_nested and (characters := sum([len(text) for text in strings_in(value) if not text.isspace()])):
            unread[name] = characters
        note_flag(name, value, reading)
    return unread
