"""Commit of an increment: from its receipts to a version, and all that is derived from it.

Repeating it changes nothing: the files of an increment are a function of what it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transforms.base.errors import CommittedMeanwhile, InputError, RejectsError
from transforms.dataset.budgets import Budgets, nothing_left
from transforms.dataset.description import Description, read_description
from transforms.dataset.layout import PUBLISHED, Folder
from transforms.dataset.manifest import check_complete, sums_of_receipts
from transforms.dataset.versions import Conflict, Increment, Kind, Version, commit, newest
from transforms.inputs.plan_file import decode_plan
from transforms.model.counts import Totals
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
    """Return whether the newest version has an increment. folder: of the increment."""
    version = newest(folder)
    return version is not None and version.has(folder.increment)


def commit_increment(
    folder: Folder, receipts: Sequence[Receipt], budgets: Budgets, report: str, change: Change
) -> Version:
    """Commit an increment, and remove its work folder.

    Args:
        folder: of the increment.
        receipts: of all its tasks, in order.
        budgets: how much may be rejected, lost or wrong.
        report: one of REPORTS.
        change: what it does to the dataset.

    Returns:
        The newest version.

    Raises:
        InputError: if a budget is exceeded, or no row is left of the dataset. Nothing is committed then; the
            exceptions can be read.
        CommittedMeanwhile: if another commit was made meanwhile.
    """
    job = read_description(folder.job)
    check_complete(job.tasks, receipts)
    problem, kind = budgets.exceeded(receipts, job, folder), InputError
    if problem and budgets.too_many_rejects(receipts):
        kind = RejectsError
    if not problem and not any(receipt.shards for receipt in receipts) and (change.is_build or not change.base):
        problem = nothing_left(receipts, folder)
        kind = RejectsError if any(receipt.rejected for receipt in receipts) else InputError
    if problem:
        raise kind(problem)
    return _commit(folder, job, receipts, report, change)


def _commit(folder: Folder, job: Description, receipts: Sequence[Receipt], report: str, change: Change) -> Version:
    sums = sums_of_receipts(job, receipts)
    files = [file for receipt in receipts for file in (*receipt.shards, receipt.exceptions) if file]
    increment = Increment(
        id=folder.increment,
        version=0,
        inputs=decode_plan(read_bytes(folder.plan)),
        files=sorted(files, key=lambda file: file.path),
        counts=Totals(sums.records, sums.rows, sums.tokens, sums.trained_tokens),
    )
    # What earlier attempts left: the card names increments, and not each of their files.
    for path in {*folder.files(*PUBLISHED)} - {file.path for file in files}:
        remove(join(folder.output, path))
    kind: Kind = "build" if change.is_build or not change.base else "append"
    try:
        version = commit(folder, change.base, kind, increment, sums, job.job)
    except Conflict as conflict:
        raise CommittedMeanwhile(
            f"{folder.output}: {conflict}. What this run has built stays: run the same command again."
        ) from None
    derive(folder, version, report)
    remove(folder.work)
    remove_if_empty(folder.building)
    return version
