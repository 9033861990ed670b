"""The manifest of a dataset: what is in it, and the outcome of every record, summed from the receipts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from transforms.model.receipts import Receipt


def check_complete(tasks: int, receipts: Sequence[Receipt]) -> None:
    """Check that each task has each of its shards once.

    Args:
        tasks: how many were planned.
        receipts: of all tasks, in order.

    Raises:
        ValueError: if something is missing or doubled, which is an error of Chatmill's or of a step in the pipeline.
    """
    of_tasks = [list(group) for _, group in groupby(receipts, key=lambda receipt: receipt.task)]
    for number, of_task in enumerate(of_tasks):
        found = [(receipt.task, receipt.shard) for receipt in of_task]
        expected = [(number, i) for i in range(len(of_task))]
        if found != expected or [receipt.last for receipt in of_task] != [False] * (len(of_task) - 1) + [True]:
            raise ValueError(f"task {number} has the receipts {found}; expected each of its shards once")
    if len(of_tasks) != tasks:
        raise ValueError(f"{len(of_tasks)} tasks have receipts, of {tasks} that were planned")


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the content of manifest.json: JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2)
