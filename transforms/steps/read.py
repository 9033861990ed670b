"""Read: from a split to the records that begin in it, each with its place."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa

from transforms.errors import InputError, StoreError
from transforms.inputs.formats import columnar, json_array, jsonl
from transforms.model.batches import Records, Split
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes, Reject
from transforms.steps.base import garbage_uncollected
from transforms.steps.metrics import record_split_bytes, timed
from transforms.storage.files import open_input


def read_split(split: Split, part_bytes: int) -> Iterator[Records]:
    """The records of a split, in parts of about part_bytes; one that holds no record has one empty part.

    Raises InputError where the file cannot be read on.
    """
    with open_input(split.url, split.compression) as file:
        part = 0
        pending: tuple[list[Record], list[Reject]] = ([], [])
        try:
            for number, found in enumerate(_parts(split, file, part_bytes)):
                if number:
                    yield _records(split, part, pending, last=False)
                    part += 1
                pending = found
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, (FileNotFoundError, StoreError)):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                f"{split.url}: cannot be read as {split.format} ({reason}). "
                "Restore the file, or leave it out of --input."
            ) from error
        yield _records(split, part, pending, last=True)


def _parts(split: Split, file, part_bytes: int) -> Iterator[tuple[list[Record], list[Reject]]]:
    if split.format == "parquet":
        return columnar.read_parquet_range(file, split.start, split.stop, part_bytes)
    if split.format == "arrow":
        return columnar.read_arrow(file, part_bytes)
    if split.format == "json":
        return ((records, []) for records in json_array.read_stream(file, part_bytes))
    if split.compression:
        return ((records, []) for records in jsonl.read_stream(file, part_bytes))
    return iter([(jsonl.read_range(file, split.start, split.stop), [])])


def _records(split: Split, part: int, found: tuple[list[Record], list[Reject]], last: bool) -> Records:
    records, rejects = found
    outcomes = Outcomes(read=len(records) + len(rejects), rejects=tuple(rejects))
    return Records(split=split, part=part, last=last, outcomes=outcomes, records=records)


class _ReadSplit(beam.DoFn):
    def __init__(self, part_bytes: int):
        self._part_bytes = part_bytes

    def process(self, split: Split) -> Iterator[Records]:
        record_split_bytes(split.stop - split.start)
        for part in timed(read_split(split, self._part_bytes)):
            with garbage_uncollected():
                yield part


class ReadSplits(beam.PTransform):
    """PCollection[Split] -> PCollection[Records].

    part_bytes: how much of a stream goes into one batch, which becomes one shard.
    """

    def __init__(self, part_bytes: int):
        super().__init__()
        self._part_bytes = part_bytes

    def expand(self, splits):
        return splits | beam.ParDo(_ReadSplit(self._part_bytes)).with_output_types(Records)
