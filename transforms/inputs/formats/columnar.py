"""Parquet and Arrow: rows of tables, as plain Python values without the nulls that Arrow adds to structs.

A Parquet row group belongs to the byte range in which its middle lies (as in Spark and parquet-mr), so that files are
cut without reading their footers first. Arrow files, as `datasets.save_to_disk` writes them, are read as a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.model.examples import Record
from transforms.model.outcomes import Reject

_ROWS_AT_ONCE = 128
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read_parquet_range(
    file: BinaryIO, start: int, stop: int, part_bytes: int
) -> Iterator[tuple[list[Record], list[Reject]]]:
    """Rows of the row groups whose middle lies at start <= byte < stop, in parts. Raises pa.ArrowInvalid."""
    table = pq.ParquetFile(file)
    first_row = 0
    for number in range(table.metadata.num_row_groups):
        row_group = table.metadata.row_group(number)
        columns = [row_group.column(i) for i in range(row_group.num_columns)]
        begin = min((column.dictionary_page_offset or column.data_page_offset for column in columns), default=0)
        middle = begin + sum(column.total_compressed_size for column in columns) // 2
        if start <= middle < stop:
            batches = table.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=[number])
            yield from _parts(batches, first_row, row_group.num_rows, part_bytes)
        first_row += row_group.num_rows


def read_arrow(file: BinaryIO, part_bytes: int) -> Iterator[tuple[list[Record], list[Reject]]]:
    """All rows of an Arrow file in IPC stream or file format, in parts. Raises pa.ArrowInvalid."""
    if file.read(6) == b"ARROW1":
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        # Without this, a stream that is cut short between two batches looks whole.
        file.seek(-len(_END_OF_STREAM), 2)
        if file.read() != _END_OF_STREAM:
            raise pa.ArrowInvalid("the stream is cut short, its end-of-stream marker is missing")
        file.seek(0)
        batches = iter(pa.ipc.open_stream(file))
    batches = (_validated(batch) for batch in batches)
    smaller = (batch.slice(i, _ROWS_AT_ONCE) for batch in batches for i in range(0, len(batch), _ROWS_AT_ONCE))
    yield from _parts(smaller, 0, None, part_bytes)


def _parts(
    batches: Iterator[pa.RecordBatch], first_row: int, rows: int | None, part_bytes: int
) -> Iterator[tuple[list[Record], list[Reject]]]:
    """rows: how many there must be, where that is known."""
    records: list[Record] = []
    rejects: list[Reject] = []
    size, position = 0, first_row
    for batch in batches:
        features = _features(batch.schema)
        for row in range(len(batch)):
            single = batch.slice(row, 1)
            try:
                records.append(Record(position + row, _plain(single.to_pylist()[0], features)))
            except Exception as error:  # of values that Python cannot hold: each type of value raises its own
                reason = "invalid_unicode" if isinstance(error, UnicodeDecodeError) else "bad_value"
                rejects.append(Reject(position + row, reason, str(error), _as_arrow_stream(single)))
        position += len(batch)
        size += batch.nbytes
        if size >= part_bytes:
            yield records, rejects
            records, rejects, size = [], [], 0
    if rows is not None and position != first_row + rows:
        raise pa.ArrowInvalid(f"a row group holds {position - first_row} rows, its footer tells of {rows}")
    if records or rejects:
        yield records, rejects


def _plain(value: Any, feature: Any) -> Any:
    """The value without the keys that are null, since in a column of structs each has the keys of all.

    What is the JSON of a value is that value, with the nulls that are its own. feature: see _features.
    """
    if isinstance(value, str) and isinstance(feature, dict) and feature.get("_type") == "Json":
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        features = feature if isinstance(feature, dict) else {}
        return {key: _plain(inner, features.get(key)) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        inner_feature = feature.get("feature") if isinstance(feature, dict) else feature[0] if feature else None
        return [_plain(inner, inner_feature) for inner in value]
    return value


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Which of the columns, and of what is in them, are the JSON of values of differing types.

    Arrow says so by a type of its own; `datasets` in metadata of its own, in the form that is used here.
    """
    by_type = {field.name: _feature(field.type) for field in schema}
    try:
        return by_type | msgspec.json.decode((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, msgspec.MsgspecError):
        return by_type


def _feature(type: pa.DataType) -> Any:
    if isinstance(type, pa.BaseExtensionType):
        return {"_type": "Json"} if type.extension_name == "arrow.json" else None
    if pa.types.is_struct(type):
        return {field.name: _feature(field.type) for field in type}
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return {"feature": _feature(type.value_type)}
    return None


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch; what is not UTF-8 costs its row, later. Raises pa.ArrowInvalid where a list ends behind its values."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
    return batch


def _as_arrow_stream(row: pa.RecordBatch) -> bytes:
    """A row that has no JSON, as it is."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    return sink.getvalue().to_pybytes()
