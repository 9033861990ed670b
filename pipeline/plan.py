"""Plan: from files to the tasks and the id of an increment, by which one that was begun before is found."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from posixpath import dirname
from typing import NamedTuple

import msgspec
from rich.filesize import decimal

from pipeline.cli.console import show
from pipeline.existing import begun_since_commit, finish, planned_files
from pipeline.job import Job, Outcome, Request, differences, encode_job, read_job, with_clock
from transforms.base.errors import UserError
from transforms.corpus.buckets import MOST_RECORDS, MOST_TASK_BYTES, bucket_count, shards_needed
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Version
from transforms.files.listing import InputFile
from transforms.files.tasks import default_task_bytes, encode_plan, make_tasks
from transforms.storage.files import join, read_bytes
from transforms.storage.walking import names_below
from transforms.storage.writing import remove, write_atomically
from transforms.tokens.tokenizer_files import fingerprint

_DAMAGED = "warning: {} was corrupted; rewritten"
# How many times the bytes of its input a bucket has in memory (sgd: 3.8), and from how many on a warning says so.
_MEMORY_FACTOR, _MUCH_HELD = 4, 4 * MOST_TASK_BYTES
# From how many bytes on a corpus may have more than MOST_RECORDS: few have records of less than a kilobyte.
_MUCH_INPUT = MOST_RECORDS << 10


class Plan(NamedTuple):
    """What an increment is built from: its folder, its job with a plan, and its input."""

    folder: Folder
    job: Job
    files: list[InputFile]


def with_plan(job: Job, files: Sequence[InputFile]) -> Job:
    """Return a job with the plan of some files. Raises UserError if there are too few shards for copies of a record."""
    options, unpacked = job.options, sum(file.unpacked_bytes for file in files)
    size = default_task_bytes(unpacked)
    if options.is_exchanged:
        size = min(size, MOST_TASK_BYTES)
    split_bytes = options.split_bytes or size
    tasks, copies = sum(1 for _ in make_tasks(files, split_bytes)), job.copies
    if options.shards and options.shards < (needed := shards_needed(tasks, copies)):
        raise UserError(
            f"--shards {options.shards}: with these epochs there are {copies} copies of some records, and no shard may "
            f"have two of them, which takes at least {needed} shards. Give --shards {needed}."
        )
    return msgspec.structs.replace(
        job,
        split_bytes=split_bytes,
        inputs=hashlib.sha256(encode_plan(files)).hexdigest(),
        input_bytes=sum(file.bytes for file in files),
        unpacked_bytes=unpacked,
        tasks=tasks + (bucket_count(tasks, options.shards, copies) if options.is_exchanged else 0),
    )


def increment_id(job: Job, taken: Collection[str] = ()) -> str:
    """Return the id of an increment: a hash of what its rows are made from.

    taken: ids of increments that are there. If the same files are built again, in their place, they have another one,
    so that what is there stays as it is until the commit.
    """
    sources = tuple(msgspec.structs.replace(source, input=()) for source in job.sources)
    without_names = msgspec.structs.replace(job, tokenizer_name="", sources=sources, recipe={})
    id = hashlib.sha256(encode_job(without_names)).hexdigest()[:16]
    while id in taken:
        id = hashlib.sha256(id.encode()).hexdigest()[:16]
    return id


def warn_about_much_input(job: Job) -> Iterator[str]:
    """Say that workers need much memory for a shard of what is exchanged, or that records may be too many."""
    options, total = job.options, job.unpacked_bytes
    held = total // options.shards if options.shards else min(total, job.split_bytes)
    if options.is_exchanged and held > _MUCH_HELD:
        better = f"shards {-(-total // MOST_TASK_BYTES)}" if options.shards else f"split_bytes {MOST_TASK_BYTES}"
        needed, less = (decimal(size * _MEMORY_FACTOR) for size in (held, MOST_TASK_BYTES))
        yield (
            f"warning: a worker holds all examples of a shard in memory. Those of {decimal(held)} of input may need "
            f"{needed}; with --{better} they need {less}."
        )
    if (options.dedup != "none" or job.copies) and total > _MUCH_INPUT:
        yield (
            f"warning: duplicates are found and mixes are made among {MOST_RECORDS:,} records at most. "
            f"{decimal(total)} of input have more, unless a record has {decimal(total // MOST_RECORDS)} on average."
        )


def make_plan(
    request: Request, version: Version | None, job: Job, files: list[InputFile], taken: Collection[str]
) -> Plan | Outcome:
    """Plan an increment, or find the plan of one that an earlier run began: it goes on with its own time and files.

    Args:
        request, version: of the run, and the newest one; None if there is none.
        job, files: with the plan of the files; with --append those of an increment that was begun may be some of them.
        taken: as of increment_id.

    Returns what became of the run if another one has finished the dataset. Raises UserError if a dataset that has no
    version was begun with other options. An append may begin another increment of the same, if files changed.
    """
    options, folder = request.options, request.folder
    new = Plan(Folder(folder.output, increment_id(job, taken)), job, files)
    if options.overwrite:
        return new
    versions, changed = {file.key: file.version for file in files}, list[str]()
    for id in folder.begun() if options.append else begun_since_commit(folder, version):
        if id in taken:
            continue
        begun = Folder(folder.output, id)
        before, own = read_job(begun), planned_files(begun)
        own_versions = {file.key: file.version for file in own}
        is_ours = own_versions == versions or (options.append and own_versions.items() <= versions.items())
        for each in [own, files] if own and own != files and is_ours else [files]:
            resumed = with_clock(job if each is files else with_plan(job, each), before, options)
            if increment_id(resumed, taken) == id:
                return Plan(begun, resumed, each)
        if before and not (version or changed):
            changed += differences(before, job)
            if not options.append and before.inputs != job.inputs:
                changed += _changed_files(begun, own, files)
    if changed:
        raise UserError(
            f"{folder.output} holds an unfinished dataset that was begun with other options or inputs: "
            f"{'; '.join(changed)}. Use the earlier ones to resume it, give another --output, or --overwrite to "
            "replace it."
        )
    return finish(request, version) if version and not options.append else new


def _changed_files(folder: Folder, before: Sequence[InputFile], now: Sequence[InputFile]) -> Iterator[str]:
    """Describe the first input file that is not as it was when the increment in a folder was planned."""
    planned, present = ({file.key: file for file in files} for files in (before, now))
    if not planned:
        yield f"the inputs differ, and {folder.plan}, which lists the earlier ones, is damaged"
    elif key := next((key for key in planned | present if planned.get(key) != present.get(key)), None):
        yield f"{key[1]} was {'added' if key not in planned else 'removed' if key not in present else 'changed'}"


def begin(plan: Plan, stored: Mapping[str, bytes]) -> None:
    """Store what an increment is made from, except what is there, and remove other files from the folders of it.

    stored: the content of what workers need besides the job, by its url.
    """
    folders = {dirname(url) for url in stored if not url.endswith(".py")}
    for url in [join(each, name) for each in folders for name in names_below(each)]:
        if url not in stored:
            remove(url)
            show(_DAMAGED.format(url))
    files = {**stored, plan.folder.plan: encode_plan(plan.files)}
    if read_job(plan.folder) is None:
        files[plan.folder.job] = encode_job(plan.job)  # the last one: with it, the increment is begun
    for url, content in files.items():
        try:
            name = url.rpartition("/")[2]
            if fingerprint({name: read_bytes(url)}) == fingerprint({name: content}):  # of some only a part matters
                continue
            show(_DAMAGED.format(url))
        except FileNotFoundError:
            pass
        write_atomically(url, content)
