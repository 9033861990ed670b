"""Parquet and Arrow: rows of tables, as plain Python values without the nulls that Arrow adds to structs.

A Parquet row group belongs to the byte range in which its middle lies (as in Spark and parquet-mr), so that files are
cut without reading their footers first. Arrow files, as `datasets.save_to_disk` writes them, are read as a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.batches import Record, Reject

_ROWS_AT_ONCE = 128


def read_parquet_range(
    file: BinaryIO, start: int, stop: int, part_bytes: int
) -> Iterator[tuple[list[Record], list[Reject]]]:
    """Rows of the row groups whose middle lies at start <= byte < stop, in parts. Raises pa.ArrowInvalid."""
    table = pq.ParquetFile(file)
    first_row = 0
    for number in range(table.metadata.num_row_groups):
        row_group = table.metadata.row_group(number)
        columns = [row_group.column(i) for i in range(row_group.num_columns)]
        begin = min(column.dictionary_page_offset or column.data_page_offset for column in columns)
        middle = begin + sum(column.total_compressed_size for column in columns) // 2
        if start <= middle < stop:
            batches = table.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=[number])
            yield from _parts(batches, first_row, part_bytes)
        first_row += row_group.num_rows


def read_arrow(file: BinaryIO, part_bytes: int) -> Iterator[tuple[list[Record], list[Reject]]]:
    """All rows of an Arrow file in IPC stream or file format, in parts. Raises pa.ArrowInvalid."""
    if file.read(6) == b"ARROW1":
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        file.seek(0)
        batches = iter(pa.ipc.open_stream(file))
    smaller = (batch.slice(i, _ROWS_AT_ONCE) for batch in batches for i in range(0, len(batch), _ROWS_AT_ONCE))
    yield from _parts(smaller, 0, part_bytes)


def _parts(
    batches: Iterator[pa.RecordBatch], position: int, part_bytes: int
) -> Iterator[tuple[list[Record], list[Reject]]]:
    records: list[Record] = []
    rejects: list[Reject] = []
    size = 0
    for batch in batches:
        for row in range(len(batch)):
            try:
                values = batch.slice(row, 1).to_pylist()[0]
            except UnicodeDecodeError as error:
                raw = repr(
                    [column[row].cast(pa.binary()).as_py() for column in batch if pa.types.is_string(column.type)]
                )
                rejects.append(Reject(position + row, "invalid_unicode", str(error), raw.encode()))
            else:
                records.append(Record(position + row, _without_nulls(values)))
        position += len(batch)
        size += batch.nbytes
        if size >= part_bytes:
            yield records, rejects
            records, rejects, size = [], [], 0
    if records or rejects:
        yield records, rejects


def _without_nulls(value: Any) -> Any:
    """The value without the keys that are null: in a column of structs, each has the keys of all."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value
