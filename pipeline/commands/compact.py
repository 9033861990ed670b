"""chatmill compact: joins the small shards of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.cli.console import CommandParser, show_phase
from transforms.base import kinds
from transforms.base.phrases import counted


def run(arguments: Sequence[str]) -> int:
    """Compact a dataset.

    Args:
        arguments: what follows the command.

    Returns:
        0, also if there was nothing to do.

    Raises:
        UserError: if an option is wrong, there is no finished dataset, or its store cannot commit.
        InputError: if the dataset is damaged.
        Unavailable: if another process took the dataset over.
        StoreError: if a store fails.
    """
    parser = CommandParser(
        "compact",
        usage="OUT [--shard_bytes N]",
        description="Join the small shards of a dataset, in one commit. Packed rows are packed again, so "
        "that they are full; nothing is tokenized again. Earlier versions can be read until `chatmill expire`.",
        examples=["out/mine", "gs://shards/mine --shard_bytes 268435456"],
    )
    parser.add_argument("dataset", metavar="OUT", help="the folder or url of the dataset (required)")
    parser.add_argument(
        "--shard_bytes",
        metavar="INT",
        type=kinds.positive.of_argument,
        help="bytes of a shard at most; increments whose shards have on average less than a quarter of it are joined "
        "(default: 67108864)",
    )
    options = parser.parse_args(arguments)
    show_phase(f"reading {options.dataset}")

    from pipeline.cli.claims import say_who_holds
    from transforms.storage.files import full_url
    from transforms.upkeep.compaction.joining import compact

    url = full_url(options.dataset)
    given: dict[str, Any] = {"shard_bytes": options.shard_bytes} if hasattr(options, "shard_bytes") else {}
    found = compact(url, **given, when_held=say_who_holds)
    if not found.increments:
        print(f"{url}: nothing to compact in version {found.version}.")
        return 0
    (shards, fewer_shards), (rows, fewer_rows) = found.shards, found.rows
    print(
        f"{url}: version {found.version} has {counted(fewer_shards, 'shard')} with {counted(fewer_rows, 'row')} in "
        f"place of {shards:,} with {rows:,}, of {counted(found.increments, 'increment')}."
    )
    return 0
