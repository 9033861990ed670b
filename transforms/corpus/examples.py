"""Examples as a table: a row for each labelled row, whole, before it is cut and packed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.model.batches import Labels, Task
from transforms.model.facts import RowFacts
from transforms.model.outcomes import Outcomes
from transforms.rows import IGNORED
from transforms.rows.ragged import lengths_to_offsets

# Tokens are bytes, since Arrow takes a row of these at once, and a row of a list value by value.
_SCHEMA = pa.schema({"position": pa.int64(), "tokens": pa.large_binary()})
# The sign of a token that is trained on.
_TRAINED = np.int32(-(2**31))


def make_table(batch: Labels) -> pa.Table:
    """Return the rows of a batch as a table, without outcomes: their facts, tokens, and parts of turns, if known."""
    tokens = _bytes(np.where(batch.labels != IGNORED, batch.ids | _TRAINED, batch.ids), batch.offsets)
    table = batch.facts.table.append_column("tokens", tokens)
    return table if batch.parts is None else table.append_column("parts", _bytes(batch.parts, batch.offsets))


def joined_examples(tables: list[pa.Table]) -> pa.Table:
    """Join tables of make_table. What only some of them have is null in the others."""
    return pa.concat_tables([_SCHEMA.empty_table(), *tables], promote_options="default").combine_chunks()


def read_labels(table: pa.Table, task: Task, chunk: int, last: bool) -> Labels:
    """Return the rows of a table as a chunk of a task, in which no record has an outcome yet."""
    lengths, tokens = count_row_tokens(table), _values(table["tokens"])
    ids = tokens & ~_TRAINED
    parts = None
    if "parts" in table.column_names:
        parts = np.zeros(len(ids), np.int32)
        parts[np.repeat(table["parts"].is_valid().to_numpy(), lengths)] = _values(table["parts"])
    return Labels(
        task=task,
        chunk=chunk,
        last=last,
        outcomes=Outcomes(),
        ids=ids,
        labels=np.where(tokens < 0, ids, np.int32(IGNORED)),
        offsets=lengths_to_offsets(lengths),
        parts=parts,
        facts=RowFacts(table.select([name for name in table.column_names if name not in ("tokens", "parts")])),
    )


def count_row_tokens(table: pa.Table) -> np.ndarray:
    """Return how many tokens each row of a table has: int64, shape (rows,)."""
    return pc.binary_length(table["tokens"]).to_numpy() // _TRAINED.itemsize


def _bytes(values: np.ndarray, offsets: np.ndarray) -> pa.LargeBinaryArray:
    """The int32 values of each row. offsets: from 0."""
    buffers = [None, pa.py_buffer(offsets * values.itemsize), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _values(rows: pa.ChunkedArray) -> np.ndarray:
    """The values of all rows, one after the other."""
    array = rows.combine_chunks()
    if not len(array):
        return np.zeros(0, np.int32)
    _, offsets, content = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset :][: len(array) + 1] // _TRAINED.itemsize
    return np.frombuffer(content or b"", np.int32)[bounds[0] : bounds[-1]]
