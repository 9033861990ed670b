"""The exceptions of a shard: the records that are not plainly kept, why, and where their tokens are.

Of a record that is rejected the bytes are there, so that it can be corrected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.model.batches import Rows, RowTable, Task
from transforms.model.outcomes import Drop, Outcomes, Reject
from transforms.model.receipts import File
from transforms.rows.ragged import slice_indices
from transforms.steps.checks import check_name
from transforms.storage.files import join
from transforms.storage.writing import NewFile

# The approximate lines of a row group, which are some 5 MB in memory; fewer, if records that are rejected are large.
_LINES_IN_ROW_GROUP, _BYTES_IN_ROW_GROUP = 1 << 15, 1 << 24

_MOST_OF_CHECK = 1000  # records of a shard that are listed because of a check

_OUTCOMES = pa.array(["kept", "truncated", "repeated"])
_SPLITS = pa.array(["train", "validation"])
# What is known of a segment.
_PLACE = ("row", "segment", "tokens", "trained_tokens")
_NOWHERE = -1
_SCHEMA = pa.schema(
    [
        pa.field("origin_file", pa.string(), nullable=False),
        pa.field("origin_position", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("example", pa.int32(), nullable=False),
        pa.field("split", pa.string()),
        pa.field("row", pa.int64()),
        pa.field("segment", pa.int32()),
        pa.field("tokens", pa.int32()),
        pa.field("trained_tokens", pa.int32()),
        pa.field("tokens_lost", pa.int32()),
        pa.field("trained_tokens_lost", pa.int32()),
        pa.field("columns", pa.string()),
        pa.field("record", pa.binary()),
    ]
)


class ExceptionsWriter:
    """Writes the exceptions of a shard, chunk by chunk. No file is written if there are none.

    A record that is truncated, dropped or rejected, that lost tokens otherwise, or in which something was found, has a
    line for each of its segments, or one line if it has none. Lines are in the order of the input. What checks find is
    listed of the first records of the shard.

    Args:
        output: the folder of the dataset.
        path: of the file in it.
        task: that the chunks are of.
    """

    def __init__(self, output: str, path: str, task: Task):
        self._output = output
        self._path = path
        self._task = task
        self._rows = [0, 0]  # that the shards of train and of validation have so far
        self._waiting: list[pa.Table] = []
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._entries = 0
        self._listed = Counter[str]()  # the lines of each check

    def add(self, chunk: Rows) -> None:
        """Add the records of a chunk."""
        if lines := [*self._truncated_and_kept(chunk), *self._dropped_and_rejected(chunk.outcomes)]:
            self._waiting.append(_in_order(pa.concat_tables(lines)))
        for split, rows in enumerate((chunk.train, chunk.validation)):
            self._rows[split] += len(rows)
        size = sum(table.nbytes for table in self._waiting)
        if sum(map(len, self._waiting)) >= _LINES_IN_ROW_GROUP or size >= _BYTES_IN_ROW_GROUP:
            self._write()

    def complete(self) -> list[File]:
        """Complete the file, if there is one, and return what the receipt says of it."""
        if self._waiting:
            self._write()
        if self._writer is None or self._file is None:
            return []
        self._writer.close()
        self._file.complete()
        return [File(self._path, self._file.bytes, self._file.sha256, rows=self._entries)]

    def _truncated_and_kept(self, chunk: Rows) -> Iterator[pa.Table]:
        """Yield the lines of records that are truncated, or kept in spite of something."""
        used, facts = chunk.used, chunk.facts
        record_numbers, first_rows = facts.record_numbers(), facts.first_rows()
        details = self._first_details(facts.details, record_numbers)
        is_listed = used.truncated | (used.tokens_lost > 0) | (used.trained_tokens_lost > 0)
        is_listed |= details.is_valid().to_numpy(zero_copy_only=False)[first_rows]
        is_listed &= used.is_used
        if not is_listed.any():
            return
        segments = np.hstack(
            [_segments(rows, split, self._rows[split]) for split, rows in enumerate((chunk.train, chunk.validation))]
        )
        segments = segments[:, is_listed[record_numbers[segments[0]]]]
        # With shifted labels, a record may be kept and have no row.
        without = np.setdiff1d(np.flatnonzero(is_listed), record_numbers[segments[0]])
        nowhere = np.full((len(segments), len(without)), _NOWHERE)
        nowhere[0] = first_rows[without]
        segments = np.hstack([segments, nowhere])
        # The pieces of a row stay in their order: packing places each after the one before it.
        rows, splits, *places = segments[:, np.argsort(segments[0], kind="stable")]
        records = record_numbers[rows]
        goes_on = np.diff(records, prepend=_NOWHERE) == 0
        is_nowhere = splits == _NOWHERE
        yield self._table(
            origin_position=facts.positions[rows],
            outcome=_OUTCOMES.take(pa.array(np.where(used.copies, 2, used.truncated)[records].astype(np.int8))),
            detail=details.take(pa.array(rows)),
            example=rows - first_rows[records],
            split=_SPLITS.take(pa.array(splits, mask=is_nowhere)),
            **{name: pa.array(values, mask=is_nowhere) for name, values in zip(_PLACE, places, strict=True)},
            tokens_lost=pa.array(used.tokens_lost[records], mask=goes_on),
            trained_tokens_lost=pa.array(used.trained_tokens_lost[records], mask=goes_on),
            columns=_as_json(facts.carried_columns(rows)),
        )

    def _first_details(self, details: pa.Array, record_numbers: np.ndarray) -> pa.Array:
        """What was found of records, without that of checks of which enough records are listed."""
        if details.null_count == len(details):
            return details
        first: list[str | None] = []
        for _, rows in groupby(zip(record_numbers.tolist(), details.to_pylist(), strict=True), lambda row: row[0]):
            lines = [(detail or "").split("\n") for _, detail in rows]
            names = {line: check_name(line) for line in chain(*lines)}
            enough = {name for name in names.values() if self._listed[name] >= _MOST_OF_CHECK}
            self._listed.update({*names.values()} - {""})
            first += ("\n".join(line for line in each if names[line] not in enough) or None for each in lines)
        return pa.array(first, pa.string())

    def _dropped_and_rejected(self, outcomes: Outcomes) -> Iterator[pa.Table]:
        """Yield the lines of records that are dropped or rejected."""
        drops, rejects = outcomes.drops, outcomes.rejects
        if drops:
            lost = {
                "tokens_lost": [one.tokens for one in drops],
                "trained_tokens_lost": [one.trained_tokens for one in drops],
                "columns": _as_json([one.columns for one in drops]),
            }
            yield self._left_out("dropped", drops, **lost)
        if rejects:
            yield self._left_out("rejected", rejects, record=[one.record for one in rejects])

    def _left_out(self, outcome: str, records: Sequence[Drop | Reject], **columns: Any) -> pa.Table:
        return self._table(
            origin_position=[record.position for record in records],
            outcome=[outcome] * len(records),
            reason=[record.reason for record in records],
            detail=[record.detail or None for record in records],
            example=np.zeros(len(records), np.int64),
            **columns,
        )

    def _table(self, **columns: Any) -> pa.Table:
        """Make a table of lines. origin_position: in the task; what is not given is null."""
        rows = len(columns["origin_position"])
        schema = _SCHEMA.remove(_SCHEMA.get_field_index("origin_file"))
        return pa.table({field.name: columns.get(field.name, pa.nulls(rows, field.type)) for field in schema}, schema)

    def _write(self) -> None:
        """Write the lines that wait."""
        lines = pa.concat_tables(self._waiting)
        self._waiting = []
        self._entries += len(lines)
        urls, positions = self._task.origins(lines["origin_position"].to_numpy())
        if self._writer is None:
            self._file = NewFile(join(self._output, self._path))
            strings = [field.name for field in _SCHEMA if pa.types.is_string(field.type)]
            self._writer = pq.ParquetWriter(self._file, _SCHEMA, compression="zstd", use_dictionary=strings)
        lines = lines.set_column(0, "origin_position", pa.array(positions)).add_column(0, "origin_file", urls)
        self._writer.write_table(lines.cast(_SCHEMA))


def _segments(table: RowTable, split: int, rows_before: int) -> np.ndarray:
    """Return for each segment its example, its split, and what _PLACE names: int64, shape (6, segments)."""
    counts = np.diff(table.segment_offsets)
    return np.stack(
        [
            table.example_index,
            np.full(len(table.example_index), split),
            rows_before + np.repeat(np.arange(len(table)), counts),
            slice_indices(np.zeros(len(table), np.int64), counts),
            table.segment_lengths,
            table.segment_trained_tokens,
        ]
    )


def _as_json(columns: Sequence[Mapping[str, str | None]]) -> list[str | None]:
    """The kept columns of each line as a JSON object, None if there are none: `datasets` reads no maps of Arrow."""
    return [msgspec.json.encode(one).decode() if one else None for one in columns]


def _in_order(lines: pa.Table) -> pa.Table:
    """Sort lines by their position. Most chunks have only records that are used, which are in order already."""
    positions = lines["origin_position"].to_numpy()
    if np.all(positions[:-1] <= positions[1:]):
        return lines
    return lines.take(pa.array(np.argsort(positions, kind="stable")))
