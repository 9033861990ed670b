"""Parquet: the rows of row groups.

A row group belongs to the byte range in which its middle is (as in Spark and parquet-mr), so that files are cut without
reading their footers first.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.files.formats import Chunk, InputFormat, NotRecords, in_chunks
from transforms.files.formats.arrow import ROWS_AT_ONCE, check_schema, sized_records
from transforms.rows.layout import why_not_records


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the rows of the row groups whose middle is at start <= byte < stop, in chunks.

    Raises:
        pa.ArrowInvalid: if the file is corrupt, as far as its checksums show, or has too many columns.
        NotRecords: if it is a shard whose rows are packed or shifted.
    """
    size = file.seek(0, io.SEEK_END)
    table = pq.ParquetFile(file, page_checksum_verification=True)
    check_schema(table.schema_arrow)
    _check_layout(table.metadata.metadata or {})
    first_row = 0
    for number in range(table.metadata.num_row_groups):
        row_group = table.metadata.row_group(number)
        columns = [row_group.column(i) for i in range(row_group.num_columns)]
        begin = min((column.dictionary_page_offset or column.data_page_offset for column in columns), default=0)
        middle = begin + sum(column.total_compressed_size for column in columns) // 2
        if not 0 <= middle < size:  # the footer has no checksum
            raise pa.ArrowInvalid(f"row group {number} is outside of the file")
        if start <= middle and (stop is None or middle < stop):
            yield from in_chunks(sized_records(_batches(table, number, first_row), max_record_bytes), chunk_bytes)
        first_row += row_group.num_rows
    if first_row != table.metadata.num_rows:
        raise pa.ArrowInvalid(f"its row groups have {first_row} rows, and the footer says {table.metadata.num_rows}")


def _check_layout(metadata: Mapping[bytes, bytes]) -> None:
    """Raise NotRecords if a file says of itself that it is a shard of such a dataset."""
    try:
        layout = msgspec.json.decode(metadata.get(b"chatmill", b"{}"), type=dict[str, Any])
    except msgspec.MsgspecError:  # another program's
        return
    if problem := why_not_records(layout):
        raise NotRecords(problem)


def _batches(table: pq.ParquetFile, row_group: int, first_row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a row group, each after the number of its first row."""
    row, expected = first_row, table.metadata.row_group(row_group).num_rows
    for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=[row_group]):
        yield row, batch
        row += len(batch)
    if row - first_row != expected:
        raise pa.ArrowInvalid(f"a row group has {row - first_row} rows, and the footer says {expected}")


FORMAT = InputFormat(
    suffixes=(".parquet",),
    read=read,
    recognizes=lambda start: start.startswith(b"PAR1"),
    can_be_cut=True,
    may_be_compressed=False,
    last_bytes=b"PAR1",
    position_unit="row",
)
