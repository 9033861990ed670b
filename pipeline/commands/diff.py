"""chatmill diff: shows what differs between two datasets: their jobs, the outcomes of records, and the sums."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.cli.console import CommandParser, as_typed, paged, shortened

if TYPE_CHECKING:
    from rich.console import Console

    from transforms.dataset.reader import Dataset

_Pairs = dict[str, tuple[Any, Any]]
# Keys of a job that follow from others, or say nothing of the rows.
_NOT_COMPARED = ("recipe", "options", "versions", "split_bytes", "tasks", "input_bytes", "unpacked_bytes", "sources")
_TITLES = {"job": "changed in the job", "records": "changed records", "sums": "changed sums"}


def run(arguments: Sequence[str]) -> int:
    """Show what differs between two datasets.

    Args:
        arguments: what follows the command.

    Returns:
        0 if they have the same outcomes, sums and files, 1 if not.

    Raises:
        UserError: if an option is wrong, or there is no such dataset.
        InputError, StoreError: if a dataset cannot be read.
    """
    options = _parse(arguments)

    from transforms.dataset.reader import Dataset

    datasets = Dataset(options.a), Dataset(options.b)
    found = _compare(*(dataset.manifest for dataset in datasets))
    if options.json:
        _print_json(found)
    else:
        with paged() as console:
            _print(console, datasets, found)
    return int(not found.are_of_job_alone)


@dataclass(frozen=True)
class _Differences:
    """What differs between two datasets, by name: of each the value in A and in B, None if it is not there.

    Attributes:
        job: options, versions of libraries, the tokenizer, the template, the inputs and the options of sources.
        records: the outcomes of records, such as `rejected: bad_message`.
        sums: rows, tokens, and other counts.
        files: how many files of rows A has, how many B has, and how many are the same bytes in both.
    """

    job: _Pairs
    records: _Pairs
    sums: _Pairs
    files: tuple[int, int, int]

    @property
    def are_of_job_alone(self) -> bool:
        """Whether the datasets have the same outcomes, sums and files, whatever made them."""
        return not (self.records or self.sums) and len({*self.files}) == 1


def _compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> _Differences:
    """Compare the manifests of two datasets."""
    files = [Counter(shard["sha256"] for shard in manifest["shards"]) for manifest in (a, b)]
    counts = (files[0].total(), files[1].total(), (files[0] & files[1]).total())
    return _Differences(_pairs(_job, a, b), _pairs(_records, a, b), _pairs(_sums, a, b), counts)


def _pairs(
    described: Callable[[Mapping[str, Any]], Iterator[tuple[str, Any]]], *manifests: Mapping[str, Any]
) -> _Pairs:
    a, b = (dict(described(manifest)) for manifest in manifests)
    return {name: (a.get(name), b.get(name)) for name in {**a, **b} if a.get(name) != b.get(name)}


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


def _print(console: Console, datasets: tuple[Dataset, Dataset], found: _Differences) -> None:
    from rich.table import Table
    from rich.text import Text

    from pipeline.show.text import visible

    def table(title: str, pairs: dict[str, tuple[Any, Any]]) -> None:
        rows = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", width=None)
        for heading in (title, "A", "B"):
            rows.add_column(heading, overflow="fold")
        for name, pair in pairs.items():
            rows.add_row(Text(visible(name)), *(Text(visible(shortened(as_typed(value)))) for value in pair))
        console.print(rows, soft_wrap=False)
        console.print()

    a, b = (dataset.manifest for dataset in datasets)
    sums = {name.replace("_", " "): (f"{a[name]:,}", f"{b[name]:,}") for name in ("rows", "tokens", "trained_tokens")}
    files = f"{found.files[0]:,}", f"{found.files[1]:,}"
    table("", {"dataset": (datasets[0].name, datasets[1].name), **sums, "files of rows": files})
    for part, title in _TITLES.items():
        if pairs := getattr(found, part):
            table(title, pairs)
    if found.are_of_job_alone:
        console.print(Text("equal: both have the same outcomes, sums and files", "bold"))
        return
    console.print(f"{found.files[2]:,} files of rows have the same bytes in both.")


def _print_json(found: _Differences) -> None:
    import msgspec

    document: dict[str, Any] = {"equal": found.are_of_job_alone}
    for part in _TITLES:
        document[part] = {name: {"a": a, "b": b} for name, (a, b) in getattr(found, part).items()}
    document["files"] = dict(zip(("a", "b", "same"), found.files, strict=True))
    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The value of each option. Raises UserError."""
    parser = CommandParser(
        "diff",
        usage="A B [--json]",
        description="Show what differs between two datasets by their manifests: options, tokenizer, template, "
        "versions, outcomes of records, sums, and files of rows. Exit code 0 if outcomes, sums and files are the same, "
        "1 if not.",
        examples=["out/monday out/tuesday", "gs://shards/v1 gs://shards/v2 --json"],
    )
    parser.add_argument("a", metavar="A", help="the folder or url of a dataset")
    parser.add_argument("b", metavar="B", help="the folder or url of the other dataset")
    parser.add_argument("--json", action="store_true", default=False, help="print JSON")
    return parser.parse_args(arguments)
