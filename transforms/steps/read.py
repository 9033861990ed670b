"""Read: from a task to the records that begin in it, each with its position."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import apache_beam as beam

from transforms.base.checks import check_count
from transforms.base.errors import InputError, StoreError
from transforms.inputs.formats import MAX_RECORD_BYTES, Chunk, input_format
from transforms.model.batches import Records, Slice, Task
from transforms.model.chunks import CHUNK_BYTES, Chunks
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.base import StepCall
from transforms.steps.failures import FailureWriter
from transforms.steps.metrics import record_task_bytes
from transforms.steps.reports import PlaceWriter
from transforms.storage.files import open_input


def read_task(
    task: Task, chunk_bytes: int, max_record_bytes: int = MAX_RECORD_BYTES, is_look: bool = False
) -> Iterator[Records]:
    """Read the records of a task.

    Args:
        task: the task.
        chunk_bytes: about how much input is in one batch.
        max_record_bytes: a longer record is rejected as `too_long`.
        is_look: whether only the first of them are read, for which no file of the Hub is downloaded.

    Yields:
        The records in chunks; one empty chunk if the task has no record.

    Raises:
        InputError: if a file cannot be read to its end.
        UserError: if a file is not of the version that was planned, before its first byte or after its last.
    """
    chunk, pending = 0, Chunk([], [], 0)
    for found in _chunks(task, chunk_bytes, max_record_bytes, is_look):
        if pending.bytes and pending.bytes + found.bytes > chunk_bytes:
            yield _batch(task, chunk, pending, last=False)
            chunk, pending = chunk + 1, found
        else:
            pending = Chunk(
                pending.records + found.records, pending.rejects + found.rejects, pending.bytes + found.bytes
            )
    yield _batch(task, chunk, pending, last=True)


def _chunks(task: Task, chunk_bytes: int, max_record_bytes: int, is_look: bool) -> Iterator[Chunk]:
    """Yield the records of all slices, with their positions in the task."""
    for number, piece in enumerate(task.slices):
        base = task.position(number, 0)
        for chunk in _chunks_of_slice(piece, chunk_bytes, max_record_bytes, is_look):
            if base:
                records = [Record(base + record.position, record.raw, record.nulls) for record in chunk.records]
                rejects = [replace(reject, position=base + reject.position) for reject in chunk.rejects]
                chunk = Chunk(records, rejects, chunk.bytes)
            yield chunk


def _chunks_of_slice(piece: Slice, chunk_bytes: int, max_record_bytes: int, is_look: bool) -> Iterator[Chunk]:
    format = input_format(piece.format)
    is_cut = format.can_be_cut and piece.compression is None
    start, stop = (piece.start, piece.stop) if is_cut else piece.content
    reads = 0 if is_look else piece.stop - piece.start if is_cut else sys.maxsize
    with open_input(piece.url, piece.compression, piece.version, reads) as file:
        try:
            yield from format.read(file, start, stop, chunk_bytes, max_record_bytes)
        except format.errors as error:
            if isinstance(error, (FileNotFoundError, StoreError)):
                raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(
                f"{piece.url}: it cannot be read as {piece.format} ({reason}). "
                "Restore the file, or leave it out of the input."
            ) from error


def _batch(task: Task, chunk: int, found: Chunk, last: bool) -> Records:
    outcomes = Outcomes(read=len(found.records) + len(found.rejects), rejects=tuple(found.rejects))
    return Records(task=task, chunk=chunk, last=last, outcomes=outcomes, records=found.records)


class _ReadTask(beam.DoFn):
    def __init__(self, chunk_bytes: int, max_record_bytes: int):
        self._chunk_bytes = chunk_bytes
        self._max_record_bytes = max_record_bytes
        self._failures = FailureWriter()
        self._places = PlaceWriter()

    def process(self, task: Task) -> Iterator[Chunks[Records]]:
        record_task_bytes(task.bytes)
        call = StepCall(self._failures)

        def read() -> Iterator[Records]:
            chunks = read_task(task, self._chunk_bytes, self._max_record_bytes)
            self._places.write(task, f"{task.slices[0].url}, from byte {task.slices[0].start:,} on")
            with suppress(StopIteration):
                while True:
                    chunk = call(next, chunks)
                    if chunk.records:
                        piece, position = task.origin(chunk.records[0].position)
                        unit = input_format(piece.format).position_unit
                        self._places.write(task, f"{piece.url}, from {unit} {position:,} on")
                    yield chunk

        yield Chunks(task, read)


class ReadTasks(beam.PTransform):
    """Read the records of each task.

    PCollection[Task] -> PCollection[Chunks[Records]].

    Args:
        chunk_bytes: bytes of input that are processed at once. Rows are packed within a chunk.
        max_record_bytes: a longer record is rejected as `too_long`.

    Raises:
        ParameterError: if one of them is not a whole number above 0.
    """

    def __init__(self, chunk_bytes: int = CHUNK_BYTES, *, max_record_bytes: int = MAX_RECORD_BYTES):
        super().__init__()
        check_count("chunk_bytes", chunk_bytes)
        check_count("max_record_bytes", max_record_bytes)
        self._chunk_bytes = chunk_bytes
        self._max_record_bytes = max_record_bytes
        self.with_input_types(Task)
        self.with_output_types(Chunks[Records])

    def expand(self, tasks: beam.PCollection) -> beam.PCollection:
        read = beam.ParDo(_ReadTask(self._chunk_bytes, self._max_record_bytes))
        return tasks | read.with_output_types(Chunks[Records])
