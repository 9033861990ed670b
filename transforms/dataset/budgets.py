"""Budgets: how much of a dataset may be rejected, lost or wrong before its run fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from transforms.dataset import Budgets
from transforms.dataset.layout import Folder
from transforms.model.counts import Sums

_REASONS_SHOWN = 5


def too_many_rejects(budgets: Budgets, sums: Sums) -> bool:
    """Whether more of the records were rejected than is allowed."""
    records = sums.totals().records
    return sum(records.rejected.values()) > budgets.max_reject_fraction * records.read


def exceeded(budgets: Budgets, sums: Sums, options: Mapping[str, Any], folder: Folder) -> Iterator[str]:
    """Yield a message for each budget that is exceeded: by how much, and of what most of it is.

    Args:
        budgets: of the run.
        sums: of an increment.
        options: of its job.
        folder: where its exceptions are.
    """
    totals, notes = sums.totals(), sums.notes
    read, rejected = totals.records.read, sum(totals.records.rejected.values())
    if too_many_rejects(budgets, sums):
        yield (
            f"{rejected:,} of {read:,} records were rejected, more than max_reject_fraction "
            f"{budgets.max_reject_fraction}. They are in {folder.records}-*. Correct them, or allow a "
            f"larger fraction, and run again. {first_rejects(sums)}"
        )

    def first(name: str) -> str:
        example = sums.first_examples.get(name)
        return f" The first is {example.file}, {example.position}: {example.detail}." if example else ""

    lost = sums.trained_tokens_lost
    total = lost + totals.trained_tokens
    if lost > budgets.max_lost_fraction * total:
        yield (
            f"{lost:,} of {total:,} tokens to train on are in no row because of max_length, more than "
            f"max_lost_fraction {budgets.max_lost_fraction}. Build with a larger max_length, or allow a larger "
            f"fraction and run again.{first('records_that_lost_trained_tokens')} {folder.records}-* "
            "lists all of them."
        )
    differing = notes.get("parity_turns_differing", 0)
    compared = notes.get("parity_turns_checked", 0)
    if options.get("parity", "report") == "report" and differing > budgets.max_parity_fraction * compared:
        kinds = {name: count for name, count in notes.items() if name.startswith("parity_turns_")}
        commonest = ", ".join(
            f"{name.removeprefix('parity_turns_').replace('_', ' ')} {count:,}"
            for name, count in Counter(kinds).most_common()
            if name not in ("parity_turns_differing", "parity_turns_checked")
        )
        yield (
            f"{differing:,} of {compared:,} trained turns that were compared differ from inference ({commonest}), "
            f"more than max_parity_fraction {budgets.max_parity_fraction}. Build with parity expand or reject, or "
            f"allow a larger fraction and run again.{first('parity_records_differing')}"
        )
    unprinted = notes.get("not_printed", 0)
    if unprinted > budgets.max_unprinted_fraction * read:
        yield (
            f"{unprinted:,} of {read:,} records have a content, a tool call or tools that the chat template does "
            f"not print, more than max_unprinted_fraction {budgets.max_unprinted_fraction}. Build with another "
            f"template, or allow a larger fraction and run again.{first('not_printed')}"
        )


def first_rejects(sums: Sums) -> str:
    """The most frequent reasons of rejects, with the first record that has each."""
    counts, examples = Counter(sums.totals().records.rejected), sums.first_rejects
    lines = [
        f"  {reason} ({count:,}): {examples[reason].file}, {examples[reason].position}: {examples[reason].detail}"
        for reason, count in counts.most_common(_REASONS_SHOWN)
    ]
    return "The most frequent reasons:\n" + "\n".join(lines)


def no_rows_message(sums: Sums, folder: Folder) -> str:
    """Describe that no row is left, and why. Takes what `exceeded` takes."""
    records = sums.totals().records
    if not records.read:
        return "the inputs have no records."
    all_of_them = "the only record was" if records.read == 1 else f"all {records.read:,} records were"
    outcomes = {**records.dropped, **records.rejected}
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in outcomes.items())
    message = f"{all_of_them} dropped or rejected: {reasons}."
    if not records.rejected:
        return message
    return f"{message} The rejected records are in {folder.records}-*. {first_rejects(sums)}"
