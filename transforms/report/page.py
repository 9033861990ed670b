"""The report: report.html, one page that shows what is in a dataset and what became of every record.

It is made of the manifest and of some rows, and holds all that it needs: no browser asks the network for anything. What
comes from the data is escaped by Jinja, and what would be invisible, or turn the text around, is shown as its code.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup
from rich.filesize import decimal

from transforms.base.hidden import HIDDEN
from transforms.base.phrases import describe_largest
from transforms.dataset.layout import Folder
from transforms.model.statistics import at_most, histogram_bins
from transforms.report.excerpts import read_excerpts
from transforms.report.rebuilding import recipe_text
from transforms.report.texts import (
    contamination_text,
    count_content,
    describe_source_mix,
    unread_events_text,
    unread_text,
)
from transforms.report.warnings import warnings
from transforms.steps.checks import CHECKS

# The characters that are shown of a text that comes from the data; of details of records, fewer.
_MOST_CHARACTERS = 40_000
_MOST_DETAIL_CHARACTERS = 400
_MOST_BARS = 48
# Of what a table lists, the first ones are shown; the manifest has all.
MOST_LISTED = 40

# How the histograms of the manifest are shown, in this order: title, what is counted, the unit of its size.
_HISTOGRAMS = {
    "example_tokens": ("Length of examples", "examples", "tokens", "before truncation"),
    "example_trained_tokens": ("Trained tokens of examples", "examples", "trained tokens", "before truncation"),
    "trained_percent": ("Trained share of examples", "examples", "% of tokens", "in percent of the tokens of each"),
    "turns": ("Turns of conversations", "conversations", "messages", "by their messages"),
    "row_tokens": ("Length of rows", "rows", "tokens", "as they are in the shards"),
    "examples_per_row": ("Examples in rows", "rows", "examples", "by the examples that they hold"),
}


def make_report(folder: Folder, manifest: Mapping[str, Any]) -> bytes:
    """Make the report of a dataset: an HTML page, in UTF-8. The same dataset gives the same bytes.

    Raises:
        InputError: if a shard or the stored tokenizer is missing or damaged.
        StoreError: if the store fails.
    """
    histograms = _histograms(manifest)
    style, script = _file("page.css"), _file("page.js")
    page = _page().render(
        manifest=manifest,
        contamination=contamination_text(manifest),
        content=count_content(manifest),
        checks={name: check.find.__doc__ for name, check in CHECKS.items()},
        figure=functools.partial(_figure, manifest),
        bar=_bar,
        listed=_listed,
        most=MOST_LISTED,
        excerpts=read_excerpts(folder, manifest),
        histograms=histograms,
        charts=Markup(_json_for_html({each["name"]: each["chart"] for each in histograms})),
        shards=_sum_shards(manifest["shards"]),
        padding=_padding(manifest),
        findings=_findings(manifest),
        recipe=recipe_text(manifest),
        style=Markup(style),
        script=Markup(script),
        policy=(
            f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'"
        ),
    )
    return page.encode()


@functools.cache
def _page() -> jinja2.Template:
    """The page, compiled once for each process: with every, a report is written at each commit."""
    environment = jinja2.Environment(
        autoescape=True, finalize=_finalized, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "count": "{:,}".format,
        "share": _share,
        "detail": functools.partial(_visible, most=_MOST_DETAIL_CHARACTERS),
        "bytes": decimal,
        "describe_source_mix": describe_source_mix,
    }
    return environment.from_string(_file("page.html.jinja"))


@functools.cache
def _file(name: str) -> str:
    return (files("transforms.report") / "page_files" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source of an inline script or style in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json_for_html(value: Any) -> str:
    """JSON that can stand in a script element."""
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", msgspec.json.encode(value).decode())


def _finalized(value: Any) -> Any:
    """What Jinja prints of a value: all that is not markup of ours is made visible, and cut."""
    return value if isinstance(value, Markup) else _visible(str(value))


def _visible(text: str, most: int = _MOST_CHARACTERS) -> str:
    cut = f" … ({len(text) - most:,} more characters)" if len(text) > most else ""
    return HIDDEN.sub(lambda match: f"‹U+{ord(match[0]):04X}›", text[:most]) + cut


def _share(part: int, whole: int) -> str:
    """A part in percent. Only nothing is 0%, and only the whole is 100%."""
    if not part or not whole:
        return "0%"
    percent = 100 * part / whole
    if part < whole and percent >= 99.95:
        return ">99.9%"
    return (
        "<0.01%" if percent < 0.01 else f"{percent:.2f}%" if percent < 1 else f"{percent:.1f}%".replace("100.0", "100")
    )


def _figure(manifest: Mapping[str, Any], *keys: str | int) -> Markup:
    """A number of the manifest, with its JSON pointer (RFC 6901), so that a test can compare the two."""
    value: Any = manifest
    for key in keys:
        value = value[key]
    pointer = "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
    return Markup('<data value="{}" data-of="{}">{}</data>').format(value, _visible(pointer), f"{value:,}")


def _bar(part: int, whole: int, kind: str = "") -> Markup:
    """A bar as long as the part of the whole. A style with a width would need an exception in the policy."""
    width = round(100 * part / whole, 2) if whole else 0
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="1"/><rect width="{}" height="1"/></svg>'
    ).format(kind, f"{width:g}")


def _listed(counts: Mapping[str, int]) -> tuple[list[tuple[str, int]], int, int]:
    """The largest counts with their names, how many others there are, and the sum of these."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ordered[:MOST_LISTED], len(ordered[MOST_LISTED:]), sum(count for _, count in ordered[MOST_LISTED:])


