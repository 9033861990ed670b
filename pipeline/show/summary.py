"""The summary of a finished dataset, on one screen: is it good, what was lost and why, what is a row?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from pipeline.show.hints import hints
from pipeline.show.printing import new_console, new_table
from pipeline.show.rows import print_preview
from transforms.base.phrases import counted, describe_largest
from transforms.dataset.layout import Folder
from transforms.dataset.reader import Dataset
from transforms.outputs import loading_code
from transforms.report.texts import count_content, described_source, records_compared, unread_events_text, unread_text
from transforms.report.warnings import DatasetWarning, warnings
from transforms.steps.checks import CHECKS

# Reasons in a line, lines of notes, and lines of sources.
_SHOWN, _SOURCES_SHOWN = 3, 4
_SCHEMA_NAMES = {"text": "plain text"}
# What notes begin with that have lines of their own, or belong to those that have a warning.
_SHOWN_ELSEWHERE = ("records_that_lost_trained_tokens", "parity_")


def print_summary(folder: Folder, manifest: dict[str, Any], max_reject_fraction: float) -> None:
    """Print a summary of a finished dataset to standard output, and warnings about it to standard error.

    max_reject_fraction: sources with more rejects have a warning.
    """
    console = new_console()
    console.print(_verdict(manifest))
    shown = [warning for warning in warnings(manifest, max_reject_fraction) if not warning.is_rare]
    table = new_table("lrl")
    for name, count, text in _counts(manifest, {warning.name for warning in shown}):
        table.add_row(name, f"{count:,}", text)
    console.print(table)
    if len(manifest.get("sources", ())) > 1:
        console.print(_format_sources_table(manifest))
    reasons = [reason for reason, _ in Counter(manifest["records"]["rejected"]).most_common(_SHOWN)]
    for line in (*_format_warnings(manifest, shown), *hints(reasons)):
        print(f"chatmill: {line}", file=sys.stderr)
    if not manifest["shards"]:  # an append may replace all rows by none
        console.print(f"The dataset is in {folder.output}. It has no rows.")
        return
    print_preview(console, Dataset(folder.output))
    console.print(f"The dataset is in {folder.output}. Load it with:")
    console.print(f"  {loading_code(folder.output, manifest['shards'])}")


def _format_warnings(manifest: Mapping[str, Any], shown: Sequence[DatasetWarning]) -> Iterator[str]:
    """Yield a line for each warning, and one about where their first records are."""
    source_warnings = [warning for warning in shown if warning.part == "sources"]
    for warning in source_warnings[:_SOURCES_SHOWN] + [warning for warning in shown if warning.part != "sources"]:
        yield f"warning: {warning.text}" + f" ({warning.hint})" * bool(warning.hint)
    if len(source_warnings) > _SOURCES_SHOWN:
        yield f"warning: the same for {len(source_warnings) - _SOURCES_SHOWN:,} more sources (manifest.json lists them)"
    if any(warning.name in manifest["first_examples"] for warning in shown):
        yield "first_examples in manifest.json has the first record of each, and report.html shows it."


def _verdict(manifest: dict[str, Any]) -> str:
    """How much of the records is in the dataset, in one line."""
    records, lost = manifest["records"], manifest["trained_tokens_lost"]
    left = records["kept"] + records["truncated"]
    # Rounded down, since it is not all.
    share = "All" if left == records["read"] else f"{1000 * left // records['read'] / 10}% of"
    verdict = f"{share} {counted(records['read'], 'record')} in the dataset"
    if records["truncated"]:
        verdict += f" ({records['truncated']:,} truncated)"
    if lost:
        verdict += f", {lost / (lost + manifest['trained_tokens']):.1%} of trained tokens lost"
    return verdict + "."


def overview(manifest: dict[str, Any]) -> str:
    """Return the counts of a dataset in one line, each with what is known of it."""
    return "; ".join(f"{name.strip()} {count:,}" + f" ({text})" * bool(text) for name, count, text in _counts(manifest))


def _counts(manifest: dict[str, Any], with_warnings: Collection[str] = ()) -> Iterator[tuple[str, int, str]]:
    """Yield the counts of a dataset, each with its name and what is known of it; no note that has a warning."""
    records, statistics, notes = manifest["records"], manifest["statistics"], manifest["notes"]
    schemas = statistics.get("schemas", {})
    read_as = {_SCHEMA_NAMES.get(name, name.replace("_", " ")): count for name, count in schemas.items()}
    yield "records read", records["read"], f"as {describe_largest(read_as, _SHOWN)}" if read_as else ""
    for outcome in ("kept", "truncated"):
        if records[outcome]:
            yield f"  {outcome}", records[outcome], ""
    for outcome in ("dropped", "rejected"):
        if count := sum(records[outcome].values()):
            yield f"  {outcome}", count, describe_largest(records[outcome], _SHOWN)
    if unread := unread_text(manifest):
        yield "not read", len(statistics["unread"]), unread
    if events := unread_events_text(manifest):
        yield "events not read", sum(each["not_read"] for each in statistics["trace_events"].values()), events
    if content := count_content(manifest):
        found = {f"{name} {outcome}" if outcome != "reported" else name: count for name, outcome, count in content}
        yield "checks", sum(found.values()), describe_largest(found, _SHOWN)
    if not manifest["rows"]:
        yield "rows", 0, ""
        return
    splits = Counter[str]()
    for shard in manifest["shards"]:
        splits[shard["split"]] += shard["rows"] * (shard["format"] == manifest["shards"][0]["format"])
    where = " and ".join(f"{rows:,} of {split}" for split, rows in splits.items())
    yield "rows", manifest["rows"], f"in {counted(len(manifest['shards']), 'shard')}: {where}"
    tokens, trained = manifest["tokens"], manifest["trained_tokens"]
    yield "tokens", tokens, f"{trained:,} trained on, {trained / tokens:.1%}"
    options = manifest["job"]["options"]
    if options["packing"] != "none":
        padding = manifest["rows"] * options["max_length"] - tokens
        share = f"{padding / (padding + tokens):.2%} of rows of {options['max_length']:,}"
        yield "padding left", padding, f"{share}, packed by {options['packing']}"
    others = sorted(name for name in notes.keys() - {*with_warnings, *CHECKS} if not name.startswith(_SHOWN_ELSEWHERE))
    for name in others[:_SHOWN]:
        yield name.replace("_", " "), notes[name], ""
    if len(others) > _SHOWN:
        yield "other notes", len(others) - _SHOWN, "in manifest.json"
    if checked := notes.get("parity_turns_checked"):
        differing = notes.get("parity_turns_differing", 0)
        yield "parity", checked, f"turns of {records_compared(notes)}, {differing:,} differ from inference"
    if added := notes.get("parity_rows_added"):
        yield "  rows added", added, ""


def _format_sources_table(manifest: dict[str, Any]) -> Table:
    sources, titles = manifest["sources"], ("source", *described_source(manifest, 0))
    table = new_table("l" + "r" * (len(titles) - 1), titles)
    for number, source in enumerate(sources[:_SOURCES_SHOWN]):
        table.add_row(source["name"], *described_source(manifest, number).values())
    if len(sources) > _SOURCES_SHOWN:
        table.add_row(f"{len(sources) - _SOURCES_SHOWN:,} more in manifest.json")
    return table
