"""Append: builds what is new in the inputs as increments of a dataset, one after the other.

What is new shows in the versions of the dataset alone. An increment that was begun and not committed is finished first,
if its files are still there as they were; then the rest is the next one.
"""

from __future__ import annotations

import functools
import gc
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pipeline.cli.console import import_beam, show, show_owner, show_phase
from pipeline.config import Options
from pipeline.job import Job, differences, differences_without_inputs, job_of, job_sources, mix_of, read_job
from pipeline.plan import forget, is_unclean, planned_files, select
from pipeline.recipe import Source, inputs_of, with_all_inputs
from pipeline.runners import runner_of
from transforms.base.errors import UserError
from transforms.base.phrases import counted
from transforms.dataset.derived import finish_commit
from transforms.dataset.layout import Folder, check_format, check_free, check_no_links
from transforms.dataset.versions import Increment, Version, newest
from transforms.inputs.listing import Accepts, InputFile, Key
from transforms.storage.files import exists, full_url
from transforms.storage.lock import Lock
from transforms.storage.writing import remove_attempts


def append_every(seconds: int, folder: Folder, append: Callable[[Accepts], Appended]) -> Appended:
    """Append what has settled since the look before, until SIGTERM, which ends it after the current increment.

    Args:
        seconds: from one look at the inputs to the next.
        folder: of the dataset.
        append: appends those files that a function accepts. What it raises ends this.

    Returns:
        The last append, with the increments of all of them; or the first one whose job does not end in this process.
    """
    before: dict[Key, str] = {}
    now = {file.key: file.version for id in folder.begun() for file in planned_files(Folder(folder.output, id))}
    increments: list[Increment] = []
    signals: list[int] = []

    def has_settled(key: Key, version: str) -> bool:
        now[key] = version
        return before.get(key) == version

    def stop(number: int, _: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
        show("stopping after the current increment")

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            next_look, before, now = time.monotonic() + seconds, now, {}
            appended = append(has_settled)
            increments += appended.increments
            gc.collect()  # a graph is full of cycles, and holds what it read
            while not signals and time.monotonic() < next_look:
                time.sleep(0.2)
            if signals or appended.status not in ("done", "nothing_new"):
                return appended._replace(increments=tuple(increments))
    finally:
        signal.signal(signal.SIGTERM, previous)


class Appended(NamedTuple):
    """What became of an append.

    status: done, nothing_new, or, if the job does not end in this process, submitted or dry_run.
    manifest: of the newest version; None if there is none, or if the job does not end in this process.
    increments: those that were added.
    """

    status: str
    manifest: dict[str, Any] | None
    increments: tuple[Increment, ...] = ()


def append(
    options: Options,
    sources: Sequence[Source],
    beam_flags: Sequence[str] = (),
    accepts: Accepts | None = None,
) -> Appended:
    """Add what is new in the inputs to a dataset; if there is none yet, it begins. A dry run only says what is new.

    Args:
        options: of the build.
        sources: of read_sources.
        beam_flags: options of Beam, as arguments.
        accepts: which files may be added, if some may be still to come: then one increment is built, and the others
            later; None if all are there.

    Raises:
        UserError: if the options cannot be met, or are not those of the dataset; or if a file changed.
        InputError: if an input cannot be read, or a budget is exceeded. What was committed before stays.
        Unavailable: if a store or a cluster does not answer.
    """
    folder = Folder(full_url(options.output))
    version = check_appendable(folder, options, sources)
    if accepts is None:
        show_phase("listing the input")
    taken = version.taken() if version else {}

    def is_to_add(key: Key, now: str) -> bool:
        return accepts is not None and accepts(key, now) and now not in taken.get(key, ())

    listed = inputs_of(sources, folder, accepts=accepts and is_to_add)
    new = select(listed, version, options.on_changed_file, sources)
    if not (new or is_unclean(folder, version)):
        return Appended("nothing_new", _manifest(version))
    for_runner = with_all_inputs(options, sources)
    import_beam()
    from pipeline.prepare import output_errors
    from pipeline.run import is_dry_run, parse_beam_options

    runner = runner_of(options.runner)
    if not runner.has_dry_run and is_dry_run(beam_flags):
        if not new:
            return Appended("nothing_new", _manifest(version))
        show(f"a dry run: {counted(len(new), 'file')} would be added, the first of them {new[0].url}")
        return Appended("dry_run", None)
    parse_beam_options(for_runner, beam_flags)  # checks them
    with Lock(folder.lock, options.output) as lock:
        with output_errors(options):
            was_held = lock.take(show_owner)
        if was_held:
            # What another one took meanwhile may have changed since.
            listed = inputs_of(sources, folder, accepts=accepts and is_to_add)
        growth = _Growth(options, sources, beam_flags, folder, listed)
        return growth.run(builds_one=accepts is not None)


class _Growth:
    """Builds increments, while the folder is locked."""

    def __init__(
        self,
        options: Options,
        sources: Sequence[Source],
        beam_flags: Sequence[str],
        folder: Folder,
        listed: Sequence[InputFile],
    ):
        self._options = options
        self._sources = sources
        self._beam_flags = beam_flags
        self._folder = folder
        self._listed = listed

    def run(self, builds_one: bool) -> Appended:
        """Build the next increment, or all of them."""
        before = version = check_appendable(self._folder, self._options, self._sources)
        self._repair(before)
        job = None
        while new := self._new(self._listed, version):
            job = job or self._pinned(new, version)
            status = self._build(job, self._unfinished(job, version) or new, version)
            if status != "done":
                return Appended(status, None)
            version = newest(self._folder)
            if builds_one:
                break
        forget(self._folder, self._folder.begun())
        increments = version.increments if version else []
        added = tuple(each for each in increments if not (before and before.has(each.id)))
        return Appended("done" if job else "nothing_new", _manifest(version), added)

    def _new(self, files: Sequence[InputFile], version: Version | None) -> list[InputFile]:
        return select(files, version, self._options.on_changed_file, self._sources)

    def _repair(self, version: Version | None) -> None:
        """Complete what one that was killed did not, after its commit or before."""
        if is_unclean(self._folder, version):
            remove_attempts(self._folder.output)
        if version:
            finish_commit(self._folder, version, self._options.report)

    def _pinned(self, new: Sequence[InputFile], version: Version | None) -> Job:
        return pin(self._options, self._sources, new, self._folder, version)

    def _unfinished(self, job: Job, version: Version | None) -> list[InputFile]:
        """The files of an increment that was begun, if they are all there unchanged, and new; none if there is none."""
        from pipeline.plan import increment_of

        listed = {file.key: file.version for file in self._listed}
        for id in self._folder.begun():
            files = planned_files(Folder(self._folder.output, id))
            if any(listed.get(file.key) != file.version for file in files):
                continue
            try:
                new = self._new(files, version)
            except UserError:
                continue
            if files and new == files and increment_of(job, files)[0] == id:
                return files
        return []

    def _build(self, job: Job, files: list[InputFile], version: Version | None) -> str:
        """Build an increment of some files. Returns the status of its run. version: the newest one."""
        from pipeline.plan import begin_increment, increment_of
        from pipeline.run import parse_beam_options, run_job
        from transforms.dataset.commit import Change

        id, of_increment = increment_of(job, files)
        folder = Folder(self._folder.output, id)
        forget(self._folder, [other for other in self._folder.begun() if other != id])
        begin_increment(folder, of_increment, files)
        for_runner = with_all_inputs(self._options, self._sources)
        status, message = run_job(
            of_increment,
            folder,
            parse_beam_options(for_runner, self._beam_flags),  # a run sets its number of workers there
            for_runner,
            Change(version.number, "append") if version else Change(),
        )
        if message:
            print(f"chatmill: {message}", file=sys.stderr)
        return status


def _manifest(version: Version | None) -> dict[str, Any] | None:
    return version.manifest() if version else None


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
    from pipeline.prepare import at_the_time_of, output_errors, read_materials, resolve, store, stored_materials

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
