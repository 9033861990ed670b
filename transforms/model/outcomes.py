"""The outcome of each record: kept, truncated, dropped or rejected. In the end each record has exactly one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from transforms.model.counts import StepCounts, sum_counts
from transforms.model.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a record that is not in the dataset.

    Attributes:
        tokens, trained_tokens: how many it has; None if it was not tokenized.
    """

    tokens: int | None = None
    trained_tokens: int | None = None

    def size(self) -> str:
        """Describe how many tokens it has; empty if that is not known."""
        return (
            "" if self.tokens is None else f"{self.tokens:,} tokens, {self.trained_tokens:,} of them to be trained on"
        )


@dataclass(frozen=True, slots=True)
class Drop:
    """A record that is well-formed, and not in the dataset.

    Attributes:
        position: of the record in its file, as in Reject.
        reason: in snake_case.
        known: what is known of it.
        detail: what was found, such as the record that it is a duplicate of; empty if the reason says it.
    """

    position: int
    reason: str
    known: Known = Known()
    detail: str = ""


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
    """How many records of a batch had which outcome. In the end read = kept + truncated + dropped + rejected.

    Attributes:
        read: records read.
        kept: records of which all tokens are in rows.
        truncated: records of which some tokens are in no row, because of max_length.
        drops: the records dropped.
        rejects: the records rejected.
        first_examples: for some of the counts the first record that was counted: its position, and what was found.
        statistics: of contents and tokens.
    """

    read: int = 0
    kept: int = 0
    truncated: int = 0
    drops: tuple[Drop, ...] = ()
    rejects: tuple[Reject, ...] = ()
    first_examples: Mapping[str, tuple[int, str]] = {}
    statistics: Statistics = Statistics()

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many records were dropped, by reason."""
        return Counter(drop.reason for drop in self.drops)

    def drop(self, drops: Iterable[Drop]) -> Outcomes:
        """Add drops."""
        drops = tuple(drops)
        return replace(self, drops=self.drops + drops) if drops else self

    def reject(self, rejects: list[Reject]) -> Outcomes:
        """Add rejects."""
        return replace(self, rejects=self.rejects + tuple(rejects))

    def note(self, name: str, count: int = 1, record: tuple[int, str] | None = None) -> Outcomes:
        """Count something that is worth reporting.

        Args:
            name: of the count, in snake_case.
            count: how many to add.
            record: the position of the first record counted, and what was found there; kept if it is the first.
        """
        examples = self._examples_with(name, count, record)
        return replace(self, notes=_added(self.notes, name, count), first_examples=examples)

    def count_rendered_by_reference(
        self, reason: str, count: int = 1, record: tuple[int, str] | None = None
    ) -> Outcomes:
        """Count records that the reference rendered instead of the fast engine.

        Args:
            reason: in snake_case.
            count: how many records to add.
            record: the position of the first record counted, and what was found there. The first for any reason is
                kept in first_examples, after the reason.
        """
        return self._count_by_reference("rendered_by_reference", reason, count, record)

    def count_tokenized_by_reference(
        self, reason: str, count: int = 1, record: tuple[int, str] | None = None
    ) -> Outcomes:
        """Count records that the reference tokenized instead of the fast engine.

        Args:
            reason, count, record: as for count_rendered_by_reference.
        """
        return self._count_by_reference("tokenized_by_reference", reason, count, record)

    def count_special_tokens_in_content(self, counts: Mapping[str, int]) -> Outcomes:
        """Count special tokens in contents, by the role and the token."""
        return replace(self, special_tokens_in_content=sum_counts([self.special_tokens_in_content, counts]))

    def count(self, statistics: Statistics) -> Outcomes:
        """Add statistics."""
        return replace(self, statistics=self.statistics + statistics)

    def unaccounted(self) -> int:
        """Return how many records have no outcome yet; a negative number if some have more than one."""
        return self.read - self.kept - self.truncated - len(self.drops) - len(self.rejects)

    def _count_by_reference(self, name: str, reason: str, count: int, record: tuple[int, str] | None) -> Outcomes:
        example = record and (record[0], f"{reason}: {record[1]}" if record[1] else reason)
        counts: dict[str, Any] = {name: _added(getattr(self, name), reason, count)}
        return replace(self, **counts, first_examples=self._examples_with(name, count, example))

    def _examples_with(self, name: str, count: int, record: tuple[int, str] | None) -> Mapping[str, tuple[int, str]]:
        if not count or record is None or name in self.first_examples:
            return self.first_examples
        return {**self.first_examples, name: record}


def _added(counts: Mapping[str, int], key: str, count: int) -> Mapping[str, int]:
    return {**counts, key: counts.get(key, 0) + count} if count else counts
