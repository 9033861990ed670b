"""chatmill diff: shows what differs between two datasets: their jobs, the outcomes of records, and the sums."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.cli.console import CommandParser, as_typed, paged, shortened

if TYPE_CHECKING:
    from rich.console import Console

    from transforms.audit.differences import Differences
    from transforms.dataset.reader import Dataset

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

    from transforms.audit.differences import compare
    from transforms.dataset.reader import Dataset

    datasets = Dataset(options.a), Dataset(options.b)
    found = compare(*(dataset.manifest for dataset in datasets))
    if options.json:
        _print_json(found)
    else:
        with paged() as console:
            _print(console, datasets, found)
    return int(not found.are_of_job_alone)


def _print(console: Console, datasets: tuple[Dataset, Dataset], found: Differences) -> None:
    from rich.table import Table
    from rich.text import Text

    from pipeline.viewing.view import visible

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


def _print_json(found: Differences) -> None:
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
