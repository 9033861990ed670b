"""Resume: which splits were finished by an earlier run, and whether what it left is still what it wrote."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from posixpath import dirname
from typing import Any

import apache_beam as beam

from transforms.model.batches import Split
from transforms.model.receipts import Receipt, numbers_of, read_receipts, work_of
from transforms.steps.failures import FailureWriter
from transforms.storage.files import exists, join, sha256_of
from transforms.storage.walking import names_below

_LOGGER = logging.getLogger(__name__)


class SkipFinished(beam.PTransform):
    """Separate the splits that an earlier run finished from the others.

    PCollection[Split] -> .unfinished: PCollection[Split], and .finished: PCollection[Receipt] of the others. The
    receipts are listed once, where the splits are planned. All workers check what was found: each receipt by its
    checksum, each shard by its own. A split of which anything is missing or damaged is unfinished, and is logged.

    Args:
        work: the folder with the folders of receipts and shards; those of increments are below it. Without one, no
            split is finished. It can be given until the pipeline runs.
        job: the id of the job. Receipts of another one do not count; those of an increment belong to that.
    """

    def __init__(self, work: str | None = None, job: str = ""):
        super().__init__()
        self._find, self._check = _FindReceipts(), _CheckReceipts()
        self.look_in(work, job)

    def look_in(self, work: str | None, job: str) -> None:
        """Give the folder and the job. Beam serialises the functions that look there when the pipeline runs."""
        self._find.work, self._check.work, self._check.job = work, work or "", job

    def expand(self, splits: beam.PCollection) -> Any:
        found = splits | "find" >> beam.ParDo(self._find) | beam.Reshuffle()
        return found | "check" >> beam.ParDo(self._check).with_outputs("finished", main="unfinished")


# A split, how many receipts it has, and whether the files that they name are still in the folder of shards.
_Found = tuple[Split, int, bool]


class _FindReceipts(beam.DoFn):
    """Adds to each split what an earlier run left of it."""

    work: str | None

    def __init__(self) -> None:
        self._failures = FailureWriter()

    def start_bundle(self) -> None:
        self._found: dict[str, tuple[Counter[int], bool]] = {}  # all splits come from one element: they are one bundle

    def process(self, split: Split) -> Iterator[_Found]:
        if split.increment not in self._found:
            with self._failures:
                self._found[split.increment] = self._find(split.increment)
        receipts, has_shards = self._found[split.increment]
        yield split, receipts[split.number], has_shards

    def _find(self, increment: str) -> tuple[Counter[int], bool]:
        """How many receipts each split has, and whether the files that they name are in the folder of shards."""
        names = names_below(join(work_of(self.work, increment), "receipts")) if self.work else []
        # A finished dataset has no shards but the published ones, and nothing is published again.
        has_shards = bool(increment or not self.work) or not exists(join(dirname(self.work or ""), "_SUCCESS"))
        return Counter(numbers[0] for name in names if (numbers := numbers_of(name))), has_shards


class _CheckReceipts(beam.DoFn):
    work: str
    job: str

    def __init__(self) -> None:
        self._failures = FailureWriter()

    def process(self, found: _Found) -> Iterator[Any]:
        split, parts, has_shards = found
        receipts = list[Receipt]()
        if parts:
            try:
                with self._failures:
                    work = work_of(self.work, split.increment)
                    receipts = read_receipts(join(work, "receipts"), split.number, parts, split.increment or self.job)
                    if split.differing and not all(receipt.by_reference for receipt in receipts):
                        receipts = []  # the fast engine made them
                    if has_shards:
                        _check_files(work, receipts)
            except (ValueError, FileNotFoundError) as error:
                _LOGGER.warning("chatmill: warning: split %d is built again: %s", split.number, error)
                receipts = []
        if not receipts:
            yield split
        for receipt in receipts:
            yield beam.pvalue.TaggedOutput("finished", receipt)


def _check_files(work: str, receipts: list[Receipt]) -> None:
    """Raise ValueError if a file of a receipt is not as it was written, FileNotFoundError if it is missing."""
    for receipt in receipts:
        for name, sha256 in receipt.files():
            if sha256_of(join(work, "shards", name)) != sha256:
                raise ValueError(f"{name} was changed since it was written")
