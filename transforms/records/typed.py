"""Typed decoders: usual records become content while their JSON is decoded.

The decoder of a typed schema knows the types of its columns, so that no dict of a record is made and searched, which
takes three to ten times as long. What it makes is what `content_of` makes; or it declines, and leaves the record to
that.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from transforms.base.errors import RecordError
from transforms.model.examples import Content
from transforms.records.input_options import ParseOptions
from transforms.records.media import FILE_COLUMNS, MEDIA_COLUMNS
from transforms.records.names import COMPLETION_IDS
from transforms.records.schemas import OF_ONE_MESSAGE, SCHEMA_COLUMNS, WITHOUT_ANSWER
from transforms.records.train_flags import is_like_a_flag
from transforms.records.typed_schemas import Maker, typed_schemas
from transforms.records.unread import kind_of_name

_NO_TEXT: Any = Literal[""] | None
# No value has the type of the items, so decoding stops at the first one.
_EMPTY = msgspec.Meta(max_length=0)
_NOTHING: Any = Annotated[list[Literal[""]], _EMPTY] | Annotated[dict[str, Literal[""]], _EMPTY] | _NO_TEXT
_NO_LIST: Any = int | float | str | None  # some count tokens under these names
_NOT_FALSE: Any = Annotated[int, msgspec.Meta(ge=1)] | None
_NOT_BOOLEAN: Any = Annotated[str, msgspec.Meta(pattern="^(?!(?i:true|false)$)")]
_NOT_MESSAGE: Any = Annotated[str, msgspec.Meta(pattern="^(?!message$)")] | None
_NONE_KEPT: dict[str, Any] = {}
_NONE_UNREAD: list[tuple[str, Any]] = []
# The names of columns that decoders know, besides those of their schemas. Others are decoded without types.
_MOST_NAMES = 256
_CAN_BE_DECLARED = re.compile('[^"\\\\\x00-\x1f\ud800-\udfff]*').fullmatch


# A usual record: its schema, what `content_of` makes of it without a note, the values of the columns to
# keep, and the names and values of the columns that may have text and are not read.
Typed: TypeAlias = tuple[str, Content, dict[str, Any], list[tuple[str, Any]]]


class _Decoder(NamedTuple):
    sign: bytes  # the column by which its records are recognized, in their JSON
    schema: str
    decode: Callable[[bytes], Any]
    make: Maker
    names: dict[str, str]  # of the columns in the record
    kept: Sequence[tuple[str, str]]  # the columns to keep, and the fields that have them
    unread: Sequence[tuple[str, str]]  # the columns that are not read and are not metadata, and their fields


class TypedDecoder:
    """Decodes usual records.

    Its decoders know the names of all columns of a record: those that are not read stay as JSON, which takes next to no
    time. So no column escapes: a record with another name is left to `content_of`, and `learn` makes new decoders.

    Args:
        options: by which records are read.
    """

    def __init__(self, options: ParseOptions):
        self._options = options
        named = [*options.keep_columns, *(options.columns or {}).values()]
        self._is_used = not (options.formatter or options.message_fields) and all(map(_CAN_BE_DECLARED, named))
        self._others: dict[str, None] = {}  # names of columns, in the order in which they were found
        self._by_sign = self._made()

    def learn(self, names: Iterable[str]) -> None:
        """Take note of the columns of a record that none of the decoders took."""
        new = [name for name in names if name not in self._others and _CAN_BE_DECLARED(name)]
        new = [name for name in new if not is_like_a_flag(name)]  # of which there is something to note
        if new and self._is_used and len(self._others) + len(new) <= _MOST_NAMES:
            self._others |= dict.fromkeys(new)
            self._by_sign = self._made()

    def decode(self, raw: bytes) -> Typed | None:
        """Decode the JSON of a record; None if it is not a usual one."""
        # To search for a sign takes 1 us for each KB, so a record is not tried with later signs than the first it has.
        for sign, group in self._by_sign:
            if sign in raw:
                return _decoded(raw, group)
        return None

    def _made(self) -> list[tuple[bytes, list[_Decoder]]]:
        decoders = _decoders(self._options, self._others) if self._is_used else ()
        return [(sign, [*group]) for sign, group in itertools.groupby(decoders, lambda decoder: decoder.sign)]


def _decoded(raw: bytes, decoders: Sequence[_Decoder]) -> Typed | None:
    for _, schema, decode, make, names, kept, others in decoders:
        try:
            record = decode(raw)
            content = make(record, raw, names)
            if not raw.isascii():
                raw.decode()  # msgspec does not check the columns that it skips
            values = {name: getattr(record, field) for name, field in kept} if kept else _NONE_KEPT
            return schema, content, values, _values(record, others) if others else _NONE_UNREAD
        except (ValueError, RecursionError, RecordError):  # of another schema, or an error that content_of finds
            pass
    return None


def _values(record: Any, columns: Sequence[tuple[str, str]]) -> list[tuple[str, Any]]:
    """The columns that have a string, and their values. Raises ValueError if one is not valid JSON."""
    json = [(name, bytes(getattr(record, field))) for name, field in columns]
    return [(name, msgspec.json.decode(value)) for name, value in json if b'"' in value]


def _decoders(options: ParseOptions, others: Iterable[str]) -> Iterator[_Decoder]:
    renamed = options.columns or {}
    for typed in typed_schemas(options.read_options()):
        if options.schema not in ("auto", typed.schema) or not renamed.keys() <= typed.required.keys():
            continue
        types = {**_others(typed.schema, options.schema == "auto"), **typed.optional, **typed.required}
        # A column whose name stands for another one is not read as its own.
        names = {ours: renamed.get(ours, ours) for ours in types if ours in renamed or ours not in renamed.values()}
        field_of = {theirs: ours for ours, theirs in names.items()}
        kept = [(name, field_of.get(name, f"kept_{i}")) for i, name in enumerate(options.keep_columns)]
        if any(typed.is_structured(field) for _, field in kept):
            continue
        fields = names | {field: name for name, field in kept}
        taken = {*fields.values()}
        unread = [(name, f"unread_{i}") for i, name in enumerate(others) if name not in taken]
        required: list[Any] = list(typed.required.items())
        optional = {field: types.get(field, Any) for field in fields if field not in typed.required}
        optional |= {field: msgspec.Raw for _, field in unread}
        defaults = [(field, kind, msgspec.Raw() if kind is msgspec.Raw else None) for field, kind in optional.items()]
        record = msgspec.defstruct(
            "Record",
            [*required, *defaults],
            rename=fields | {field: name for name, field in unread},
            forbid_unknown_fields=True,
            gc=False,
        )
        decode = msgspec.json.Decoder(record).decode
        sign = names[[*typed.required][-1]]  # the last column is the rarer one
        watched = [(name, field) for name, field in unread if kind_of_name(name) != "metadata"]
        yield _Decoder(f'"{sign}"'.encode(), typed.schema, decode, typed.make, names, kept, watched)


def _others(schema: str, detected: bool) -> dict[str, Any]:
    """The types of the columns that could make the content of a schema another one."""
    types: dict[str, Any] = dict.fromkeys((*SCHEMA_COLUMNS[schema].all, *MEDIA_COLUMNS, *FILE_COLUMNS), _NOTHING)
    types |= dict.fromkeys(types.keys() & {"system", "system_prompt"}, _NO_TEXT)
    if schema not in WITHOUT_ANSWER:  # answers that are labelled as bad
        types |= {"label": _NOT_BOOLEAN | _NOT_FALSE, "kto_tag": None}
    if detected:  # pairs of answers, and the schemas that are tried before
        types["output"] = None
        types |= dict.fromkeys(() if schema == "tokenized" else COMPLETION_IDS, _NO_LIST)
        earlier = itertools.takewhile(lambda name: name != schema, SCHEMA_COLUMNS)
        types |= dict.fromkeys((name for other in earlier for name in SCHEMA_COLUMNS[other].required), None)
    if detected and schema == "text":
        types |= dict.fromkeys(OF_ONE_MESSAGE, None) | {"type": _NOT_MESSAGE}
    return types
