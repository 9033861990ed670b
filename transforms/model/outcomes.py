"""The outcome of each record: kept, truncated, dropped or rejected. In the end each record has exactly one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from transforms.model.counts import StepCounts


@dataclass(frozen=True, slots=True)
class Drop:
    """A record that is well-formed, and not in the dataset.

    Attributes:
        position: of the record in its file, as in Reject.
        reason: in snake_case.
        detail: what was found, such as the record that it is a duplicate of; empty if the reason says it.
        tokens, trained_tokens: how many it has; None if it was not tokenized.
        columns: of the record that are kept; none if they are not known.
    """

    position: int
    reason: str
    detail: str = ""
    tokens: int | None = None
    trained_tokens: int | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)

    def described(self) -> str:
        """Say what was found, or how many tokens it has; nothing if neither is known."""
        if self.detail or self.tokens is None:
            return self.detail
        return f"{self.tokens:,} tokens, {self.trained_tokens:,} of them to be trained on"


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that could not be used.

    Attributes:
        position: of the record in its file: the byte offset (JSON lines), or its number, from 0 (other formats).
        reason: the kind of fault, in snake_case.
        detail: what was found and what was expected.
        record: the record as bytes.
    """

    position: int
    reason: str
    detail: str
    record: bytes


class Outcomes(StepCounts, frozen=True):
    """What became of the records of a batch so far, and what was counted of them. `Rows.used` has the others.

    Attributes:
        read: records read.
        drops: the records dropped.
        rejects: the records rejected.
        first_examples: for some of the counts the first record that was counted: its position, and what was found.
    """

    read: int = 0
    drops: tuple[Drop, ...] = ()
    rejects: tuple[Reject, ...] = ()
    first_examples: Mapping[str, tuple[int, str]] = {}

    def drop(self, drops: Iterable[Drop]) -> Outcomes:
        """Add drops."""
        return self.plus(drops=tuple(drops))

    def reject(self, rejects: Iterable[Reject]) -> Outcomes:
        """Add rejects."""
        return self.plus(rejects=tuple(rejects))

    def note(self, name: str, count: int = 1, record: tuple[int, str] | None = None) -> Outcomes:
        """Count something that is worth reporting.

        Args:
            name: of the count, in snake_case.
            count: how many to add.
            record: the position of the first record counted, and what was found there; kept if it is the first.
        """
        return self._count_by_name("notes", name, count, name, record)

    def by_reference(self, what: str, reason: str, count: int = 1, record: tuple[int, str] | None = None) -> Outcomes:
        """Count records that the reference handled instead of the fast engine.

        Args:
            what: rendered_by_reference or tokenized_by_reference.
            reason: in snake_case.
            count: how many records to add.
            record: the position of the first record counted, and what was found there. The first for any reason is
                kept in first_examples, after the reason.
        """
        first = record and (record[0], f"{reason}: {record[1]}" if record[1] else reason)
        return self._count_by_name(what, reason, count, what, first)

    def _count_by_name(
        self, counts: str, name: str, count: int, example: str, record: tuple[int, str] | None
    ) -> Outcomes:
        if not count:
            return self
        firsts = self.first_examples if record is None else {example: record, **self.first_examples}
        return replace(self.plus(**{counts: {name: count}}), first_examples=firsts)
