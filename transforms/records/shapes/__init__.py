"""Shapes: columns that people have in place of those of a schema. One module for each family of shapes.

A module of this package has `SHAPES`, a tuple of Shape. A shape recognizes a record by the names and the types of its
columns, and makes a record of a known schema of it, which is then read as any other. So all checks of messages, calls,
media, labels and unread columns hold for each shape. Shapes are tried for records that no schema reads as a whole.

Nothing is guessed: a record that fits two shapes, of which none reads all columns of the other, is rejected; so is one
in which two columns may be the same thing.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from transforms.base.errors import RecordError
from transforms.records.media import MEDIA_COLUMNS
from transforms.records.names import plain_name
from transforms.records.preference import LABELS
from transforms.records.samples import Sample

# The values of the columns of a shape, by what they are in it.
Values: TypeAlias = dict[str, Any]
# What each record may have, whatever its shape is.
_OF_ANY = (*LABELS, *MEDIA_COLUMNS, "chat_template_kwargs")
# What a question offers for an answer: nothing says how it is written.
_OFFERED = ("choices", "options")


class Column(NamedTuple):
    """What a column of a shape is.

    Attributes:
        names: that it may have, as `plain_name` writes them.
        fits: whether a value can be that of the column.
        choose: of several columns that fit and have different values, returns those that say all that the others say;
            none if it is not certain.
    """

    names: tuple[str, ...]
    fits: Callable[[Any], bool]
    choose: Callable[[Mapping[str, Any]], list[str]] = lambda found: []


@dataclass(frozen=True)
class Shape:
    """A shape of records.

    Attributes:
        name: of the shape, for counts and errors.
        columns: those that a record must have, by what they are in the shape.
        make: makes a record of the schema. Takes the value of each column by what it is; a list of the values if
            `choose` chose several. Raises RecordError if one is malformed.
        makes: what becomes of the columns, for the documentation.
        described: the columns in words, for the documentation.
        sample: a real record.
        schema: of the record that is made.
        optional: further columns that a record may have.
        left: the names of columns that are known not to be read, and are counted: other answers, or ones to compare.
        fits: whether a record with these columns has the shape, if the columns alone do not say so.
    """

    name: str
    columns: Mapping[str, Column]
    make: Callable[[Values], dict[str, Any]]
    makes: str
    described: str
    sample: Sample
    schema: str = "messages"
    optional: Mapping[str, Column] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    fits: Callable[[Values], bool] | None = None


class Found(NamedTuple):
    """A record that has a shape.

    Attributes:
        shape: the shape.
        values: of its columns, by what they are in it.
        further: the columns that any record may have.
        read: the columns that are read.
        required: those of them that the record must have.
        left: the columns that are known not to be read.
    """

    shape: Shape
    values: Values
    further: dict[str, Any]
    read: frozenset[str]
    required: frozenset[str]
    left: frozenset[str]

    def record(self) -> dict[str, Any]:
        """Make a record of a known schema. Raises RecordError if a column is malformed."""
        return self.further | self.shape.make(self.values)


@functools.cache
def shapes() -> tuple[Shape, ...]:
    """Return all shapes, by the names of their modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(shape for module in modules for shape in getattr(module, "SHAPES", ()))


def find_shape(record: Mapping[str, Any], schemas: Iterable[str]) -> Found | None:
    """Find the shape of a record.

    Args:
        record: its columns, without those that are null.
        schemas: that may be made.

    Returns:
        What was found; None if the record has no shape.

    Raises:
        RecordError: if it is not certain which shape it has, or which column is what.
    """
    schemas = {*schemas}
    by_name: dict[str, list[str]] = {}
    for name in record:
        by_name.setdefault(plain_name(name), []).append(name)
    matches, unclear = list[Found](), list[str]()
    for shape in shapes():
        if shape.schema in schemas and (match := _match(shape, record, by_name, unclear)):
            matches.append(match)
    best = [one for one in matches if not any(_is_contained(one, other) for other in matches)]
    if len(best) > 1:
        names = " and of ".join(match.shape.name for match in best)
        raise RecordError("ambiguous", f"the record has the shape of {names}; expected one. Give a formatter")
    if not best:
        if unclear:
            raise RecordError("ambiguous", unclear[0])
        return None
    return best[0]


def _is_contained(one: Found, other: Found) -> bool:
    """Whether another shape knows all columns that one reads, and reads more; or requires more of the same ones."""
    if one.read == other.read:
        return one.required < other.required
    return one.read <= other.read | other.left and not other.read <= one.read


def _match(
    shape: Shape, record: Mapping[str, Any], by_name: Mapping[str, list[str]], unclear: list[str]
) -> Found | None:
    """unclear: takes why a record that has the columns of the shape may be read in two ways."""
    if not all(any(name in by_name for name in column.names) for column in shape.columns.values()):
        return None
    values, read, required = Values(), set[str](), set[str]()
    problem = ""
    for what, column in (*shape.columns.items(), *shape.optional.items()):
        found = {
            name: record[name]
            for known in column.names
            for name in by_name.get(known, ())
            if name not in read and column.fits(record[name])
        }
        if not found:
            if what in shape.columns:
                return None
            continue
        names = _chosen(found, column)
        if not names:
            shown = ", ".join([*found][:-1]) + f" and {[*found][-1]}"
            problem = f"{shown} may each be the {what} of {shape.name}; expected one. Name it with columns, such as "
            problem += f"{what}={next(iter(found))}, or give a formatter"
            names = [*found][:1]
        values[what] = found[names[0]] if len(names) == 1 else [found[name] for name in names]
        read |= {*found}
        if what in shape.columns:
            required |= {*names}
    if (shape.fits and not shape.fits(values)) or any(record.get(name) for name in _OFFERED if name not in read):
        return None
    if problem:
        unclear.append(problem)
        return None
    left = {name for known in shape.left for name in by_name.get(known, ())} - read
    further = {name: record[name] for name in _OF_ANY if name in record and name not in read}
    return Found(shape, values, further, frozenset({*read, *further}), frozenset(required), frozenset(left))


def _chosen(found: Mapping[str, Any], column: Column) -> list[str]:
    names = [*found]
    is_one = all(found[name] == found[names[0]] for name in names[1:])
    return names[:1] if is_one else column.choose(found)
