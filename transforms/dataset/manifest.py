"""The manifest of a dataset: what is in it, and the outcome of every record, summed from the receipts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import asdict

from transforms.base.hidden import escaped
from transforms.base.phrases import counted, most_of
from transforms.corpus.mix import mix_of
from transforms.dataset.description import Description
from transforms.dataset.sums import Sums
from transforms.model.counts import ROWS_ADDED, RecordCounts, StepCounts, Totals
from transforms.model.receipts import Firsts, Receipt
from transforms.model.statistics import Statistics, decode_statistics

_MOST_OF_A_NAME = 80


def check_complete(splits: int, receipts: Sequence[Receipt]) -> None:
    """Check that each split has each of its parts once, and each record one outcome.

    Args:
        splits: how many were planned.
        receipts: of all splits, in order.

    Raises:
        ValueError: if something is missing or doubled, which is an error of Chatmill's or of a step in the pipeline.
    """
    of_splits = [list(parts) for _, parts in groupby(receipts, key=lambda receipt: receipt.split)]
    for number, parts in enumerate(of_splits):
        found = [(part.split, part.part) for part in parts]
        expected = [(number, i) for i in range(len(parts))]
        if found != expected or [part.last for part in parts] != [False] * (len(parts) - 1) + [True]:
            raise ValueError(f"split {number} has the receipts {found}; expected each of its parts once")
    if len(of_splits) != splits:
        raise ValueError(f"{len(of_splits)} splits have receipts, of {splits} that were planned")
    for receipt in receipts:
        outcomes = receipt.kept + receipt.truncated + sum(receipt.dropped.values()) + sum(receipt.rejected.values())
        if receipt.read != outcomes:
            raise ValueError(f"split {receipt.split}: {receipt.read} records were read, and {outcomes} have an outcome")


def sums_of_receipts(description: Description, receipts: Sequence[Receipt]) -> Sums:
    """Add up what the receipts of an increment say, but for its files.

    Args:
        description: its job.
        receipts: of all splits, in order.

    Raises:
        ValueError: if the rows do not add up.
    """
    totals, counts = _totals(receipts), StepCounts.total(receipts)
    records, rows = totals.records, totals.rows
    survivors = records.kept + records.truncated + sum(counts.notes.get(name, 0) for name in ROWS_ADDED)
    if description.options.get("packing", "none") == "none" and rows != survivors:
        raise ValueError(f"{rows} rows were written, of records that should have {survivors}")
    return Sums(
        **asdict(totals),
        **asdict(counts),
        **asdict(Firsts.total(receipts)),
        sources=_by_source(len(description.sources), receipts, totals),
        statistics=Statistics.total(decode_statistics(receipt.statistics) for receipt in receipts),
    )


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the content of manifest.json: JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2)


def _totals(receipts: Sequence[Receipt]) -> Totals:
    """The outcomes of the records, and what the rows hold. Each row counts once, in however many formats it is."""
    once = [shard for receipt in receipts for shard in receipt.shards_once()]
    return Totals(
        records=RecordCounts.total(receipts),
        rows=sum(shard.rows for shard in once),
        tokens=sum(shard.tokens for shard in once),
        trained_tokens=sum(shard.trained_tokens for shard in once),
    )


def _by_source(count: int, receipts: Sequence[Receipt], totals: Totals) -> list[Totals]:
    """The totals of each source. Raises ValueError if they do not add up to those of the dataset."""
    of_source: defaultdict[int, list[Receipt]] = defaultdict(list)
    of_several: defaultdict[int, list[Totals]] = defaultdict(list)
    for receipt in receipts:
        if receipt.of_sources:
            for number, totals_of_source in enumerate(receipt.of_sources):
                of_several[number].append(totals_of_source)
        else:
            of_source[receipt.source].append(receipt)
    sources = [Totals.total([_totals(of_source[number]), *of_several[number]]) for number in range(count)]
    if (found := Totals.total(sources)) != totals:
        raise ValueError(f"the sources have {found}; the dataset has {totals}")
    return sources


def described_source(manifest: Mapping[str, Any], number: int) -> dict[str, str]:
    """Return what a table shows of a source of a manifest, by the title of each column.

    Args:
        manifest: of the dataset.
        number: of the source.
    """
    source = manifest["sources"][number]
    counts = {
        "read": source["records"]["read"],
        "dropped": sum(source["records"]["dropped"].values()),
        "rejected": sum(source["records"]["rejected"].values()),
        "rows": source["rows"],
        "tokens": source["tokens"],
        "trained on": source["trained_tokens"],
    }
    return {title: f"{count:,}" for title, count in counts.items()} | mix_of_source(manifest, number)


def mix_of_source(manifest: Mapping[str, Any], number: int) -> dict[str, str]:
    """Return what was asked of a source and what came out, by the titles of columns; empty if there is no mix.

    Args:
        manifest: of the dataset.
        number: of the source.
    """
    job = manifest["job"]
    of_sources = [(source["name"], source.get("options", {})) for source in job.get("sources", ())]
    mix = mix_of(job.get("options", {}), of_sources)  # None of a custom pipeline
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

    Args:
        manifest: of the dataset. Those of earlier versions have no such count.
        most: how many columns and keys are named; the ones with most characters are first.
    """
    unread = manifest.get("statistics", {}).get("unread", {})
    names = sorted(unread, key=lambda name: (-unread[name]["characters"], name))
    described = [f"{_shown(name)} ({_counted(**unread[name])})" for name in names[:most]]
    return ", ".join(described) + (f" and {len(names) - most} more" if len(names) > most else "")


