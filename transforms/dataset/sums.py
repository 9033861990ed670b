"""Sums: what of a manifest can be added up. A manifest has the sums of the increments of the dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from transforms.dataset.manifest import first_of, sum_counts
from transforms.model.statistics import Statistics, total

_COUNTS = ("notes", "rendered_by_reference", "tokenized_by_reference", "special_tokens_in_content")
_FIRSTS = ("first_examples", "first_rejects", "first_drops")

Sums = Mapping[str, Any]


def add_sums(parts: Sequence[Sums], sources: Sequence[str]) -> dict[str, Any]:
    """Add up the sums of increments.

    Args:
        parts: of `sums_of_receipts`, in the order of the increments: of examples, the first one is kept.
        sources: the names of the dataset's sources, by their numbers.

    Returns:
        The sums of all of them, as one build of the same rows has them.
    """
    of_sources = [part["sources"] for part in parts]
    return {
        **_totals(parts),
        "trained_tokens_lost": sum(part["trained_tokens_lost"] for part in parts),
        "notes": sum_counts(part["notes"] for part in parts),
        "sources": [
            {"name": name, **_totals([each[number] for each in of_sources])} for number, name in enumerate(sources)
        ],
        **{name: sum_counts(part.get(name, {}) for part in parts) for name in _COUNTS if name != "notes"},
        "statistics": _statistics(part.get("statistics", {}) for part in parts),
        **{name: dict(sorted(first_of(part.get(name, {}) for part in parts).items())) for name in _FIRSTS},
    }


def add_records(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up the outcomes of records, as `records` of a manifest has them."""
    each = [*parts]
    return {
        **{outcome: sum(records[outcome] for records in each) for outcome in ("read", "kept", "truncated")},
        **{outcome: sum_counts(records[outcome] for records in each) for outcome in ("dropped", "rejected")},
    }


def _totals(parts: Sequence[Sums]) -> dict[str, Any]:
    return {
        "records": add_records(part["records"] for part in parts),
        **{what: sum(part[what] for part in parts) for what in ("rows", "tokens", "trained_tokens")},
    }


def _statistics(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return msgspec.to_builtins(total(msgspec.convert(part, Statistics) for part in parts))
