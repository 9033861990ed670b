"""Pinning: the job of a dataset that grows. It is stored once, and all of the dataset has the same options."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import msgspec

from pipeline.job import Job, differences, differences_without_inputs, encode_job, read_job
from pipeline.options import Options
from pipeline.runners.fork_server import ForkServer
from pipeline.sources import Source
from transforms.dataset.layout import Folder, check_free, check_no_links
from transforms.dataset.log import Log
from transforms.dataset.snapshot import Snapshot
from transforms.errors import UserError
from transforms.inputs.listing import InputFile
from transforms.storage.files import exists
from transforms.storage.writing import remove


def pin(
    options: Options,
    sources: Sequence[Source],
    new: Sequence[InputFile],
    server: ForkServer | None,
    folder: Folder,
    snapshot: Snapshot,
    is_begun: Callable[[Job], bool],
) -> Job:
    """Return the job of a dataset, which the options must agree with. Before the first commit it is stored.

    Args:
        options: of the build.
        sources: of read_sources.
        new: the files to add, whose first records are looked at before the first commit.
        server: loads the tokenizer for the workers at the same time.
        folder: of the dataset.
        snapshot: the newest one.
        is_begun: whether something was begun under a job with the same options, so that it stays.

    Raises:
        UserError: if the options cannot be met, or are not those of the dataset.
        Unavailable: if a store does not answer.
    """
    from pipeline.prepare import output_errors, read_materials, resolve, store, stored_materials

    materials = read_materials(options, sources, server)
    with output_errors(options):
        check_free(folder)
        # Later, nobody could follow an advice on the first records: the build rejects what does not fit.
        job, warnings = resolve(options, sources, [] if snapshot.version else new, materials)
        before = read_job(folder)
        if before and job.now and options.now is None:
            job = msgspec.structs.replace(job, now=before.now)
        changed = [*differences(before, job)] if before else []
        if snapshot.version and changed:
            raise _other_options(folder, changed)
        keeps = before if snapshot.version or (before and not changed and is_begun(before)) else None
        if not keeps:
            for url in folder.work_parts():
                remove(url)
        stored = stored_materials(folder, materials) | {folder.job: encode_job(keeps or job)}
        store(folder, stored, warns=keeps is not None)
    for warning in warnings:
        _show(warning)
    return keeps or job


@functools.lru_cache(64)
def _show(warning: str) -> None:
    """Print a warning, once for all increments that this process adds."""
    print(f"chatmill: {warning}", file=sys.stderr)


def check_appendable(folder: Folder, options: Options, sources: Sequence[Source]) -> None:
    """Check that a folder is free, or has a dataset that can grow.

    Args:
        folder: of the dataset.
        options: of the build.
        sources: of read_sources.

    Raises:
        UserError: if it has a dataset that cannot grow, or one that was begun with other options; or a folder of it is
            a link.
        InputError: if the log, or the list of the inputs of a dataset that did not grow yet, is damaged.
    """
    check_no_links(folder)
    Log(folder).check_growable()
    if not exists(folder.log) and not exists(folder.success):
        if exists(folder.plan):
            raise UserError(
                f"{folder.output} holds an unfinished dataset that was begun without --append. Finish it with the "
                "command that began it, or give another --output."
            )
        return
    job = read_job(folder)
    if job is None:
        raise UserError(
            f"{folder.job}: it is missing or damaged, so that it is not known how the dataset was built. Copy it again."
        )
    if changed := [*differences_without_inputs(job, options, sources)]:
        raise _other_options(folder, changed)


def _other_options(folder: Folder, changed: Sequence[str]) -> UserError:
    return UserError(
        f"{folder.output} holds a dataset that was begun with other options or libraries: {'; '.join(changed)}. All of "
        "it has the same ones: use those, or give another --output."
    )
