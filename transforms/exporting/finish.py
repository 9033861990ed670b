"""Finish an export: its sums are compared with the manifest, then it gets its small files and its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from transforms.base.errors import InputError
from transforms.exporting.plan import STATE, SUMMARY, ExportPlan
from transforms.exporting.shards import ExportReceipt, as_json, read_receipt
from transforms.exports import ShardFile, export_of
from transforms.reading.reader import Dataset
from transforms.storage.files import join, read_bytes
from transforms.storage.writing import remove, remove_attempts, write_atomically

_SUMS = ("rows", "tokens", "trained_tokens")


def finish(dataset: Dataset, output: str, plan: ExportPlan) -> dict[str, Any]:
    """Finish an export whose shards are all written.

    Args:
        dataset: that was exported.
        output: the url of the folder of the export.
        plan: of the export.

    Returns:
        The content of export.json: the plan without its shards, and for each split the sums of its shards, what was
        dropped, and each shard with its files.

    Raises:
        InputError: if the rows that were read do not add up to those of the manifest.
        StoreError: if a store fails.
    """
    receipts = [read_receipt(output, shard) for shard in plan.shards]
    of_splits = {split: [each for each in receipts if each.shard.split == split] for split in _splits(receipts)}
    summary: dict[str, Any] = {"dataset": dataset.name, "splits": {}}
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
            "shards": [as_json(each) for each in written],
        }
    ending = export_of(plan.consumer).ending({split: _files(of_split) for split, of_split in of_splits.items()})
    for path, content in ending.items():
        write_atomically(join(output, path), content)
    remove_attempts(output)
    summary["plan"] = msgspec.to_builtins(plan)
    write_atomically(join(output, SUMMARY), msgspec.json.format(msgspec.json.encode(summary), indent=2))
    remove(join(output, STATE))
    return summary


def read_summary(output: str) -> dict[str, Any]:
    """Return the content of export.json of a finished export; what a kill left of its work is removed."""
    remove(join(output, STATE))
    summary: dict[str, Any] = msgspec.json.decode(read_bytes(join(output, SUMMARY)))
    return summary


def _splits(receipts: Sequence[ExportReceipt]) -> list[str]:
    return [*dict.fromkeys(each.shard.split for each in receipts)]


def _sums(receipts: Sequence[ExportReceipt]) -> Mapping[str, int]:
    return {what: sum(getattr(each, what) for each in receipts) for what in (*_SUMS, "examples")}


def _files(receipts: Sequence[ExportReceipt]) -> list[ShardFile]:
    """The files of a split, in order."""
    return [ShardFile(file.path.partition("/")[2], file.sha256) for each in receipts for file in each.files]
