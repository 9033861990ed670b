"""Change files of a dataset, and sign the changed files as if a build had written them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from support.datasets import manifest_of
from transforms.dataset.description import job_id
from transforms.dataset.layout import Folder
from transforms.model.receipts import read_receipt, write_receipt
from transforms.outputs.parquet import ParquetWriter
from transforms.outputs.tfrecord import encode_tfrecord


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = manifest_of(folder)
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def flip(path: Path, at: float) -> None:
    """Flip a bit of the byte at a fraction of a file."""
    content = bytearray(path.read_bytes())
    content[min(int(len(content) * at), len(content) - 1)] ^= 4
    path.write_bytes(content)


def sign(folder: Path, *paths: str, rows: pa.Table | None = None) -> None:
    """Let the manifest and the receipts have the checksums of files as they are now; with rows, also their numbers."""
    for path in paths:
        manifest = manifest_of(folder)
        (entry,) = (shard for shard in manifest["shards"] if shard["path"] == path)
        content = (folder / path).read_bytes()
        new = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        if rows is not None:
            labels = rows["labels"].combine_chunks().values.to_numpy()
            new |= {"rows": len(rows), "tokens": len(labels), "trained_tokens": int((labels != -100).sum())}
        if rows is not None and path.startswith("data/"):
            for totals in (manifest, *manifest["sources"][:1]):
                for what in ("rows", "tokens", "trained_tokens"):
                    totals[what] += new[what] - entry[what]
                totals["records"]["kept"] += new["rows"] - entry["rows"]
                totals["records"]["read"] += new["rows"] - entry["rows"]
        _sign_receipt(folder, entry, new)
        entry |= new
        (folder / "manifest.json").write_text(json.dumps(manifest))


def _sign_receipt(folder: Path, entry: dict[str, Any], new: dict[str, Any]) -> None:
    work = folder / "_chatmill"
    job = job_id(Folder(str(folder)))
    for path in (work / "receipts").iterdir():
        receipt = read_receipt(str(path), job)
        shards = [
            msgspec.structs.replace(shard, **new) if shard.sha256 == entry["sha256"] else shard
            for shard in receipt.shards
        ]
        if shards != receipt.shards:
            more = new.get("rows", entry["rows"]) - entry["rows"] if entry["format"] == "parquet" else 0
            receipt = msgspec.structs.replace(
                receipt, shards=shards, read=receipt.read + more, kept=receipt.kept + more
            )
            write_receipt(str(work / "receipts"), receipt, job)


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
        sign(folder, f"tfrecord/{twin.name}", rows=rows)


def rewrite_ledger(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write the first file of the ledger again with other lines, and sign it in the manifest."""
    manifest = manifest_of(folder)
    entry = manifest["ledger"][0]
    table = change(pq.read_table(folder / entry["path"]))
    pq.write_table(table, folder / entry["path"])
    content = (folder / entry["path"]).read_bytes()
    entry |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), "entries": len(table)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def with_values(name: str, change: Callable[[Any], Any], row: int = 3) -> Callable[[pa.Table], Any]:
    """Make a change of one row: of the values of a column, in place or by what is returned."""

    def changed(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[row] = change(values[row]) or values[row]
        field = table.schema.field(name)
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    return changed
