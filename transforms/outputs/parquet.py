"""Parquet shards: rows as list columns, with the metadata from which `datasets` knows the features."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.outputs import OutputFormat, OutputOptions, ShardEntry

# A row group has some megabytes: readers decode one at a time, and `datasets` streams and shuffles by row groups.
_VALUES_IN_ROW_GROUP = 4 << 20


def encode_parquet(table: pa.Table) -> bytes:
    """Return the bytes of a Parquet file, with the metadata of the table; the same table gives the same bytes."""
    features = {"huggingface": json.dumps({"info": {"features": _features(table.schema)}})}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **features})
    values = sum(len(column.combine_chunks().values) for column in table.columns if pa.types.is_list(column.type))
    rows = max(1, _VALUES_IN_ROW_GROUP * len(table) // max(values, 1))
    # For lists of numbers a dictionary only costs: without one zstd makes them 2 to 9% smaller. Statistics would not
    # help either: nobody searches for the smallest token of a row group.
    others = [field.name for field in table.schema if not pa.types.is_list(field.type)]
    buffer = io.BytesIO()
    pq.write_table(
        table, buffer, row_group_size=rows, compression="zstd", use_dictionary=others, write_statistics=others
    )
    return buffer.getvalue()


def _features(schema: pa.Schema) -> dict[str, object]:
    """Return the features as `datasets` writes them. Versions before 4 read "Sequence" as well as later ones."""
    features: dict[str, object] = {}
    for field in schema:
        if pa.types.is_list(field.type):
            name = "float32" if pa.types.is_float32(field.type.value_type) else str(field.type.value_type)
            value = {"dtype": name, "_type": "Value"}
            features[field.name] = {"feature": value, "_type": "Sequence"}
        else:
            features[field.name] = {"dtype": str(field.type), "_type": "Value"}
    return features


def _encode(table: pa.Table, options: OutputOptions) -> Mapping[str, bytes]:
    return {".parquet": encode_parquet(table)}


def _loading_code(folder: str, shards: Sequence[ShardEntry]) -> str:
    return f'import datasets; dataset = datasets.load_dataset("{folder}")'


FORMAT = OutputFormat(folder="data", encode=_encode, loading_code=_loading_code, datasets_files="*.parquet")
