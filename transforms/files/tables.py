"""Rows of Arrow tables as records: plain Python values, without the nulls that Arrow adds to structs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from transforms.files.formats import Chunk, too_long
from transforms.model.examples import Record
from transforms.model.outcomes import Reject

_MOST_COLUMNS, _MOST_NESTED = 10_000, 50
# Where calls have their arguments; the others only next to a name.
_ARGUMENTS = ("arguments", "args", "input")
# Rows of a batch: few enough that a chunk ends close to chunk_bytes.
ROWS_AT_ONCE = 128


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


def chunks_of_batches(
    batches: Iterable[pa.RecordBatch],
    chunk_bytes: int,
    max_record_bytes: int,
    first_row: int = 0,
    rows: int | None = None,
) -> Iterator[Chunk]:
    """Yield the rows of batches as records, in chunks.

    Args:
        batches: consecutive rows of a table, ROWS_AT_ONCE at most in each batch.
        chunk_bytes: the size, in Arrow's memory, from which on a chunk ends.
        max_record_bytes: a row that takes more of it is rejected; none of it is kept.
        first_row: the number in its file of the first row.
        rows: how many rows there must be, if that is known.

    Raises:
        pa.ArrowInvalid: if there are not as many rows.
    """
    records: list[Record] = []
    rejects: list[Reject] = []
    size, position = 0, first_row
    for batch in batches:
        features = _features(batch.schema)
        check = batch.nbytes > max_record_bytes
        for row in range(len(batch)):
            single = batch.slice(row, 1)
            if check and single.nbytes > max_record_bytes:
                rejects.append(too_long(position + row, b"", max_record_bytes))
                continue
            try:
                nulls: list[str] = []
                raw = {
                    name: _plain(value, features.get(name), nulls)
                    for name, value in single.to_pylist()[0].items()
                    if value is not None
                }
                records.append(Record(position + row, raw, *nulls[:1]))
            except Exception as error:  # for a value that Python cannot represent, each type raises its own
                reason = "invalid_unicode" if isinstance(error, UnicodeDecodeError) else "bad_value"
                rejects.append(Reject(position + row, reason, str(error), _as_arrow_stream(single)))
        position += len(batch)
        size += batch.nbytes
        if size >= chunk_bytes:
            yield Chunk(records, rejects, size)
            records, rejects, size = [], [], 0
    if rows is not None and position != first_row + rows:
        raise pa.ArrowInvalid(f"a row group has {position - first_row} rows, and the footer says {rows}")
    if records or rejects:
        yield Chunk(records, rejects, size)


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
