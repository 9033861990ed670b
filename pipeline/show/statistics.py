"""The statistics of a dataset: histograms, counts, and what another limit would cut off."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.show.printing import new_console, new_table
from pipeline.show.text import visible
from transforms.model.statistics import at_most, bins_of
from transforms.report.texts import records_compared, unread_events_text, unread_text
from transforms.report.warnings import kinds_of_differences

_TITLES = {
    "turns": "messages of a conversation",
    "example_tokens": "tokens of an example, before it is truncated",
    "example_trained_tokens": "tokens of an example that are trained on",
    "trained_percent": "percent of an example's tokens that are trained on",
    "row_tokens": "tokens of a row",
    "examples_per_row": "examples of a row",
}
_MOST_LINES = 12
_BAR = 34
_PERCENTILES = (50, 90, 99)


def print_statistics(manifest: Mapping[str, Any]) -> None:
    """Print the histograms and counts of a dataset. manifest: of it."""
    console = new_console()

    def print_part(title: str, *shown: Any) -> None:
        console.print(Text(f"\n{title}", "bold"))
        for each in shown:
            console.print(each)

    statistics = manifest["statistics"]
    trained = manifest["trained_tokens"] / max(manifest["tokens"], 1)  # all increments of a dataset may have failed
    console.print(f"{manifest['rows']:,} rows, {manifest['tokens']:,} tokens, {trained:.1%} of them trained on")
    for name, title in _TITLES.items():
        if histogram := statistics["histograms"].get(name):
            print_part(title, _describe(name, histogram), _bars(name, histogram))
    if statistics["limits"]:
        print_part("what another --max_length would cut off", _limits(statistics))
    for title, counts in (
        ("examples by schema", statistics.get("schemas", {})),
        ("messages by role", statistics["roles"]),
        ("tools", statistics["tools"]),
        ("trained tokens by part of the turn", statistics.get("parts", {})),
        ("trained spans end with", statistics.get("span_ends", {})),
    ):
        if any(counts.values()):
            print_part(title, _counts(counts))
    if unread := unread_text(manifest, _MOST_LINES):
        print_part("not read", unread)
    if events := unread_events_text(manifest, _MOST_LINES):
        print_part("events of traces not read", events)
    if turns := manifest["notes"].get("turns_without_end"):
        trained_on = "1 turn that is trained on ends" if turns == 1 else f"{turns:,} turns that are trained on end"
        print_part("end of turn", f"{trained_on} without one")
    if checked := manifest["notes"].get("parity_turns_checked"):
        print_part("parity with inference", _parity(checked, manifest["notes"]))


def _describe(name: str, histogram: Mapping[str, Any]) -> str:
    """The mean, the range and the percentiles of a histogram. These are known up to the end of their bucket."""
    quantiles = ", ".join(f"{percent}% <= {at_most(name, histogram, percent):,}" for percent in _PERCENTILES)
    mean = histogram["sum"] / histogram["count"]
    return f"mean {mean:,.1f}, from {histogram['min']:,} to {histogram['max']:,}; {quantiles}"


def _parity(checked: int, notes: Mapping[str, int]) -> str:
    """How many turns differ from inference of those that were compared, which may be a sample."""
    differing = notes.get("parity_turns_differing", 0)
    kinds = f" ({kinds_of_differences(notes)})" if differing else ""
    return f"{checked:,} turns of {records_compared(notes)} were compared: {differing:,} differ{kinds}"


def _bars(name: str, histogram: Mapping[str, Any]) -> Table:
    bins = bins_of(name, histogram, _MOST_LINES)
    most = max(count for *_, count in bins)
    table = new_table("rlrr")
    for first, last, count in bins:
        between = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        bar = "#" * round(_BAR * count / most)
        table.add_row(between, bar.ljust(_BAR), f"{count:,}", f"{count / histogram['count']:.1%}")
    return table


def _limits(statistics: Mapping[str, Any]) -> Table:
    histograms = statistics["histograms"]
    everything = {
        "examples": histograms["example_tokens"]["count"],
        "tokens": histograms["example_tokens"]["sum"],
        "trained_tokens": histograms["example_trained_tokens"]["sum"],
        "trained_tokens_of_turns": histograms["example_trained_tokens"]["sum"],
    }
    table = new_table("r" * 9)
    table.add_row("", "of examples", "", "of tokens", "", "of those trained on", "", "with --truncation turns", "")
    for limit, beyond in statistics["limits"].items():
        # Earlier versions did not count turns.
        counts = [(beyond.get(what, 0), count) for what, count in everything.items()]
        cells = [(f"{lost:,}", f"{lost / max(count, 1):.1%}") for lost, count in counts]
        table.add_row(f"{int(limit):,}", *chain.from_iterable(cells))
    return table


def _counts(counts: Mapping[str, int]) -> Table:
    table = new_table("lr")
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        table.add_row(visible(name), f"{count:,}")
    return table
