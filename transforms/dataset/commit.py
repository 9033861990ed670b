"""Commit of an increment: from its receipts to a version, and all that is derived from it.

Repeating it changes nothing: the files of an increment are a function of what it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import apache_beam as beam

from transforms.base.errors import InputError, RejectsError
from transforms.dataset import Budgets
from transforms.dataset.budgets import exceeded, no_rows_message, too_many_rejects
from transforms.dataset.derived import finish_commit
from transforms.dataset.description import read_job
from transforms.dataset.layout import PUBLISHED, Folder
from transforms.dataset.versions import Change, Increment, commit, newest
from transforms.files.tasks import decode_plan
from transforms.model.counts import Sums
from transforms.model.receipts import Receipt
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join, read_bytes
from transforms.storage.writing import remove


class CommitDataset(beam.PTransform):
    """Commit an increment of a dataset, once all receipts are there.

    PCollection[Receipt] -> PCollection[str], the url of the manifest.

    Args:
        folder: of the increment.
        commit: commits it. Takes the receipts of all its tasks, in order.
    """

    def __init__(self, folder: Folder, commit: Callable[[list[Receipt]], None]):
        super().__init__()
        self._folder = folder
        self._commit = commit

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        # Grouped and not combined to a list, which would be one element of 600 MB for a million receipts.
        every = receipts | beam.WithKeys(0) | "all" >> beam.GroupByKey() | beam.Values()
        commit = beam.Map(_commit_once, self._commit, self._folder, FailureWriter())
        return every | "commit" >> commit.with_output_types(str)


def _commit_once(
    receipts: Iterable[Receipt], commit: Callable[[list[Receipt]], None], folder: Folder, failures: FailureWriter
) -> str:
    with failures:
        if not is_committed(folder):
            commit(sorted(receipts, key=lambda receipt: (receipt.task, receipt.shard)))
    return folder.manifest


def is_committed(folder: Folder) -> bool:
    """Return whether the newest version has an increment. folder: of the increment."""
    version = newest(folder)
    return version is not None and version.has(folder.increment)


def commit_increment(
    receipts: Sequence[Receipt], folder: Folder, budgets: Budgets, report: str, change: Change
) -> None:
    """Commit an increment, write what is derived from its version, and remove its work folder.

    Args:
        receipts: of all its tasks, in order.
        folder: of the increment.
        budgets: how much may be rejected, lost or wrong.
        report: one of REPORTS.
        change: what it does to the dataset.

    Raises:
        InputError: if a budget is exceeded, or no row is left of the dataset. Nothing is committed then; the
            exceptions can be read.
        CommittedMeanwhile: if another commit was made meanwhile.
    """
    job = read_job(folder.job)
    _check_complete(job["tasks"], receipts)
    sums = Sums.total(receipt.sums() for receipt in receipts)
    totals, has_too_many_rejects = sums.totals(), too_many_rejects(budgets, sums)
    problem = "\n".join(exceeded(budgets, sums, job["options"], folder))
    if not problem and change.kind == "build" and not totals.rows:
        problem = no_rows_message(sums, folder)
        has_too_many_rejects = bool(totals.records.rejected)
    if problem:
        raise (RejectsError if has_too_many_rejects else InputError)(problem)
    files = [file for receipt in receipts for file in receipt.files]
    increment = Increment(
        id=folder.increment,
        version=0,
        inputs=decode_plan(read_bytes(folder.plan)),
        files=sorted(files, key=lambda file: file.path),
        counts=totals,
    )
    # What earlier attempts left: the card names increments, and not each of their files.
    for path in {*folder.files(*PUBLISHED)} - {file.path for file in files}:
        remove(join(folder.output, path))
    version = commit(folder, change, increment, sums, job)
    finish_commit(folder, version, report)


def _check_complete(tasks: int, receipts: Sequence[Receipt]) -> None:
    """Raise ValueError if not each task has each of its shards once: an error of Chatmill's or of a custom step."""
    by_task = [list(group) for _, group in groupby(receipts, key=lambda receipt: receipt.task)]
    for number, own in enumerate(by_task):
        shards = [(receipt.task, receipt.shard) for receipt in own]
        expected = [(number, i) for i in range(len(own))]
        if shards != expected or [receipt.last for receipt in own] != [False] * (len(own) - 1) + [True]:
            raise ValueError(f"task {number} has the receipts {shards}; expected each of its shards once")
    if len(by_task) != tasks:
        raise ValueError(f"{len(by_task)} tasks have receipts, of {tasks} that were planned")
