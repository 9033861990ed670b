"""Commit of an increment: from its receipts to an entry of the log, and all that is derived from the log.

Repeating it changes nothing: the files of an increment and its entry are a function of what it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transforms.base.errors import CommittedMeanwhile, InputError, RejectsError
from transforms.catalog.budgets import Budgets, nothing_left
from transforms.catalog.description import Description, read_description
from transforms.catalog.layout import PUBLISHED, Folder
from transforms.catalog.log import Conflict, Log
from transforms.catalog.manifest import check_complete
from transforms.catalog.snapshot import Increment, Snapshot
from transforms.inputs.plan_file import decode_plan
from transforms.model.receipts import Receipt
from transforms.publish.derived import derive
from transforms.storage.files import join, read_bytes
from transforms.storage.writing import remove, remove_if_empty


@dataclass(frozen=True)
class Change:
    """What a commit does to a dataset.

    Args:
        base: the version that it was planned on; 0 if there was none.
        is_build: whether it takes the place of all that is there. The first commit does so in any case.
    """

    base: int = 0
    is_build: bool = False


def is_committed(folder: Folder) -> bool:
    """Return whether the newest snapshot has an increment. folder: of the increment."""
    snapshot = Log(folder).newest()
    return snapshot is not None and snapshot.has(folder.increment)


def commit_increment(
    folder: Folder, receipts: Sequence[Receipt], budgets: Budgets, report: str, change: Change
) -> Snapshot:
    """Commit an increment, and remove its work folder.

    Args:
        folder: of the increment.
        receipts: of all its splits, in order.
        budgets: how much may be rejected, lost or wrong.
        report: one of REPORTS.
        change: what it does to the dataset.

    Returns:
        The newest snapshot.

    Raises:
        InputError: if a budget is exceeded, or no row is left of the dataset. Nothing is committed then; rejects and
            ledger can be read.
        CommittedMeanwhile: if another commit was made meanwhile.
    """
    job = read_description(folder.job)
    check_complete(job.splits, receipts)
    problem, kind = budgets.exceeded(receipts, job, folder), InputError
    if problem and budgets.too_many_rejects(receipts):
        kind = RejectsError
    if not problem and not any(receipt.shards for receipt in receipts) and (change.is_build or not change.base):
        problem = nothing_left(receipts, folder)
        kind = RejectsError if any(receipt.rejected for receipt in receipts) else InputError
    if problem:
        raise kind(problem)
    return _commit(folder, job, receipts, report, change)


def _commit(folder: Folder, job: Description, receipts: Sequence[Receipt], report: str, change: Change) -> Snapshot:
    increment = Increment.of(folder.increment, job, receipts, decode_plan(read_bytes(folder.plan)))
    # What earlier attempts left: the card names increments, and not each of their files.
    for path in {*folder.files(*PUBLISHED)} - {*increment.files.paths()}:
        remove(join(folder.output, path))
    begins = change.is_build or not change.base
    try:
        snapshot = Log(folder).commit(
            "build" if begins else "append", increment, change.base, job=job.job if begins else None
        )
    except Conflict as conflict:
        raise CommittedMeanwhile(
            f"{folder.output}: {conflict}. What this run has built stays: run the same command again."
        ) from None
    derive(folder, snapshot, report)
    remove(folder.work)
    remove_if_empty(folder.increments)
    return snapshot
