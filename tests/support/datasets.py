"""Build a dataset in a separate process, and read its output."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from support.paths import ROOT
from support.signals import with_default_signals


def build_in_process(*options: object, **popen_options: Any) -> subprocess.CompletedProcess[str]:
    """Build a dataset in a separate process."""
    command = [sys.executable, "-m", "pipeline", *map(str, options)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=with_default_signals, **popen_options
    )


def manifest_of(output: Path) -> dict[str, Any]:
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


def rows_of(output: Path, split: str = "train") -> list[dict[str, Any]]:
    """Return all rows of `train` or `validation`, in the order of the shards."""
    return [row for shard in sorted((output / "data").glob(f"{split}-*")) for row in pq.read_table(shard).to_pylist()]


def rejects_of(output: Path) -> list[dict[str, Any]]:
    return [row for shard in sorted((output / "rejects").glob("*")) for row in pq.read_table(shard).to_pylist()]


def ledger_of(output: Path) -> list[dict[str, Any]]:
    """Return all lines of the ledger, each with the path of its shard."""
    return [
        {**line, "shard": entry["shards"].get(line["split"])}
        for entry in manifest_of(output)["ledger"]
        for line in pq.read_table(output / entry["path"]).to_pylist()
    ]


def digests(output: Path, *excluded: str) -> dict[str, str]:
    """Return the sha256 of each file of a dataset, except the work files and the excluded names."""
    files = [path for path in output.rglob("*") if path.is_file() and "_chatmill" not in path.parts]
    files = [path for path in files if path.name not in excluded]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def undo_the_commit(output: Path) -> None:
    """Let a dataset be as after a kill in the middle of its commit: some shards have their final names already."""
    shards = output / "_chatmill" / "shards"
    shards.mkdir()
    receipts = [json.loads(path.read_bytes()) for path in (output / "_chatmill" / "receipts").glob("*.json")]
    files = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in output.glob("*/*-of-*")}
    for receipt in receipts:
        named = [(shard["file"], shard["sha256"]) for shard in receipt["shards"]]
        if receipt["rejects_file"]:
            named.append((receipt["rejects_file"], receipt["rejects_sha256"]))
        if receipt["ledger"]:
            named.append((receipt["ledger"]["file"], receipt["ledger"]["sha256"]))
        for name, sha256 in named:
            (shards / name).hardlink_to(files[sha256])
    for path in [*files.values()][::2]:
        path.unlink()
    for name in ("manifest.json", "report.html", "README.md", "_SUCCESS"):
        (output / name).unlink()


def write_jsonl(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path