def _sum_shards(shards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The shards of each split and format, summed: a dataset may have a million."""
    names = ("shards", "rows", "tokens", "trained_tokens", "bytes", "largest")
    sums = defaultdict[tuple[str, str], dict[str, Any]](lambda: dict.fromkeys(names, 0))
    for shard in shards:
        total = sums[shard["split"], shard["format"]]
        total["shards"] += 1
        for name in names[1:-1]:
            total[name] += shard[name]
        total["largest"] = max(total["largest"], shard["bytes"])
    return [{"split": split, "format": format, **total} for (split, format), total in sorted(sums.items())]


def _padding(manifest: Mapping[str, Any]) -> dict[str, int] | None:
    """What padding all rows to one length costs: to max_length if they are packed, otherwise to the longest row."""
    layout, rows = manifest["layout"], manifest["rows"]
    longest = manifest.get("statistics", {}).get("histograms", {}).get("row_tokens", {}).get("max")
    length = layout["max_length"] if layout["packing"] != "none" else longest
    if not length:
        return None
    return {"length": length, "all": rows * length, "padding": rows * length - manifest["tokens"]}


def _histograms(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The histograms that hold anything, each with its bins, its percentiles and its chart."""
    histograms = dict(manifest.get("statistics", {}).get("histograms", {}))
    if manifest["layout"]["packing"] == "none":
        histograms.pop("examples_per_row", None)  # it is always one
    return [_histogram(name, histograms[name]) for name in _HISTOGRAMS if histograms.get(name, {}).get("count")]


def _histogram(name: str, histogram: Mapping[str, Any]) -> dict[str, Any]:
    title, counted, unit, about = _HISTOGRAMS[name]
    bins = histogram_bins(name, histogram, _MOST_BARS)
    labels = [f"{first:,}" if first == last else f"{first:,}–{last:,}" for first, last, _ in bins]
    counts = [count for _, _, count in bins]
    return {
        "name": name,
        "title": title,
        "counted": counted,
        "unit": unit,
        "about": about,
        "mean": round(histogram["sum"] / histogram["count"], 1),
        "at_most": {percent: at_most(name, histogram, percent) for percent in (50, 90, 99)},
        "bins": [*zip(labels, counts, strict=True)],
        "chart": {"labels": labels, "counts": counts, "counted": counted, "unit": unit},
    }


def _findings(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What to look at, each with the part of the page that has the details."""
    records, findings = manifest["records"], []
    for outcome in ("rejected", "dropped"):
        if count := sum(records[outcome].values()):
            most = max(records[outcome], key=lambda reason: (records[outcome][reason], reason))
            findings.append((
                "outcomes",
                f"{count:,} of {records['read']:,} records ({_share(count, records['read'])}) were {outcome}, most "
                f"often as {most}.",
            ))  # fmt: skip
    if unread := unread_text(manifest):
        findings.append(("contents", f"Not read: {unread}."))
    if events := unread_events_text(manifest):
        findings.append(("contents", f"Events of traces that were not read: {events}."))
    if content := count_content(manifest):
        largest = describe_largest({name: count for name, _, count in content}, 3)
        findings.append(("content", f"Checks found something in contents: {largest}."))
    for warning in warnings(manifest):
        text = warning.text[0].upper() + warning.text[1:]
        findings.append((warning.part, f"{text} ({warning.hint})." if warning.hint else f"{text}."))
    return findings
