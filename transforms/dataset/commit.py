"""Commit: from the receipts to a dataset under its final names, with its manifest, its card and _SUCCESS.

Each part of it can be repeated, by a retry or by a run that resumes: a file that has its final name already stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from transforms.dataset.budgets import Budgets, nothing_left
from transforms.dataset.card import dataset_card
from transforms.dataset.description import read_description
from transforms.dataset.increment_commit import commit_increment, is_committed
from transforms.dataset.layout import Folder
from transforms.dataset.manifest import (
    Name,
    build_manifest,
    check_complete,
    encode_manifest,
    named_ledgers,
    named_rejects,
    named_shards,
)
from transforms.dataset.publishing import publish_files
from transforms.dataset.report import write_report
from transforms.errors import InputError, RejectsError
from transforms.model.receipts import Receipt
from transforms.steps.failures import FailureWriter
from transforms.storage.claim import ClaimKeeper
from transforms.storage.files import exists
from transforms.storage.writing import remove, remove_attempts, write_atomically

_IN_BATCH = 256


def final_names(receipts: Sequence[Receipt], is_exceeded: bool) -> list[Name]:
    """The final name of each file in the receipts; of rejects and the ledger alone, if a budget is exceeded."""
    others = named_rejects(receipts) + named_ledgers(receipts)
    return others if is_exceeded else others + [(shard.file, path) for shard, path in named_shards(receipts)]


def check_engines(receipts: Sequence[Receipt]) -> None:
    """Raise InputError if the engines differ in a part, and not all parts were made by the reference."""
    differing = next(filter(None, (receipt.differing for receipt in receipts)), None)
    if differing and not all(receipt.by_reference for receipt in receipts):
        raise InputError(
            f"{differing.source}, {differing.position}: the fast engine differs from transformers ("
            f"{differing.detail}), so nothing that it made is published. Give the engine reference."
        )


def commit(folder: Folder, receipts: Sequence[Receipt], budgets: Budgets, report: str) -> None:
    """Write the manifest, the card, the report and, last, _SUCCESS.

    Args:
        folder: of the dataset, in which the files of the receipts have their final names.
        receipts: of all splits, in order.
        budgets: how much may be rejected, lost or wrong.
        report: one of REPORTS.

    Raises:
        InputError: if one is exceeded, or no row is left. Nothing is committed then; rejects and ledger can be read.
    """
    job = read_description(folder.job)
    if problem := budgets.exceeded(receipts, job, folder):
        raise (RejectsError if budgets.too_many_rejects(receipts) else InputError)(problem)
    if not any(receipt.shards for receipt in receipts):
        has_rejects = any(receipt.rejected for receipt in receipts)
        raise (RejectsError if has_rejects else InputError)(nothing_left(receipts, folder))
    manifest = build_manifest(job, receipts)
    write_atomically(folder.manifest, encode_manifest(manifest))
    write_atomically(folder.card, dataset_card(manifest).encode())
    write_report(folder, manifest, report)
    remove_attempts(folder.output)
    write_atomically(folder.success, b"")


class CommitDataset(beam.PTransform):
    """Commit the dataset, or an increment of it, once all receipts are there.

    PCollection[Receipt] -> PCollection[str], the url of the manifest. All workers publish files; once all are
    published, one writes the manifest, the card and _SUCCESS, of an increment after its entry in the log.

    Args:
        folder: of the dataset, or of the increment.
        budgets: how much may be rejected, lost or wrong.
        report: one of REPORTS.
        replaces: the ids of the increments that the increment takes the place of.
        commits_failed: whether an increment that exceeds a budget is committed as failed.
    """

    def __init__(
        self,
        folder: Folder,
        budgets: Budgets,
        report: str = "html",
        replaces: Sequence[str] = (),
        commits_failed: bool = False,
    ):
        super().__init__()
        self._folder = folder
        self._budgets = budgets
        self._commit = functools.partial(
            _commit,
            budgets=budgets,
            report=report,
            replaces=replaces,
            commits_failed=commits_failed,
        )

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        # Grouped and not combined to a list, which would be one element of 600 MB for a million receipts.
        failures, keeper = FailureWriter(), ClaimKeeper()
        every = receipts | beam.WithKeys(0) | "all" >> beam.GroupByKey() | beam.Values()
        published = (
            every
            | "names" >> beam.FlatMap(_batches_of_names, self._folder, self._budgets, failures)
            | beam.Reshuffle()
            | "publish" >> beam.Map(_publish, self._folder, failures, keeper)
        )
        return every | "commit" >> beam.Map(
            self._commit, beam.pvalue.AsIter(published), self._folder, failures, keeper
        ).with_output_types(str)


def _batches_of_names(
    receipts: Iterable[Receipt], folder: Folder, budgets: Budgets, failures: FailureWriter
) -> Iterator[list[Name]]:
    if not _is_committed(folder):  # by an earlier run of the same pipeline
        in_order = _in_order(receipts)
        with failures:
            job = read_description(folder.job)
            check_complete(job.splits, in_order)
            check_engines(in_order)
            names = final_names(in_order, bool(budgets.exceeded(in_order, job, folder)))
        for i in range(0, len(names), _IN_BATCH):
            yield names[i : i + _IN_BATCH]


def _publish(names: list[Name], folder: Folder, failures: FailureWriter, keeper: ClaimKeeper) -> int:
    with failures, keeper.keeping():
        keeper.check()
        publish_files(folder, names)
    return len(names)


def _commit(
    receipts: Iterable[Receipt],
    _published: Iterable[int],  # never read: Beam calls this once all of it is there
    folder: Folder,
    failures: FailureWriter,
    keeper: ClaimKeeper,
    budgets: Budgets,
    report: str,
    replaces: Sequence[str],
    commits_failed: bool,
) -> str:
    with failures, keeper.keeping():
        if not _is_committed(folder):
            keeper.check()
            if folder.increment:
                commit_increment(folder, _in_order(receipts), budgets, report, replaces, commits_failed)
            else:
                commit(folder, _in_order(receipts), budgets, report)
        # What was published, and shards of attempts that no receipt names. Until now, a run that resumes checks them.
        remove(folder.shards)
        keeper.release()
    return folder.manifest


def _is_committed(folder: Folder) -> bool:
    return is_committed(folder) if folder.increment else exists(folder.success)


def _in_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    return sorted(receipts, key=lambda receipt: (receipt.split, receipt.part))
