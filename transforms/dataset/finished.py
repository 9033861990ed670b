"""Resume: which tasks were finished by an earlier run, and whether what it left is still what it wrote."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import apache_beam as beam

from transforms.model.batches import Task
from transforms.model.receipts import Receipt, parse_receipt_name, read_receipts, work_folder
from transforms.steps.failures import FailureWriter
from transforms.steps.workers import OnWorkers
from transforms.storage.files import join, size_and_sha256
from transforms.storage.walking import names_below

_LOGGER = logging.getLogger(__name__)


class SkipFinished(beam.PTransform):
    """Separate the tasks that an earlier run finished from the others.

    PCollection[Task] -> .unfinished: PCollection[Task], and .finished: PCollection[Receipt] of the others. The
    receipts are listed once, where the tasks are planned. All workers check what was found: each receipt by its
    checksum, each of its files by its own. A task with a missing or damaged file is unfinished, and logged.

    Args:
        output: the folder of the dataset.
    """

    def __init__(self, output: str):
        super().__init__()
        self._output = output

    def expand(self, tasks: beam.PCollection) -> Any:
        counted = tasks | "find" >> beam.ParDo(_FindReceipts(self._output)) | beam.Reshuffle()
        return counted | "check" >> beam.ParDo(OnWorkers(_CheckReceipts(self._output))).with_outputs(
            "finished", main="unfinished"
        )


# A task, and how many receipts it has.
_Counted = tuple[Task, int]


class _FindReceipts(beam.DoFn):
    """Adds to each task what an earlier run left of it."""

    def __init__(self, output: str):
        self._output = output
        self._failures = FailureWriter()

    def start_bundle(self) -> None:
        self._shard_counts: dict[str, Counter[int]] = {}  # all tasks come from one element: they are one bundle

    def process(self, task: Task) -> Iterator[_Counted]:
        if task.increment not in self._shard_counts:
            with self._failures:
                names = names_below(join(work_folder(self._output, task.increment), "receipts"))
            self._shard_counts[task.increment] = Counter(
                numbers[0] for name in names if (numbers := parse_receipt_name(name))
            )
        yield task, self._shard_counts[task.increment][task.number]


class _CheckReceipts:
    """Reads the receipts of a task, and checks the files that they name."""

    def __init__(self, output: str):
        self._output = output
        self._failures = FailureWriter()

    def __call__(self, counted: _Counted) -> Iterator[Any]:
        task, shards = counted
        receipts = list[Receipt]()
        if shards:
            try:
                with self._failures:
                    folder = join(work_folder(self._output, task.increment), "receipts")
                    receipts = read_receipts(folder, task.number, shards, task.increment)
                    for file in chain.from_iterable(receipt.all_files() for receipt in receipts):
                        if size_and_sha256(join(self._output, file.path))[1] != file.sha256:
                            raise ValueError(f"{file.path} was changed after it was written")
            except (ValueError, FileNotFoundError) as error:
                _LOGGER.warning("task %d is built again: %s", task.number, error)
                receipts = []
        if not receipts:
            yield task
        for receipt in receipts:
            yield beam.pvalue.TaggedOutput("finished", receipt)
