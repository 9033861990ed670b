"""Examples as a table: a row for each labelled row, whole, before it is cut and packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from transforms.model.batches import Labels, RowSource, Task
from transforms.model.outcomes import Outcomes
from transforms.rows import IGNORED
from transforms.rows.ragged import offsets_of

# Before the names of columns that are carried along.
_CARRIED = "column "
_SCHEMA = pa.schema(
    {
        "position": pa.int64(),
        "validation": pa.bool_(),
        "ids": pa.large_list(pa.int32()),
        "trained": pa.large_list(pa.bool_()),
    }
)


def table_of(batch: Labels) -> pa.Table:
    """Return the rows of a batch as a table, without the outcomes of its records. What none of its rows has is absent.

    Of the labels, it has which there are.
    """
    source = batch.source
    columns: dict[str, Any] = {
        "position": source.positions,
        "validation": source.validation,
        "ids": _lists(batch.ids, batch.offsets),
        "trained": _lists(batch.labels != IGNORED, batch.offsets),
    }
    if batch.parts is not None:
        columns["parts"] = _lists(batch.parts, batch.offsets)
    if source.numbers is not None:
        columns["number"] = source.numbers
    if source.found is not None:
        columns["found"] = pa.array(source.found, pa.string())
    if source.columns is not None:
        columns |= {_CARRIED + name: source.columns[name] for name in source.columns.column_names}
    return pa.table(columns)


def joined(tables: list[pa.Table]) -> pa.Table:
    """Join tables of table_of. What only some of them have is null in the others."""
    return pa.concat_tables([_SCHEMA.empty_table(), *tables], promote_options="default").combine_chunks()


def labels_of(table: pa.Table, task: Task, part: int, last: bool) -> Labels:
    """Return the rows of a table as a part of a task, in which no record has an outcome yet."""
    lengths = table["ids"].combine_chunks().value_lengths().to_numpy()
    ids = _values(table["ids"])
    parts = None
    if "parts" in table.column_names:
        parts = np.zeros(len(ids), np.int32)
        parts[np.repeat(table["parts"].is_valid().to_numpy(), lengths)] = _values(table["parts"])
    carried = [name for name in table.column_names if name.startswith(_CARRIED)]
    return Labels(
        task=task,
        part=part,
        last=last,
        outcomes=Outcomes(),
        ids=ids,
        labels=np.where(_values(table["trained"]), ids, np.int32(IGNORED)),
        offsets=offsets_of(lengths),
        parts=parts,
        source=RowSource(
            positions=table["position"].to_numpy(),
            validation=table["validation"].to_numpy(),
            columns=table.select(carried).rename_columns([name.removeprefix(_CARRIED) for name in carried])
            if carried
            else None,
            numbers=table["number"].fill_null(0).to_numpy() if "number" in table.column_names else None,
            found=table["found"].to_pylist() if "found" in table.column_names else None,
        ),
    )


def _lists(values: np.ndarray, offsets: np.ndarray) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def _values(lists: pa.ChunkedArray) -> np.ndarray:
    """The values of all lists, one after the other."""
    return lists.combine_chunks().flatten().to_numpy(zero_copy_only=False)
