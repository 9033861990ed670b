"""Run: the job's graph on one of Beam's runners, with progress shown; a failed or stopped run can be resumed."""

from __future__ import annotations

import functools
import gc
import io
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import apache_beam as beam
import msgspec
import psutil
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions
from apache_beam.runners.runner import create_runner

from pipeline.cli.console import raise_terminated, shortened, show
from pipeline.config import Options
from pipeline.graph import budgets_of, build_graph
from pipeline.job import Job
from pipeline.progress import ReportProgress, show_plan
from pipeline.runners import known_runners, runner_of
from pipeline.temporary import remove_temporary_folder
from transforms.base.errors import CommittedMeanwhile, InputError, RejectsError, StoreError, Unavailable, UserError
from transforms.base.held import held_to
from transforms.dataset.commit import Change, is_committed
from transforms.dataset.layout import Folder
from transforms.steps.failures import failures_written_to, last_failure
from transforms.steps.reports import reports_written_to
from transforms.storage.files import exists
from transforms.storage.writing import remove

# One of our errors in a worker's traceback: up to where Beam names the step, or Python the next exception. The class is
# the one that is raised for it: the arguments of the others are not in the text.
_RAISED_AS: dict[str, type[Exception]] = {
    "CommittedMeanwhile": CommittedMeanwhile,
    "InputError": InputError,
    "RejectsError": RejectsError,
    "StoreError": InputError,
    "Unavailable": Unavailable,
    "UserError": UserError,
    "ParameterError": UserError,
}
_OUR_ERROR = re.compile(rf"\b({'|'.join(_RAISED_AS)}): (.*?)(?=\s*\[while running|\n\n|\Z)", re.DOTALL)


_ADVICE = "Run the same command again, without --overwrite, to go on from here."


def parse_beam_options(options: Options, flags: Sequence[str]) -> PipelineOptions:
    """Parse Beam's own options, and add our defaults.

    Args:
        options: our options, which name the runner.
        flags: the rest of the command line, such as `--direct_num_workers=2`.

    Raises:
        UserError: if Beam refuses an option, does not have the runner, or the runner needs something that is missing.
        Unavailable: if the runner's cluster does not answer.
    """
    runner = runner_of(options.runner)
    beam_options = runner.beam_options(options, flags, functools.partial(_parse, runner.name))
    if beam_options.view_as(TestOptions).dry_run and not runner.has_dry_run:
        names = " and ".join(known.name for known in known_runners() if known.has_dry_run)
        raise UserError(f"--dry_run: only --append and {names} have dry runs; {runner.name} would run the job.")
    return beam_options


def _parse(runner: str, flags: Sequence[str]) -> tuple[PipelineOptions, Any]:
    """Beam's options, and the runner, which is created only to check that it can be."""
    beam_options = _beam_options([*flags, f"--runner={runner}"])
    try:
        return beam_options, create_runner(runner)
    except (ValueError, ImportError, AttributeError) as error:  # the runner is Beam's, or module.Class
        raise UserError(f"--runner {runner}: {error}") from None


def _beam_options(flags: Sequence[str]) -> PipelineOptions:
    """Beam's options. Raises UserError if it refuses one."""
    beam_options, printed = PipelineOptions(flags), io.StringIO()
    try:
        with redirect_stderr(printed):
            beam_options.get_all_options()
    except SystemExit:
        raise UserError(printed.getvalue().strip().splitlines()[-1].partition("error: argument ")[2]) from None
    return beam_options


def is_dry_run(flags: Sequence[str]) -> bool:
    """Return whether Beam's own options, as arguments, ask that nothing is run. Raises UserError if it refuses one."""
    return bool(_beam_options(flags).view_as(TestOptions).dry_run)


def run_job(
    job: Job,
    folder: Folder,
    beam_options: PipelineOptions,
    options: Options,
    change: Change,
) -> tuple[str, str]:
    """Run the job until it ends, or until it is submitted.

    Args:
        job: what to build.
        folder: of the increment.
        beam_options: of parse_beam_options.
        options: of this run, beyond the job: budgets, engine, report.
        change: what its commit does.

    Returns:
        The status, and a message about it: `done` (no message); `submitted`, if the job was written as a template of
        Dataflow, for others to run; `dry_run`, if the job was only checked.

    Raises:
        InputError, UserError, Unavailable: as a worker raised it. Other errors are Beam's.
    """
    show_plan(job)
    runner = runner_of(options.runner)
    remove(folder.failures)  # of an earlier run
    template = beam_options.view_as(GoogleCloudOptions).template_location
    with (
        held_to(folder.stored(msgspec.to_builtins(job))),
        _noticing_removal(folder),
        TemporaryDirectory() if runner.has_our_workers else nullcontext() as reports,
        runner.started(job, folder, beam_options, options, reports) as beam_runner,
        stopping_all_processes() as handle_signals,
        nullcontext() if template else ReportProgress(job, folder, reports),
    ):
        pipeline = beam.Pipeline(beam_runner, beam_options)
        with failures_written_to(folder.failures), reports_written_to(reports):
            build_graph(pipeline, job, folder, budgets_of(options), options.engine, options.report, change)
        _freeze_what_is_loaded()
        gc.enable()
        with _raising_failures(folder.failures):
            result: Any = pipeline.run()
            if beam_options.view_as(TestOptions).dry_run:
                return "dry_run", "a dry run: the job could be run"
            if template:
                return "submitted", f"the job is written to {template}, for others to run"
            continuing, cancel = runner.continuing(result), functools.partial(runner.cancel, beam_options, result)
            handle_signals(None if continuing else cancel, continuing and f"{continuing} continues.")
            logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)  # the job's id and its progress
            result.wait_until_finish()
    return "done", ""


