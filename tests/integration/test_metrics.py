"""The metrics of a runner agree with the manifest in each step, and a resumed run counts only its own work."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import apache_beam as beam
import msgspec
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from pipeline.cli.options import parse_options
from pipeline.cli.sources import read_sources
from pipeline.job.graph import build_graph
from pipeline.job.prepare import Prepared, prepare
from support.datasets import manifest_of, stopped_before_the_commit
from support.paths import CHATS, TOKENIZER
from transforms.catalog.budgets import Budgets
from transforms.catalog.layout import Folder
from transforms.model.receipts import Receipt

STEPS = {"read", "parse", "render", "parity", "tokenize", "label", "pack", "write"}


def run(prepared: Prepared) -> tuple[dict[str, int], dict[tuple[str, str], beam.metrics.cells.DistributionData]]:
    """Run a job. Returns its counters, and its distributions by step and name."""
    pipeline = beam.Pipeline(FnApiRunner())
    build_graph(
        pipeline, prepared.job, prepared.folder, Budgets(0.5), engine="auto", report="html", change=prepared.change
    )
    found = pipeline.run().metrics().query(beam.metrics.MetricsFilter().with_namespace("chatmill"))
    counters: Counter[str] = Counter()
    for counter in found["counters"]:
        assert counter.key.step.startswith("write/")
        counters[counter.key.metric.name] += counter.committed
    return dict(counters), {
        (each.key.step.partition("/")[0], each.key.metric.name): each.committed.data for each in found["distributions"]
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Prepared:
    output = tmp_path_factory.mktemp("metrics") / "out"
    options, _ = parse_options(
        [f"--input={CHATS}", f"--tokenizer={TOKENIZER}", f"--output={output}", "--split_bytes=60000", "--parity=reject",
         "--max_length=100", "--loss_on=last_assistant", "--output_format=parquet,tfrecord"]
    )  # fmt: skip
    prepared = prepare(options, Folder(options.output), read_sources(options))
    assert prepared
    return prepared


def test_counters_equal_the_manifest_and_a_resumed_run_counts_only_its_own_work(prepared, tmp_path):
    job, folder, _ = prepared
    work, before = Path(folder.work), shutil.copytree(folder.work, tmp_path / "work")
    with stopped_before_the_commit():
        run(prepared)
    receipts = sorted((work / "receipts").glob("*.json"))
    read = {path: msgspec.json.decode(path.read_bytes(), type=Receipt) for path in receipts}
    written = shutil.copytree(work, tmp_path / "written")
    shutil.rmtree(work)
    shutil.copytree(before, work)
    counters, distributions = run(prepared)
    manifest = manifest_of(Path(folder.output))
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
    assert distributions.keys() == {("read", "split_bytes"), *((step, "milliseconds") for step in STEPS)}
    bytes_of_splits = distributions["read", "split_bytes"]
    assert (bytes_of_splits.count, bytes_of_splits.sum) == (job.splits, job.input_bytes)
    for step in STEPS:
        assert distributions[step, "milliseconds"].count == len(receipts)
    # The time of a step does not include the steps after it. Otherwise parsing would take longer.
    assert distributions["parse", "milliseconds"].sum < distributions["render", "milliseconds"].sum

    lost, receipt = next((path, receipt) for path, receipt in read.items() if receipt.part == 0 and receipt.last)
    shutil.rmtree(Path(folder.output, "_chatmill", "log"))
    shutil.copytree(written, work)
    lost.unlink()
    counters, distributions = run(prepared)
    assert counters["records_read"] == receipt.read < records["read"]
    assert counters["tokens"] == sum(shard.tokens for shard in receipt.shards if shard.format == "parquet")
    assert distributions["read", "split_bytes"].count == 1
    assert manifest_of(Path(folder.output)) == manifest
