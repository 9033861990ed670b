"""List the versions of a dataset: what each one added or joined. OUT@7 is version 7 for the other commands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pipeline.cli.console import CommandParser

if TYPE_CHECKING:
    from transforms.dataset.versions import Version

SUMMARY = "OUT", "list the versions of a dataset"
_WIDE = 1_000  # so that no cell is cut
_COLUMNS = ("version", "kind", "increment", "replaces", "inputs", "records", "rows", "tokens", "time")


def run(arguments: Sequence[str]) -> int:
    """List the versions of a dataset: for people, or as JSON."""
    parser = CommandParser("snapshots", SUMMARY, __doc__, ["out/mine", "gs://bucket/mine --json"])
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of a dataset")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)

    from pipeline.show.printing import new_console, new_table, print_json
    from transforms.dataset.layout import Folder
    from transforms.dataset.reader import Dataset, dataset_url
    from transforms.dataset.versions import history, newest

    folder = Folder(dataset_url(options.dataset))
    versions = [*history(folder, newest(folder))]
    if not versions:
        Dataset(options.dataset)  # says why there is none
    described = [_describe(*each) for each in zip_longest(versions, versions[1:])][::-1]
    if options.json:
        print_json(described)
        return 0
    table = new_table("rllrrrrrl", _COLUMNS)
    for version in described:
        version |= {"replaces": len(version["removed"]) or "-", "increment": version["increment"][:8]}
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in map(version.get, _COLUMNS)))
    new_console(_WIDE).print(table)
    return 0


def _describe(version: Version, before: Version | None) -> dict[str, Any]:
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
