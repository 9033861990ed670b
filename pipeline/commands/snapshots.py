"""chatmill snapshots: lists the versions of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pipeline.cli.console import CommandParser

if TYPE_CHECKING:
    from rich.console import Console

    from transforms.dataset.versions import Version

# A pipe or a file has no width: no cell is cut there.
_WIDE = 1_000
_NUMBERS = ("version", "replaces", "inputs", "records", "rows", "tokens")
_COLUMNS = ("version", "kind", "increment", "replaces", "inputs", "records", "rows", "tokens", "time")


def run(arguments: Sequence[str]) -> int:
    """List the versions of a dataset: for people, or as JSON.

    Args:
        arguments: what follows the command.

    Returns:
        0.

    Raises:
        UserError: if an option is wrong, or there is no dataset.
        InputError: if a version is damaged.
        StoreError: if its store fails.
    """
    parser = CommandParser(
        "snapshots",
        "OUT [--json]",
        "List the versions of a dataset: what each one added or joined. OUT@7 is version 7 for the other commands.",
        ["out/mine", "gs://bucket/mine --json"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    parser.add_argument("--json", action="store_true", default=False, help="print JSON")
    options = parser.parse_args(arguments)

    from transforms.dataset.layout import Folder
    from transforms.dataset.reader import Dataset, url_of_all
    from transforms.dataset.versions import history

    versions = [*history(Folder(url_of_all(options.dataset)))]
    described = [_described(*each) for each in zip_longest(versions, versions[1:])][::-1]
    if not versions:
        Dataset(options.dataset)  # says why there is none
    if options.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(described), indent=2).decode())
    else:
        from rich.console import Console

        console = Console(highlight=False)
        _print(console if console.is_terminal else Console(highlight=False, width=_WIDE), described)
    return 0


def _described(version: Version, before: Version | None) -> dict[str, Any]:
    """A version, as JSON: what its commit added, and removed of the one before, if that is kept."""
    added = version.added
    return {
        "version": version.number,
        "kind": version.kind,
        "increment": added.id,
        "removed": [each.id for each in before.increments] if before and version.kind == "build" else [],
        "inputs": len(added.inputs),
        "records": added.counts.records.read,
        "rows": added.counts.rows,
        "tokens": added.counts.tokens,
        "time": version.time,
    }


def _print(console: Console, versions: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _NUMBERS else "left")
    for version in versions:
        described = version | {"replaces": len(version["removed"]) or None}
        cells = [described[name] for name in _COLUMNS]
        texts = [f"{cell:,}" if isinstance(cell, int) else cell or "-" for cell in cells]
        if console.is_terminal:
            texts[_COLUMNS.index("increment")] = texts[_COLUMNS.index("increment")][:8]
        table.add_row(*texts)
    console.print(table)
