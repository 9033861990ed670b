"""Plan: which files an increment of a dataset consists of, its id and its tasks; and which were begun before."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pipeline.config import RowOptions
from pipeline.job import Job, JobSource, encode_job, mix_of, read_job
from pipeline.recipe import Source
from transforms.base.errors import UserError
from transforms.base.phrases import counted, in_bytes
from transforms.corpus.buckets import MOST_RECORDS, MOST_TASK_BYTES, bucket_count, shards_needed
from transforms.dataset.derived import is_stale
from transforms.dataset.layout import Folder, is_alive, last_written
from transforms.dataset.versions import Version
from transforms.inputs.listing import InputFile
from transforms.inputs.plan_file import decode_plan, encode_plan
from transforms.inputs.tasks import default_task_bytes, tasks_of
from transforms.storage.files import exists, read_bytes
from transforms.storage.writing import remove, remove_if_empty, write_atomically

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
    tasks, copies = sum(1 for _ in tasks_of(files, split_bytes)), copies_of(options, sources)
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


def copies_of(options: RowOptions, sources: Sequence[JobSource]) -> int:
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
    if (options.dedup != "none" or copies_of(options, sources)) and total > _MUCH_INPUT:
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


def select(
    files: Sequence[InputFile], version: Version | None, on_changed_file: str, sources: Sequence[Source]
) -> list[InputFile]:
    """Select what a dataset does not have yet.

    Args:
        files: the inputs, as they are listed now.
        version: the newest one; None if there is none.
        on_changed_file: what to do with a file of which the dataset has another version; one of ON_CHANGED_FILE.
        sources: of the build, for errors.

    Returns:
        The files of the next increment, in the order in which they were listed; none if there is nothing new.

    Raises:
        UserError: if a file changed, and that is to be an error.
    """
    taken = version.taken() if version else {}
    new = [file for file in files if file.version not in taken.get(file.key, ())]
    changed = [file for file in new if file.key in taken]
    if changed and on_changed_file == "error":
        more = len(changed) - 1
        others = f", and so did {counted(more, 'other')}" if more else ""
        raise UserError(
            f"{sources[changed[0].source].option('input')} {changed[0].url}: it changed since it was added{others}. "
            "--on_changed_file append adds it again; --overwrite builds all inputs again."
        )
    return new


def left_out(version: Version, files: Iterable[InputFile], output: str) -> str | None:
    """Return a warning of the records of a version that a build from scratch does not read, since their files are gone.

    Args:
        version: that the build replaces.
        files: the inputs of the build.
        output: the folder of the dataset, as the user calls it.
    """
    listed = {file.key[1] for file in files}
    gone, records, is_exact = list[str](), 0, True
    for increment in version.increments:
        if missing := [file.url for file in increment.inputs if file.key[1] not in listed]:
            gone += missing
            records += increment.counts.records.read
            is_exact &= len(missing) == len(increment.inputs)
    if not gone:
        return None
    return (
        f"warning: {'' if is_exact else 'up to '}{counted(records, 'record')} of version {version.number} will not "
        f"be in the new one: {counted(len(gone), 'input file')} of it {'is' if len(gone) == 1 else 'are'} no longer "
        f"listed, such as {gone[0]}. {output}@{version.number} can be read until it expires."
    )


def planned_files(folder: Folder) -> list[InputFile]:
    """Return the inputs of an increment that was begun; none if their list is missing or damaged."""
    try:
        return decode_plan(read_bytes(folder.plan))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return []


def begun_since_commit(folder: Folder, version: Version | None) -> list[str]:
    """Return the ids of the increments that were begun, and are worked on since the newest commit.

    The others were given up for what was committed then.

    Args:
        folder: of the dataset.
        version: the newest one; None if there is none.
    """
    since = datetime.fromisoformat(version.time).timestamp() if version else 0.0
    return [id for id in folder.begun() if last_written(Folder(folder.output, id)) >= since]


def forget(folder: Folder, begun: Iterable[str]) -> None:
    """Let increments be forgotten that were begun, unless they may be being built. Their files stay until `expire`."""
    for of_increment in (Folder(folder.output, id) for id in begun):
        if not is_alive(of_increment):
            remove(of_increment.work)
    remove_if_empty(folder.building)


def is_unclean(folder: Folder, version: Version | None) -> bool:
    """Return whether a process that was killed left something that is to be removed or written again.

    Args:
        folder: of the dataset.
        version: the newest one; None if there is none.

    Raises:
        InputError: if the file of a later version was lost.
    """
    if (version and is_stale(folder, version)) or exists(folder.lock):  # in this order: it may be one that was lost
        return True
    return any((version and version.has(id)) or not is_alive(Folder(folder.output, id)) for id in folder.begun())
