"""Read: from a split to the records that begin in it, each with its position."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import apache_beam as beam

from transforms.base.checks import check_count
from transforms.base.errors import InputError, StoreError
from transforms.inputs.formats import MAX_RECORD_BYTES, Part, input_format
from transforms.model.batches import Records, Slice, Split
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.model.parts import PART_BYTES, Parts
from transforms.steps.base import StepCall
from transforms.steps.failures import FailureWriter
from transforms.steps.metrics import record_split_bytes
from transforms.steps.reports import PlaceWriter
from transforms.storage.files import open_input


def read_split(
    split: Split, part_bytes: int, max_record_bytes: int = MAX_RECORD_BYTES, is_look: bool = False
) -> Iterator[Records]:
    """Read the records of a split.

    Args:
        split: the split.
        part_bytes: about how much input is in one batch.
        max_record_bytes: a longer record is rejected as `too_long`.
        is_look: whether only the first of them are read, for which no file of the Hub is downloaded.

    Yields:
        The records in parts; one empty part if the split has no record.

    Raises:
        InputError: if a file cannot be read to its end.
        UserError: if a file is not of the version that was planned, before its first byte or after its last.
    """
    part, pending = 0, Part([], [], 0)
    for found in _parts(split, part_bytes, max_record_bytes, is_look):
        if pending.bytes and pending.bytes + found.bytes > part_bytes:
            yield _batch(split, part, pending, last=False)
            part, pending = part + 1, found
        else:
            pending = Part(
                pending.records + found.records, pending.rejects + found.rejects, pending.bytes + found.bytes
            )
    yield _batch(split, part, pending, last=True)


def _parts(split: Split, part_bytes: int, max_record_bytes: int, is_look: bool) -> Iterator[Part]:
    """Yield the records of all slices, with their positions in the split."""
    for number, piece in enumerate(split.slices):
        base = split.position(number, 0)
        for part in _parts_of_slice(piece, part_bytes, max_record_bytes, is_look):
            if base:
                records = [Record(base + record.position, record.raw, record.nulls) for record in part.records]
                rejects = [replace(reject, position=base + reject.position) for reject in part.rejects]
                part = Part(records, rejects, part.bytes)
            yield part


def _parts_of_slice(piece: Slice, part_bytes: int, max_record_bytes: int, is_look: bool) -> Iterator[Part]:
    format = input_format(piece.format)
    is_cut = format.can_be_cut and piece.compression is None
    start, stop = (piece.start, piece.stop) if is_cut else piece.content
    reads = 0 if is_look else piece.stop - piece.start if is_cut else sys.maxsize
    with open_input(piece.url, piece.compression, piece.version, reads) as file:
        try:
            yield from format.read(file, start, stop, part_bytes, max_record_bytes)
        except format.errors as error:
            if isinstance(error, (FileNotFoundError, StoreError)):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                f"{piece.url}: it cannot be read as {piece.format} ({reason}). "
                "Restore the file, or leave it out of the input."
            ) from error


def _batch(split: Split, part: int, found: Part, last: bool) -> Records:
    outcomes = Outcomes(read=len(found.records) + len(found.rejects), rejects=tuple(found.rejects))
    return Records(split=split, part=part, last=last, outcomes=outcomes, records=found.records)


class _ReadSplit(beam.DoFn):
    def __init__(self, part_bytes: int, max_record_bytes: int):
        self._part_bytes = part_bytes
        self._max_record_bytes = max_record_bytes
        self._failures = FailureWriter()
        self._places = PlaceWriter()

    def process(self, split: Split) -> Iterator[Parts[Records]]:
        record_split_bytes(split.bytes)
        call = StepCall(self._failures)

        def read() -> Iterator[Records]:
            parts = read_split(split, self._part_bytes, self._max_record_bytes)
            self._places.write(split, f"{split.slices[0].url}, from byte {split.slices[0].start:,} on")
            with suppress(StopIteration):
                while True:
                    part = call(next, parts)
                    if part.records:
                        piece, position = split.origin(part.records[0].position)
                        unit = input_format(piece.format).position_unit
                        self._places.write(split, f"{piece.url}, from {unit} {position:,} on")
                    yield part

        yield Parts(split, read)


class ReadSplits(beam.PTransform):
    """Read the records of each split.

    PCollection[Split] -> PCollection[Parts[Records]].

    Args:
        part_bytes: bytes of input that are processed at once. Rows are packed within a part.
        max_record_bytes: a longer record is rejected as `too_long`.

    Raises:
        ParameterError: if one of them is not a whole number above 0.
    """

    def __init__(self, part_bytes: int = PART_BYTES, *, max_record_bytes: int = MAX_RECORD_BYTES):
        super().__init__()
        check_count("part_bytes", part_bytes)
        check_count("max_record_bytes", max_record_bytes)
        self._part_bytes = part_bytes
        self._max_record_bytes = max_record_bytes
        self.with_input_types(Split)
        self.with_output_types(Parts[Records])

    def expand(self, splits: beam.PCollection) -> beam.PCollection:
        return splits | beam.ParDo(_ReadSplit(self._part_bytes, self._max_record_bytes)).with_output_types(
            Parts[Records]
        )
