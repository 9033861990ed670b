"""Typed decoders: records of the usual shapes become content while their JSON is decoded.

The decoder of a shape knows the types of its columns, so that no dict of a record is made and searched, which takes
three to ten times as long. What it makes is what `content_of` makes; or it declines, and leaves the record to that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from transforms.errors import RecordError
from transforms.inputs.media import MEDIA_COLUMNS
from transforms.inputs.options import ParseOptions
from transforms.inputs.schemas import SCHEMA_COLUMNS, WITHOUT_ANSWER
from transforms.inputs.shapes import Maker, shapes
from transforms.model.examples import Content

_NO_TEXT: Any = Literal[""] | None
# The type of the items is one of which there are none, so that decoding stops at the first one.
_EMPTY = msgspec.Meta(max_length=0)
_NOTHING: Any = Annotated[list[Literal[""]], _EMPTY] | Annotated[dict[str, Literal[""]], _EMPTY] | _NO_TEXT
_NOT_FALSE: Any = Annotated[int, msgspec.Meta(ge=1)] | None
_NOT_BOOLEAN: Any = Annotated[str, msgspec.Meta(pattern="^(?!(?i:true|false)$)")]

_NONE_KEPT: dict[str, Any] = {}


class _Decoder(NamedTuple):
    sign: bytes  # the column by which its records are recognized, in their JSON
    decode: Callable[[bytes], Any]
    make: Maker
    names: dict[str, str]  # of the columns in the record
    kept: Sequence[tuple[str, str]]  # the columns to keep, and the fields that have them


def typed_decoder(options: ParseOptions) -> Callable[[bytes], tuple[Content, dict[str, Any]] | None]:
    """Make a decoder of the records of the usual shapes.

    Args:
        options: by which they are read.

    Returns:
        A function of the JSON of a record. It returns the content that `content_of` makes without a note, and the
        values of the columns to keep; or None if the record has none of the shapes. In columns that are not read,
        numbers may be out of range.
    """
    decoders = [] if options.formatter or options.message_fields else [*_decoders(options)]
    by_sign = [(sign, [*group]) for sign, group in itertools.groupby(decoders, lambda decoder: decoder.sign)]

    def decode(raw: bytes) -> tuple[Content, dict[str, Any]] | None:
        # To search for a sign takes 1 us for each KB, so a record is not tried with later signs than the first it has.
        for sign, group in by_sign:
            if sign in raw:
                return _decoded(raw, group)
        return None

    return decode


def _decoded(raw: bytes, decoders: Sequence[_Decoder]) -> tuple[Content, dict[str, Any]] | None:
    for _, decode, make, names, kept in decoders:
        try:
            record = decode(raw)
            content = make(record, raw, names)
            if not raw.isascii():
                raw.decode()  # msgspec does not check the columns that it skips
            return content, {name: getattr(record, field) for name, field in kept} if kept else _NONE_KEPT
        except (ValueError, RecursionError, RecordError):  # of another shape, or an error that content_of finds
            pass
    return None


def _decoders(options: ParseOptions) -> Iterator[_Decoder]:
    renamed = options.columns or {}
    for shape in shapes(options.read_options()):
        if options.schema not in ("auto", shape.schema) or not renamed.keys() <= shape.required.keys():
            continue
        types = {**_others(shape.schema, options.schema == "auto"), **shape.optional, **shape.required}
        # A column whose name stands for another one is not read as its own.
        names = {ours: renamed.get(ours, ours) for ours in types if ours in renamed or ours not in renamed.values()}
        field_of = {theirs: ours for ours, theirs in names.items()}
        kept = [(name, field_of.get(name, f"kept_{i}")) for i, name in enumerate(options.keep_columns)]
        if any(shape.is_structured(field) for _, field in kept):
            continue
        fields = names | {field: name for name, field in kept}
        required: list[Any] = list(shape.required.items())
        others = {field: types.get(field, Any) for field in fields if field not in shape.required}
        optional = [(field, kind, msgspec.Raw() if kind is msgspec.Raw else None) for field, kind in others.items()]
        record = msgspec.defstruct("Record", [*required, *optional], rename=fields, gc=False)
        decode = msgspec.json.Decoder(record).decode
        sign = names[[*shape.required][-1]]  # the last column is the rarer one
        yield _Decoder(f'"{sign}"'.encode(), decode, shape.make, names, kept)


def _others(schema: str, detected: bool) -> dict[str, Any]:
    """The types of the columns that could make the content of a schema another one."""
    types: dict[str, Any] = dict.fromkeys((*SCHEMA_COLUMNS[schema].all, *MEDIA_COLUMNS), _NOTHING)
    types |= dict.fromkeys(types.keys() & {"system", "system_prompt"}, _NO_TEXT)
    if schema not in WITHOUT_ANSWER:  # answers that are labelled as bad
        types |= {"label": _NOT_BOOLEAN | _NOT_FALSE, "kto_tag": _NOT_FALSE}
    if detected:  # pairs of answers, and the schemas that are tried before
        types["output"] = str | None
        earlier = itertools.takewhile(lambda name: name != schema, SCHEMA_COLUMNS)
        types |= dict.fromkeys((name for other in earlier for name in SCHEMA_COLUMNS[other].required), None)
    return types
