"""chatmill diff: shows what differs between two datasets: their jobs, the outcomes of records, and the examples."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.cli.console import CommandParser, as_typed, paged, shortened
from transforms.base.phrases import counted

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.viewing.row_view import Example, Row
    from transforms.audit.comparison.differences import Difference, Differences
    from transforms.reading.reader import Dataset

_LIMIT = 3
_TOKENS_SHOWN = 80
_MEANINGS = {
    "split": "the same, in another split",
    "mask": "the same tokens, with another mask",
    "tokens": "the same record, with other tokens",
    "only in A": "",
    "only in B": "",
}


def run(arguments: Sequence[str]) -> int:
    """Show what differs between two datasets.

    Args:
        arguments: what follows the command.

    Returns:
        0 if they have the same examples, 1 if not.

    Raises:
        UserError: if an option is wrong, or there is no such dataset.
        InputError, StoreError: if a dataset cannot be read.
    """
    options = _parse(arguments)

    from transforms.audit.comparison.differences import changed_job, changed_records, compare
    from transforms.reading.reader import Dataset

    datasets = Dataset(options.a), Dataset(options.b)
    job, records = changed_job(*datasets), changed_records(*datasets)
    found = compare(*datasets, options.limit)
    if options.json:
        _print_json(datasets, job, records, found)
    else:
        with paged() as console:
            _print(console, datasets, job, records, found)
    return int(bool(found.counts))


def _print(
    console: Console,
    datasets: tuple[Dataset, Dataset],
    job: dict[str, tuple[Any, Any]],
    records: dict[str, tuple[int, int]],
    found: Differences,
) -> None:
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
    examples = f"{found.examples[0]:,}", f"{found.examples[1]:,}"
    shards = f"{len(a['shards']):,}", f"{len(b['shards']):,}"
    table("", {"dataset": (datasets[0].name, datasets[1].name), "examples": examples, **sums, "shards": shards})
    if job:
        table("changed in the job", job)
    if records:
        table("changed records", {name: (f"{a:,}", f"{b:,}") for name, (a, b) in records.items()})
    if not found.counts:
        console.print(Text(f"equal: both have the same {counted(found.equal, 'example')}", "bold"))
        return
    console.print(Text(f"equal  {found.equal:,}", "bold"))
    for kind, count in found.counts.items():
        console.print(Text(f"{kind}  {count:,}", "bold").append(f"  {_MEANINGS[kind]}", "not bold"))
    if advice := _advice(datasets, found):
        console.print(Text(advice, "yellow"))
    for kind, differences in found.first.items():
        console.print(Text(f"\n{kind}: {len(differences):,} of {found.counts[kind]:,}", "bold underline"))
        for difference in differences:
            _print_difference(console, datasets, difference)


def _advice(datasets: tuple[Dataset, Dataset], found: Differences) -> str:
    """What would show more, as a sentence; empty if nothing would."""
    from transforms.audit.comparison.entries import knows_records

    if not {"only in A", "only in B"} <= found.counts.keys() or all(map(knows_records, datasets)):
        return ""
    return "An example whose tokens changed is listed in A and in B: only builds with --provenance can match records."


def _print_difference(console: Console, datasets: tuple[Dataset, Dataset], difference: Difference) -> None:
    import numpy as np
    from rich.text import Text

    from pipeline.viewing.row_view import print_example
    from transforms.tokens.decoding import TokenDecoder

    sides = [
        _example(dataset, place) if place else None
        for dataset, place in zip(datasets, (difference.a, difference.b), strict=True)
    ]
    texts = [side[1] for side in sides if side]
    for name, dataset, side in zip("AB", datasets, sides, strict=True):
        if side is None:
            continue
        row, example = side
        near = example.trained
        if len(texts) == 2:
            near = np.arange(len(example.ids)) >= min(_first_difference(texts), len(example.ids) - 1)
        console.print(Text(f"{name}: {row.title}, {example.title}", "bold"))
        print_example(console, example, TokenDecoder.load(dataset.tokenizer_folder), near, _TOKENS_SHOWN)


def _first_difference(examples: Sequence[Example]) -> int:
    """The number of the first token in which two examples differ, in its id or its label."""
    import numpy as np

    length = min(len(example.ids) for example in examples)
    a, b = examples
    differ = (a.ids[:length] != b.ids[:length]) | (a.labels[:length] != b.labels[:length])
    return int(np.argmax(differ)) if differ.any() else length


def _example(dataset: Dataset, place: Any) -> tuple[Row, Example]:
    """The row and the example at a place of a dataset."""
    from pipeline.viewing.row_view import read_row_of_shard

    shard, in_shard, segment = place
    row = read_row_of_shard(dataset, shard, in_shard)
    return row, row.examples[segment]


def _print_json(
    datasets: tuple[Dataset, Dataset],
    job: dict[str, tuple[Any, Any]],
    records: dict[str, tuple[int, int]],
    found: Differences,
) -> None:
    import msgspec

    def place(of: Any) -> Any:
        return of and {"shard": of[0]["path"], "row": of[1], "segment": of[2]}

    def pairs(changed: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
        return {name: {"a": a, "b": b} for name, (a, b) in changed.items()}

    document = {
        "equal": not found.counts,
        "job": pairs(job),
        "records": pairs(records),
        "examples": {"a": found.examples[0], "b": found.examples[1], "equal": found.equal, **found.counts},
        "first": {
            kind: [{"a": place(difference.a), "b": place(difference.b)} for difference in differences]
            for kind, differences in found.first.items()
        },
    }
    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The value of each option. Raises UserError."""
    parser = CommandParser(
        "diff",
        usage="A B [--limit N] [--json]",
        description="Show what differs between two datasets: options, tokenizer, template, versions, outcomes of "
        "records, and examples. The order of examples, their rows and their shards do not matter. Exit code 0 if the "
        "examples are the same, 1 if not.",
        examples=["out/monday out/tuesday", "gs://shards/v1 gs://shards/v2 --json"],
    )
    parser.add_argument("a", metavar="A", help="the folder or url of a dataset")
    parser.add_argument("b", metavar="B", help="the folder or url of the other dataset")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=_LIMIT, help=f"examples of each kind to show ({_LIMIT})"
    )
    parser.add_argument("--json", action="store_true", default=False, help="print JSON")
    return parser.parse_args(arguments)
