"""Build a dataset in a separate process, and read its output."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from support.paths import ROOT
from support.processes import with_default_signals


def build_in_process(*options: object, **popen_options: Any) -> subprocess.CompletedProcess[str]:
    """Build a dataset in a separate process."""
    command = [sys.executable, "-m", "pipeline", *map(str, options)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=with_default_signals, **popen_options
    )


def name_in_increment(path: str) -> str:
    """Return the name of a file of a dataset without the id of its increment, which depends on the urls of inputs."""
    return re.sub("-[0-9a-f]{16}-", "-", path.rpartition("/")[2])


def read_manifest(output: Path) -> dict[str, Any]:
    return json.loads((output / "manifest.json").read_text())


def assert_statistics_add_up(manifest: dict[str, Any]) -> None:
    """Assert that the statistics of a manifest agree with its other counts."""
    histograms = manifest["statistics"]["histograms"]
    for name, histogram in histograms.items():
        assert histogram["count"] == sum(count for _, count in histogram["buckets"]), name
    assert histograms["row_tokens"]["count"] == histograms["examples_per_row"]["count"] == manifest["rows"]
    assert histograms["row_tokens"]["sum"] == manifest["tokens"]
    trained = manifest["trained_tokens"] + manifest["trained_tokens_lost"]
    assert histograms["example_trained_tokens"]["sum"] == trained
    if "turns" in histograms:
        assert histograms["turns"]["sum"] == sum(manifest["statistics"]["roles"].values())


def read_rows(output: Path, split: str = "train") -> list[dict[str, Any]]:
    """Return all rows of `train` or `validation`, in the order of the shards."""
    shards = [shard for shard in read_manifest(output)["shards"] if shard["split"] == split]
    paths = [shard["path"] for shard in shards if shard["format"] == "parquet"]
    return [row for path in paths for row in pq.read_table(output / path).to_pylist()]


def read_rejects(output: Path) -> list[dict[str, Any]]:
    """Return all rejects, also those of a build that was not committed."""
    files = sorted((output / "records").glob("records-*.parquet"))
    return [rejected for file in files for rejected in rejects_in(file)]


def rejects_in(file: Path) -> list[dict[str, Any]]:
    """Return the rejects of a file of exceptions."""
    columns = ["origin_file", "origin_position", "reason", "detail", "record"]
    return pq.read_table(file, filters=[("outcome", "=", "rejected")]).select(columns).to_pylist()


def read_exceptions(output: Path) -> list[dict[str, Any]]:
    """Return all exceptions, each with the path of its shard."""
    return [
        {**line, "shard": entry["shards"].get(line["split"])}
        for entry in read_manifest(output)["exceptions"]
        for line in pq.read_table(output / entry["path"]).to_pylist()
    ]


def digests(output: Path, *excluded: str) -> dict[str, str]:
    """Return the sha256 of each file of a dataset, except the work files and the excluded names."""
    # Not below _chatmill: a cluster may still be removing what it needed.
    parts = [part for part in output.iterdir() if part.name != "_chatmill"]
    files = [path for part in parts for path in [part, *part.rglob("*")] if path.is_file()]
    files = [path for path in files if path.name not in excluded]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


@contextmanager
def stopped_before_the_commit() -> Iterator[None]:
    """Inside, a pipeline of this process ends with an error before its commit: its files and receipts are there."""
    error, link = RuntimeError("stopped before the commit"), os.link

    def stopping(source: str, path: str, **options: Any) -> None:
        if "/_chatmill/versions/" in path:
            raise error
        link(source, path, **options)

    with patch.object(os, "link", stopping), pytest.raises(Exception, match=str(error)):
        yield


def age_work(output: Path) -> None:
    """Let all files of builds that were begun be two days old: then none of these builds is alive."""
    for path in (output / "_chatmill" / "building").rglob("*"):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)


def work_in(output: Path) -> Path:
    """Return the folder with the job, the plan and the receipts of the one increment that was begun in a dataset."""
    (work,) = (output / "_chatmill" / "building").iterdir()
    return work


def write_jsonl(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path
