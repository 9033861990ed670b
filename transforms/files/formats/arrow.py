"""Arrow files in the IPC stream format, as `datasets.save_to_disk` writes them, or in the IPC file format.

Rows, of these and of Parquet, become plain Python values, without the nulls that Arrow adds to structs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from transforms.files.formats import Chunk, InputFormat, in_chunks, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject

_FILE = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_MOST_COLUMNS, _MOST_NESTED = 10_000, 50
# Where calls have their arguments; the others only next to a name.
_ARGUMENTS = ("arguments", "args", "input")
# Rows of a batch: few enough that a chunk ends close to chunk_bytes.
ROWS_AT_ONCE = 128
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the rows of the record batches that begin at bytes start <= position < stop, in chunks.

    In a file, of whose batches pyarrow does not tell the places, they count as if all had the same size. The batches
    before are read too, since the number of their rows is needed.

    Raises:
        pa.ArrowInvalid: if the file is corrupt.
    """
    yield from in_chunks(sized_records(_pieces(file, start, stop), max_record_bytes), chunk_bytes)


def _pieces(file: BinaryIO, start: int, stop: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches that begin there, in pieces, each after the number of its first row."""
    row = 0
    for begin, batch in _batches(file):
        if stop is not None and begin >= stop:
            return
        if begin >= start:
            check_schema(batch.schema)
            for column in batch.columns:  # lists must end within their values
                try:
                    column.validate(full=True)
                except pa.ArrowInvalid:  # if it is of text that is not UTF-8 alone, that costs its row later
                    column.view(_with_bytes_for_text(column.type)).validate(full=True)
            yield from ((row + at, batch.slice(at, ROWS_AT_ONCE)) for at in range(0, len(batch), ROWS_AT_ONCE))
        row += len(batch)


def _batches(file: BinaryIO) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield all batches, each after the byte at which it begins."""
    if file.read(len(_FILE)) == _FILE:
        size, reader = file.seek(0, 2), pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield size * i // reader.num_record_batches, reader.get_batch(i)
        return
    # Otherwise a stream that was cut between two batches would look complete.
    file.seek(-len(_END_OF_STREAM), 2)
    if file.read() != _END_OF_STREAM:
        raise pa.ArrowInvalid("the stream is cut short, its end-of-stream marker is missing")
    file.seek(0)
    reader = pa.ipc.open_stream(file)
    begin = file.tell()
    for batch in reader:
        yield begin, batch
        begin = file.tell()


def _with_bytes_for_text(type: pa.DataType) -> pa.DataType:
    """The same type with bytes in place of text, and of what extensions are stored as: pyarrow crashes at tensors."""
    if isinstance(type, pa.BaseExtensionType):
        return _with_bytes_for_text(type.storage_type)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return (pa.list_ if pa.types.is_list(type) else pa.large_list)(_with_bytes_for_text(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_with_bytes_for_text(field.type)) for field in type])
    return _BYTES.get(type, type)


def check_schema(schema: pa.Schema) -> None:
    """Raise ArrowInvalid if a table has a column twice, or more columns and deeper ones than records have."""
    if twice := next((name for name, count in Counter(schema.names).items() if count > 1), None):
        raise pa.ArrowInvalid(f"it has the column {twice!r} twice")
    level, fields = [field.type for field in schema], 0
    for _ in range(_MOST_NESTED):
        fields += len(level)
        if fields > _MOST_COLUMNS:
            raise pa.ArrowInvalid(f"it has more than {_MOST_COLUMNS:,} columns and fields")
        level = [type.field(i).type for type in level if type.num_fields for i in range(type.num_fields)]
        if not level:
            return
    raise pa.ArrowInvalid(f"its columns are nested more than {_MOST_NESTED} deep")


def sized_records(
    batches: Iterable[tuple[int, pa.RecordBatch]], max_record_bytes: int
) -> Iterator[tuple[Record | Reject, int]]:
    """Yield the rows of batches as records, the last one of a batch with its size in Arrow's memory, for in_chunks.

    batches: of ROWS_AT_ONCE at most, each after the number in its file of its first row. max_record_bytes: a row that
    takes more memory is rejected; none of it is kept.
    """
    for first_row, batch in batches:
        features, size = _features(batch.schema), batch.nbytes
        for row in range(len(batch)):
            position, single = first_row + row, batch.slice(row, 1)
            is_long = size > max_record_bytes and single.nbytes > max_record_bytes
            record = too_long(position, b"", max_record_bytes) if is_long else _record(position, single, features)
            yield record, size if row + 1 == len(batch) else 0


def _record(position: int, row: pa.RecordBatch, features: dict[str, Any]) -> Record | Reject:
    try:
        nulls: list[str] = []
        columns = row.to_pylist(maps_as_pydicts="strict")[0].items()
        raw = {name: _plain(value, features.get(name), nulls) for name, value in columns if value is not None}
        return Record(position, raw, *nulls[:1])
    except Exception as error:  # for a value that Python cannot represent, each type raises its own
        reason = "invalid_unicode" if isinstance(error, UnicodeDecodeError) else "bad_value"
        return Reject(position, reason, str(error), _as_arrow_stream(row))


def _plain(value: Any, feature: Any, nulls: list[str]) -> Any:
    """Remove the keys that are null, since in a column of structs each struct has the keys of all; decode JSON columns.

    feature: see _features. nulls: gets the names of arguments that were null: some calls may really have had them.
    """
    if isinstance(value, str) and isinstance(feature, dict) and feature.get("_type") == "Json":
        return msgspec.json.decode(value)
    if isinstance(value, dict):
        features = feature if isinstance(feature, dict) else {}
        for key in _ARGUMENTS if "name" in value else _ARGUMENTS[:1]:
            if isinstance(arguments := value.get(key), dict):
                nulls += [name for name, argument in arguments.items() if argument is None]
        return {key: _plain(inner, features.get(key), nulls) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        inner_feature = feature.get("feature") if isinstance(feature, dict) else feature[0] if feature else None
        return [_plain(inner, inner_feature, nulls) for inner in value]
    return value


def _features(schema: pa.Schema) -> dict[str, Any]:
    """Find which columns, and which of their fields, hold JSON: values whose types differ from row to row.

    Arrow has a type for them; `datasets` lists them in metadata, in the form that is returned here.
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


def _as_arrow_stream(row: pa.RecordBatch) -> bytes:
    """Encode a row that cannot be written as JSON."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    return sink.getvalue().to_pybytes()


FORMAT = InputFormat(
    suffixes=(".arrow",),
    read=read,
    recognizes=lambda start: start.startswith((_FILE, _STREAM)),
    can_be_shared=True,
    may_be_compressed=False,
    position_unit="row",
)
