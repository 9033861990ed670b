"""What is said of a dataset in words: texts of its manifest that the card, the report and the commands show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transforms.base.hidden import visible
from transforms.base.phrases import counted, describe_largest
from transforms.corpus.mix import make_mix
from transforms.steps.checks import CHECKS

_MOST_NAME_CHARACTERS = 80


def described_source(manifest: Mapping[str, Any], number: int) -> dict[str, str]:
    """Return what a table shows of a source of a manifest, by its number: of each column the title and the text."""
    source = manifest["sources"][number]
    counts = {
        "read": source["records"]["read"],
        "dropped": sum(source["records"]["dropped"].values()),
        "rejected": sum(source["records"]["rejected"].values()),
        "rows": source["rows"],
        "tokens": source["tokens"],
        "trained on": source["trained_tokens"],
    }
    return {title: f"{count:,}" for title, count in counts.items()} | describe_source_mix(manifest, number)


def describe_source_mix(manifest: Mapping[str, Any], number: int) -> dict[str, str]:
    """Return what was asked of a source and what came out, by the titles of columns; empty if there is no mix."""
    job = manifest["job"]
    own_options = [(source["name"], source.get("options", {})) for source in job.get("sources", ())]
    mix = make_mix(job.get("options", {}), own_options)  # None of a custom pipeline
    if mix is None:
        return {}
    source, weights = mix.sources[number], sum(each.weight or 0 for each in mix.sources)
    by = mix.by.replace("_", " ")
    words = [] if source.weight is None else [f"weight {source.weight:g} ({source.weight / weights:.2%} of {by})"]
    words += [f"epochs {source.epochs:,}"] if source.epochs != 1 else []
    limits = {"max_examples": source.max_examples, "max_tokens": source.max_tokens}
    words += [f"{name} {limit:,}" for name, limit in limits.items() if limit]
    came_out = manifest["sources"][number]["trained_tokens"] / max(manifest["trained_tokens"], 1)
    return {"asked for": ", ".join(words) or "all", "came out": f"{came_out:.2%} of trained tokens"}


def unread_text(manifest: Mapping[str, Any], most: int = 4) -> str:
    """Describe the text that was not read, such as `solution (800 records, 1.0 M characters)`; empty if there is none.

    most: how many columns and keys are named; the ones with most characters are first.
    """
    unread = manifest.get("statistics", {}).get("unread", {})
    names = sorted(unread, key=lambda name: (-unread[name]["characters"], name))
    described = [f"{_shown(name)} ({_counted(**unread[name])})" for name in names[:most]]
    return ", ".join(described) + (f" and {len(names) - most} more" if len(names) > most else "")


def count_content(manifest: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Return what checks found in contents, the most frequent first: the name, what was done and how many records."""
    records, notes = manifest["records"], manifest["notes"]
    outcomes = {"reported": notes, "dropped": records["dropped"], "rejected": records["rejected"]}
    found = [(name, outcome, counts[name]) for outcome, counts in outcomes.items() for name in CHECKS if name in counts]
    return sorted(found, key=lambda each: -each[2])


def contamination_text(manifest: Mapping[str, Any]) -> str:
    """Describe what records were compared with evaluation sets, and what was found; empty if they were not."""
    job = manifest["job"]
    if not (evaluations := job.get("evaluations")):
        return ""
    options, contaminated = job["options"], manifest["statistics"].get("contaminated", {})
    words = f"runs of {options['decontaminate_words']} words"
    text = f"compared with {counted(evaluations['records'], 'record')} of evaluation sets, by {words}: "
    records = sum(contaminated.values())
    text += f"{counted(records, 'record')} {'share' if records != 1 else 'shares'} some"
    if contaminated:
        left_out = options["contaminated"] == "drop"
        text += f" ({describe_largest(contaminated, 4)}), and {'left out' if left_out else 'kept'}"
    if evaluations["too_short"]:
        text += f"; {counted(evaluations['too_short'], 'evaluation record')} too short to be found"
    if evaluations["in_templates"]:
        text += f"; {counted(evaluations['in_templates'], 'run')} in too many of them to be looked for"
    if uncompared := manifest["notes"].get("not_compared_with_evaluations"):
        text += f"; {counted(uncompared, 'record')} of token ids not compared"
    return text


def unread_events_text(manifest: Mapping[str, Any], most: int = 4) -> str:
    """Describe the events of traces that were not read, such as `codex/turn_context (12 of 12)`; empty if all were.

    most: how many kinds are named; the most frequent ones are first.
    """
    events = manifest.get("statistics", {}).get("trace_events", {})
    kinds = sorted((kind for kind in events if events[kind]["not_read"]), key=lambda kind: -events[kind]["not_read"])
    described = [
        f"{_shown(kind)} ({events[kind]['not_read']:,} of {events[kind]['read'] + events[kind]['not_read']:,})"
        for kind in kinds[:most]
    ]
    return ", ".join(described) + (f" and {len(kinds) - most} more kinds" if len(kinds) > most else "")


def _shown(name: str) -> str:
    """A name that comes from the data, in one line."""
    name = visible(name).replace("\n", " ")
    return name if len(name) <= _MOST_NAME_CHARACTERS else f"{name[:_MOST_NAME_CHARACTERS]}..."


def _counted(records: int, characters: int) -> str:
    size = f"{characters / 1e6:.1f} M" if characters >= 1e6 else f"{characters:,}"
    return f"{records:,} record{'s' * (records != 1)}, {size} character{'s' * (characters != 1)}"


def records_compared(notes: Mapping[str, int]) -> str:
    """Return of how many records parity was checked, such as `20 of 198 records`. notes: of a manifest."""
    checked = notes.get("parity_records_checked", 0)
    return f"{checked:,} of {checked + notes.get('parity_records_not_checked', 0):,} records"
