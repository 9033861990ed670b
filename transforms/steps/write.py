"""Write: from rows to shards, rejects and a receipt."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
import pyarrow as pa

from transforms.checks import check_choices, check_flag, check_text
from transforms.inputs.formats import input_format
from transforms.model.batches import Rows, RowTable, Split
from transforms.model.outcomes import Outcomes
from transforms.model.receipts import FirstExample, Receipt, Shard, write_receipt
from transforms.outputs import OUTPUT_FORMATS, OutputOptions, output_format
from transforms.outputs.parquet import encode_parquet
from transforms.rows import IGNORED
from transforms.rows.columns import OUTPUT_COLUMNS, column_of, default_columns
from transforms.steps.base import Step
from transforms.steps.metrics import CountReceipts
from transforms.storage.files import join, write_atomically


@dataclass(frozen=True)
class ShardWriter:
    """Writes the rows of a batch and returns the receipt.

    Args:
        folder: where shards, rejects and receipts are written, at any url.
        formats: of OUTPUT_FORMATS.
        columns: of OUTPUT_COLUMNS; None for input_ids and labels, and seq_lengths if rows are packed.
        provenance: whether each row has the url and the position of its record; a packed row, those of each segment.
        compress_tfrecord: whether TFRecord shards are gzipped.
        about: what each Parquet file says of the dataset, as JSON in its metadata.
    """

    folder: str
    formats: Sequence[str] = ("parquet",)
    columns: Sequence[str] | None = None
    provenance: bool = False
    compress_tfrecord: bool = False
    about: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_text("folder", self.folder)
        check_choices("formats", self.formats, OUTPUT_FORMATS)
        if self.columns is not None:
            check_choices("columns", self.columns, OUTPUT_COLUMNS)
        check_flag("provenance", self.provenance)
        check_flag("compress_tfrecord", self.compress_tfrecord)

    def __call__(self, batch: Rows) -> Receipt:
        """Write the shards of a batch, its rejects, and after them the receipt that names them.

        Raises:
            ValueError: if a record of the batch does not have exactly one outcome.
        """
        outcomes = batch.outcomes
        if outcomes.unaccounted():
            raise ValueError(
                f"{batch.split.slices[0].url}, split {batch.split.number}, part {batch.part}: of {outcomes.read} "
                f"records read, {outcomes.unaccounted()} have no outcome. "
                "A step that drops records must use FilterExamples."
            )
        # Each attempt has its own names: a worker that is taken for dead but is alive must not overwrite others'.
        attempt = f"{batch.split.number:07d}-{batch.part:05d}-{uuid.uuid4().hex}"
        shards: list[Shard] = []
        for split, table in (("train", batch.train), ("validation", batch.validation)):
            if len(table):
                columns = self._columns(batch, table)
                for format in self.formats:
                    shards += self._write(format, f"{split}-{attempt}-{format}", split, table, columns)

        def first(position: int, detail: str) -> FirstExample:
            piece, position = batch.split.origin(position)
            return FirstExample(piece.url, f"{input_format(piece.format).position_unit} {position:,}", detail)

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
            rendered_by_reference=dict(sorted(outcomes.rendered_by_reference.items())),
            tokenized_by_reference=dict(sorted(outcomes.tokenized_by_reference.items())),
            shards=shards,
            rejects_file=self._write_rejects(attempt, batch.split, outcomes),
            first_rejects={
                reject.reason: first(reject.position, reject.detail)
                for reject in sorted(outcomes.rejects, key=lambda reject: -reject.position)
            },
            first_examples={what: first(*record) for what, record in sorted(outcomes.first_examples.items())},
            source=batch.split.source,
        )
        write_receipt(join(self.folder, "receipts"), receipt)
        return receipt

    def _write(self, format: str, stem: str, split: str, table: RowTable, columns: pa.Table) -> list[Shard]:
        """Write the files of one shard in one format; the first of them counts the rows."""
        shards: list[Shard] = []
        for suffix, content in output_format(format).encode(columns, OutputOptions(self.compress_tfrecord)).items():
            counts = not shards
            write_atomically(join(self.folder, "shards", stem + suffix), content)
            shards.append(
                Shard(
                    file=stem + suffix,
                    format=format,
                    split=split,
                    rows=len(table) if counts else 0,
                    tokens=len(table.ids) if counts else 0,
                    trained_tokens=int(np.count_nonzero(table.labels != IGNORED)) if counts else 0,
                    bytes=len(content),
                    sha256=hashlib.sha256(content).hexdigest(),
                )
            )
        return shards

    def _columns(self, batch: Rows, table: RowTable) -> pa.Table:
        columns = {name: _list_array(*column_of(table, name)) for name in self.columns or default_columns(batch.packed)}
        if self.provenance:
            urls, positions = batch.split.origins(table.positions)
            values = {"source": urls, "source_position": pa.array(positions)}
            if batch.packed:
                values = {name: _list_array(array, table.segment_offsets) for name, array in values.items()}
            columns |= values
        if table.columns is not None:
            columns |= {name: table.columns[name] for name in table.columns.column_names}
        metadata = None if self.about is None else {"chatmill": msgspec.json.encode(self.about)}
        return pa.table(columns).replace_schema_metadata(metadata)

    def _write_rejects(self, attempt: str, split: Split, outcomes: Outcomes) -> str | None:
        """Write the rejected records. Returns the name of the file, None if there are none."""
        if not outcomes.rejects:
            return None
        rejects = sorted(outcomes.rejects, key=lambda reject: reject.position)
        urls, positions = split.origins(np.array([reject.position for reject in rejects], np.int64))
        table = pa.table(
            {
                "source": urls,
                "position": pa.array(positions),
                "reason": pa.array([reject.reason for reject in rejects], pa.string()),
                "detail": pa.array([reject.detail for reject in rejects], pa.string()),
                "record": pa.array([reject.record for reject in rejects], pa.binary()),
            }
        )
        file = f"rejects-{attempt}.parquet"
        write_atomically(join(self.folder, "shards", file), encode_parquet(table))
        return file


def _list_array(values: np.ndarray | pa.Array, offsets: np.ndarray) -> pa.ListArray:
    """Make a list of each row, without a copy of the values. offsets: int64, shape (rows + 1,)."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


class WriteShards(Step):
    """Write rows as shards, rejects and receipts, which CommitDataset makes a dataset of.

    PCollection[Rows] -> PCollection[Receipt].

    Args:
        folder: where shards, rejects and receipts go, at any url that fsspec opens.
        formats: of OUTPUT_FORMATS.
        columns: of OUTPUT_COLUMNS; by default input_ids and labels, and seq_lengths if rows are packed.
        provenance: whether each row says the url and the position of its record; a packed one, of each example.
        compress_tfrecord: whether TFRecord shards are gzipped.
        about: what each Parquet file says of the dataset, as JSON under the key `chatmill` of its metadata.

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
        about: Mapping[str, Any] | None = None,
    ):
        options: dict[str, Any] = {
            "folder": folder,
            "formats": formats,
            "columns": columns,
            "provenance": provenance,
            "compress_tfrecord": compress_tfrecord,
            "about": about,
        }
        ShardWriter(**options)  # checks them here, not on a worker
        super().__init__(ShardWriter, **options)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return super().expand(rows) | "count" >> beam.ParDo(CountReceipts()).with_output_types(Receipt)
