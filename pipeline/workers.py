"""Workers: the processes of this machine that apply the steps of a build, which Beam's in-memory runner drives.

A new process needs some seconds to import Beam and transformers and to load the tokenizer. A fork has all that already,
and shares its memory; it must be made before the launcher has threads. The client of a store has threads, and a
formatter may initialize what no fork can use (CUDA): then workers are forks of Python's fork server, a process that has
loaded the same, and nothing else.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import fork_server
from pipeline.cli.console import quiet_libraries, show_phase
from transforms.base.cores import cores
from transforms.base.errors import WorkerDied
from transforms.steps.reports import read_place
from transforms.steps.workers import worker_pool
from transforms.tokens.fast_encoder import WORTH_LOADING, load_fast_encoder
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.tokenizer_files import read_tokenizer_folder

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipeline.job import Request
    from pipeline.plan import Plan

# Beam's name of its local runner. `DirectRunner` would first try to download another one.
_RUNNER = "FnApiRunner"
# Bytes of input from which on several workers are worth the time that it takes to start them.
_WORTH_PROCESSES = 8 << 20
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_IF_KILLED = " (the system may be short of memory, try fewer --direct_num_workers)"


@contextmanager
def local_runner(request: Request, plan: Plan, beam_options: PipelineOptions, reports: str) -> Iterator[str]:
    """Start the workers of a run; inside the context, Beam's in-memory runner has them.

    Args:
        request: whether workers can be forks of this process depends on it.
        plan: of the increment: its size decides how many workers are useful, if the user has not decided.
        beam_options: the number of workers; Beam itself has one.
        reports: the folder in which workers write down where they are.

    Raises:
        WorkerDied: if the run failed because a worker died.
    """
    from apache_beam.options.pipeline_options import DirectOptions

    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # the error that ends a run is raised, and shown once
    direct = beam_options.view_as(DirectOptions)
    job = plan.job
    useful = 1 if job.unpacked_bytes < _WORTH_PROCESSES else min(cores(), job.tasks)
    number, is_in_memory = direct.direct_num_workers or useful, direct.direct_running_mode == "in_memory"
    direct.direct_num_workers, direct.direct_running_mode = 1, "in_memory"
    # A formatter may end its process, which has to be reported.
    if is_in_memory or (number == 1 and not request.has_formatter):
        yield _RUNNER
        return
    show_phase(f"starting {number} worker{'s' * (number != 1)}")
    with _workers(number, _start_method(request, plan), reports) as pool, worker_pool(pool):
        yield _RUNNER


def _start_method(request: Request, plan: Plan) -> str:
    """How to start workers, as multiprocessing names it. What they need is loaded before they are forked."""
    if sys.platform != "linux":  # forks cannot use the libraries of macOS
        return "spawn"
    tokenizer = plan.folder.tokenizer(plan.job.tokenizer)
    is_fast = request.options.engine == "auto" and plan.job.unpacked_bytes >= WORTH_LOADING
    if not request.has_formatter and not request.urls() and threading.active_count() == 1:
        load(tokenizer, is_fast)
        return "fork"
    local = Path(tempfile.mkdtemp())  # in the folder of this run, which is removed at its end
    for name, content in read_tokenizer_folder(tokenizer).items():
        (local / name).parent.mkdir(exist_ok=True)
        (local / name).write_bytes(content)
    fork_server.start()
    fork_server.send(str(local), is_fast)
    return "forkserver"


def load(tokenizer: str, is_fast: bool) -> None:
    """Load what the steps of a worker need: the tokenizer of a folder, and the fast encoder for it."""
    load_tokenizer(tokenizer)
    if is_fast:
        load_fast_encoder(tokenizer)


@contextmanager
def _workers(number: int, method: str, reports: str) -> Iterator[ProcessPoolExecutor]:
    """Start a pool of processes. If the run fails, they are killed. Raises WorkerDied if one of them died."""
    context: Any = multiprocessing.get_context(method)
    before = {*multiprocessing.active_children()}
    pool = ProcessPoolExecutor(
        number, context, _begin, (dict(os.environ), os.getpid() if method == "fork" else None, context.Barrier(number))
    )
    try:
        for _ in range(number):  # all are started now: a fork ends with the thread that has made it
            pool.submit(os.getpid)
        processes = [process for process in multiprocessing.active_children() if process not in before]
        try:
            yield pool
        except BaseException as error:
            death = isinstance(error, BrokenExecutor) and _death(processes, reports)
            for process in processes:
                process.kill()
            if death:
                raise WorkerDied(
                    f"{death}. Finished shards are kept: run the same command again, without --overwrite."
                ) from None
            raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(environment: dict[str, str], parent: int | None, barrier: Any) -> None:
    """Begin the life of a worker.

    environment: of the launcher, since the fork server has that of its own start. parent: the launcher, if it has
    forked this process. barrier: that all workers wait at, so that a pool which starts them one by one starts all.
    """
    end_with(parent or fork_server.pid or os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the launcher ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.disable()  # the launcher reports in one line how this process ended, and where
    os.environ.clear()
    os.environ.update(environment, TOKENIZERS_PARALLELISM="false")  # the other workers use the other cores
    tempfile.tempdir = None
    gc.freeze()  # a collection would write to the pages that are shared with the launcher, and so copy them
    gc.enable()
    quiet_libraries()
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    barrier.wait()


def end_with(parent: int) -> None:
    """End this process when its parent ends: on Linux, which alone can do so. Call it first in a new process.

    parent: the id of the process that started this one. It may have ended by now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _death(processes: Sequence[BaseProcess], reports: str) -> str:
    """Describe how the first worker died, and at which record."""
    for _ in range(50):  # the pool may see the end of a process before its exit code can be read
        for process in processes:
            code = process.exitcode
            if code not in (None, -signal.SIGTERM):  # by which the pool ends the others
                how = f"ended by itself with exit code {code}"
                if code < 0:
                    number = signal.Signals(-code)
                    how = f"was ended by {number.name}{_IF_KILLED if number == signal.SIGKILL else ''}"
                place = read_place(reports, process.pid or 0)
                return f"a worker {how}" + (f" in {place}" if place else "")
        time.sleep(0.02)
    return "a worker was ended"
