"""Run: the job's graph on a runner of Beam's, with progress told, to an end that leaves nothing behind."""

from __future__ import annotations

import functools
import gc
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from typing import Any, NoReturn

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import (
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
    TestOptions,
)
from apache_beam.runners.runner import create_runner

from pipeline.graph import build_graph
from pipeline.job import Job
from pipeline.options import Options
from pipeline.progress import ReportProgress
from pipeline.runners.dataflow import check_dataflow
from pipeline.runners.flink import FlinkJob, flink_defaults
from pipeline.runners.local import killer_of_a_worker, local_runner
from transforms.dataset.layout import Folder
from transforms.errors import InputError, Unavailable, UserError

# An error of ours as it stands in a worker's traceback: up to where Beam names the step, or Python the next exception.
_OUR_ERROR = re.compile(r"\b(Input|Store|User|Parameter)Error: (.*?)(?=\s*\[while running|\n\n|\Z)", re.DOTALL)


def beam_options(asked: Options, flags: Sequence[str]) -> PipelineOptions:
    """Beam's options of the flags, with defaults of ours.

    Raises UserError where Beam does not take one, has no such runner, or that one is not there.
    """
    runner = asked.runner
    # Beam's default of one worker cannot be told from a user's; 0 are as many as are of use here.
    defaults = ["--direct_num_workers=0"] if runner == "DirectRunner" else []
    options, made = _checked([*defaults, *flags, f"--runner={runner}"], runner)
    on_cluster = runner == "DataflowRunner"
    if (workers := options.view_as(DirectOptions).direct_num_workers) < 0:
        raise UserError(f"--direct_num_workers {workers}: expected 1 or more, or 0, which chooses.")
    if runner == "DirectRunner" and not any(flag.startswith("--direct_running_mode") for flag in flags):
        options.view_as(DirectOptions).direct_running_mode = None
    elif runner == "DataflowRunner":
        check_dataflow(asked, options, made)
    elif runner == "FlinkRunner":
        defaults = flink_defaults(options, flags, asked.output)
        options, _ = _checked([*defaults, *flags, f"--runner={runner}"], runner)
        on_cluster = FlinkJob.to_submit(options) is not None
    if asked.detach and not on_cluster:
        raise UserError("--detach needs a cluster: --runner FlinkRunner with --flink_master, or DataflowRunner.")
    if options.view_as(TestOptions).dry_run and runner != "DataflowRunner":
        raise UserError(f"--dry_run: only DataflowRunner has dry runs; {runner} would run the job.")
    if options.view_as(TestOptions).dry_run and asked.overwrite:
        raise UserError("--dry_run: with --overwrite it would remove what is there. Leave one of the two out.")
    return options


def _checked(flags: Sequence[str], runner: str) -> tuple[PipelineOptions, Any]:
    options, said = PipelineOptions(flags), io.StringIO()
    try:
        with redirect_stderr(said):
            options.get_all_options()
            return options, create_runner(runner)
    except SystemExit:
        raise UserError(said.getvalue().strip().splitlines()[-1].partition("error: argument ")[2]) from None
    except (ValueError, ImportError) as error:
        raise UserError(f"--runner {runner}: {error}") from None


def run_job(job: Job, folder: Folder, options: PipelineOptions, asked: Options) -> tuple[str, str]:
    """Run the job to its end. Raises InputError or UserError where a worker did, and what Beam raises else.

    Returns what has become of it, and more of that in words: done; submitted, which a cluster runs; dry_run, which
    nobody does.
    """
    runner = options.view_as(StandardOptions).runner
    on_flink = None
    if runner == "FlinkRunner":
        on_flink, flink = FlinkJob.to_submit(options), options.view_as(FlinkRunnerOptions)
        flink.parallelism = min(flink.parallelism, job.splits)
    template = options.view_as(GoogleCloudOptions).template_location
    by: Any = local_runner(job, folder, options, asked) if runner == "DirectRunner" else runner
    pipeline = beam.Pipeline(by, options)
    with (
        _stopping_all_processes(on_flink.cancel if on_flink else None) as handle_stops,
        nullcontext() if asked.detach or template else ReportProgress(job, folder),
    ):
        try:
            build_graph(pipeline, job, folder, asked.max_reject_fraction, asked.engine)
            gc.freeze()  # what is there by now stays
            gc.enable()
            result: Any = pipeline.run()
            if options.view_as(TestOptions).dry_run:
                return "dry_run", "a dry run: the job could be run"
            if template:
                return "submitted", f"the job is written to {template}, for others to run"
            handle_stops(f"job {result.job_id()} goes on, on Dataflow." if runner == "DataflowRunner" else None)
            if asked.detach:
                place = on_flink.page_when_there(result) if on_flink else f"{runner}, job {result.job_id()}"
                return "submitted", f"submitted: {place}\n{folder.success} is there when the dataset is whole."
            logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)  # the job's id, and how it goes
            result.wait_until_finish()
            return "done", ""
        except Exception as error:
            if found := _OUR_ERROR.search(f"{type(error).__name__}: {error}"):
                raise (UserError if found[1] in ("User", "Parameter") else InputError)(found[2].strip()) from None
            if killer := killer_of_a_worker():
                why = ", as a system does that is short of memory: give fewer --direct_num_workers then"
                raise Unavailable(
                    f"a worker was ended by {killer}{why if killer == 'SIGKILL' else ''}. What is done is kept: run "
                    "the same command again, without --overwrite."
                ) from None
            raise


@contextmanager
def _stopping_all_processes(cancel: Callable[[], None] | None) -> Iterator[Callable[[str | None], None]]:
    """Inside, Ctrl-C and SIGTERM end this process and all it started, at once: what is written can be resumed.

    cancel: ends what runs elsewhere. Beam would wait for its workers instead. What is ignored, as in the background of
    a shell, stays ignored. What is yielded sees to it again, where a runner has put a handler of its own in the place;
    it takes what to say of a job that is not ended with this process.
    """
    stopping = {signal.SIGINT: 130, signal.SIGTERM: 143}
    before = {number: signal.getsignal(number) for number in stopping}

    def handle(left: str | None) -> None:
        for number, code in stopping.items():
            if before[number] != signal.SIG_IGN:
                signal.signal(number, functools.partial(_stop, code, cancel, left))

    handle(None)
    try:
        yield handle
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(code: int, cancel: Callable[[], None] | None, left: str | None, *_: object) -> NoReturn:
    threading.excepthook = lambda _: None  # of Beam's threads, which lose what they talk to
    if cancel:
        try:
            cancel()
        except (Unavailable, UserError) as error:
            left = f"the job could not be cancelled: {error}"
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    then = (
        f"Only this launcher: {left}"
        if left
        else "Run the same command again, without --overwrite, to go on from here."
    )
    print(f"chatmill: stopped. {then}", file=sys.stderr, flush=True)
    os._exit(code)
