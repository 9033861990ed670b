"""Facts: what is known of each row of a chunk, as one Arrow table, in which a column that no row needs is absent."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.model.examples import Example
from transforms.model.outcomes import Drop

# Those that are absent if they are the same as nothing for all rows.
_OPTIONAL = {"number": pa.int64(), "validation": pa.bool_(), "detail": pa.string()}
# Before the names of columns of records that are carried along.
_CARRIED = "column "


@dataclass(frozen=True)
class RowFacts:
    """What is known of each row. Rows of one record are consecutive.

    Attributes:
        table: `position`, int64: of the row's record in its task; `number`, int64: of its example among those of its
            record, from 0; `validation`, bool: whether it is for validation; `detail`, string: what was found of its
            record, for records/; and the columns of records that are carried along.
    """

    table: pa.Table

    @classmethod
    def of(cls, examples: Sequence[Example]) -> RowFacts:
        """Return the facts of rows that are one example each."""
        columns = {"position": pa.array([example.position for example in examples], pa.int64())}
        for name, kind in _OPTIONAL.items():
            values = [getattr(example, name) for example in examples]
            if any(values):
                columns[name] = pa.array(values, kind)
        for name in examples[0].columns if examples else ():
            columns[_CARRIED + name] = pa.array([example.columns[name] for example in examples], pa.string())
        return cls(pa.table(columns))

    @functools.cached_property
    def positions(self) -> np.ndarray:
        """The position in its task of each row's record: int64, shape (rows,)."""
        return self.table["position"].to_numpy()

    @functools.cached_property
    def validation(self) -> np.ndarray:
        """Whether each row is for validation: bool, shape (rows,)."""
        return self._filled("validation", False)

    @property
    def details(self) -> pa.Array:
        """What was found of each row's record: strings, shape (rows,), null if nothing was."""
        return self.table["detail"] if "detail" in self.table.column_names else pa.nulls(len(self.table), pa.string())

    @functools.cached_property
    def columns(self) -> pa.Table:
        """The columns of records that are carried along; without any if there are none."""
        names = [name for name in self.table.column_names if name.startswith(_CARRIED)]
        return self.table.select(names).rename_columns([name.removeprefix(_CARRIED) for name in names])

    def carried_columns(self, rows: np.ndarray) -> list[dict[str, str | None]]:
        """Return the columns that some rows carry along. rows: int64, shape (any,): their numbers."""
        return self.columns.take(pa.array(rows)).to_pylist() if self.columns.column_names else [{} for _ in rows]

    def first_rows(self) -> np.ndarray:
        """Return the number of the first row of each record: int64, shape (records,)."""
        return np.flatnonzero(np.diff(self.positions, prepend=-1))

    def record_numbers(self) -> np.ndarray:
        """Return for each row the number of its record in the chunk, from 0: int64, shape (rows,)."""
        return np.cumsum(np.diff(self.positions, prepend=self.positions[:1]) != 0)

    def example_numbers(self) -> np.ndarray:
        """Return for each row the number of its example in the chunk, from 0: int64, shape (rows,)."""
        numbers = self._filled("number", 0)
        is_next = np.diff(self.positions, prepend=self.positions[:1]) != 0
        return np.cumsum(is_next | (np.diff(numbers, prepend=numbers[:1]) != 0))

    def records(self) -> int:
        """Return the number of records that the rows come from."""
        return len(self.first_rows())

    def take(self, rows: np.ndarray) -> RowFacts:
        """Return the facts of some rows. rows: int64, shape (any,): their numbers."""
        return RowFacts(self.table.take(pa.array(rows)))

    def with_details(self, details: Mapping[int, str]) -> RowFacts:
        """Return these facts with a further line of what was found of some records. details: by their numbers."""
        pairs = zip(self.details.to_pylist(), self.record_numbers().tolist(), strict=True)
        lines = ["\n".join(filter(None, (before, details.get(number)))) or None for before, number in pairs]
        rest = self.table.drop_columns(["detail"]) if "detail" in self.table.column_names else self.table
        return RowFacts(rest.append_column("detail", pa.array(lines, pa.string())))

    def drops(self, records: np.ndarray, reason: str, tokens: np.ndarray, trained_tokens: np.ndarray) -> list[Drop]:
        """Return the drops of some of the records for a reason.

        Args:
            records: int64, shape (any,): their numbers in the chunk.
            reason: in snake_case.
            tokens, trained_tokens: int64, shape (rows,): of each row.
        """
        if not len(records):
            return []
        record_numbers, rows = self.record_numbers(), self.first_rows()[records]
        sums = (np.bincount(record_numbers, counts)[records].astype(np.int64) for counts in (tokens, trained_tokens))
        return [
            Drop(int(position), reason, "", int(count), int(trained), columns)
            for position, count, trained, columns in zip(
                self.positions[rows], *sums, self.carried_columns(rows), strict=True
            )
        ]

    def _filled(self, name: str, empty: bool | int) -> np.ndarray:
        """The values of a column, which may be absent, or null in some rows."""
        if name not in self.table.column_names:
            return np.full(len(self.table), empty)
        return self.table[name].fill_null(empty).to_numpy()
