"""Commit: the last step of a build, once all receipts are there."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import apache_beam as beam

from transforms.dataset.budgets import Budgets
from transforms.dataset.layout import Folder
from transforms.model.receipts import Receipt
from transforms.publish.increment_commit import Change, commit_increment, is_committed
from transforms.steps.failures import FailureWriter


class CommitDataset(beam.PTransform):
    """Commit an increment of a dataset, once all receipts are there.

    PCollection[Receipt] -> PCollection[str], the url of the manifest.

    Args:
        folder: of the increment.
        budgets: how much may be rejected, lost or wrong.
        report: one of REPORTS.
        change: what it does to the dataset.
    """

    def __init__(self, folder: Folder, budgets: Budgets, report: str, change: Change):
        super().__init__()
        self._folder = folder
        self._commit = functools.partial(_commit_once, budgets=budgets, report=report, change=change)

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        # Grouped and not combined to a list, which would be one element of 600 MB for a million receipts.
        every = receipts | beam.WithKeys(0) | "all" >> beam.GroupByKey() | beam.Values()
        return every | "commit" >> beam.Map(self._commit, self._folder, FailureWriter()).with_output_types(str)


def _commit_once(
    receipts: Iterable[Receipt],
    folder: Folder,
    failures: FailureWriter,
    budgets: Budgets,
    report: str,
    change: Change,
) -> str:
    with failures:
        if not is_committed(folder):
            in_order = sorted(receipts, key=lambda receipt: (receipt.task, receipt.shard))
            commit_increment(folder, in_order, budgets, report, change)
    return folder.manifest
