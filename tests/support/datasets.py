"""Building a dataset in a process of its own, and reading what it wrote."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from support.places import ROOT


def build_apart(*options: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Builds a dataset in a process of its own."""
    command = [sys.executable, "-m", "pipeline", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **how)


def manifest_of(output: Path) -> dict[str, Any]:
    return json.loads((output / "manifest.json").read_text())


def rows_of(output: Path, split: str = "train") -> list[dict[str, Any]]:
    """All rows of a dataset's split, in the order of its shards."""
    return [row for shard in sorted((output / "data").glob(f"{split}-*")) for row in pq.read_table(shard).to_pylist()]


def rejects_of(output: Path) -> list[dict[str, Any]]:
    return [row for shard in sorted((output / "rejects").glob("*")) for row in pq.read_table(shard).to_pylist()]


def digests(output: Path, *without: str) -> dict[str, str]:
    """sha256 of each file that a dataset consists of, its manifest and card included, but those without."""
    files = [path for path in output.rglob("*") if path.is_file() and "_chatmill" not in path.parts]
    files = [path for path in files if path.name not in without]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def write_jsonl(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path
