"""Commit of an increment: from its receipts to an entry of the dataset's log, and all that is derived from the log.

Whoever repeats it changes nothing: the files of an increment and its entry are a function of what it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence

from transforms.dataset.budgets import Budgets, nothing_left
from transforms.dataset.derived import derive
from transforms.dataset.description import read_description
from transforms.dataset.layout import Folder
from transforms.dataset.log import Conflict, Log
from transforms.dataset.manifest import build_manifest, sources_of_shards
from transforms.dataset.snapshot import Increment, Snapshot
from transforms.errors import InputError, RejectsError, Unavailable
from transforms.inputs.plan import decode_plan
from transforms.model.receipts import Receipt
from transforms.storage.files import read_bytes
from transforms.storage.writing import remove, remove_if_empty


def is_committed(folder: Folder) -> bool:
    """Return whether the newest snapshot has an increment. folder: of the increment."""
    snapshot = Log(Folder(folder.output)).newest()
    return snapshot is not None and snapshot.has(folder.increment)


def commit_increment(
    folder: Folder,
    receipts: Sequence[Receipt],
    budgets: Budgets,
    report: str,
    replaces: Sequence[str] = (),
    commits_failed: bool = False,
) -> Snapshot:
    """Commit an increment whose files have their final names, and remove its work folder.

    Args:
        folder: of the increment.
        receipts: of all its splits, in order.
        budgets: how much may be rejected, lost or wrong.
        report: one of REPORTS.
        replaces: the ids of the increments that it takes the place of.
        commits_failed: whether an increment that exceeds a budget is committed as failed, so that its inputs are taken.

    Returns:
        The newest snapshot.

    Raises:
        InputError: if a budget is exceeded, or no row is left of a first increment. Nothing is committed then; rejects
            and ledger can be read.
        Unavailable: if another commit contradicts it.
    """
    problem = budgets.exceeded(receipts, read_description(folder.job), folder)
    if not problem and not any(receipt.shards for receipt in receipts) and Log(Folder(folder.output)).newest() is None:
        problem = nothing_left(receipts, folder)
    if problem and not commits_failed:
        raise (RejectsError if any(receipt.rejected for receipt in receipts) else InputError)(problem)
    return _commit(folder, receipts, report, replaces, problem or None)


def commit_failed(folder: Folder, error: str, report: str) -> Snapshot:
    """Commit an increment of which nothing can be used, so that its inputs are taken. Raises as commit_increment does.

    Args:
        folder: of the increment.
        error: why.
        report: one of REPORTS.
    """
    return _commit(folder, (), report, (), error)


def _commit(
    folder: Folder, receipts: Sequence[Receipt], report: str, replaces: Sequence[str], error: str | None
) -> Snapshot:
    manifest = build_manifest(read_description(folder.job), receipts)
    if len(manifest["sources"]) > 1:  # a compaction joins only shards of the same source
        sources = sources_of_shards(receipts)
        manifest["shards"] = [shard | {"source": sources[shard["path"]]} for shard in manifest["shards"]]
    if error:
        manifest |= {"shards": []}  # they have no final names
    increment = Increment.of(folder.increment, manifest, decode_plan(read_bytes(folder.plan)), error)
    of_dataset = Folder(folder.output)
    try:
        snapshot = Log(of_dataset).commit("append", increment, replaces)
    except Conflict as conflict:
        raise Unavailable(f"{folder.output}: {conflict}. Run the same command again.") from None
    derive(of_dataset, snapshot, report)
    remove(folder.work)
    remove_if_empty(folder.increments)
    return snapshot
