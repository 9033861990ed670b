"""The metrics of a runner agree with the manifest in each step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from support.datasets import read_manifest
from support.paths import CHATS, TOKENIZER
from transforms import (
    ApplyChatTemplate,
    BuildLabels,
    CheckParity,
    ParseConversations,
    ReadConversations,
    RenderConfig,
    Tokenize,
    TruncateOrPack,
    WriteDataset,
)

STEPS = {"Read", "Parse", "Apply", "Check", "Tokenize", "Build", "Truncate", "Write"}


def run(output: Path) -> tuple[dict[str, int], dict[tuple[str, str], beam.metrics.cells.DistributionData]]:
    """Build a dataset. Returns its counters, and its distributions by step and name."""
    pipeline = beam.Pipeline(FnApiRunner())
    config = RenderConfig(tokenizer=str(TOKENIZER), loss_on="last_assistant")
    (
        pipeline
        | "Read" >> ReadConversations(str(CHATS), split_bytes=60_000)
        | "Parse" >> ParseConversations()
        | "Apply" >> ApplyChatTemplate(config)
        | "Check" >> CheckParity(config, parity="reject")
        | "Tokenize" >> Tokenize(str(TOKENIZER))
        | "Build" >> BuildLabels()
        | "Truncate" >> TruncateOrPack(max_length=100)
        | "Write"
        >> WriteDataset(
            str(output),
            {},
            tokenizer=str(TOKENIZER),
            max_length=100,
            max_reject_fraction=0.5,
            output_format=("parquet", "tfrecord"),
        )
    )
    found = pipeline.run().metrics().query(beam.metrics.MetricsFilter().with_namespace("chatmill"))
    counters: Counter[str] = Counter()
    for counter in found["counters"]:
        assert counter.key.step.startswith("Write/")
        counters[counter.key.metric.name] += counter.committed
    return dict(counters), {
        (each.key.step.partition("/")[0], each.key.metric.name): each.committed.data for each in found["distributions"]
    }


def test_counters_equal_the_manifest(tmp_path):
    counters, distributions = run(tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    records = manifest["records"]
    assert min(records["kept"], records["truncated"], *records["dropped"].values(), *records["rejected"].values()) > 0
    assert counters == {
        "records_read": records["read"],
        "records_kept": records["kept"],
        "records_truncated": records["truncated"],
        "records_dropped": sum(records["dropped"].values()),
        "records_rejected": sum(records["rejected"].values()),
        **{f"dropped_{reason}": count for reason, count in records["dropped"].items()},
        **{f"rejected_{reason}": count for reason, count in records["rejected"].items()},
        **{name: manifest[name] for name in ("rows", "tokens", "trained_tokens", "trained_tokens_lost")},
    }
    assert distributions.keys() == {("Read", "task_bytes"), *((step, "milliseconds") for step in STEPS)}
    bytes_of_tasks = distributions["Read", "task_bytes"]
    size = sum(path.stat().st_size for path in CHATS.iterdir())
    assert (bytes_of_tasks.count, bytes_of_tasks.sum) == (manifest["job"]["tasks"], size)
    # The time of a step does not include the steps after it. Otherwise parsing would take longer.
    assert distributions["Parse", "milliseconds"].sum < distributions["Apply", "milliseconds"].sum