def contamination_text(manifest: Mapping[str, Any]) -> str:
    """Describe what records were compared with evaluation sets, and what was found; empty if they were not.

    Args:
        manifest: of the dataset.
    """
    job = manifest["job"]
    if not (evaluations := job.get("evaluations")):
        return ""
    options, found = job["options"], manifest["statistics"].get("contaminated", {})
    words = f"runs of {options['decontaminate_words']} words"
    text = f"compared with {counted(evaluations['records'], 'record')} of evaluation sets, by {words}: "
    text += f"{counted(sum(found.values()), 'record')} {'share' if sum(found.values()) != 1 else 'shares'} some"
    if found:
        text += f" ({most_of(found, 4)}), and {'left out' if options['contaminated'] == 'drop' else 'kept'}"
    if evaluations["too_short"]:
        text += f"; {counted(evaluations['too_short'], 'evaluation record')} too short to be found"
    if evaluations["in_templates"]:
        text += f"; {counted(evaluations['in_templates'], 'run')} in too many of them to be looked for"
    if uncompared := manifest["notes"].get("not_compared_with_evaluations"):
        text += f"; {counted(uncompared, 'record')} of token ids not compared"
    return text


def unread_events_text(manifest: Mapping[str, Any], most: int = 4) -> str:
    """Describe the events of traces that were not read, such as `codex/turn_context (12 of 12)`; empty if all were.

    Args:
        manifest: of the dataset. Those of earlier versions have no such count.
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
    name = escaped(name).replace("\n", " ")
    return name if len(name) <= _MOST_OF_A_NAME else f"{name[:_MOST_OF_A_NAME]}..."


def _counted(records: int, characters: int) -> str:
    size = f"{characters / 1e6:.1f} M" if characters >= 1e6 else f"{characters:,}"
    return f"{records:,} record{'s' * (records != 1)}, {size} character{'s' * (characters != 1)}"


def records_compared(notes: Mapping[str, int]) -> str:
    """Return of how many records parity was checked, such as `20 of 198 records`. notes: of a manifest."""
    checked = notes.get("parity_records_checked", 0)
    return f"{checked:,} of {checked + notes.get('parity_records_not_checked', 0):,} records"
