"""Pinning: the job of a dataset that is appended to. All of the dataset has the same options."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from pipeline.cli.options import Options
from pipeline.cli.sources import Source
from pipeline.job.job_json import Job, differences, differences_without_inputs, job_of, job_sources, mix_of, read_job
from transforms.base.errors import UserError
from transforms.dataset.layout import Folder, check_format, check_free, check_no_links
from transforms.dataset.versions import Version, newest
from transforms.inputs.listing import InputFile
from transforms.storage.files import exists


def pin(
    options: Options,
    sources: Sequence[Source],
    new: Sequence[InputFile],
    folder: Folder,
    version: Version | None,
) -> Job:
    """Return the job of a dataset to append to, which the options must agree with, and store what workers need.

    Args:
        options: of the build.
        sources: of read_sources.
        new: the files to add, whose first records are looked at before the first commit.
        folder: of the dataset.
        version: the newest one; None if there is none.

    Raises:
        UserError: if the options cannot be met, or are not those of the dataset.
        Unavailable: if a store does not answer.
    """
    from pipeline.job.prepare import at_the_time_of, output_errors, read_materials, resolve, store, stored_materials

    materials = read_materials(options, sources)
    with output_errors(options):
        check_free(folder)
        # Later, nobody could follow an advice on the first records: the build rejects what does not fit.
        job, warnings = resolve(options, sources, [] if version else new, materials)
        if version:
            before = job_of(folder, version)
            if changed := [*differences(before, at_the_time_of(before, job, options))]:
                raise _other_options(folder, changed)
            job = before
        else:
            for id in folder.begun():
                job = at_the_time_of(read_job(Folder(folder.output, id)), job, options)
        store(stored_materials(folder, materials), warns=bool(version))
    if version and options.dedup != "none":
        text = f"--dedup {options.dedup}: new records are compared with each other, not with those that are there"
        print(f"chatmill: {text}", file=sys.stderr)
    for warning in warnings:
        _show(warning)
    return job


@functools.lru_cache(64)
def _show(warning: str) -> None:
    """Print a warning, once for all increments that this process adds."""
    print(f"chatmill: {warning}", file=sys.stderr)


def check_appendable(folder: Folder, options: Options, sources: Sequence[Source]) -> Version | None:
    """Check that a folder is free, or has a dataset that can be appended to.

    Args:
        folder: of the dataset.
        options: of the build.
        sources: of read_sources.

    Returns:
        The newest version; None if there is none.

    Raises:
        UserError: if it has a dataset that cannot be appended to, or one that was begun with other options; or if a
            folder of it is a link.
        InputError: if the version is damaged.
    """
    check_no_links(folder)
    if (mix := mix_of(options, job_sources(sources, {}))) and mix.shares_out:
        raise UserError(
            "weight, max_examples, max_tokens and mix_tokens count the records of one build, and an append does not "
            "count those that are there. Build all inputs in one, or leave them out."
        )
    version = newest(folder)
    if version is None:
        check_format(folder)
        if exists(folder.manifest):
            raise UserError(
                f"{folder.output}: its versions are missing, so it cannot be appended to. Copy its folder _chatmill, "
                "too."
            )
    elif changed := [*differences_without_inputs(job_of(folder, version), options, sources)]:
        raise _other_options(folder, changed)
    return version


def _other_options(folder: Folder, changed: Sequence[str]) -> UserError:
    return UserError(
        f"{folder.output} holds a dataset that was begun with other options or libraries: {'; '.join(changed)}. All of "
        "it has the same ones: use those, or give another --output."
    )
