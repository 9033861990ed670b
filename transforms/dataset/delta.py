"""A Delta table in the folder of a dataset: a second log, of the Parquet files of the newest snapshot, to query them.

Chatmill's own log is the truth. The table follows it: the files of both are compared, and the difference is one commit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.dataset.layout import Folder
from transforms.dataset.log import Log
from transforms.dataset.snapshot import Snapshot
from transforms.errors import StoreError, UserError
from transforms.storage.files import exists, join, open_file
from transforms.storage.retries import reason_of

_SPLIT = "split"  # a column of the table alone; check_options refuses a kept column of this name
_APPLICATION = "chatmill"  # whose transactions are the versions of snapshots
_COLOR = re.compile("\x1b\\[[0-9;]*m")  # in deltalake's messages
# VACUUM removes what a table does not name: older snapshots, rejects, the card. Nothing is old enough for it.
_SETTINGS = {"delta.deletedFileRetentionDuration": "interval 36500 days"}


def has_delta(folder: Folder) -> bool:
    """Return whether a dataset has a Delta table."""
    return exists(folder.delta)


def check_delta(folder: Folder) -> None:
    """Raise UserError if deltalake, which writes the Delta table of a dataset, is not installed."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise UserError(
            f"{folder.output}: its Delta table needs deltalake, which is not installed: pip install '.[delta]' in "
            f"Chatmill's repository. If nobody queries the table, remove {folder.delta}."
        ) from None


def write_delta(folder: Folder) -> None:
    """Let the Delta table of a dataset have the files of the newest snapshot, and make one if there is none.

    What an earlier commit that was killed left out is made up for. One process at a time may do this: the holder of the
    claim.

    Args:
        folder: of the dataset.

    Raises:
        StoreError: if the table cannot be read or written. The dataset itself is complete.
    """
    from deltalake.exceptions import DeltaError

    snapshot = Log(folder).newest() or Snapshot(0)
    files = {shard["path"]: shard for shard in snapshot.shards() if shard["format"] == "parquet"}
    try:
        if files:  # without any, there is no table: its columns are those of the files
            _write(folder, snapshot.version, files)
    except (DeltaError, OSError) as error:
        reason = reason_of(Exception(_COLOR.sub("", str(error))))
        raise StoreError(folder.delta, "written", reason, is_transient=True) from error


def _write(folder: Folder, version: int, files: Mapping[str, Mapping[str, Any]]) -> None:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

    url = folder.output.replace("gcs://", "gs://").replace("s3a://", "s3://")
    now = int(time.time() * 1000)
    commit: dict[str, Any] = {
        "partition_by": [_SPLIT],
        "commit_properties": CommitProperties(
            custom_metadata={"chatmill.snapshot": str(version)}, app_transactions=[Transaction(_APPLICATION, version)]
        ),
    }

    def added(path: str) -> AddAction:
        shard = files[path]
        statistics = msgspec.json.encode({"numRecords": shard["rows"]}).decode()
        return AddAction(path, shard["bytes"], {_SPLIT: shard["split"]}, now, True, statistics)

    if not DeltaTable.is_deltatable(url):
        with open_file(join(folder.output, next(iter(files)))) as file:
            columns = pq.read_schema(file)
        schema = Schema.from_arrow(columns.append(pa.field(_SPLIT, pa.string(), nullable=False)))
        create_table_with_add_actions(url, schema, [*map(added, files)], configuration=_SETTINGS, **commit)
        return
    table = DeltaTable(url)
    known = pa.table(table.get_add_actions(flatten=True))
    splits = dict(zip(known["path"].to_pylist(), known[f"partition.{_SPLIT}"].to_pylist(), strict=True))
    gone = [RemoveAction(path, True, now, None, {_SPLIT: splits[path]}) for path in splits if path not in files]
    new = [added(path) for path in files if path not in splits]
    if gone or new:
        table.create_write_transaction([*new, *gone], "append", table.schema(), **commit)
