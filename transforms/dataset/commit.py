"""Commit: from the receipts to a dataset under its final names, with its manifest, its card and _SUCCESS.

Each part of it can be repeated, by a retry or by a run that resumes: a file that has its final name already stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from posixpath import dirname
from typing import Any

import apache_beam as beam
import msgspec

from transforms.dataset.card import dataset_card
from transforms.dataset.description import read_description
from transforms.dataset.layout import Folder
from transforms.dataset.manifest import (
    Name,
    build_manifest,
    check_complete,
    first_of,
    named_rejects,
    named_shards,
    sum_records,
    too_many_rejects,
)
from transforms.errors import InputError
from transforms.model.receipts import Receipt
from transforms.steps.failures import FailureWriter
from transforms.storage.claim import ClaimKeeper
from transforms.storage.files import exists, join
from transforms.storage.writing import publish, remove, remove_attempts, sync_folder, write_atomically

_AT_ONCE = 16
_IN_BATCH = 256
_REASONS_SHOWN = 5


def final_names(receipts: Sequence[Receipt], max_reject_fraction: float) -> list[Name]:
    """The final name of each file in the receipts; of rejects alone, if too many records were rejected."""
    rejects = named_rejects(receipts)
    if too_many_rejects(receipts, max_reject_fraction):
        return rejects
    return rejects + [(shard.file, path) for shard, path in named_shards(receipts)]


def publish_files(output: str, names: Sequence[Name]) -> None:
    """Give files their final names. This can be repeated, also while another worker does it."""
    folder = Folder(output)

    def publish_one(name: Name) -> None:
        publish(join(folder.shards, name[0]), join(folder.output, name[1]))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(publish_one, names))
    for final in {dirname(name[1]) for name in names}:
        sync_folder(join(folder.output, final))


def commit(output: str, receipts: Sequence[Receipt], max_reject_fraction: float) -> None:
    """Write the manifest, the card and, last, _SUCCESS.

    Args:
        output: the dataset's folder, in which the files of the receipts have their final names.
        receipts: of all splits, in order.
        max_reject_fraction: how much of the records may have been rejected.

    Raises:
        InputError: if more were rejected, or no row is left. Nothing is committed then, but the rejects can be read.
    """
    folder = Folder(output)
    records = sum_records(receipts)
    if too_many_rejects(receipts, max_reject_fraction):
        raise InputError(_rejects_message(records, receipts, max_reject_fraction, folder))
    if not any(receipt.shards for receipt in receipts):
        raise InputError(_nothing_left_message(records, receipts, folder))
    manifest = build_manifest(read_description(folder.job), receipts)
    write_atomically(folder.manifest, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    write_atomically(folder.card, dataset_card(manifest).encode())
    remove_attempts(folder.output)
    write_atomically(folder.success, b"")


def _rejects_message(
    records: dict[str, Any], receipts: Sequence[Receipt], max_reject_fraction: float, folder: Folder
) -> str:
    rejected = sum(records["rejected"].values())
    return (
        f"{rejected:,} of {records['read']:,} records were rejected, more than max_reject_fraction "
        f"{max_reject_fraction}. They are in {join(folder.output, 'rejects')}. Correct them, or allow a larger "
        f"fraction, and run again. {_first_rejects(records, receipts)}"
    )


def _nothing_left_message(records: dict[str, Any], receipts: Sequence[Receipt], folder: Folder) -> str:
    message = f"no row is left of {records['read']:,} records: {_reasons(records)}."
    if not records["rejected"]:
        return message
    rejects = join(folder.output, "rejects")
    return f"{message} The rejected records are in {rejects}. {_first_rejects(records, receipts)}"


def _first_rejects(records: dict[str, Any], receipts: Sequence[Receipt]) -> str:
    """The most frequent reasons of rejects, with the first record that has each."""
    examples = first_of(receipt.first_rejects for receipt in receipts)
    lines = [
        f"  {reason} ({count:,}): {examples[reason].source}, {examples[reason].position}: {examples[reason].detail}"
        for reason, count in Counter(records["rejected"]).most_common(_REASONS_SHOWN)
    ]
    return "The most frequent reasons:\n" + "\n".join(lines)


def _reasons(records: dict[str, Any]) -> str:
    outcomes = records["dropped"] | records["rejected"]
    return ", ".join(f"{reason} {count:,}" for reason, count in outcomes.items()) or "the inputs hold none"


class CommitDataset(beam.PTransform):
    """Commit the dataset, once all receipts are there.

    PCollection[Receipt] -> PCollection[str], the url of the manifest. All workers publish files; once all are
    published, one writes the manifest, the card and _SUCCESS.

    Args:
        output: the dataset's folder.
        max_reject_fraction: how much of the records may have been rejected.
    """

    def __init__(self, output: str, max_reject_fraction: float):
        super().__init__()
        self._output = output
        self._max_reject_fraction = max_reject_fraction

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        # Grouped and not combined to a list, which would be one element of 600 MB for a million receipts.
        failures, keeper = FailureWriter(), ClaimKeeper()
        every = receipts | beam.WithKeys(0) | "all" >> beam.GroupByKey() | beam.Values()
        published = (
            every
            | "names" >> beam.FlatMap(_batches_of_names, self._output, self._max_reject_fraction, failures)
            | beam.Reshuffle()
            | "publish" >> beam.Map(_publish, self._output, failures, keeper)
        )
        return every | "commit" >> beam.Map(
            _commit, beam.pvalue.AsIter(published), self._output, self._max_reject_fraction, failures, keeper
        ).with_output_types(str)


def _batches_of_names(
    receipts: Iterable[Receipt], output: str, max_reject_fraction: float, failures: FailureWriter
) -> Iterator[list[Name]]:
    folder = Folder(output)
    if not exists(folder.success):  # unless an earlier run of the same pipeline committed it
        in_order = _in_order(receipts)
        with failures:
            check_complete(read_description(folder.job).splits, in_order)
            names = final_names(in_order, max_reject_fraction)
        for i in range(0, len(names), _IN_BATCH):
            yield names[i : i + _IN_BATCH]


def _publish(names: list[Name], output: str, failures: FailureWriter, keeper: ClaimKeeper) -> int:
    with failures, keeper.keeping():
        keeper.check()
        publish_files(output, names)
    return len(names)


def _commit(
    receipts: Iterable[Receipt],
    _published: Iterable[int],  # never read: Beam calls this once all of it is there
    output: str,
    max_reject_fraction: float,
    failures: FailureWriter,
    keeper: ClaimKeeper,
) -> str:
    folder = Folder(output)
    with failures, keeper.keeping():
        if not exists(folder.success):
            keeper.check()
            commit(output, _in_order(receipts), max_reject_fraction)
        # What was published, and shards of attempts that no receipt names. Until now, a run that resumes checks them.
        remove(folder.shards)
        keeper.release()
    return folder.manifest


def _in_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    return sorted(receipts, key=lambda receipt: (receipt.split, receipt.part))
