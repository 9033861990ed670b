"""Append: builds what is new in the inputs as increments of a dataset, one after the other.

What is new shows in the versions of the dataset alone. An increment that was begun and not committed is finished first,
if its files are still there as they were; then the rest is the next one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from pipeline.cli.console import import_beam, show, show_owner, show_phase
from pipeline.cli.options import Options
from pipeline.cli.sources import Source, inputs_of, with_all_inputs
from pipeline.growth.increments import forget, is_unclean, planned_files, select
from pipeline.job.job_json import Job
from pipeline.job.pinning import check_appendable, pin
from pipeline.runners import runner_of
from transforms.base.errors import UserError
from transforms.base.phrases import counted
from transforms.dataset.derived import finish_commit
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Increment, Version, newest
from transforms.inputs.listing import Accepts, InputFile, Key
from transforms.storage.files import full_url
from transforms.storage.lock import Lock
from transforms.storage.writing import remove_attempts


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
    from pipeline.job.prepare import output_errors
    from pipeline.job.run import is_dry_run, parse_beam_options

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
        from pipeline.job.increment_plan import increment_of

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
        from pipeline.job.increment_plan import begin_increment, increment_of
        from pipeline.job.run import parse_beam_options, run_job
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
