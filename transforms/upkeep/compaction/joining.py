"""Compact a dataset: one commit that has the rows of small increments in fewer and larger shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec

from transforms.catalog.log import Conflict, Log
from transforms.catalog.snapshot import Files, Increment
from transforms.catalog.sums import add_sums
from transforms.publish.claimed import held, repair
from transforms.reading.reader import Dataset, url_of_all
from transforms.storage.claim import ClaimKeeper, Holder
from transforms.upkeep.compaction.groups import Plan, plan_compaction
from transforms.upkeep.compaction.rewriting import Rewriter, Written

SHARD_BYTES = 64 << 20


class Compaction(NamedTuple):
    """What a compaction did.

    version: the newest one. increments: how many became one; 0 if nothing was to be done. shards, rows: how many there
    are of these increments, before and after.
    """

    version: int
    increments: int = 0
    shards: tuple[int, int] = (0, 0)
    rows: tuple[int, int] = (0, 0)


def compact(
    url: str,
    shard_bytes: int = SHARD_BYTES,
    when_held: Callable[[Holder | None], None] = lambda _: None,
    keeper: ClaimKeeper | None = None,
) -> Compaction:
    """Join the small shards of a dataset, in one commit. Nothing is tokenized again.

    An earlier version can still be read: its files stay until `expire` removes them.

    Args:
        url: of the dataset's folder.
        shard_bytes: how large shards become at most. Increments whose shards have on average less than a quarter of it
            are joined.
        when_held: is called if something else writes to the dataset, for which this waits.
        keeper: keeps the claim of a job that this is a part of, so that it needs none of its own.

    Raises:
        UserError: if there is no finished dataset, or its store cannot create a file only if there is none.
        InputError: if a file of it is missing or damaged.
        Unavailable: if another process took the folder over, because this one did not renew its lock.
        StoreError: if the store fails.
    """
    folder = Dataset(url_of_all(url)).folder
    log = Log(folder)
    with nullcontext() if keeper else held(folder, when_held):
        while True:
            dataset = Dataset(url)
            snapshot = log.snapshot(dataset.version)
            repair(folder, snapshot)
            plan = plan_compaction(snapshot, shard_bytes, len(dataset.manifest["sources"]))
            if plan is None:
                return Compaction(snapshot.version)
            written = Rewriter(dataset, plan).write()
            increment = _increment(plan, written, log.sums(plan.increments))
            try:
                removed = [each.id for each in plan.increments]
                snapshot = log.commit("compact", increment, snapshot.version, removed)
            except Conflict:  # with a job on a cluster: what is there now is planned again
                continue
            repair(folder, snapshot)
            return _compaction(plan, increment, snapshot.version)


def _increment(plan: Plan, written: Written, parts: Sequence[Mapping[str, Any]]) -> Increment:
    """The increment that takes the place of others. Only what is said of rows is another than their sum, of parts."""
    replaced = {unit.ledger["path"] for group in plan.groups for unit in group if unit.ledger}
    others = [file for each in plan.increments for file in each.files.ledger if file["path"] not in replaced]
    sums = add_sums(parts, [source["name"] for source in parts[0]["sources"]])
    for source, gained in written.gained.items():
        for part in (sums, sums["sources"][source]):
            for what, more in gained.items():
                part[what] += more
    sums["statistics"]["histograms"] |= msgspec.to_builtins(written.statistics.histograms)
    return Increment(
        id=plan.id,
        files=Files(
            written.shards,
            [file for each in plan.increments for file in each.files.rejects],
            [*written.ledger, *others],
        ),
        inputs=[file for each in plan.increments for file in each.inputs],
        sums=sums,
    )


def _compaction(plan: Plan, increment: Increment, version: int) -> Compaction:
    def of(increments: Sequence[Increment]) -> tuple[int, int]:
        return sum(len(each.files.shards) for each in increments), sum(each.sums["rows"] for each in increments)

    before, after = of(plan.increments), of([increment])
    return Compaction(version, len(plan.increments), *zip(before, after, strict=True))
