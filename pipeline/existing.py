"""Existing: what is in the output of a run: a version, increments that were begun, and what killed runs have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import msgspec

from pipeline.cli.console import show
from pipeline.config import Options, RowOptions
from pipeline.job import Job, Outcome, Request, differences, job_sources, tokenizer_name, version_job
from pipeline.tokenizer import read_tokenizer_files
from transforms.base.errors import ParameterError, StoreError, UserError
from transforms.base.options import option_values
from transforms.dataset.derived import finish_commit, is_stale
from transforms.dataset.layout import Folder, check_format, check_free, check_no_links, is_alive, last_written
from transforms.dataset.versions import Version, check_not_lost, newest
from transforms.files.listing import InputFile
from transforms.files.tasks import decode_plan
from transforms.storage.files import exists, read_bytes
from transforms.storage.lock import locked
from transforms.storage.writing import remove, remove_attempts, remove_if_empty
from transforms.tokens.tokenizer_files import fingerprint


@contextmanager
def output_errors(options: Options) -> Iterator[None]:
    """Inside, what the store of the output refuses is an error of --output."""
    try:
        yield
    except StoreError as error:
        raise error.as_user_error(f"--output {options.output}: it cannot be written ({error.reason}).") from None


def read_base(request: Request) -> Version | None:
    """Return the newest version of the dataset, which a run changes; None if there is none.

    Raises:
        UserError: if what is in the folder cannot be changed by these options.
        InputError: if the version is damaged, or a later one was lost.
    """
    options, folder = request.options, request.folder
    if options.append:
        check_no_links(folder)
    try:
        version = newest(folder)
    except StoreError:
        with suppress(StoreError):
            check_free(folder, options.overwrite)
        raise
    if version is None and not options.overwrite:
        check_format(folder)
        if exists(folder.manifest):
            raise UserError(f"{folder.output}: its versions are missing. Copy its folder _chatmill, too.")
    if version and not options.overwrite:
        check_not_lost(folder, version)
    if version and options.append:
        job = version_job(folder, version)
        check_same(folder, job, _with_options(job, request))
    return version


def check_same(folder: Folder, before: Job, now: Job) -> None:
    """Raise UserError if a dataset cannot be appended to, since its job is another one."""
    if changed := differences(before, now):
        raise UserError(
            f"{folder.output} holds a dataset that was begun with other options or libraries: {'; '.join(changed)}. "
            "All of it has the same ones: use those, or give another --output."
        )


def finish(request: Request, version: Version) -> Outcome:
    """Say that a dataset is finished, and do what a build that was killed after its commit has left.

    Raises UserError if it was built with other options.
    """
    options, folder = request.options, request.folder
    job = version_job(folder, version)
    if changed := differences(job, _with_options(job, request), with_inputs=True):
        raise UserError(
            f"{folder.output} holds a finished dataset that was built with other options: {'; '.join(changed)}. "
            "Give another --output, or --overwrite to replace it."
        )
    show(
        f"{folder.output} is finished already. Use --append to add what is new in the inputs, or --overwrite to build "
        "it again."
    )
    if is_unclean(folder, version):
        check_no_links(folder)
        # Unless a build replaces the dataset now.
        with suppress(ParameterError), locked(folder.lock, options.output):
            remove_attempts(folder.output)
            finish_commit(folder, version, options.report)
    return Outcome("done_before", version)


def _with_options(job: Job, request: Request) -> Job:
    """A job with what options say, as far as that shows without the inputs and what is stored with them."""
    options, sources = request.options, request.sources
    name, template = tokenizer_name(options.tokenizer), options.chat_template
    return msgspec.structs.replace(
        job,
        options=RowOptions(**option_values(RowOptions, options)),
        now=options.now or job.now,
        tokenizer=job.tokenizer if name == job.tokenizer_name else fingerprint(read_tokenizer_files(name)),
        tokenizer_name=name,
        chat_template=None if template is None else job.chat_template or template,
        sources=job_sources(sources, {number: source.formatter for number, source in enumerate(job.sources)}),
    )


def planned_files(folder: Folder) -> list[InputFile]:
    """Return the inputs of an increment that was begun; none if their list is missing or damaged."""
    try:
        return decode_plan(read_bytes(folder.plan))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return []


def begun_since_commit(folder: Folder, version: Version | None) -> list[str]:
    """Return the ids of the increments that are worked on since the newest commit; others were given up for it."""
    since = datetime.fromisoformat(version.time).timestamp() if version else 0.0
    return [id for id in folder.begun() if last_written(Folder(folder.output, id)) >= since]


def discard_unfinished(folder: Folder, begun: Iterable[str]) -> None:
    """Discard increments that were begun, unless they may be being built. Their files stay until `expire`."""
    for begun_folder in (Folder(folder.output, id) for id in begun):
        if not is_alive(begun_folder):
            remove(begun_folder.work)
    remove_if_empty(folder.building)


def is_unclean(folder: Folder, version: Version | None) -> bool:
    """Return whether a process that was killed left something that is to be removed or written again."""
    if exists(folder.lock) or (version and is_stale(folder, version)):
        return True
    return any((version and version.has(id)) or not is_alive(Folder(folder.output, id)) for id in folder.begun())
