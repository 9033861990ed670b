"""Change files of a dataset, and sign the changed files as if a build had written them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.datasets import manifest_of
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.outputs.parquet import ParquetWriter
from transforms.outputs.tfrecord import encode_tfrecord
from transforms.publish.derived import derive


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change manifest.json, which then is not what the log gives."""
    manifest = manifest_of(folder)
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def edit_log(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the entry of a dataset that has one, and derive the rest from it again: as if a build had said so."""
    (path,) = (folder / "_chatmill" / "log").glob("*.json")
    entry = json.loads(path.read_bytes())
    change(entry)
    path.write_text(json.dumps(entry))
    of = Folder(str(folder))
    snapshot = Log(of).newest()
    assert snapshot
    derive(of, snapshot, "none")  # a report shows rows, which may be damaged


def flip(path: Path, at: float) -> None:
    """Flip a bit of the byte at a fraction of a file."""
    content = bytearray(path.read_bytes())
    content[min(int(len(content) * at), len(content) - 1)] ^= 4
    path.write_bytes(content)


def sign(folder: Path, *paths: str, rows: pa.Table | None = None) -> None:
    """Let the log have the checksums of files as they are now; with rows, also their numbers."""

    def change(log_entry: dict[str, Any]) -> None:
        add = log_entry["add"]
        for path in paths:
            (entry,) = (shard for shard in add["files"]["shards"] if shard["path"] == path)
            new = _signature(folder / path)
            if rows is not None:
                labels = rows["labels"].combine_chunks().values.to_numpy()
                new |= {"rows": len(rows), "tokens": len(labels), "trained_tokens": int((labels != -100).sum())}
            if rows is not None and path.startswith("data/"):
                for totals in (add["sums"], *add["sums"]["sources"][:1]):
                    for what in ("rows", "tokens", "trained_tokens"):
                        totals[what] += new[what] - entry[what]
                    totals["records"]["kept"] += new["rows"] - entry["rows"]
                    totals["records"]["read"] += new["rows"] - entry["rows"]
            entry |= new

    edit_log(folder, change)


def _signature(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def rewrite(folder: Path, path: str, change: Callable[[pa.Table], pa.Table], recount: bool = False) -> None:
    """Write a shard again with other rows or columns, sign it, and write its TFRecord again with the same rows."""
    table = change(pq.read_table(folder / path))
    with open(folder / path, "wb") as file:
        writer = ParquetWriter(file)
        writer.write(table)
        writer.close()
    rows = table if recount else None
    sign(folder, path, rows=rows)
    for twin in (folder / "tfrecord").glob(f"{Path(path).stem}.tfrecord*"):
        content = encode_tfrecord(table)
        twin.write_bytes(gzip.compress(content) if twin.suffix == ".gz" else content)
        sign(folder, str(twin.relative_to(folder)), rows=rows)


def rewrite_ledger(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write the first file of the ledger again with other lines, and sign it in the log."""
    path = folder / manifest_of(folder)["ledger"][0]["path"]
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    edit_log(folder, lambda entry: entry["add"]["files"]["ledger"][0].update(_signature(path), entries=len(table)))


def with_values(name: str, change: Callable[[Any], Any], row: int = 3) -> Callable[[pa.Table], Any]:
    """Make a change of one row: of the values of a column, in place or by what is returned."""

    def changed(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[row] = change(values[row]) or values[row]
        field = table.schema.field(name)
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    return changed
