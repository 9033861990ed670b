"""What differs between two datasets, by their manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from pipeline.cli.console import as_typed, shortened
from pipeline.show.printing import new_table
from transforms.base.hidden import visible
from transforms.dataset.reader import Dataset

# Keys of a job that follow from others, or say nothing of the rows.
_NOT_COMPARED = ("recipe", "options", "versions", "split_bytes", "tasks", "input_bytes", "unpacked_bytes", "sources")
_TITLES = {"job": "changed in the job", "records": "changed records", "sums": "changed sums"}
_SUMS = ("rows", "tokens", "trained_tokens")


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the manifests of two datasets.

    Returns:
        equal: whether they have the same outcomes, sums and files, whatever made them.
        job, records, sums: what differs, by name: of each the value in `a` and in `b`, None if it is not there.
        files: how many files of rows each has, and how many are the same bytes in both.
    """
    checksums_a, checksums_b = (Counter(shard["sha256"] for shard in manifest["shards"]) for manifest in (a, b))
    files = {"a": checksums_a.total(), "b": checksums_b.total(), "same": (checksums_a & checksums_b).total()}
    pairs = {}
    for part, values_a, values_b in zip(_TITLES, _parts(a), _parts(b), strict=True):
        both = {name: {"a": values_a.get(name), "b": values_b.get(name)} for name in {**values_a, **values_b}}
        pairs[part] = {name: pair for name, pair in both.items() if pair["a"] != pair["b"]}
    equal = not (pairs["records"] or pairs["sums"]) and len({*files.values()}) == 1
    return {"equal": equal, **pairs, "files": files}


def _parts(manifest: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int], dict[str, int]]:
    """What is compared, by name: of the job, of the outcomes of records, and of the sums."""
    job, records = manifest["job"], manifest["records"]
    described = {f"--{name}": value for name, value in job["options"].items()}
    described |= {f"version of {name}": value for name, value in job["versions"].items()}
    described |= {name.replace("_", " "): value for name, value in job.items() if name not in _NOT_COMPARED}
    for number, source in enumerate(job.get("sources", [])):
        # Its files are compared, as the inputs of the job, and not how they were named.
        described[f"source {number}"] = {name: value for name, value in source.items() if name != "input"}
    outcomes = {name: records[name] for name in ("read", "kept", "truncated")}
    for outcome in ("dropped", "rejected"):
        outcomes |= {f"{outcome}: {reason}": count for reason, count in records[outcome].items()}
    return described, outcomes, {name: manifest[name] for name in (*_SUMS, "trained_tokens_lost")} | manifest["notes"]


def print_differences(console: Console, datasets: tuple[Dataset, Dataset], differences: Mapping[str, Any]) -> None:
    """Print what differs between two datasets. differences: of compare."""
    a, b = datasets
    sums = {name.replace("_", " "): {"a": a.manifest[name], "b": b.manifest[name]} for name in _SUMS}
    tables = {"": {"dataset": {"a": a.name, "b": b.name}, **sums, "files of rows": differences["files"]}}
    tables |= {title: differences[part] for part, title in _TITLES.items() if differences[part]}
    for title, pairs in tables.items():
        table = new_table("lll", (title, "A", "B"))
        for name, pair in pairs.items():
            table.add_row(visible(name), *(visible(shortened(as_typed(pair[side]))) for side in ("a", "b")))
        console.print(table, soft_wrap=False)
        console.print()
    if differences["equal"]:
        console.print(Text("equal: both have the same outcomes, sums and files", "bold"))
    else:
        console.print(f"{differences['files']['same']:,} files of rows have the same bytes in both.")
