"""Committing in a stream: the worker that writes the last receipt of an increment sees all of them, and commits.

Two that write the last ones at the same time both commit, which changes nothing: the files of an increment, and its
entry in the log, are a function of what it is made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam

from pipeline.cli.options import Options
from pipeline.cli.sources import Source
from pipeline.growth.increments import select
from pipeline.watching.attempts import Attempts
from pipeline.watching.noting import Note
from transforms.catalog.budgets import Budgets
from transforms.catalog.description import read_description
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Snapshot
from transforms.inputs.plan_file import decode_plan
from transforms.model.receipts import Receipt, numbers_of, read_receipt
from transforms.publish.claimed import repair
from transforms.publish.increment_commit import Change, commit_increment, is_committed
from transforms.storage.claim import ClaimKeeper
from transforms.storage.files import full_url, join, read_bytes
from transforms.storage.walking import names_below

_AT_ONCE = 16


class CommitIncrements(beam.PTransform):
    """Commit each increment when its last receipt is written.

    PCollection[Receipt] -> PCollection[str], the ids of increments that were committed. An error is written down among
    the attempts at the increment.

    Args:
        options: of the build.
        sources: of read_sources.
        budgets: how much may be rejected, lost or wrong. An increment of one file that exceeds one is committed as
            failed.
    """

    def __init__(self, options: Options, sources: Sequence[Source], budgets: Budgets):
        super().__init__()
        self._commit = _Commit(options, sources, budgets)

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        return receipts | beam.ParDo(self._commit).with_output_types(str)


class _Commit(beam.DoFn):
    def __init__(self, options: Options, sources: Sequence[Source], budgets: Budgets):
        self._options = options
        self._sources = sources
        self._budgets = budgets
        self._keeper = ClaimKeeper()
        self._note = Note(options)

    def process(self, receipt: Receipt) -> Iterator[str]:
        if not receipt.last or not receipt.increment:
            return
        folder = Folder(full_url(self._options.output), receipt.increment)
        try:
            with self._keeper.keeping():
                if self._commit_if_complete(folder):
                    yield folder.increment
        except Exception as error:
            if not is_committed(folder):  # by another one, which removes what this one reads
                Attempts(folder).fail(None, error)

    def _commit_if_complete(self, folder: Folder) -> bool:
        """Commit an increment, if all of its receipts are there and nobody else did."""
        of_dataset = Folder(folder.output)
        before = Log(of_dataset).newest() or Snapshot()  # read first: it commits on what was there then
        receipts = _read_receipts(folder)
        if len({receipt.split for receipt in receipts if receipt.last}) < read_description(folder.job).splits:
            return False
        if before.has(folder.increment):  # by one that may have been killed after its commit
            repair(of_dataset, before)
            return False
        files = decode_plan(read_bytes(folder.plan))
        last = Attempts(folder).last()
        replaces = select(files, before, self._options.rewritten, self._sources).replaces
        commits_failed = len(files) == 1 and not replaces
        change = Change(before.version, replaces=replaces, commits_failed=commits_failed)
        snapshot = commit_increment(folder, receipts, self._budgets, self._options.report, change)
        self._note(folder, snapshot, last)
        return True


def _read_receipts(folder: Folder) -> list[Receipt]:
    """All receipts of an increment that are there, in order."""
    urls = [join(folder.receipts, name) for name in names_below(folder.receipts) if numbers_of(name)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        receipts = pool.map(lambda url: read_receipt(url, folder.increment), urls)
        return sorted(receipts, key=lambda receipt: (receipt.split, receipt.part))
