"""The statistics of a dataset: histograms, counts, and what another limit would cut off."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline.show.printing import new_console, new_table
from transforms.base.hidden import visible
from transforms.model.statistics import at_most, histogram_bins
from transforms.report.texts import records_compared, unread_events_text, unread_text
from transforms.report.warnings import count_difference_kinds

_TITLES = {
    "turns": "messages of a conversation",
    "example_tokens": "tokens of an example, before it is truncated",
    "example_trained_tokens": "tokens of an example that are trained on",
    "trained_percent": "percent of an example's tokens that are trained on",
    "row_tokens": "tokens of a row",
    "examples_per_row": "examples of a row",
}
# Counts of a manifest's statistics, by their titles.
_COUNTS = {
    "examples by schema": "schemas",
    "messages by role": "roles",
    "tools": "tools",
    "trained tokens by part of the turn": "parts",
    "trained spans end with": "span_ends",
}
_MOST_LINES = 12
_BAR = 34
_PERCENTILES = (50, 90, 99)


def print_statistics(manifest: Mapping[str, Any]) -> None:
    """Print the histograms and counts of a dataset. manifest: of it."""
    console, statistics, notes = new_console(), manifest["statistics"], manifest["notes"]
    trained = manifest["trained_tokens"] / max(manifest["tokens"], 1)  # all increments of a dataset may have failed
    console.print(f"{manifest['rows']:,} rows, {manifest['tokens']:,} tokens, {trained:.1%} of them trained on")
    parts: dict[str, Any] = {
        title: Group(_describe(name, histogram), _bars(name, histogram))
        for name, title in _TITLES.items()
        if (histogram := statistics["histograms"].get(name))
    }
    if statistics["limits"]:
        parts["what another --max_length would cut off"] = _limits(statistics)
    for title, name in _COUNTS.items():
        if any((counts := statistics.get(name, {})).values()):
            parts[title] = table = new_table("lr")
            for each, count in sorted(counts.items(), key=lambda item: -item[1]):
                table.add_row(visible(each), f"{count:,}")
    parts["not read"] = unread_text(manifest, _MOST_LINES)
    parts["events of traces not read"] = unread_events_text(manifest, _MOST_LINES)
    if turns := notes.get("turns_without_end"):
        trained_on = "1 turn that is trained on ends" if turns == 1 else f"{turns:,} turns that are trained on end"
        parts["end of turn"] = f"{trained_on} without one"
    if checked := notes.get("parity_turns_checked"):
        differing = notes.get("parity_turns_differing", 0)
        kinds = f" ({count_difference_kinds(notes)})" if differing else ""
        compared = f"{checked:,} turns of {records_compared(notes)} were compared"
        parts["parity with inference"] = f"{compared}: {differing:,} differ{kinds}"
    for title, part in parts.items():
        if part:
            console.print(Text(f"\n{title}", "bold"))
            console.print(part)


def _describe(name: str, histogram: Mapping[str, Any]) -> str:
    """The mean, the range and the percentiles of a histogram. These are known up to the end of their bucket."""
    quantiles = ", ".join(f"{percent}% <= {at_most(name, histogram, percent):,}" for percent in _PERCENTILES)
    mean = histogram["sum"] / histogram["count"]
    return f"mean {mean:,.1f}, from {histogram['min']:,} to {histogram['max']:,}; {quantiles}"


def _bars(name: str, histogram: Mapping[str, Any]) -> Table:
    bins = histogram_bins(name, histogram, _MOST_LINES)
    most = max(count for *_, count in bins)
    table = new_table("rlrr")
    for first, last, count in bins:
        between = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        bar = "#" * round(_BAR * count / most)
        table.add_row(between, bar.ljust(_BAR), f"{count:,}", f"{count / histogram['count']:.1%}")
    return table


def _limits(statistics: Mapping[str, Any]) -> Table:
    examples, trained = (statistics["histograms"][name] for name in ("example_tokens", "example_trained_tokens"))
    totals = {"examples": examples["count"], "tokens": examples["sum"], "trained_tokens": trained["sum"]}
    totals["trained_tokens_of_turns"] = trained["sum"]
    table = new_table("r" * 9)
    table.add_row("", "of examples", "", "of tokens", "", "of those trained on", "", "with --truncation turns", "")
    for limit, cut_off in statistics["limits"].items():
        cells = [(f"{cut_off[what]:,}", f"{cut_off[what] / max(total, 1):.1%}") for what, total in totals.items()]
        table.add_row(f"{int(limit):,}", *chain.from_iterable(cells))
    return table
