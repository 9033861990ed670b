"""Commit of an increment: from its receipts to an entry of the log, and all that is derived from the log.

Repeating it changes nothing: the files of an increment and its entry are a function of what it was made from.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from transforms.base.errors import InputError, RejectsError, Unavailable
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
        replaces: the ids of the increments that an append takes the place of.
        commits_failed: whether an increment that exceeds a budget is committed as failed, so that its inputs are taken.
    """

    base: int = 0
    is_build: bool = False
    replaces: Sequence[str] = ()
    commits_failed: bool = False


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
        Unavailable: if another commit was made meanwhile.
    """
    job = read_description(folder.job)
    check_complete(job.splits, receipts)
    _check_engines(receipts)
    problem, kind = budgets.exceeded(receipts, job, folder), InputError
    if problem and budgets.too_many_rejects(receipts):
        kind = RejectsError
    if not problem and not any(receipt.shards for receipt in receipts) and (change.is_build or not change.base):
        problem = nothing_left(receipts, folder)
        kind = RejectsError if any(receipt.rejected for receipt in receipts) else InputError
    if problem and not change.commits_failed:
        raise kind(problem)
    return _commit(folder, job, receipts, report, change, problem or None)


def commit_failed(folder: Folder, error: str, report: str, base: int) -> Snapshot:
    """Commit an increment as failed, so that its inputs are not tried again. Raises as commit_increment does.

    Args:
        folder: of the increment.
        error: why.
        report: one of REPORTS.
        base: the version that it was planned on.
    """
    return _commit(folder, read_description(folder.job), (), report, Change(base), error)


def _check_engines(receipts: Sequence[Receipt]) -> None:
    """Raise InputError if the engines differ in a part, and not all parts were made by the reference."""
    differing = next(filter(None, (receipt.differing for receipt in receipts)), None)
    if differing and not all(receipt.by_reference for receipt in receipts):
        raise InputError(
            f"{differing.source}, {differing.position}: the fast engine differs from transformers ("
            f"{differing.detail}), so nothing that it made is published. Give the engine reference."
        )


def _commit(
    folder: Folder, job: Description, receipts: Sequence[Receipt], report: str, change: Change, error: str | None
) -> Snapshot:
    increment = Increment.of(folder.increment, job, receipts, decode_plan(read_bytes(folder.plan)), error)
    # What earlier attempts left, and rows of one that failed: the card names increments, and not each of their files.
    remove_files(folder, but={*increment.files.paths()})
    begins = change.is_build or not change.base
    try:
        snapshot = Log(folder).commit(
            "build" if begins else "append", increment, change.base, change.replaces, job.job if begins else None
        )
    except Conflict as conflict:
        raise Unavailable(f"{folder.output}: {conflict}. Run the same command again.") from None
    derive(folder, snapshot, report)
    remove(folder.work)
    remove_if_empty(folder.increments)
    return snapshot


def remove_files(folder: Folder, but: Collection[str] = ()) -> None:
    """Remove the files of an increment that is not committed. What no build gives such names stays.

    Args:
        folder: of the increment.
        but: the paths of files to keep, relative to the folder of the dataset.

    Raises:
        StoreError: if the store fails.
    """
    for path in folder.files(*PUBLISHED):
        if path not in but:
            remove(join(folder.output, path))
