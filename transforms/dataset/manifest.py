"""The manifest of a dataset: what is in it, and the outcome of every record, summed from the receipts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import asdict

from transforms.dataset.description import Description
from transforms.dataset.sums import Sums
from transforms.model.counts import ROWS_ADDED, RecordCounts, StepCounts, Totals
from transforms.model.receipts import Firsts, Receipt
from transforms.model.statistics import Statistics, decode_statistics


def check_complete(tasks: int, receipts: Sequence[Receipt]) -> None:
    """Check that each task has each of its shards once, and each record one outcome.

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
    for receipt in receipts:
        outcomes = receipt.kept + receipt.truncated + sum(receipt.dropped.values()) + sum(receipt.rejected.values())
        if receipt.read != outcomes:
            raise ValueError(f"task {receipt.task}: {receipt.read} records were read, and {outcomes} have an outcome")


def sums_of_receipts(description: Description, receipts: Sequence[Receipt]) -> Sums:
    """Add up what the receipts of an increment say, but for its files.

    Args:
        description: its job.
        receipts: of all tasks, in order.

    Raises:
        ValueError: if the rows do not add up.
    """
    totals, counts = _totals(receipts), StepCounts.total(receipts)
    records, rows = totals.records, totals.rows
    survivors = records.kept + records.truncated + sum(counts.notes.get(name, 0) for name in ROWS_ADDED)
    if description.options.get("packing", "none") == "none" and rows != survivors:
        raise ValueError(f"{rows} rows were written, of records that should have {survivors}")
    return Sums(
        **asdict(totals),
        **asdict(counts),
        **asdict(Firsts.total(receipts)),
        sources=_by_source(len(description.sources), receipts, totals),
        statistics=Statistics.total(decode_statistics(receipt.statistics) for receipt in receipts),
    )


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the content of manifest.json: JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2)


def _totals(receipts: Sequence[Receipt]) -> Totals:
    """The outcomes of the records, and what the rows hold. Each row counts once, in however many formats it is."""
    once = [shard for receipt in receipts for shard in receipt.shards_once()]
    return Totals(
        records=RecordCounts.total(receipts),
        rows=sum(shard.rows for shard in once),
        tokens=sum(shard.tokens for shard in once),
        trained_tokens=sum(shard.trained_tokens for shard in once),
    )


def _by_source(count: int, receipts: Sequence[Receipt], totals: Totals) -> list[Totals]:
    """The totals of each source. Raises ValueError if they do not add up to those of the dataset."""
    of_source: defaultdict[int, list[Receipt]] = defaultdict(list)
    of_several: defaultdict[int, list[Totals]] = defaultdict(list)
    for receipt in receipts:
        if receipt.of_sources:
            for number, totals_of_source in enumerate(receipt.of_sources):
                of_several[number].append(totals_of_source)
        else:
            of_source[receipt.source].append(receipt)
    sources = [Totals.total([_totals(of_source[number]), *of_several[number]]) for number in range(count)]
    if (found := Totals.total(sources)) != totals:
        raise ValueError(f"the sources have {found}; the dataset has {totals}")
    return sources
