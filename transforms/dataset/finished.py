"""Resume: which splits were finished by an earlier run, and whether what it left is still what it wrote."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from transforms.model.batches import Split
from transforms.model.receipts import Receipt, numbers_of, read_receipts, work_of
from transforms.steps.failures import FailureWriter
from transforms.storage.files import join, sha256_of
from transforms.storage.walking import names_below

_LOGGER = logging.getLogger(__name__)


class SkipFinished(beam.PTransform):
    """Separate the splits that an earlier run finished from the others.

    PCollection[Split] -> .unfinished: PCollection[Split], and .finished: PCollection[Receipt] of the others. The
    receipts are listed once, where the splits are planned. All workers check what was found: each receipt by its
    checksum, each of its files by its own. A split with a missing or damaged file is unfinished, and logged.

    Args:
        output: the folder of the dataset.
    """

    def __init__(self, output: str):
        super().__init__()
        self._output = output

    def expand(self, splits: beam.PCollection) -> Any:
        found = splits | "find" >> beam.ParDo(_FindReceipts(self._output)) | beam.Reshuffle()
        return found | "check" >> beam.ParDo(_CheckReceipts(self._output)).with_outputs("finished", main="unfinished")


# A split, and how many receipts it has.
_Found = tuple[Split, int]


class _FindReceipts(beam.DoFn):
    """Adds to each split what an earlier run left of it."""

    def __init__(self, output: str):
        self._output = output
        self._failures = FailureWriter()

    def start_bundle(self) -> None:
        self._found: dict[str, Counter[int]] = {}  # all splits come from one element: they are one bundle

    def process(self, split: Split) -> Iterator[_Found]:
        if split.increment not in self._found:
            with self._failures:
                self._found[split.increment] = self._find(split.increment)
        yield split, self._found[split.increment][split.number]

    def _find(self, increment: str) -> Counter[int]:
        """How many receipts each split has."""
        names = names_below(join(work_of(self._output, increment), "receipts"))
        return Counter(numbers[0] for name in names if (numbers := numbers_of(name)))


class _CheckReceipts(beam.DoFn):
    def __init__(self, output: str):
        self._output = output
        self._failures = FailureWriter()

    def process(self, found: _Found) -> Iterator[Any]:
        split, parts = found
        receipts = list[Receipt]()
        if parts:
            try:
                with self._failures:
                    folder = join(work_of(self._output, split.increment), "receipts")
                    receipts = read_receipts(folder, split.number, parts, split.increment)
                    _check_files(self._output, receipts)
            except (ValueError, FileNotFoundError) as error:
                _LOGGER.warning("split %d is built again: %s", split.number, error)
                receipts = []
        if not receipts:
            yield split
        for receipt in receipts:
            yield beam.pvalue.TaggedOutput("finished", receipt)


def _check_files(output: str, receipts: list[Receipt]) -> None:
    """Raise ValueError if a file of a receipt is not as it was written, FileNotFoundError if it is missing."""
    for receipt in receipts:
        for file in receipt.files():
            if sha256_of(join(output, file.path)) != file.sha256:
                raise ValueError(f"{file.path} was changed after it was written")
