"""Metrics: what a runner counts and shows while a job runs, under names that do not change (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.metrics.execution import MetricsEnvironment
from apache_beam.metrics.metricbase import MetricName

from transforms.model.receipts import Receipt

NAMESPACE = "chatmill"


def record_task_bytes(count: int) -> None:
    Metrics.distribution(NAMESPACE, "task_bytes").update(count)


def seconds_recorder() -> Callable[[float], None]:
    """Return a function that records the seconds of a call for the step in whose `process` this one is called."""
    container = MetricsEnvironment.current_container()
    if container is None:  # outside of Beam
        return lambda seconds: None
    distribution = container.get_distribution(MetricName(NAMESPACE, "milliseconds"))
    return lambda seconds: distribution.update(round(seconds * 1000))


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
