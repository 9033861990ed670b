"""Let a dataset grow by hand: what was built elsewhere becomes an increment of it."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from support.manifests import manifest_by_hand
from transforms.catalog.layout import PUBLISHED, Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Files, Increment, Kind, Snapshot
from transforms.inputs.listing import InputFile
from transforms.publish.derived import derive
from transforms.storage.writing import write_atomically


def increment_of(output: Path, built: Path, id: str) -> Increment:
    """Copy the files of a dataset of one build into another one, as those of an increment of it."""
    increment = Log(Folder(str(built))).versions()[-1].add
    for path in Folder(str(built), increment.id).files(*PUBLISHED):
        copy = output / path.replace(f"-{increment.id}-", f"-{id}-")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built / path, copy)
    renamed = msgspec.json.decode(
        msgspec.json.encode(increment).replace(f"-{increment.id}-".encode(), f"-{id}-".encode()), type=Increment
    )
    return msgspec.structs.replace(renamed, id=id)


def grow(output: Path, built: Path, id: str, replaces: bool = False) -> Snapshot:
    """Append a dataset to another one, or to nothing; or let it take the place of all that is there."""
    folder = Folder(str(output))
    before, of_build = Log(folder).newest() or Snapshot(), Log(Folder(str(built))).newest()
    assert of_build
    increment = increment_of(output, built, id)
    if not before.version:
        shutil.copytree(built / "_chatmill" / "tokenizers", output / "_chatmill" / "tokenizers")
    kind: Kind = "build" if replaces or not before.version else "append"
    snapshot = Log(folder).commit(kind, increment, before.version, job=of_build.job if kind == "build" else None)
    derive(folder, snapshot, "html")
    return snapshot


def job_by_hand() -> dict[str, Any]:
    """Return the job of increments by hand."""
    return manifest_by_hand()["job"] | {"sources": [{"name": "chats"}, {"name": "code"}]}


def increment_by_hand(
    id: str,
    inputs: Sequence[InputFile] = (),
    shards: Sequence[dict[str, Any]] = (),
    rejects: Sequence[dict[str, Any]] = (),
) -> Increment:
    """Return an increment of which only the files exist that it is given: the sums are those of a manifest by hand."""
    sums = {name: value for name, value in manifest_by_hand().items() if name not in _NOT_SUMS}
    files = Files([*shards], [*rejects], [])
    return Increment(id, files, [*inputs], sums)


_NOT_SUMS = {"format", "snapshot", "layout", "shards", "rejects", "ledger", "job"}


def commit_numbers(output: str, kind: Kind, first: int, last: int) -> None:
    """Commit an increment of one shard with the rows first to last."""
    id = f"{first:08x}{last:08x}"
    rows = [[number] for number in range(first, last + 1)]
    content = io.BytesIO()
    pq.write_table(pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32()))}), content)
    shard = {
        "path": f"data/train-{id}-000000-000.parquet",
        "format": "parquet",
        "split": "train",
        "rows": len(rows),
        "tokens": len(rows),
        "trained_tokens": 0,
        "bytes": len(content.getvalue()),
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
    }
    write_atomically(f"{output}/{shard['path']}", content.getvalue())
    inputs = [InputFile(f"{number}.jsonl", "jsonl", None, 1, "1") for number in range(first, last + 1)]
    log = Log(Folder(output))
    base = (log.newest() or Snapshot()).version
    job = job_by_hand() if kind == "build" else None
    snapshot = log.commit(kind, increment_by_hand(id, inputs, [shard]), base, job=job)
    derive(Folder(output), snapshot, "none")


def commit_and_overwrite(output: str, first: int, stop: int) -> None:
    """Append rows from first to stop, one after the other, and build all of them again after each ten."""
    for number in range(first, stop):
        commit_numbers(output, "append", number, number)
        if number % 10 == 0:
            commit_numbers(output, "build", 0, number)
