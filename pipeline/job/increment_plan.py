"""From the plan of an increment of a dataset to its tasks.

The plan has one line for each file, so it stays small for a corpus of any size.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import apache_beam as beam
import msgspec

from pipeline.cli.options import RowOptions
from pipeline.job.job_json import Job, JobSource, encode_job, mix_of, read_job
from transforms.base.errors import UserError
from transforms.base.phrases import in_bytes
from transforms.corpus.buckets import MOST_TASK_BYTES, bucket_count, shards_needed, unshuffled, with_buckets
from transforms.corpus.select import MOST_RECORDS
from transforms.dataset.commit import is_committed
from transforms.dataset.layout import Folder
from transforms.inputs.listing import InputFile
from transforms.inputs.plan_file import decode_plan, encode_plan
from transforms.inputs.tasks import default_task_bytes, largest_first, tasks_of
from transforms.model.batches import Task
from transforms.steps.failures import FailureWriter
from transforms.storage.files import read_bytes
from transforms.storage.writing import write_atomically

# How many times the bytes of its input a bucket has in memory (sgd: 3.8), and from how many on a warning says so.
_MEMORY_OF_INPUT, _MUCH_HELD = 4, 4 * MOST_TASK_BYTES
# From how many bytes on a corpus may have more than MOST_RECORDS: few have records of less than a kilobyte.
_MUCH_INPUT = MOST_RECORDS << 10


def plan_of(options: RowOptions, sources: Sequence[JobSource], files: Sequence[InputFile]) -> dict[str, Any]:
    """Return what a job says of its inputs, by the names of its fields.

    Args:
        options, sources: of the job.
        files: its inputs.

    Raises:
        UserError: if there are too few shards for the copies of a record.
    """
    size = default_task_bytes(sum(file.unpacked_bytes for file in files))
    if options.is_exchanged:
        size = min(size, MOST_TASK_BYTES)
    split_bytes = options.split_bytes or size
    tasks, copies = sum(1 for _ in tasks_of(files, split_bytes)), _copies_of(options, sources)
    if options.shards and options.shards < (needed := shards_needed(tasks, copies)):
        raise UserError(
            f"--shards {options.shards}: with these epochs there are {copies} copies of some records, and no shard may "
            f"have two of them, which takes at least {needed} shards. Give --shards {needed}."
        )
    return {
        "split_bytes": split_bytes,
        "inputs": hashlib.sha256(encode_plan(files)).hexdigest(),
        "input_bytes": sum(file.bytes for file in files),
        "unpacked_bytes": sum(file.unpacked_bytes for file in files),
        "tasks": tasks + (bucket_count(tasks, options.shards, copies) if options.is_exchanged else 0),
    }


def _copies_of(options: RowOptions, sources: Sequence[JobSource]) -> int:
    """How many copies a record has at most, as bucket_count takes it."""
    mix = mix_of(options, sources)
    return mix.copies if mix else 0


def warn_of_much_input(
    options: RowOptions, sources: Sequence[JobSource], split_bytes: int, files: Sequence[InputFile]
) -> Iterator[str]:
    """Say how much memory workers need for a shard of what is exchanged, and that records may be too many, if they are.

    Args:
        options, sources: of the job.
        split_bytes: of its plan.
        files: its inputs.
    """
    total = sum(file.unpacked_bytes for file in files)
    held = total // options.shards if options.shards else min(total, split_bytes)
    if options.is_exchanged and held > _MUCH_HELD:
        better = f"shards {-(-total // MOST_TASK_BYTES)}" if options.shards else f"split_bytes {MOST_TASK_BYTES}"
        needed, less = (in_bytes(size * _MEMORY_OF_INPUT) for size in (held, MOST_TASK_BYTES))
        yield (
            f"warning: a worker holds all examples of a shard in memory. Those of {in_bytes(held)} of input may need "
            f"{needed}; with --{better} they need {less}."
        )
    if (options.dedup != "none" or _copies_of(options, sources)) and total > _MUCH_INPUT:
        yield (
            f"warning: duplicates are found and mixes are made among {MOST_RECORDS:,} records at most. "
            f"{in_bytes(total)} of input have more, unless a record has {in_bytes(total // MOST_RECORDS)} on average."
        )


def increment_of(job: Job, files: Sequence[InputFile], taken: Collection[str] = ()) -> tuple[str, Job]:
    """Return the id and the job of an increment: a function of what its rows are made from.

    Args:
        job: of the dataset.
        files: the input of the increment.
        taken: ids of increments that are there. If the same files are built again, in their place, they have another
            one, so that what is there stays as it is until the commit.
    """
    of_increment = msgspec.structs.replace(job, **plan_of(job.options, job.sources, files))
    sources = tuple(msgspec.structs.replace(source, input=()) for source in job.sources)
    without_names = msgspec.structs.replace(of_increment, tokenizer_name="", sources=sources, recipe={})
    id = hashlib.sha256(encode_job(without_names)).hexdigest()[:16]
    while id in taken:
        id = hashlib.sha256(id.encode()).hexdigest()[:16]
    return id, of_increment


def begin_increment(folder: Folder, job: Job, files: Sequence[InputFile]) -> None:
    """Write down what an increment is made from, unless an earlier attempt did.

    Args:
        folder: of the increment.
        job: of increment_of.
        files: the input.
    """
    for url, content in {folder.plan: encode_plan(files), folder.job: encode_job(job)}.items():  # the job is last
        try:
            before = read_bytes(url)
        except FileNotFoundError:
            before = None
        if before is None or (before != content and (url == folder.plan or read_job(folder) is None)):
            write_atomically(url, content)
            if before is not None:
                print(f"chatmill: warning: {url} was damaged, and is written again", file=sys.stderr)


class ReadPlan(beam.PTransform):
    """Read the tasks of a plan file on a worker, so that they are not in the job graph.

    Pipeline -> PCollection[Task].

    Args:
        folder: of the increment that is built.
        job: of the same.
    """

    def __init__(self, folder: Folder, job: Job):
        super().__init__()
        self._read = plan_reader(folder, job)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Impulse()
            | beam.FlatMap(_largest_first, self._read, FailureWriter()).with_output_types(Task)
        )


def _largest_first(_impulse: bytes, read: Callable[[], list[Task]], failures: FailureWriter) -> list[Task]:
    with failures:
        return largest_first(read())


def plan_reader(folder: Folder, job: Job) -> Callable[[], list[Task]]:
    """Return a function that reads the tasks of a plan file, with the buckets that they send to, if they do.

    Args:
        folder: of the increment that is built.
        job: of the same.
    """
    options = job.options
    with_own_buckets: Callable[[list[Task]], list[Task]] = list
    if options.shuffle != "none":
        copies = _copies_of(options, job.sources)
        with_own_buckets = functools.partial(with_buckets, shards=options.shards, seed=options.seed, copies=copies)
    elif options.is_exchanged:
        with_own_buckets = unshuffled
    return functools.partial(_planned_tasks, folder, job.split_bytes, with_own_buckets)


def _planned_tasks(
    folder: Folder, split_bytes: int, with_own_buckets: Callable[[list[Task]], list[Task]]
) -> list[Task]:
    try:
        files = decode_plan(read_bytes(folder.plan))
    except FileNotFoundError:
        if is_committed(folder):  # by an earlier run of the same pipeline, which removed it
            return []
        raise
    return with_own_buckets(list(tasks_of(files, split_bytes, folder.increment)))
