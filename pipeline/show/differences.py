"""What differs between two datasets, by their manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from pipeline.cli.console import as_typed, shortened
from pipeline.show.printing import new_table
from pipeline.show.text import visible
from transforms.dataset.reader import Dataset

_Describe = Callable[[Mapping[str, Any]], Iterator[tuple[str, Any]]]
_Pairs = dict[str, dict[str, Any]]
# Keys of a job that follow from others, or say nothing of the rows.
_NOT_COMPARED = ("recipe", "options", "versions", "split_bytes", "tasks", "input_bytes", "unpacked_bytes", "sources")
_TITLES = {"job": "changed in the job", "records": "changed records", "sums": "changed sums"}


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the manifests of two datasets.

    Returns:
        equal: whether they have the same outcomes, sums and files, whatever made them.
        job, records, sums: what differs, by name: of each the value in `a` and in `b`, None if it is not there.
        files: how many files of rows each has, and how many are the same bytes in both.
    """
    of_a, of_b = (Counter(shard["sha256"] for shard in manifest["shards"]) for manifest in (a, b))
    files = {"a": of_a.total(), "b": of_b.total(), "same": (of_a & of_b).total()}
    parts = {name: _pairs(describe, a, b) for name, describe in (("job", _job), ("records", _records), ("sums", _sums))}
    equal = not (parts["records"] or parts["sums"]) and len({*files.values()}) == 1
    return {"equal": equal, **parts, "files": files}


def _pairs(describe: _Describe, *manifests: Mapping[str, Any]) -> _Pairs:
    a, b = (dict(describe(manifest)) for manifest in manifests)
    return {name: {"a": a.get(name), "b": b.get(name)} for name in {**a, **b} if a.get(name) != b.get(name)}


def _job(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    job = manifest["job"]
    for name, value in job["options"].items():
        yield f"--{name}", value
    for name, value in job["versions"].items():
        yield f"version of {name}", value
    for name, value in job.items():
        if name not in _NOT_COMPARED:
            yield name.replace("_", " "), value
    for number, source in enumerate(job.get("sources", [])):
        # Its files are compared, as the inputs of the job, and not how they were named.
        yield f"source {number}", {name: value for name, value in source.items() if name != "input"}


def _records(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    records = manifest["records"]
    for name in ("read", "kept", "truncated"):
        yield name, records[name]
    for outcome in ("dropped", "rejected"):
        for reason, count in records[outcome].items():
            yield f"{outcome}: {reason}", count


def _sums(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name in ("rows", "tokens", "trained_tokens", "trained_tokens_lost"):
        yield name, manifest[name]
    yield from manifest["notes"].items()


def print_differences(console: Console, datasets: tuple[Dataset, Dataset], found: Mapping[str, Any]) -> None:
    """Print what differs between two datasets. found: of compare."""

    def print_table(title: str, pairs: _Pairs) -> None:
        table = new_table("lll", (title, "A", "B"), folds=True)
        for name, pair in pairs.items():
            table.add_row(visible(name), *(visible(shortened(as_typed(pair[of]))) for of in ("a", "b")))
        console.print(table, soft_wrap=False)
        console.print()

    figures = [
        {"dataset": each.name}
        | {name.replace("_", " "): f"{each.manifest[name]:,}" for name in ("rows", "tokens", "trained_tokens")}
        | {"files of rows": f"{found['files'][of]:,}"}
        for of, each in zip(("a", "b"), datasets, strict=True)
    ]
    print_table("", {name: {"a": figures[0][name], "b": figures[1][name]} for name in figures[0]})
    for part, title in _TITLES.items():
        if found[part]:
            print_table(title, found[part])
    if found["equal"]:
        console.print(Text("equal: both have the same outcomes, sums and files", "bold"))
    else:
        console.print(f"{found['files']['same']:,} files of rows have the same bytes in both.")
