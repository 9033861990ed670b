"""Counts: what is counted of records, which adds up with `+`. A new count is one field of one of these types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec
from typing_extensions import Self

# The notes that count the rows that records have in addition to one each, before rows are packed.
ROWS_ADDED = ("parity_rows_added", "formatter_rows_added", "pair_rows_added", "window_rows_added", "copies_added")
# So many are added up at once: much faster than one by one, and there may be a million.
_AT_ONCE = 64


class Counts(msgspec.Struct, frozen=True):
    """Counts that add up, field by field.

    Numbers and counts are added, mappings name by name, lists item by item; tuples follow each other. Of anything else
    the first one is kept, and in a mapping of tuples, too.
    """

    def __add__(self, other: Self) -> Self:
        return self.sum_of((self, other))

    @classmethod
    def total(cls, each: Iterable[Any]) -> Self:
        """Add up any number of counts, of this type or with all of its fields. The total of none has the defaults."""
        left, found = iter(each), cls()
        while some := [*islice(left, _AT_ONCE)]:
            found = cls.sum_of((found, *some))
        return found

    @classmethod
    def sum_of(cls, some: Sequence[Any]) -> Self:
        """Add up some counts, at least one."""
        return cls(**{name: _sum([getattr(each, name) for each in some]) for name in cls.__struct_fields__})


class RecordCounts(Counts, frozen=True):
    """How many records were read, and how many had which outcome: the same number.

    Attributes:
        read, kept, truncated: as in outcomes.Outcomes.
        dropped, rejected: by reason.
    """

    read: int = 0
    kept: int = 0
    truncated: int = 0
    dropped: Mapping[str, int] = {}
    rejected: Mapping[str, int] = {}


class Totals(Counts, frozen=True):
    """The outcomes of records, and what their rows hold."""

    records: RecordCounts = RecordCounts()
    rows: int = 0
    tokens: int = 0
    trained_tokens: int = 0


class StepCounts(Counts, frozen=True):
    """What steps count of records, beyond their outcomes.

    Attributes:
        trained_tokens_lost: tokens that would have been trained on and are in no row, because of max_length.
        notes: counts of what is worth reporting but is not an outcome, such as prompts whose tokens do not begin the
            whole text.
        rendered_by_reference: records that the reference rendered, by reason.
        tokenized_by_reference: records of which the reference encoded at least one text, by reason.
        special_tokens_in_content: special tokens in contents, by the role and the token, such as `user <|im_end|>`.
    """

    trained_tokens_lost: int = 0
    notes: Mapping[str, int] = {}
    rendered_by_reference: Mapping[str, int] = {}
    tokenized_by_reference: Mapping[str, int] = {}
    special_tokens_in_content: Mapping[str, int] = {}


def _sum(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, int):
        return sum(values)
    if isinstance(first, Counts):
        return first.sum_of(values)
    if isinstance(first, tuple):
        return tuple(chain.from_iterable(values))
    if isinstance(first, list):
        return [_sum([value[i] for value in values if i < len(value)]) for i in range(max(map(len, values)))]
    if isinstance(first, Mapping):
        of_names: dict[str, list[Any]] = {}
        for value in values:
            for name, of_name in value.items():
                of_names.setdefault(name, []).append(of_name)
        # Some names are numbers: those of Statistics.limits.
        order: Any = (lambda name: (int(name), name)) if all(map(str.isdecimal, of_names)) else None
        return {name: _sum_of_name(of_names[name]) for name in sorted(of_names, key=order)}
    return first


def _sum_of_name(values: Sequence[Any]) -> Any:
    return _sum(values) if isinstance(values[0], (int, Counts)) else values[0]


def sum_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up counts by name."""
    return _sum([{}, *counts])
