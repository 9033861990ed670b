"""Write the shards of an export: one worker each, unless an earlier run has written it."""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import apache_beam as beam
import msgspec
import pyarrow as pa

from transforms.base.errors import InputError
from transforms.catalog.schema import schema_of
from transforms.exporting.plan import ExportPlan, ShardPlan
from transforms.exports import export_of
from transforms.reading.reader import Dataset, open_shard, reading
from transforms.reading.row_examples import EXAMPLE_COLUMNS, examples_of, flat_values
from transforms.rows import IGNORED
from transforms.steps.failures import FailureWriter
from transforms.storage.claim import ClaimKeeper
from transforms.storage.files import exists, join, read_bytes, sha256_of
from transforms.storage.writing import NewFile, write_atomically


class WrittenFile(msgspec.Struct, frozen=True):
    """A file of a shard. path: relative to the folder of the export."""

    path: str
    bytes: int
    sha256: str


class ExportReceipt(msgspec.Struct, frozen=True):
    """What was written of a shard, or counted of rows that are dropped.

    rows, tokens, trained_tokens: of the dataset, as its manifest counts them. examples: in the rows. longest: tokens
    of the longest row in the trainer, with padding. padding: tokens that the export added to examples.
    """

    shard: ShardPlan
    files: tuple[WrittenFile, ...]
    rows: int
    examples: int
    tokens: int
    trained_tokens: int
    longest: int
    padding: int


_decode = msgspec.json.Decoder(ExportReceipt).decode


class WriteExport(beam.PTransform):
    """Write the shards of an export.

    PCollection[ShardPlan] -> PCollection[ExportReceipt]. Each receipt is also a file in the folder of the export.

    Args:
        dataset: its url, with the version, as Dataset takes it.
        output: the url of the folder of the export.
        plan: of the export; the shards themselves are the input.
    """

    def __init__(self, dataset: str, output: str, plan: ExportPlan):
        super().__init__()
        self._write = _WriteShard(dataset, output, msgspec.structs.replace(plan, shards=()))

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        return shards | beam.Reshuffle() | "write" >> beam.ParDo(self._write).with_output_types(ExportReceipt)


class _WriteShard(beam.DoFn):
    def __init__(self, dataset: str, output: str, plan: ExportPlan):
        self._url, self._output, self._plan = dataset, output, plan
        self._failures, self._keeper = FailureWriter(), ClaimKeeper()

    def setup(self) -> None:
        with self._failures:
            self._dataset = Dataset(self._url)

    def process(self, shard: ShardPlan) -> Iterator[ExportReceipt]:
        with self._failures, self._keeper.keeping():
            receipt = finished(self._output, shard) or write_shard(self._dataset, self._output, self._plan, shard)
        yield receipt


def finished(output: str, shard: ShardPlan) -> ExportReceipt | None:
    """Return the receipt of a shard that an earlier run wrote; None if there is none, or a file is not as it was."""
    url = join(output, shard.receipt)
    if not exists(url):
        return None
    try:
        receipt = _decode(read_bytes(url))
        is_same = all(sha256_of(join(output, file.path)) == file.sha256 for file in receipt.files)
    except (msgspec.MsgspecError, FileNotFoundError):
        return None
    return receipt if is_same and receipt.shard == shard else None


def write_shard(dataset: Dataset, output: str, plan: ExportPlan, shard: ShardPlan) -> ExportReceipt:
    """Write one shard, and its receipt. Rows that are dropped are only counted.

    Args:
        dataset: that is exported.
        output: the url of the folder of the export.
        plan: of the export.
        shard: of the plan.

    Raises:
        InputError: if a shard of the dataset is missing or damaged.
        StoreError: if a store fails.
    """
    files: dict[str, NewFile] = {}

    def create(name: str) -> io.RawIOBase:
        path = join(shard.split, name)
        files[path] = file = NewFile(join(output, path))
        return file

    writer = export_of(plan.consumer).writer(create, plan.place(shard)) if shard.number >= 0 else None
    rows = examples = tokens = trained_tokens = longest = padding = 0
    layout = dataset.layout
    for batch in rows_between(dataset, shard.split, shard.start, shard.stop):
        found = examples_of(batch, layout.packed, layout.shift_labels)
        if writer:
            part = writer.write(found)
            longest, padding = max(longest, part.longest), padding + part.padding
        rows += len(batch)
        examples += len(found.offsets) - 1
        tokens += len(flat_values(batch, "input_ids")[0])
        trained_tokens += int((found.labels != IGNORED).sum())
    if rows != shard.stop - shard.start:
        raise InputError(
            f"{dataset.name}: {shard.split} has {rows:,} rows from {shard.start:,} to {shard.stop:,}, and the manifest "
            "says that they are there. Copy the dataset again, or build it again."
        )
    if writer:
        writer.close()
    for file in files.values():
        file.complete()
    written = tuple(WrittenFile(path, file.bytes, file.sha256) for path, file in files.items())
    receipt = ExportReceipt(shard, written, rows, examples, tokens, trained_tokens, longest, padding)
    write_atomically(join(output, shard.receipt), msgspec.json.encode(receipt))
    return receipt


def rows_between(dataset: Dataset, split: str, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Read a range of the rows of a split, and of its shards only the groups of rows that have some of them.

    Args:
        dataset: to read from.
        split: train or validation.
        start, stop: the number of the first row, and the one after the last.

    Yields:
        Rows with the columns of EXAMPLE_COLUMNS that the dataset has.
    """
    columns = [name for name in dataset.layout.columns if name in EXAMPLE_COLUMNS]
    shards = dataset.readable(split)
    firsts = [0, *accumulate(shard["rows"] for shard in shards)]
    for number in range(bisect.bisect(firsts, start) - 1, len(shards)):
        at = firsts[number]
        if at >= stop:
            return
        with (
            open_shard(dataset.url, shards[number], schema_of(dataset.layout), columns) as reader,
            reading(join(dataset.url, shards[number]["path"])),
        ):
            ends = [*accumulate(reader.groups, initial=at)]
            first_group = max(0, bisect.bisect(ends, start) - 1)
            stop_group = min(bisect.bisect_left(ends, stop), len(reader.groups))
            at = ends[first_group]
            for batch in reader.batches(first_group, stop_group if reader.groups else None):
                part = batch.slice(max(0, start - at), max(0, stop - max(start, at)))
                at += len(batch)
                if len(part):
                    yield part
                if at >= stop:
                    break


def read_receipt(url: str) -> ExportReceipt:
    """Read the receipt of a shard that was written. Raises ValueError if it is damaged."""
    return _decode(read_bytes(url))


def as_json(receipt: ExportReceipt) -> dict[str, Any]:
    """Return what the summary says of a shard."""
    counts = msgspec.to_builtins(receipt)
    del counts["shard"]
    return counts
