"""Sums: what of a manifest can be added up. A manifest has the sums of the increments of the dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from transforms.model.counts import RecordCounts, StepCounts, Totals
from transforms.model.receipts import FirstExample
from transforms.model.statistics import Statistics


class Sums(StepCounts, frozen=True):
    """The sums of an increment.

    Attributes:
        sources: the totals of each source, in their order.
        statistics: of the records.
        first_examples, first_rejects, first_drops: as in receipts.Firsts.
    """

    records: RecordCounts = RecordCounts()
    rows: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    sources: list[Totals] = msgspec.field(default_factory=list)
    statistics: Statistics = Statistics()
    first_examples: Mapping[str, FirstExample] = {}
    first_rejects: Mapping[str, FirstExample] = {}
    first_drops: Mapping[str, FirstExample] = {}

    def as_json(self, sources: Sequence[str]) -> dict[str, Any]:
        """Return the sums as a manifest has them. sources: the names of the dataset's sources."""
        found = msgspec.to_builtins(self)
        totals = [*found["sources"], *(msgspec.to_builtins(Totals()) for _ in sources[len(self.sources) :])]
        found["sources"] = [{"name": name, **of_source} for name, of_source in zip(sources, totals, strict=True)]
        first = (*Totals.__struct_fields__, "trained_tokens_lost", "notes", "sources")
        return {name: found[name] for name in (*first, *found)}
