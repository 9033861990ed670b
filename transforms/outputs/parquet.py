"""Parquet shards: rows as list columns, with the metadata from which `datasets` knows the features."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from io import RawIOBase
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.outputs import OutputFormat

# A row group has some megabytes: readers decode one at a time, and `datasets` streams and shuffles by row groups.
_VALUES_IN_ROW_GROUP = 4 << 20
# Arrow encodes so many values of a column at once. With its 1024, encoding takes a tenth longer.
_VALUES_AT_ONCE = 1 << 16


class ParquetWriter:
    """Writes tables of the same schema and metadata to a Parquet file; the same tables give the same bytes.

    Args:
        file: open for writing. It is not closed.
    """

    def __init__(self, file: RawIOBase):
        self._file = file
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Write the rows of a table, as row groups of their own."""
        features = {"huggingface": json.dumps({"info": {"features": describe_features(table.schema)}})}
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **features})
        if self._writer is None:
            # For lists of numbers a dictionary only costs: without one zstd makes them 2 to 9% smaller. Statistics
            # would not help either: nobody searches for the smallest token of a row group.
            others = [field.name for field in table.schema if not pa.types.is_list(field.type)]
            self._writer = pq.ParquetWriter(
                self._file,
                table.schema,
                compression="zstd",
                use_dictionary=others,
                write_statistics=others,
                write_batch_size=_VALUES_AT_ONCE,
            )
        lists = [chunk for column in table.columns if pa.types.is_list(column.type) for chunk in column.chunks]
        values = sum(len(chunk.values) for chunk in lists)
        rows = max(1, _VALUES_IN_ROW_GROUP * len(table) // max(values, 1))
        self._writer.write_table(table, row_group_size=rows)

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


class ParquetReader:
    """Reads the rows of a file.

    Args:
        file: open for reading.
        columns: the columns to read; None for all.
    """

    def __init__(self, file: IO[bytes] | pa.BufferReader, columns: Sequence[str] | None = None):
        # A thread of Arrow that reads the file while Python ends would abort the process (apache/arrow#34314).
        self._file = pq.ParquetFile(file, pre_buffer=False)
        self._columns = columns

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all rows, by row group."""
        for group in range(self._file.num_row_groups):
            yield from self._file.read_row_group(group, self._columns).combine_chunks().to_batches()

    def row(self, number: int) -> dict[str, Any] | None:
        """Read one row, and only the row group that it is in. number: from 0. Returns None if there is no such row."""
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if number < rows:
                return self._file.read_row_group(group, self._columns).slice(number, 1).to_pylist()[0]
            number -= rows
        return None

    def first(self, rows: int) -> pa.RecordBatch:
        """Return some of the first rows, at most so many."""
        return next(self._file.iter_batches(rows, columns=self._columns, use_threads=False))


def describe_features(schema: pa.Schema) -> dict[str, object]:
    """Return the features of rows as `datasets` writes them. All versions read "Sequence"; old ones nothing else."""
    features: dict[str, object] = {}
    for field in schema:
        if pa.types.is_list(field.type):
            value = {"dtype": str(field.type.value_type), "_type": "Value"}
            features[field.name] = {"feature": value, "_type": "Sequence"}
        else:
            features[field.name] = {"dtype": str(field.type), "_type": "Value"}
    return features


FORMAT = OutputFormat(
    "data",
    writer=lambda create: ParquetWriter(create(".parquet")),
    loading_code=lambda folder, _: f'import datasets; dataset = datasets.load_dataset("{folder}")',
    datasets_files="*.parquet",
)
