"""Finish an export: its sums are compared with the manifest, then it gets its small files and its summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import msgspec

from transforms.base.errors import InputError
from transforms.catalog.layout import SPLITS
from transforms.exporting.plan import STATE, SUMMARY, ExportPlan
from transforms.exporting.shards import ExportReceipt, as_json
from transforms.exports import ShardFile, export_of
from transforms.reading.reader import Dataset
from transforms.steps.failures import FailureWriter
from transforms.storage.claim import ClaimKeeper
from transforms.storage.files import exists, join, read_bytes
from transforms.storage.writing import remove, remove_attempts, write_atomically

_SUMS = ("rows", "tokens", "trained_tokens")


class FinishExport(beam.PTransform):
    """Finish an export, once all receipts are there.

    PCollection[ExportReceipt] -> PCollection[str], the url of the summary.

    Args:
        dataset: its url, with the version, as Dataset takes it.
        output: the url of the folder of the export.
        plan: of the export.
        name: of the dataset, for people.
    """

    def __init__(self, dataset: str, output: str, plan: ExportPlan, name: str):
        super().__init__()
        self._arguments = dataset, output, name, msgspec.structs.replace(plan, shards=())

    def expand(self, receipts: beam.PCollection) -> beam.PCollection:
        every = receipts | beam.WithKeys(0) | "all" >> beam.GroupByKey() | beam.Values()
        return every | "finish" >> beam.Map(
            _finish_once, *self._arguments, FailureWriter(), ClaimKeeper()
        ).with_output_types(str)


def _finish_once(
    receipts: Iterable[ExportReceipt],
    dataset: str,
    output: str,
    name: str,
    plan: ExportPlan,
    failures: FailureWriter,
    keeper: ClaimKeeper,
) -> str:
    with failures, keeper.keeping():
        if not exists(join(output, SUMMARY)):  # an attempt that a runner repeats may have finished
            keeper.check()
            finish(Dataset(dataset), output, name, plan, receipts)
        keeper.release()
    return join(output, SUMMARY)


def finish(dataset: Dataset, output: str, name: str, plan: ExportPlan, receipts: Iterable[ExportReceipt]) -> None:
    """Finish an export whose shards are all written: write its small files, and export.json.

    export.json has the plan, and for each split the sums of its shards, what was dropped, and the files of each shard.

    Args:
        dataset: that was exported.
        output: the url of the folder of the export.
        name: of the dataset, for people.
        plan: of the export; its shards are those of the receipts.
        receipts: of all shards, in any order.

    Raises:
        InputError: if the rows that were read do not add up to those of the manifest.
        StoreError: if a store fails.
    """
    receipts = sorted(receipts, key=_order)
    plan = msgspec.structs.replace(plan, shards=tuple(each.shard for each in receipts))
    of_splits = {split: [each for each in receipts if each.shard.split == split] for split in _splits(receipts)}
    summary: dict[str, Any] = {"dataset": name, "splits": {}}
    for split, of_split in of_splits.items():
        entries = dataset.readable(split)
        for what in _SUMS:
            read, expected = sum(getattr(each, what) for each in of_split), sum(entry[what] for entry in entries)
            if read != expected:
                raise InputError(
                    f"{dataset.name}: {split} has {read:,} {what}, and the manifest says {expected:,}. Check it with "
                    "`chatmill verify`."
                )
        written = [each for each in of_split if each.shard.number >= 0]
        left = [each for each in of_split if each.shard.number < 0]
        summary["splits"][split] = {
            **_sums(written),
            "dropped": _sums(left),
            "longest_row": max(each.longest for each in written),
            "padding": sum(each.padding for each in written),
            "shards": [as_json(each) for each in written],
        }
    ending = export_of(plan.consumer).ending({split: _files(of_split) for split, of_split in of_splits.items()})
    for path, content in ending.items():
        write_atomically(join(output, path), content)
    remove_attempts(output)
    summary["plan"] = msgspec.to_builtins(plan)
    write_atomically(join(output, SUMMARY), msgspec.json.format(msgspec.json.encode(summary), indent=2))
    remove(join(output, STATE))


def read_summary(output: str) -> dict[str, Any]:
    """Return the content of export.json of a finished export; what a kill left of its work is removed."""
    remove(join(output, STATE))
    summary: dict[str, Any] = msgspec.json.decode(read_bytes(join(output, SUMMARY)))
    return summary


def _order(receipt: ExportReceipt) -> tuple[int, bool, int]:
    """The order of a plan: rows that are dropped are after the shards of their split."""
    shard = receipt.shard
    return SPLITS.index(shard.split), shard.number < 0, shard.number


def _splits(receipts: Sequence[ExportReceipt]) -> list[str]:
    return [*dict.fromkeys(each.shard.split for each in receipts)]


def _sums(receipts: Sequence[ExportReceipt]) -> Mapping[str, int]:
    return {what: sum(getattr(each, what) for each in receipts) for what in (*_SUMS, "examples")}


def _files(receipts: Sequence[ExportReceipt]) -> list[ShardFile]:
    """The files of a split, in order."""
    return [ShardFile(file.path.partition("/")[2], file.sha256) for each in receipts for file in each.files]
