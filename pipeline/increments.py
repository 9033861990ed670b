"""Increments: built one after the other while the dataset is locked, each as a job on one of Beam's runners.

Nothing of a dataset that is there is changed before a commit: it is read until then, and if the build fails.
"""

from __future__ import annotations

import functools
import gc
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from tempfile import TemporaryDirectory
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions

from pipeline.cli.console import show, show_owner
from pipeline.existing import check_same, discard_unfinished, output_errors, read_base
from pipeline.graph import build_graph
from pipeline.inputs import left_out, list_files, select_new
from pipeline.job import Outcome, Request, version_job, with_clock
from pipeline.plan import Plan, begin, make_plan, with_plan
from pipeline.prepare import Prepared, prepare
from pipeline.progress import ReportProgress, show_plan
from pipeline.runners.runner import is_dry_run
from pipeline.stopping import stopping_all_processes
from transforms.base.errors import InputError, StoreError, Unavailable, UserError
from transforms.dataset.commit import is_committed
from transforms.dataset.derived import finish_commit
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Change, Version, builds, newest
from transforms.files.listing import Accepts, InputFile
from transforms.steps.failures import failures_written_to, last_failure
from transforms.steps.reports import progress_written_to
from transforms.storage.files import exists
from transforms.storage.lock import locked
from transforms.storage.writing import remove, remove_attempts

# The errors that are meant for the user, and what Beam adds to their texts.
_OURS = (InputError, StoreError, Unavailable, UserError)
_BEAM_STEP = " [while running '"
# One of them in the text of a runner's error, which has no more of it than its name and its text.
_IN_TEXT = re.compile(rf"transforms\.base\.errors\.\w+: (.+?)(?:{re.escape(_BEAM_STEP)}|\n|$)")


def build_increments(
    request: Request, version: Version | None, files: list[InputFile], accepts: Accepts | None
) -> Outcome:
    """Build what a dataset does not have yet: all of it, or with --append one increment after the other.

    Args:
        request: what to do.
        version: the newest one; None if there is none.
        files: the inputs; with --append alone they are listed by now.
        accepts: which files may be added, if some may be still to come; None if all are there.
    """
    options, folder = request.options, request.folder
    request.runner.beam_options(request)  # checks them
    files = files if options.append else list_files(request, version)
    new, status = select_new(request, files, version), "nothing_new"
    prepared = prepare(request, version, new) if new else None
    with ExitStack() as stack:
        with output_errors(options):
            was_held = stack.enter_context(locked(folder.lock, options.output, show_owner if options.append else None))
            remove_attempts(folder.output)
            version = base = read_base(request)
            if options.append and version:
                finish_commit(folder, version, options.report)
        if was_held:  # what another one took meanwhile may have changed since
            files = list_files(request, version, accepts)
        while new := select_new(request, files, version):
            prepared = prepared or prepare(request, version, new)
            with output_errors(options):
                plan = _begin(request, version, prepared, new)
            if isinstance(plan, Outcome):
                return plan
            status = _run(request, plan, version)
            if status != "done":
                return Outcome(status)
            version = newest(folder)
            if accepts or not options.append:
                break
        discard_unfinished(folder, folder.begun())
    added = [each for each in version.increments if not (base and base.has(each.id))] if version else []
    return Outcome(status, version, tuple(added))


def _begin(request: Request, version: Version | None, prepared: Prepared, files: list[InputFile]) -> Plan | Outcome:
    """Begin an increment of some files, or find one that was begun; another run may have finished the dataset."""
    options, folder = request.options, request.folder
    job, warnings = prepared.job, [*prepared.warnings]
    if options.append and version:
        before = version_job(folder, version)
        check_same(folder, before, with_clock(job, before, options))
        job = with_plan(before, files)
        if options.dedup != "none":
            text = "new records are compared with each other, not with those that are there"
            warnings.append(f"--dedup {options.dedup}: {text}")
    elif files != prepared.files:
        job = with_plan(job, files)
    taken = {increment.id for build in builds(folder, version) for increment in build.increments}
    plan = make_plan(request, version, job, files, taken)
    if isinstance(plan, Outcome):
        return plan
    if version and not options.append and (lost := left_out(version, files, options.output)):
        warnings.append(lost)
    for warning in warnings:
        request.warn(warning)
    discard_unfinished(folder, [other for other in folder.begun() if other != plan.folder.increment])
    begin(plan, prepared.stored)
    return plan


def _run(request: Request, plan: Plan, version: Version | None) -> str:
    """Run the job of an increment until it ends, or until it is submitted. version: on which it is planned.

    Returns `done`; `submitted`, if the job was written as a template of Dataflow, for others to run; or `dry_run`.
    """
    folder, job, runner = plan.folder, plan.job, request.runner
    change = Change(version.number, "append" if request.options.append else "build") if version else Change()
    beam_options = runner.beam_options(request)  # the runner may set what depends on the job
    show_plan(job)
    remove(folder.failures)  # of an earlier run
    template = beam_options.view_as(GoogleCloudOptions).template_location
    with (
        _raising_failures(folder),
        TemporaryDirectory() if runner.has_our_workers else nullcontext() as reports,
        runner.started(request, plan, beam_options, reports) as beam_runner,
        stopping_all_processes() as handle_signals,
        nullcontext() if template else ReportProgress(job, folder, reports),
    ):
        pipeline = beam.Pipeline(beam_runner, beam_options)
        with failures_written_to(folder.failures), progress_written_to(reports):
            build_graph(pipeline, plan, request.options, change)
        _freeze_what_is_loaded()
        gc.enable()
        result: Any = pipeline.run()
        if is_dry_run(beam_options):
            show("a dry run: the job could be run")
            return "dry_run"
        if template:
            show(f"the job is written to {template}, for others to run")
            return "submitted"
        continuing, cancel = runner.continuing(result), functools.partial(runner.cancel, beam_options, result)
        handle_signals(None if continuing else cancel, continuing and f"{continuing} continues.")
        logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)  # the job's id and its progress
        result.wait_until_finish()
    return "done"


@functools.cache
def _freeze_what_is_loaded() -> None:
    """Take what stays out of all collections. Later runs of this process would add the garbage of those before them."""
    gc.freeze()


@contextmanager
def _raising_failures(folder: Folder) -> Iterator[None]:
    """Inside, an error of a worker that is meant for the user is raised in place of the runner's error.

    On this machine it is what the runner's error was raised for. A runner elsewhere has at most its text: the error is
    read from its file, and from the text if the store of the output did not take the file. The error of a run whose
    folder was removed is that it was; there is none if another run committed the same.
    """
    try:
        yield
    except Exception as error:
        with suppress(StoreError, InputError):
            if not exists(folder.job):
                if is_committed(folder):
                    return
                raise UserError(
                    f"{folder.output}: it was removed during the build. Run the same command again."
                ) from None
        if own_error := _find_error(error):
            raise own_error from None
        failure, text = last_failure(folder.failures), str(error)
        # A traceback without it: the run failed because of another error, and this one is of an earlier attempt.
        if failure and ("Traceback" not in text or type(failure).__name__ in text):
            raise failure from None
        if shown := _IN_TEXT.search(text):
            raise InputError(shown[1]) from None
        raise


def _find_error(error: BaseException | None) -> BaseException | None:
    """The error of ours for which another one was raised, without what Beam adds to its text; None if there is none."""
    while error and not (isinstance(error, _OURS) and _BEAM_STEP not in str(error)):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error
