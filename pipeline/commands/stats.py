"""chatmill stats: prints the statistics of a dataset, from its manifest alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pipeline.cli.console import CommandParser

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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


def run(arguments: Sequence[str]) -> int:
    """Print the statistics of a dataset: for people, or as JSON.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, or there is no dataset.
        InputError: if its manifest is damaged.
    """
    parser = CommandParser(
        "stats",
        "OUT [--json]",
        "Print histograms of a dataset's lengths, trained share and turns, its schemas, roles and tools, "
        "what was not read, turns without an end of turn, and its parity with inference.",
        ["out/mine", "gs://bucket/mine --json"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    parser.add_argument("--json", action="store_true", default=False, help="print the statistics as JSON")
    options = parser.parse_args(arguments)
    from transforms.dataset.reader import Dataset

    manifest = Dataset(options.dataset).manifest
    if options.json:
        import msgspec

        print(msgspec.json.encode(manifest["statistics"]).decode())
        return 0
    from rich.console import Console

    _print(Console(highlight=False), manifest)
    return 0


def _print(console: Console, manifest: Mapping[str, Any]) -> None:
    from transforms.report.texts import unread_events_text, unread_text

    statistics = manifest["statistics"]
    trained = manifest["trained_tokens"] / max(manifest["tokens"], 1)  # all increments of a dataset may have failed
    console.print(f"{manifest['rows']:,} rows, {manifest['tokens']:,} tokens, {trained:.1%} of them trained on")
    for name, title in _TITLES.items():
        if histogram := statistics["histograms"].get(name):
            console.print(f"\n[bold]{title}[/]\n{_described(name, histogram)}")
            console.print(_bars(console, name, histogram))
    if statistics["limits"]:
        console.print("\n[bold]what another --max_length would cut off[/]")
        console.print(_limits(statistics))
    for title, counts in (
        ("examples by schema", statistics.get("schemas", {})),
        ("messages by role", statistics["roles"]),
        ("tools", statistics["tools"]),
        ("trained tokens by part of the turn", statistics.get("parts", {})),
        ("trained spans end with", statistics.get("span_ends", {})),
    ):
        if any(counts.values()):
            console.print(f"\n[bold]{title}[/]")
            console.print(_counts(counts))
    if unread := unread_text(manifest, _MOST_LINES):
        console.print("\n[bold]not read[/]")
        console.print(unread, markup=False)
    if events := unread_events_text(manifest, _MOST_LINES):
        console.print("\n[bold]events of traces not read[/]")
        console.print(events, markup=False)
    if turns := manifest["notes"].get("turns_without_end"):
        trained_on = "1 turn that is trained on ends" if turns == 1 else f"{turns:,} turns that are trained on end"
        console.print(f"\n[bold]end of turn[/]\n{trained_on} without one")
    if checked := manifest["notes"].get("parity_turns_checked"):
        console.print(f"\n[bold]parity with inference[/]\n{_parity(checked, manifest['notes'])}")


def _described(name: str, histogram: Mapping[str, Any]) -> str:
    """The mean, the range and the percentiles of a histogram. These are known up to the end of their bucket."""
    from transforms.model.statistics import at_most

    quantiles = ", ".join(f"{percent}% <= {at_most(name, histogram, percent):,}" for percent in _PERCENTILES)
    mean = histogram["sum"] / histogram["count"]
    return f"mean {mean:,.1f}, from {histogram['min']:,} to {histogram['max']:,}; {quantiles}"


def _parity(checked: int, notes: Mapping[str, int]) -> str:
    """How many turns differ from inference of those that were compared, which may be a sample."""
    from transforms.report.texts import records_compared
    from transforms.report.warnings import kinds_of_differences

    differing = notes.get("parity_turns_differing", 0)
    kinds = f" ({kinds_of_differences(notes)})" if differing else ""
    return f"{checked:,} turns of {records_compared(notes)} were compared: {differing:,} differ{kinds}"


def _bars(console: Console, name: str, histogram: Mapping[str, Any]) -> Table:
    from transforms.model.statistics import bins_of

    bins = bins_of(name, histogram, _MOST_LINES)
    most = max(count for *_, count in bins)
    mark = "#" if console.options.ascii_only else "█"
    table = _table("right", "left", "right", "right")
    for first, last, count in bins:
        between = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        bar = mark * round(_BAR * count / most)
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
    table = _table(*["right"] * 9)
    table.add_row("", "of examples", "", "of tokens", "", "of those trained on", "", "with --truncation turns", "")
    for limit, beyond in statistics["limits"].items():
        # Earlier versions did not count turns.
        counts = [(beyond.get(what, 0), count) for what, count in everything.items()]
        cells = [(f"{lost:,}", f"{lost / max(count, 1):.1%}") for lost, count in counts]
        table.add_row(f"{int(limit):,}", *chain.from_iterable(cells))
    return table


def _counts(counts: Mapping[str, int]) -> Table:
    from rich.text import Text

    from pipeline.show.text import visible

    table = _table("left", "right")
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        table.add_row(Text(visible(name)), f"{count:,}")  # the text of a token may be one of Rich's tags
    return table


def _table(*justified: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for justify in justified:
        table.add_column(justify=justify)  # type: ignore[arg-type]
    return table
