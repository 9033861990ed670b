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
        sums = receipt.sums()
        totals = sums.totals()
        records = totals.records
        counts = {
            "records_read": records.read,
            "records_kept": records.kept,
            "records_truncated": records.truncated,
            "records_dropped": sum(records.dropped.values()),
            "records_rejected": sum(records.rejected.values()),
            **{f"dropped_{reason}": count for reason, count in records.dropped.items()},
            **{f"rejected_{reason}": count for reason, count in records.rejected.items()},
            "rows": totals.rows,
            "tokens": totals.tokens,
            "trained_tokens": totals.trained_tokens,
            "trained_tokens_lost": sums.trained_tokens_lost,
        }
        for name, count in counts.items():
            Metrics.counter(NAMESPACE, name).inc(count)
        yield receipt
