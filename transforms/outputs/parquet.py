"""Parquet shards: rows as list columns, with the metadata by which `datasets` knows the features."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# A row group of some megabytes: readers decode it at once, and `datasets` streams and shuffles by it.
_VALUES_IN_ROW_GROUP = 4 << 20


def encode_parquet(table: pa.Table) -> bytes:
    """The bytes of a Parquet file; the same table gives the same bytes."""
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": _features(table.schema)}})})
    values = sum(len(column.combine_chunks().values) for column in table.columns if pa.types.is_list(column.type))
    rows = max(1, _VALUES_IN_ROW_GROUP * len(table) // max(values, 1))
    # For lists of numbers a dictionary only costs: without one zstd makes them 2 to 9% smaller. Nor does anybody look
    # for the least token of a row group.
    others = [field.name for field in table.schema if not pa.types.is_list(field.type)]
    how = {"compression": "zstd", "use_dictionary": others, "write_statistics": others}
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=rows, **how)
    return buffer.getvalue()


def list_array(values: np.ndarray, offsets: np.ndarray, dtype: pa.DataType) -> pa.ListArray:
    """values: (offsets[-1],). offsets: int64 (rows + 1,). No value is copied where the dtype is the values' own."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values, dtype))


def _features(schema: pa.Schema) -> dict[str, object]:
    """As `datasets` writes them. "Sequence" is read by versions before 4 as well as after."""
    features: dict[str, object] = {}
    for field in schema:
        if pa.types.is_list(field.type):
            value = {"dtype": str(field.type.value_type), "_type": "Value"}
            features[field.name] = {"feature": value, "_type": "Sequence"}
        else:
            features[field.name] = {"dtype": str(field.type), "_type": "Value"}
    return features
