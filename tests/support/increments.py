"""Let a dataset grow by hand: what was built elsewhere becomes an increment of it."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from support.datasets import manifest_of
from support.manifests import manifest_by_hand
from transforms.dataset.derived import derive
from transforms.dataset.layout import Folder
from transforms.dataset.log import Log
from transforms.dataset.snapshot import Increment, Snapshot
from transforms.inputs.listing import InputFile
from transforms.inputs.plan import decode_plan
from transforms.storage.writing import write_atomically

_FOLDERS = ("data", "tfrecord", "rejects", "ledger")


def increment_of(output: Path, built: Path, id: str, error: str | None = None) -> Increment:
    """Copy the files of a dataset into another one, as those of an increment of it."""

    def renamed(path: str) -> str:
        folder, _, name = path.partition("/")
        return f"{folder}/{id}/{name}"

    for folder in _FOLDERS:
        if (built / folder).exists():
            shutil.copytree(built / folder, output / folder / id)
    manifest = manifest_of(built)
    manifest["shards"] = [shard | {"path": renamed(shard["path"])} for shard in manifest["shards"]]
    manifest["rejects"] = [renamed(path) for path in manifest["rejects"]]
    manifest["ledger"] = [
        file
        | {"path": renamed(file["path"]), "shards": {split: renamed(path) for split, path in file["shards"].items()}}
        for file in manifest["ledger"]
    ]
    if error:
        manifest["shards"] = []
    return Increment.of(id, manifest, decode_plan((built / "_chatmill" / "plan.jsonl").read_bytes()), error)


def grow(output: Path, built: Path, id: str, error: str | None = None) -> Snapshot:
    """Append a dataset to another one."""
    folder = Folder(str(output))
    snapshot = Log(folder).commit("append", increment_of(output, built, id, error))
    derive(folder, snapshot, "html")
    return snapshot


def begin(output: str) -> None:
    """Begin a dataset that grows, without a build."""
    write_atomically(
        Folder(output).job, msgspec.json.encode(manifest_by_hand()["job"] | {"sources": [{"name": "all"}]})
    )


def commit_numbers(output: str, kind: str, first: int, last: int, remove: tuple[str, ...] = ()) -> str:
    """Commit an increment of one shard with the rows first to last. Returns its id."""
    id = f"{first:08x}{last:08x}"
    rows = [[number] for number in range(first, last + 1)]
    shard = {"path": f"data/{id}/train-00000-of-00001.parquet", "split": "train", "format": "parquet"}
    content = io.BytesIO()
    pq.write_table(pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32()))}), content)
    write_atomically(f"{output}/{shard['path']}", content.getvalue())
    described = shard | {"rows": len(rows), "bytes": len(content.getvalue())}
    manifest = manifest_by_hand(sources=manifest_by_hand()["sources"][:1], rejects=[], shards=[described])
    inputs = [InputFile(f"{number}.jsonl", "jsonl", None, 1, "1") for number in range(first, last + 1)]
    snapshot = Log(Folder(output)).commit(kind, Increment.of(id, manifest, inputs), remove)
    derive(Folder(output), snapshot, "none")
    return id


def commit_and_compact(output: str, first: int, stop: int) -> None:
    """Append rows from first to stop, one after the other, and join each ten."""
    small: list[str] = []
    for number in range(first, stop):
        small.append(commit_numbers(output, "append", number, number))
        if len(small) == 10:
            commit_numbers(output, "compact", number - 9, number, tuple(small))
            small = []
