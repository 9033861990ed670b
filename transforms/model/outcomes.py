"""The outcome of each record: kept, truncated, dropped or rejected, and in the end each has one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that could not be used. position: byte offset (JSON) or row number (Parquet, Arrow) in its file."""

    position: int
    reason: str
    detail: str
    record: bytes


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What has become of the records of a batch. In the end read = kept + truncated + dropped + rejected.

    notes: counts of what is worth knowing and is no outcome (a completion that begins inside a token).
    first_examples: for some notes the first record that they are about, and what of it.
    trained_tokens_lost: tokens that would have been trained on and are in no row, because of max_length.
    """

    read: int = 0
    kept: int = 0
    truncated: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    rejects: tuple[Reject, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    first_examples: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    trained_tokens_lost: int = 0

    def drop(self, reason: str, count: int = 1) -> Outcomes:
        return dataclasses.replace(self, dropped=_added(self.dropped, reason, count))

    def note(self, what: str, count: int = 1, record: tuple[int, str] | None = None) -> Outcomes:
        """record: the position of the record that the note is about, and what is worth knowing of it."""
        first_examples = (
            self.first_examples
            if record is None or what in self.first_examples
            else {**self.first_examples, what: record}
        )
        return dataclasses.replace(self, notes=_added(self.notes, what, count), first_examples=first_examples)

    def reject(self, rejects: list[Reject]) -> Outcomes:
        return dataclasses.replace(self, rejects=self.rejects + tuple(rejects))

    def unaccounted(self) -> int:
        """Records that have no outcome (or, negative, more than one)."""
        return self.read - self.kept - self.truncated - sum(self.dropped.values()) - len(self.rejects)


def _added(counts: Mapping[str, int], key: str, count: int) -> Mapping[str, int]:
    return {**counts, key: counts.get(key, 0) + count} if count else counts
