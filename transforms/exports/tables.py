"""Shards of exports that are tables: columns of tokens, and their writers to Parquet and Arrow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from io import RawIOBase
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from transforms.exports import CreateFile, Place, ShardFile, Written
from transforms.outputs import TableWriter
from transforms.outputs.parquet import features_of

if TYPE_CHECKING:
    from transforms.reading.row_examples import RowExamples

# `datasets` writes so many rows as one record batch, which is what it reads at once.
_ROWS_IN_BATCH = 1000


class TableShard:
    """Writes examples as rows of a table.

    Args:
        writer: of the table.
        rows_of: makes rows of the examples.
    """

    def __init__(self, writer: TableWriter, rows_of: Callable[[RowExamples], pa.Table]):
        self._writer, self._rows_of = writer, rows_of

    def write(self, examples: RowExamples) -> Written:
        """Write the examples of some rows, each of which is one example."""
        self._writer.write(self._rows_of(examples))
        return Written(int(np.diff(examples.offsets).max()))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()


class ArrowWriter:
    """Writes a table as a stream of Arrow, as `datasets` maps it into memory.

    Args:
        file: open for writing. It is not closed.
        schema: of the rows.
    """

    def __init__(self, file: RawIOBase, schema: pa.Schema):
        self._stream = pa.ipc.new_stream(file, schema)

    def write(self, table: pa.Table) -> None:
        """Write some rows."""
        self._stream.write_table(table, max_chunksize=_ROWS_IN_BATCH)

    def close(self) -> None:
        """Write the end of the stream."""
        self._stream.close()


def saved_shards(
    schema: pa.Schema, rows_of: Callable[[RowExamples], pa.Table]
) -> Callable[[CreateFile, Place], TableShard]:
    """Return what makes a writer of a shard of `save_to_disk`. schema: of the rows. rows_of: as of TableShard."""
    return lambda create, place: TableShard(ArrowWriter(create(_arrow_name(place)), schema), rows_of)


def list_column(values: np.ndarray, offsets: np.ndarray) -> pa.ListArray:
    """Return a column of lists. values: of all rows. offsets: of the rows in them, int64, shape (rows + 1,)."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


def _arrow_name(place: Place) -> str:
    """The name that `datasets` gives a file of `save_to_disk`."""
    return f"data-{place.number:05d}-of-{place.shards:05d}.arrow"


def saved_to_disk(splits: Mapping[str, Sequence[ShardFile]], schema: pa.Schema) -> dict[str, bytes]:
    """Return the small files of a `DatasetDict.save_to_disk`, by path.

    Args:
        splits: the Arrow files of each split, in order.
        schema: of the rows.
    """
    files: dict[str, object] = {"dataset_dict.json": {"splits": [*splits]}}
    for split, shards in splits.items():
        # `datasets` names its caches by the fingerprint: it follows from the rows.
        content = "".join(shard.sha256 for shard in shards)
        files[f"{split}/state.json"] = {
            "_data_files": [{"filename": shard.name} for shard in shards],
            "_fingerprint": hashlib.sha256(content.encode()).hexdigest()[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": split,
        }
        files[f"{split}/dataset_info.json"] = {"features": features_of(schema)}
    return {path: json.dumps(content, indent=2).encode() for path, content in files.items()}
