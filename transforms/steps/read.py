"""Read: from files to tasks, and from a task to the records that begin in it, each with its position."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import apache_beam as beam
import pyarrow as pa

from transforms.base.errors import InputError, ParameterError, StoreError, UserError
from transforms.base.options import PositiveInt, String, checked
from transforms.files.formats import MAX_RECORD_BYTES, Chunk, NotRecords, input_format
from transforms.files.hub import Commits
from transforms.files.listing import InputFile, list_inputs, shared_files
from transforms.files.tasks import default_task_bytes, largest_first, make_tasks
from transforms.model.batches import Records, Slice, Task
from transforms.model.chunks import CHUNK_BYTES, Chunks
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.base import StepCall
from transforms.steps.failures import FailureWriter
from transforms.steps.metrics import record_task_bytes
from transforms.steps.reports import ProgressWriter
from transforms.storage.files import open_input

# What formats raise if a file is corrupt. Damage may be where a size is, or in the name of a column.
_DAMAGE = (OSError, ValueError, MemoryError, pa.ArrowException)


def read_task(
    task: Task, chunk_bytes: int, max_record_bytes: int = MAX_RECORD_BYTES, is_look: bool = False
) -> Iterator[Records]:
    """Yield the records of a task in batches; one that is empty if the task has no record.

    Args:
        task: the task.
        chunk_bytes: about how much input is in one batch.
        max_record_bytes: a longer record is rejected as `too_long`.
        is_look: whether only the first of them are read, for which no file of the Hub is downloaded.

    Raises:
        InputError: if a file cannot be read to its end.
        UserError: if a file is not of the version that was planned, before its first byte or after its last; or if its
            rows are not records.
    """
    chunk, pending, size = 0, Chunk([], []), 0
    for number, piece in enumerate(task.slices):
        base = task.position(number, 0)
        for records, rejects, chunk_size in _chunks(piece, chunk_bytes, max_record_bytes, is_look):
            if size and size + chunk_size > chunk_bytes:
                yield _batch(task, chunk, pending, last=False)
                chunk, pending, size = chunk + 1, Chunk([], []), 0
            if base:
                records = [Record(base + record.position, record.raw, record.nulls) for record in records]
                rejects = [replace(reject, position=base + reject.position) for reject in rejects]
            pending.records.extend(records)
            pending.rejects.extend(rejects)
            size += chunk_size
    yield _batch(task, chunk, pending, last=True)


def _chunks(piece: Slice, chunk_bytes: int, max_record_bytes: int, is_look: bool) -> Iterator[Chunk]:
    format = input_format(piece.format)
    is_cut = format.can_be_cut and piece.compression is None
    start, stop = (piece.start, piece.stop) if is_cut else piece.content
    reads = 0 if is_look else piece.stop - piece.start if is_cut else sys.maxsize
    with open_input(piece.url, piece.compression, piece.version, reads) as file:
        try:
            yield from format.read(file, start, stop, chunk_bytes, max_record_bytes)
        except (FileNotFoundError, StoreError):
            raise
        except NotRecords as error:
            raise UserError(f"{piece.url}: {error}") from None
        except _DAMAGE as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            problem = f"it cannot be read as {piece.format} ({reason})"
            raise InputError(f"{piece.url}: {problem}. Restore the file, or leave it out of the input.") from error


def _batch(task: Task, chunk: int, pending: Chunk, last: bool) -> Records:
    outcomes = Outcomes(read=len(pending.records) + len(pending.rejects), rejects=tuple(pending.rejects))
    return Records(task=task, chunk=chunk, last=last, outcomes=outcomes, records=pending.records)


class ReadTasks(beam.PTransform):
    """Read the records of each task: PCollection[Task] -> PCollection[Chunks[Records]].

    Args:
        max_record_bytes: a longer record is rejected as `too_long`.
    """

    def __init__(self, max_record_bytes: int = MAX_RECORD_BYTES):
        super().__init__()
        self._max_record_bytes = max_record_bytes
        self.with_input_types(Task)

    def expand(self, tasks: beam.PCollection) -> beam.PCollection:
        read = beam.Map(_make_chunks, self._max_record_bytes, FailureWriter(), ProgressWriter())
        return tasks | read.with_output_types(Chunks[Records])


def _make_chunks(
    task: Task, max_record_bytes: int, failures: FailureWriter, reports: ProgressWriter
) -> Chunks[Records]:
    record_task_bytes(task.bytes)
    return Chunks(task, functools.partial(_read, StepCall(failures), reports, max_record_bytes))


def _read(call: StepCall, reports: ProgressWriter, max_record_bytes: int, task: Task) -> Iterator[Records]:
    """Read a task, and write down where this process is."""
    chunks = read_task(task, CHUNK_BYTES, max_record_bytes)
    reports.write_place(task, f"{task.slices[0].url}, from byte {task.slices[0].start:,} on")
    with suppress(StopIteration):
        while True:
            chunk = call(next, chunks)
            if chunk.records:
                piece, position = task.origin(chunk.records[0].position)
                unit = input_format(piece.format).position_unit
                reports.write_place(task, f"{piece.url}, from {unit} {position:,} on")
            yield chunk


class ReadConversations(beam.PTransform):
    """Read the records of files of conversations.

    PBegin -> PCollection[Chunks[Records]]. The files are listed while the pipeline is built, and the list is a part of
    the pipeline's graph. From some ten thousand files on, the command line is better, which keeps it next to the
    output.

    Args:
        patterns: files, folders, globs and urls; one, or several. If there are several sources of records, for which
            steps have other parameters or of which the manifest has the sums: a mapping of the name of each to these.
        input_format: the format of all files; `auto` goes by name and content.
        split: of datasets on the Hub and of folders, one or several; not needed if each has only one.
        split_bytes: bytes of input in each task, which becomes a shard; by default from the size of the input.

    Raises:
        ParameterError: if a value is not one of those.
        UserError: if a pattern names no file, when the pipeline is built.
    """

    def __init__(
        self,
        patterns: str | Sequence[str] | Mapping[str, str | Sequence[str]],
        *,
        input_format: str = "auto",
        split: str | Sequence[str] = (),
        split_bytes: int | None = None,
    ):
        super().__init__()
        sources = patterns if isinstance(patterns, Mapping) else {"input": patterns}
        self._sources = {name: [given] if isinstance(given, str) else given for name, given in sources.items()}
        lists = [*self._sources.values()]
        if not lists or not all(given and isinstance(given, (list, tuple)) for given in lists):
            raise ParameterError("patterns", patterns, "expected a string, or a list of strings, for each source.")
        for pattern in chain.from_iterable(lists):
            checked("patterns", pattern, String)
        checked("split_bytes", split_bytes, PositiveInt | None)
        self._input_format = input_format
        self._split = (split,) if isinstance(split, str) else tuple(split)
        self._split_bytes = split_bytes
        self.with_output_types(Chunks[Records])

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        commits = Commits()
        files = [
            file
            for number, patterns in enumerate(self._sources.values())
            for file in list_inputs(patterns, self._input_format, "patterns", self._split, commits, source=number)
        ]
        for first, again in shared_files(files):
            names = [*self._sources]
            problem = f"it is in two sources, {names[first.source]} and {names[again.source]}."
            raise ParameterError("patterns", again.url, problem)
        split_bytes = self._split_bytes or default_task_bytes(sum(file.unpacked_bytes for file in files))
        return (
            begin
            | "plan" >> beam.Create([None])
            | "tasks" >> beam.FlatMap(_tasks, files, split_bytes).with_output_types(Task)
            | beam.Reshuffle()
            | "read" >> ReadTasks()
        )


def _tasks(_: None, files: Sequence[InputFile], split_bytes: int) -> list[Task]:
    return largest_first(make_tasks(files, split_bytes))
