"""Write: from rows to shards, exceptions and a receipt."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
import pyarrow as pa

from transforms.base.options import String
from transforms.model.batches import Rows, RowTable, Task
from transforms.model.chunks import Chunks
from transforms.model.counts import Statistics, Sums
from transforms.model.receipts import File, Receipt, Sent, receipt_name, work_folder, write_receipt
from transforms.outputs import output_format
from transforms.rows.columns import PROVENANCE_COLUMNS, default_columns, output_column
from transforms.rows.ragged import lengths_to_offsets
from transforms.steps.base import Step, StepCall
from transforms.steps.exceptions_writer import ExceptionsWriter
from transforms.steps.failures import FailureWriter
from transforms.steps.metrics import CountReceipts
from transforms.steps.reports import ProgressWriter
from transforms.steps.row_options import WriteOptions
from transforms.steps.sums import count_rows
from transforms.steps.workers import OnWorkers
from transforms.storage.files import join
from transforms.storage.writing import NewFile
from transforms.tokens.decoding import TokenDecoder
from transforms.tokens.span_ends import SpanEnds

# A task that has more becomes several shards: a compressed file may hold more than its size lets expect. 64 Mi tokens
# are about 256 MiB of text.
_TOKENS_IN_SHARD = 64 << 20


@dataclass(frozen=True, kw_only=True)
class WriteConfig(WriteOptions):
    """What WriteShards takes."""

    folder: String
    about: Mapping[str, Any] | None = None
    tokenizer: String | None = None


class ShardWriter:
    """Writes the chunks of a task, one after the other, to a shard with a receipt; to several if they are very long."""

    def __init__(self, options: WriteConfig):
        self._options = options
        self._shard: _OpenShard | None = None
        self._shards = 0

    def __call__(self, chunk: Rows) -> Receipt | None:
        """Write the next chunk.

        Returns:
            The receipt of the shard, which is written after all its files; None if the next chunk belongs to it too.

        Raises:
            ValueError: if a record does not have exactly one outcome.
        """
        if self._shard is None:
            self._shard = _OpenShard(self._options, chunk.task, self._shards)
        self._shard.add(chunk)
        if not chunk.last and self._shard.tokens < _TOKENS_IN_SHARD:
            return None
        receipt = self._shard.complete(chunk.last)
        self._shard, self._shards = None, 0 if chunk.last else self._shards + 1
        return receipt


class _OpenShard:
    """A shard, to which chunks are added: its files of rows, of exceptions, and the sums of its receipt."""

    def __init__(self, options: WriteConfig, task: Task, number: int):
        self._options = options
        self._task = task
        self._number = number
        self._rows: dict[tuple[str, str], _RowFiles] = {}
        self._exceptions = ExceptionsWriter(options.folder, join("records", f"{self._name('records')}.parquet"), task)
        self._sums = Sums()
        self._sent: Sent | None = None
        self.tokens = 0  # that were written, in one of the formats

    def add(self, chunk: Rows) -> None:
        sums, span_ends = count_rows(chunk), Counter[str]()
        for split, table in (("train", chunk.train), ("validation", chunk.validation)):
            if not len(table):
                continue
            columns = self._columns(chunk, table)
            if self._options.tokenizer is not None:
                starts = lengths_to_offsets(table.segment_lengths)[:-1]
                span_ends += _span_ends(self._options.tokenizer).count(table.labels, starts)
            counts = {"tokens": len(table.ids), "trained_tokens": int(table.trained_tokens.sum())}
            for format in self._options.output_format:
                if (split, format) not in self._rows:
                    self._rows[split, format] = _RowFiles(self._options.folder, self._name(split), split, format)
                self._rows[split, format].write(columns, counts)
            self.tokens += len(table.ids)
        self._exceptions.add(chunk)
        self._sums += sums.plus(statistics=Statistics(span_ends=span_ends))
        self._sent = chunk.sent or self._sent

    def complete(self, last: bool) -> Receipt:
        """Complete the files, and after them write the receipt that names them."""
        files = [
            file
            for split in ("train", "validation")
            for format in self._options.output_format
            if (split, format) in self._rows
            for file in self._rows[split, format].complete()
        ]
        receipt = Receipt(
            task=self._task.number,
            shard=self._number,
            last=last,
            files=files + self._exceptions.complete(),
            counts=msgspec.Raw(msgspec.json.encode(self._sums)),
            sent=self._sent,
            increment=self._task.increment,
        )
        write_receipt(join(work_folder(self._options.folder, self._task.increment), "receipts"), receipt)
        return receipt

    def _name(self, what: str) -> str:
        return receipt_name(what, self._task.increment, self._task.number, self._number)

    def _columns(self, chunk: Rows, table: RowTable) -> pa.Table:
        is_packed = chunk.packing != "none"
        names = self._options.write_columns or default_columns(is_packed)
        columns: dict[str, pa.Array] = {name: _list_array(*output_column(table, name)) for name in names}
        if self._options.provenance:
            urls, positions = self._task.origins(chunk.facts.positions[table.example_index])
            values = dict(zip(PROVENANCE_COLUMNS, (urls, pa.array(positions)), strict=True))
            if is_packed:
                values = {name: _list_array(array, table.segment_offsets) for name, array in values.items()}
            columns |= values
        fields = [pa.field(name, column.type, nullable=False) for name, column in columns.items()]
        kept, offsets = chunk.facts.columns, table.segment_offsets
        examples = pa.array(table.example_index if is_packed else table.example_index[offsets[:-1]])
        for name in kept.column_names:
            values = kept[name].take(examples)
            columns[name] = _list_array(values.combine_chunks(), offsets, nullable=True) if is_packed else values
            fields.append(pa.field(name, columns[name].type, nullable=not is_packed))
        about = self._options.about
        metadata = None if about is None else {"chatmill": msgspec.json.encode(about)}
        return pa.table(columns, pa.schema(fields, metadata))


class _RowFiles:
    """The files of a shard in one format. The first of them counts the rows.

    Args:
        output: the folder of the dataset.
        stem: of their names, which a suffix follows; of receipt_name.
        split: train or validation.
        format: one of OUTPUT_FORMATS.
    """

    def __init__(self, output: str, stem: str, split: str, format: str):
        self._output = output
        self._stem = join(output_format(format).folder, stem)
        self._split, self._format = split, format
        self._counts = Counter[str]()
        self._files: dict[str, NewFile] = {}
        self._writer = output_format(format).writer(self._create)

    def _create(self, suffix: str) -> NewFile:
        self._files[self._stem + suffix] = file = NewFile(join(self._output, self._stem + suffix))
        return file

    def write(self, rows: pa.Table, counts: Mapping[str, int]) -> None:
        """Write rows. counts: of their tokens."""
        self._writer.write(rows)
        self._counts.update(counts, rows=len(rows))

    def complete(self) -> list[File]:
        """Complete the files, and return what a receipt says of them."""
        self._writer.close()
        files = list[File]()
        for path, file in self._files.items():
            file.complete()
            counts = {} if files else self._counts
            files.append(File(path, file.bytes, file.sha256, self._format, self._split, **counts))
        return files


@functools.cache  # the folder has the name of its content
def _span_ends(tokenizer: str) -> SpanEnds:
    return SpanEnds(TokenDecoder.load(tokenizer))


def _list_array(values: np.ndarray | pa.Array, offsets: np.ndarray, nullable: bool = False) -> pa.ListArray:
    """Make a list of each row, without a copy of the values. offsets: int64, shape (rows + 1,).

    Its type says that no value is null, unless one may be, as the column's field says of the lists: Parquet then is
    read in two thirds of the time.
    """
    values = pa.array(values)
    kind = pa.list_(pa.field("element", values.type, nullable=nullable))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, kind)


class WriteShards(Step):
    """Write the rows of each split as shards, exceptions and receipts, which CommitDataset makes a dataset of.

    PCollection[Chunks[Rows]] -> PCollection[Receipt].

    Args:
        folder: of the dataset, at any url that fsspec opens. The files of each increment have folders of their own.
        about: what each Parquet file says of the dataset, as JSON under the key `chatmill` of its metadata.
        tokenizer: the folder of the tokenizer, by which it is counted what trained spans end with; None not to count.
        options: those of a build, by name: output_format, write_columns, provenance.

    Raises:
        ParameterError: if a value is not one of those.
    """

    input, output = Rows, Receipt

    def __init__(
        self,
        folder: str,
        *,
        about: Mapping[str, Any] | None = None,
        tokenizer: str | None = None,
        **options: Any,
    ):
        config = WriteConfig(folder=folder, about=about, tokenizer=tokenizer, **options)
        super().__init__(ShardWriter, options=config)
        self.with_output_types(Receipt)

    def expand(self, chunks: beam.PCollection) -> beam.PCollection:
        return (
            chunks
            | beam.ParDo(OnWorkers(_Write(self._make))).with_output_types(Receipt)
            | "count" >> beam.ParDo(CountReceipts()).with_output_types(Receipt)
        )


class _Write:
    """Makes the chunks of a task, and writes them."""

    def __init__(self, make: Callable[[], Callable[[Rows], Receipt | None]]):
        self._make = make
        self._failures = FailureWriter()
        self._reports = ProgressWriter()

    def __call__(self, chunks: Chunks[Rows]) -> Iterator[Receipt]:
        call, write = StepCall(self._failures), self._make()

        def write_and_report(chunk: Rows) -> Receipt | None:
            receipt = call(write, chunk)
            self._reports.write(chunk)
            return receipt

        yield from filter(None, map(write_and_report, chunks))
