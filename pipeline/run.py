"""Run: the job's graph on a runner of Beam's, with progress told, to an end that leaves nothing behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipeline.graph import build_graph
from pipeline.job import Folder, Job
from pipeline.progress import ReportProgress
from transforms.errors import InputError, UserError

# An error of ours as it stands in a worker's traceback, up to where Beam names the step.
_OUR_ERROR = re.compile(
    r"(?:transforms\.errors\.)?\b(InputError|UserError): (.*?)(?:\s*\[while running[^\]]*\]|\Z)", re.DOTALL
)


def run_job(job: Job, folder: Folder, runner: str, beam_options: Sequence[str], max_reject_fraction: float) -> None:
    """Run the job to its end. Raises InputError or UserError where a worker did, and what Beam raises else."""
    options = PipelineOptions([*beam_options, f"--runner={runner}"])
    with (
        _stopping_all_processes(),
        ReportProgress(job, folder),
        tempfile.NamedTemporaryFile("r", errors="replace") as log,
    ):
        local = _local_runner(job, options, log.name) if runner == "DirectRunner" else None
        try:
            pipeline = beam.Pipeline(local or runner, options)
            build_graph(pipeline, job, folder, max_reject_fraction)
            pipeline.run().wait_until_finish()
        except Exception as error:
            if found := list(_OUR_ERROR.finditer(f"{type(error).__name__}: {error}")):
                kind = {"InputError": InputError, "UserError": UserError}[found[-1][1]]
                raise kind(found[-1][2].strip()) from None
            sys.stderr.write(log.read())
            raise


def _local_runner(job: Job, options: PipelineOptions, log: str) -> FnApiRunner:
    """Beam's own local runner: by default a process for each core, or none where there is one split.

    Its name of DirectRunner would first try to download another, which takes no number of workers. log: the file to
    which the workers' standard error goes.
    """
    direct = options.view_as(DirectOptions)
    given = options.get_all_options(drop_default=True)
    if "direct_num_workers" not in given:
        direct.direct_num_workers = min(_cores(), job.splits)
    mode = direct.direct_running_mode
    if "direct_running_mode" not in given:
        mode = "in_memory" if direct.direct_num_workers == 1 else "multi_processing"
    if mode != "multi_processing":
        return FnApiRunner()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores are taken by the other workers
    direct.direct_running_mode = None
    # Beam's own command breaks on a path with a space, and leaves the worker running where its shell is killed.
    # What a worker has to say comes over gRPC as well; here it would only be the SDK's account of its own start.
    command = f"exec {shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main 2>>{shlex.quote(log)}"
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _stopping_all_processes() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM end this process and all it started, at once: what is written can be resumed.

    SIGINT is blocked, so that the workers, which inherit that, do not each print a traceback of their own; a thread
    waits for it.
    """

    def wait() -> None:
        signal.sigwait({signal.SIGINT})
        _stop(130)

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=wait, daemon=True).start()
    previous = signal.signal(signal.SIGTERM, lambda *_: _stop(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _stop(code: int) -> NoReturn:
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    print("\nchatmill: stopped. Run the same command again to go on from here.", file=sys.stderr, flush=True)
    os._exit(code)
