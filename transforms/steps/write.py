"""Write: from rows to shards, rejects and a receipt."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.checks import check_choices, check_flag, check_text
from transforms.choices import OUTPUT_COLUMNS, OUTPUT_FORMATS
from transforms.model.batches import Rows, RowTable, Split
from transforms.model.outcomes import Outcomes
from transforms.model.receipts import FirstExample, Receipt, Shard, write_receipt
from transforms.outputs.parquet import encode_parquet, list_array
from transforms.outputs.tfrecord import encode_tfrecord
from transforms.rows.ragged import indices_of
from transforms.steps.base import Step
from transforms.steps.label import IGNORED
from transforms.steps.metrics import CountReceipts
from transforms.storage.files import join, write_whole


@dataclass(frozen=True)
class ShardWriter:
    """Writes the rows of a batch and returns the receipt.

    folder: where shards, rejects and receipts go, at any url. formats: of choices.OUTPUT_FORMATS.
    columns: of choices.OUTPUT_COLUMNS; by default input_ids and labels, and seq_lengths where rows are packed.
    provenance: whether each row tells the url and the place of its record; a packed one, of each segment.
    compress_tfrecord: whether TFRecord shards are gzipped.
    """

    folder: str
    formats: Sequence[str] = ("parquet",)
    columns: Sequence[str] | None = None
    provenance: bool = False
    compress_tfrecord: bool = False

    def __post_init__(self) -> None:
        check_text("folder", self.folder)
        check_choices("formats", self.formats, OUTPUT_FORMATS)
        if self.columns is not None:
            check_choices("columns", self.columns, OUTPUT_COLUMNS)
        check_flag("provenance", self.provenance)
        check_flag("compress_tfrecord", self.compress_tfrecord)

    def __call__(self, batch: Rows) -> Receipt:
        outcomes = batch.outcomes
        if outcomes.unaccounted():
            raise ValueError(
                f"{batch.split.url}, part {batch.part} from byte {batch.split.start:,}: of {outcomes.read} records "
                f"read, {outcomes.unaccounted()} have no outcome. A step that drops records must use Examples.drop."
            )
        # Names of this attempt's own: a worker that is thought dead and is not must not write over another's shard.
        attempt = f"{batch.split.number:07d}-{batch.part:05d}-{uuid.uuid4().hex}"
        shards = []
        for name, table in (("train", batch.train), ("validation", batch.validation)):
            if len(table):
                columns = self._columns(batch, table)
                shards += [self._write(f"{name}-{attempt}", name, table, columns, format) for format in self.formats]
        unit = "row" if batch.split.format in ("parquet", "arrow") else "byte"

        def found(position: int, detail: str) -> FirstExample:
            return FirstExample(batch.split.url, f"{unit} {position:,}", detail)

        receipt = Receipt(
            split=batch.split.number,
            part=batch.part,
            last=batch.last,
            read=outcomes.read,
            kept=outcomes.kept,
            truncated=outcomes.truncated,
            dropped=dict(sorted(outcomes.dropped.items())),
            rejected=dict(sorted(Counter(reject.reason for reject in outcomes.rejects).items())),
            notes=dict(sorted(outcomes.notes.items())),
            trained_tokens_lost=outcomes.trained_tokens_lost,
            shards=shards,
            rejects_file=self._write_rejects(attempt, batch.split, outcomes),
            first_rejects={
                reject.reason: found(reject.position, reject.detail)
                for reject in sorted(outcomes.rejects, key=lambda reject: -reject.position)
            },
            first_examples={what: found(*record) for what, record in sorted(outcomes.first_examples.items())},
        )
        write_receipt(join(self.folder, "receipts"), receipt)
        return receipt

    def _write(self, name: str, split: str, table: RowTable, columns: pa.Table, format: str) -> Shard:
        content = encode_parquet(columns) if format == "parquet" else encode_tfrecord(columns, self.compress_tfrecord)
        suffix = ".gz" if format == "tfrecord" and self.compress_tfrecord else ""
        file = f"{name}.{format}{suffix}"
        write_whole(join(self.folder, "shards", file), content)
        return Shard(
            file=file,
            format=format,
            split=split,
            rows=len(table),
            tokens=len(table.ids),
            trained_tokens=int(np.count_nonzero(table.labels != IGNORED)),
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )

    def _columns(self, batch: Rows, table: RowTable) -> pa.Table:
        wanted = self.columns or (("input_ids", "labels", "seq_lengths") if batch.packed else ("input_ids", "labels"))
        columns = {name: _COLUMNS[name](table) for name in wanted}
        if self.provenance:
            columns["source"] = pa.array([batch.split.url] * len(table), pa.string())
            if batch.packed:
                columns["source_position"] = list_array(table.positions, table.segment_offsets, pa.int64())
            else:
                columns["source_position"] = pa.array(table.positions, pa.int64())
        if table.columns is not None:
            columns |= {name: table.columns[name] for name in table.columns.column_names}
        return pa.table(columns)

    def _write_rejects(self, attempt: str, split: Split, outcomes: Outcomes) -> str | None:
        if not outcomes.rejects:
            return None
        rejects = sorted(outcomes.rejects, key=lambda reject: reject.position)
        table = pa.table(
            {
                "source": pa.array([split.url] * len(rejects), pa.string()),
                "position": pa.array([reject.position for reject in rejects], pa.int64()),
                "reason": pa.array([reject.reason for reject in rejects], pa.string()),
                "detail": pa.array([reject.detail for reject in rejects], pa.string()),
                "record": pa.array([reject.record for reject in rejects], pa.binary()),
            }
        )
        file = f"rejects-{attempt}.parquet"
        write_whole(join(self.folder, "shards", file), encode_parquet(table))
        return file


def _position_ids(table: RowTable) -> np.ndarray:
    """int64 (tokens,), from 0 in each segment."""
    return indices_of(np.zeros(len(table.segment_lengths), np.int64), table.segment_lengths)


_COLUMNS: dict[str, Any] = {
    "input_ids": lambda table: list_array(table.ids, table.offsets, pa.int32()),
    "labels": lambda table: list_array(table.labels, table.offsets, pa.int32()),
    "attention_mask": lambda table: list_array(np.ones(len(table.ids), np.int8), table.offsets, pa.int8()),
    "position_ids": lambda table: list_array(_position_ids(table).astype(np.int32), table.offsets, pa.int32()),
    "loss_mask": lambda table: list_array((table.labels != IGNORED).astype(np.int8), table.offsets, pa.int8()),
    "seq_lengths": lambda table: list_array(table.segment_lengths.astype(np.int32), table.segment_offsets, pa.int32()),
}


class WriteShards(Step):
    """Write rows as shards, rejects and receipts, which FinishDataset makes a dataset of.

    PCollection[Rows] -> PCollection[Receipt].

    Args:
        folder: where shards, rejects and receipts go, at any url that fsspec opens.
        formats: of OUTPUT_FORMATS.
        columns: of OUTPUT_COLUMNS; by default input_ids and labels, and seq_lengths if rows are packed.
        provenance: whether each row says the url and the position of its record; a packed one, of each example.
        compress_tfrecord: whether TFRecord shards are gzipped.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Rows, Receipt

    def __init__(
        self,
        folder: str,
        *,
        formats: Sequence[str] = ("parquet",),
        columns: Sequence[str] | None = None,
        provenance: bool = False,
        compress_tfrecord: bool = False,
    ):
        options: dict[str, Any] = {
            "folder": folder,
            "formats": formats,
            "columns": columns,
            "provenance": provenance,
            "compress_tfrecord": compress_tfrecord,
        }
        ShardWriter(**options)  # checks them here, not on a worker
        super().__init__(ShardWriter, **options)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return super().expand(rows) | "count" >> beam.ParDo(CountReceipts()).with_output_types(Receipt)
