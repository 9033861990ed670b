"""The columns that rows are written as: each a function of a table of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from transforms.base.errors import ParameterError
from transforms.base.options import Names, checked
from transforms.rows import IGNORED
from transforms.rows.parts import code_kinds, code_messages, run_starts
from transforms.rows.ragged import lengths_to_offsets, slice_indices

if TYPE_CHECKING:
    from transforms.model.batches import RowTable

# The values of all rows, shape (values,), in the type in which they are written; and the offsets of the rows in them,
# int64, shape (rows + 1,).
Column: TypeAlias = tuple[np.ndarray, np.ndarray]


def _position_ids(table: RowTable) -> np.ndarray:
    """Count the tokens of each segment from 0: int64, shape (tokens,)."""
    return slice_indices(np.zeros(len(table.segment_lengths), np.int64), table.segment_lengths)


def _list_part_runs(table: RowTable, values: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Column:
    """Make a value for each run of tokens of one part of a turn. values: of the tokens and the code of each run."""
    codes = np.zeros(len(table.ids), np.int32) if table.parts is None else table.parts
    starts = run_starts(codes, lengths_to_offsets(table.segment_lengths)[:-1])
    return values(np.diff(starts, append=len(codes)), codes[starts]), np.searchsorted(starts, table.offsets)


_COLUMNS: dict[str, Callable[[RowTable], Column]] = {
    "input_ids": lambda table: (table.ids.astype(np.int32, copy=False), table.offsets),
    "labels": lambda table: (table.labels.astype(np.int32, copy=False), table.offsets),
    "attention_mask": lambda table: (np.ones(len(table.ids), np.int8), table.offsets),
    "position_ids": lambda table: (_position_ids(table).astype(np.int32), table.offsets),
    "seq_lengths": lambda table: (table.segment_lengths.astype(np.int32), table.segment_offsets),
    "loss_mask": lambda table: ((table.labels != IGNORED).astype(np.int8), table.offsets),
    "part_lengths": lambda table: _list_part_runs(table, lambda lengths, _: lengths.astype(np.int32)),
    "part_kinds": lambda table: _list_part_runs(table, lambda _, codes: code_kinds(codes)),
    "part_messages": lambda table: _list_part_runs(table, lambda _, codes: code_messages(codes)),
}

OUTPUT_COLUMNS: tuple[str, ...] = tuple(_COLUMNS)
PROVENANCE_COLUMNS = ("origin_file", "origin_position")


def default_columns(packed: bool) -> tuple[str, ...]:
    """Return the columns that are written unless others are chosen. packed: whether a row may hold several examples."""
    return ("input_ids", "labels", "seq_lengths") if packed else ("input_ids", "labels")


def check_kept_columns(kept: Sequence[str], columns: Sequence[str] | None = None, provenance: bool = False) -> None:
    """Check that input columns can be carried along to the rows.

    Args:
        kept: their names.
        columns: the columns that are written; None for the default.
        provenance: whether the columns of provenance are written too.

    Raises:
        ParameterError: if a name is there twice, or if a column of that name is written already.
    """
    kept = checked("keep_columns", kept, Names)
    written = {*(columns or default_columns(packed=True)), *(PROVENANCE_COLUMNS if provenance else ())}
    if both := sorted(written & set(kept)):
        raise ParameterError("keep_columns", both[0], "Chatmill writes a column of that name. Rename yours.")


def output_column(table: RowTable, name: str) -> Column:
    """Return a column of a table of rows. name: one of OUTPUT_COLUMNS."""
    return _COLUMNS[name](table)