@functools.cache
def _freeze_what_is_loaded() -> None:
    """Take what stays out of all collections. Later runs of this process would add the garbage of those before them."""
    gc.freeze()


@contextmanager
def _noticing_removal(folder: Folder) -> Iterator[None]:
    """Inside, the error of a run whose folder was removed is that it was; none if another one committed the same."""
    try:
        yield
    except Exception:
        with suppress(StoreError, InputError):
            if not exists(folder.job):
                if is_committed(folder):
                    return
                raise UserError(
                    f"{folder.output}: it was removed during the build. Run the same command again."
                ) from None
        raise


@contextmanager
def _raising_failures(failures: str) -> Iterator[None]:
    """Inside, an error of a worker that is meant for the user is raised in place of the runner's error."""
    try:
        yield
    except Exception as error:
        if failure := failure_of(error, failures):
            raise failure from None
        raise


def failure_of(error: Exception, failures: str) -> Exception | None:
    """Return the error of a worker that made a run fail, if it is meant for the user: from its file, or from the text.

    Args:
        error: that the runner raised.
        failures: the url of the folder of failures of the run.
    """
    text = f"{type(error).__name__}: {error}"
    found = _OUR_ERROR.search(text)
    # A traceback without such an error: the run failed because of another one, and the file is of an earlier attempt.
    if (found or "Traceback" not in text) and (failure := last_failure(failures)):
        return failure
    return _RAISED_AS[found[1]](found[2].strip()) if found else None


_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
# For so long a process that was stopped waits for a cluster that is to cancel the job: longer than for one answer.
_SECONDS_TO_CANCEL = 12.0


@contextmanager
def stopping_all_processes() -> Iterator[Callable[[Callable[[], None] | None, str | None], None]]:
    """Inside, Ctrl-C and SIGTERM end this process and all that it started at once; the run can be resumed.

    A cluster that does not answer delays the end by some seconds at most.

    Without it, Beam would wait for its workers. A signal that is ignored, as in the background of a shell, stays
    ignored, and one that the caller handles is left to it.

    Yields:
        A function that installs the handlers again, because a runner may have installed its own. Its arguments are
        what cancels the job, if it runs elsewhere, and the message about a job that does not end with this process.
    """
    previous = {number: signal.getsignal(number) for number in _EXIT_CODES}

    def handle(cancel: Callable[[], None] | None, continuing: str | None) -> None:
        for number, code in _EXIT_CODES.items():
            if previous[number] in (signal.SIG_DFL, signal.default_int_handler, raise_terminated):
                signal.signal(number, functools.partial(_stop, code, cancel, continuing))

    handle(None, None)
    try:
        yield handle
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _stop(code: int, cancel: Callable[[], None] | None, continuing: str | None, *_: object) -> NoReturn:
    for number in _EXIT_CODES:  # they are sent again
        signal.signal(number, signal.SIG_IGN)
    _silence_threads()
    if cancel and (error := _error_within(_SECONDS_TO_CANCEL, cancel)):  # before a job server ends, which may do it
        continuing = f"the job could not be cancelled: {shortened(str(error))}"
    _kill_children()
    show(f"stopped. {f'Only this launcher: {continuing}' if continuing else _ADVICE}")
    os._exit(code)


def _error_within(seconds: float, ask: Callable[[], None]) -> Exception | None:
    """Call what asks a cluster or a store. Returns its error, that it gave no answer in time, or None.

    It runs in a thread: the code that a signal interrupted may hold locks that it waits for.
    """
    error: Exception | None = Unavailable(f"no answer within {seconds:.0f} seconds.")

    def run() -> None:
        nonlocal error
        try:
            ask()
            error = None
        except Exception as raised:  # whatever it is, the process is to end
            error = raised

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return error


def _silence_threads() -> None:
    """Show no errors of threads: Beam's lose their connections, as other processes end. Nothing restores it."""
    threading.excepthook = lambda _: None
    logging.disable()


def _kill_children() -> None:
    """Kill all processes that this one started, and remove their temporary files, and those of this one."""
    _silence_threads()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    remove_temporary_folder()
