"""The Arrow schema of the rows of a dataset, which follows from their layout."""

from __future__ import annotations

import pyarrow as pa

from transforms.catalog.consumers import RowLayout
from transforms.rows.columns import OUTPUT_COLUMNS, PROVENANCE_COLUMNS

_NUMBERS = {"attention_mask": pa.int8(), "loss_mask": pa.int8(), "part_kinds": pa.int8()}
_PROVENANCE = dict(zip(PROVENANCE_COLUMNS, (pa.string(), pa.int64()), strict=True))


def schema_of(layout: RowLayout) -> pa.Schema:
    """Return the schema of the rows of a layout, as shards have it, without metadata."""
    return pa.schema([_field(name, layout.packing) for name in layout.columns])


def _field(name: str, packing: str) -> pa.Field:
    if name in OUTPUT_COLUMNS:
        return pa.field(name, _list_of(_NUMBERS.get(name, pa.int32())), nullable=False)
    if name in PROVENANCE_COLUMNS:
        kind = _PROVENANCE[name]
        return pa.field(name, kind if packing == "none" else _list_of(kind), nullable=False)
    if packing == "none":
        return pa.field(name, pa.string())
    return pa.field(name, pa.list_(pa.field("element", pa.string())), nullable=False)


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))
