"""Metrics: what a runner counts and shows while a job runs, under names that do not change (docs/metrics.md)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from transforms.model.receipts import Receipt

NAMESPACE = "chatmill"


def record_split_bytes(count: int) -> None:
    Metrics.distribution(NAMESPACE, "split_bytes").update(count)


def timed(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, while the time that each took to make is recorded for the step that makes them."""
    batches = iter(batches)
    while True:
        start = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            return
        Metrics.distribution(NAMESPACE, "milliseconds").update(round((time.perf_counter() - start) * 1000))
        yield batch


class CountReceipts(beam.DoFn):
    """Counts what receipts say, and passes them on. A row that is written in two formats counts once."""

    def process(self, receipt: Receipt) -> Iterator[Receipt]:
        shards = receipt.shards_once()
        counts = {
            "records_read": receipt.read,
            "records_kept": receipt.kept,
            "records_truncated": receipt.truncated,
            "records_dropped": sum(receipt.dropped.values()),
            "records_rejected": sum(receipt.rejected.values()),
            **{f"dropped_{reason}": count for reason, count in receipt.dropped.items()},
            **{f"rejected_{reason}": count for reason, count in receipt.rejected.items()},
            "rows": sum(shard.rows for shard in shards),
            "tokens": sum(shard.tokens for shard in shards),
            "trained_tokens": sum(shard.trained_tokens for shard in shards),
            "trained_tokens_lost": receipt.trained_tokens_lost,
        }
        for name, count in counts.items():
            Metrics.counter(NAMESPACE, name).inc(count)
        yield receipt
