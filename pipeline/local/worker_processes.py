"""Local: Beam's FnApiRunner on this machine, by default with one worker process for each core.

The workers are started by pipeline/local/local_workers.py, which needs internals of Beam. If the installed Beam does
not have them, its own slower mode multi_processing is used instead, with a warning. Its servers cannot have a secret,
and a build is refused if they cannot be kept to this machine.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.version import __version__ as beam_version

from pipeline.cli.console import show_phase
from pipeline.cli.options import Options
from pipeline.job.job_json import Job
from pipeline.local.fork_server import ForkServer, can_fork
from pipeline.local.loopback import loopback_servers
from transforms.base.cores import cores
from transforms.dataset.layout import Folder
from transforms.tokens.fast_encoder import WORTH_LOADING, load_fast_encoder
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.tokenizer_files import read_tokenizer_folder

# Beam's name of its local runner. `DirectRunner` would first try to download another one, which ignores the number of
# workers.
_RUNNER = "FnApiRunner"

# Bytes of input from which on several workers are worth the time that it takes to start them.
_WORTH_PROCESSES = 8 << 20


@contextmanager
def local_runner(
    job: Job,
    folder: Folder,
    beam_options: PipelineOptions,
    options: Options,
    server: ForkServer | None,
    reports: str,
) -> Iterator[Any]:
    """Prepare Beam's local runner; inside the context, it can run one pipeline.

    Args:
        job: its size decides how many workers are useful, if the user has not decided.
        folder: where the tokenizer is, which forked workers share.
        beam_options: the number of workers and the running mode are set in it.
        options: whether workers can be forks depends on them.
        server: forks the workers, if the launcher cannot.
        reports: the folder in which workers write down where they are.

    Yields:
        What `beam.Pipeline` takes as its runner.

    Raises:
        Unavailable: if the run failed because a worker was killed.
        UserError: if the servers of the installed Beam cannot be kept to this machine.
    """
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # the error that ends a run is raised, and shown once
    direct = beam_options.view_as(DirectOptions)
    useful = 1 if job.unpacked_bytes < _WORTH_PROCESSES else min(cores(), job.tasks)
    workers = direct.direct_num_workers = direct.direct_num_workers or useful
    direct.direct_running_mode = direct.direct_running_mode or (
        # A formatter may end its process, which has to be reported.
        "in_memory" if workers == 1 and options.formatter is None else "multi_processing"
    )
    if direct.direct_running_mode == "in_memory":
        yield _RUNNER
        return
    reason = None
    if direct.direct_running_mode != "multi_processing":
        reason = f"With --direct_running_mode {direct.direct_running_mode}, the workers are started by Beam itself."
    elif missing := missing_internals():
        reason = (
            f"Beam {beam_version} has no {missing} as Chatmill expects it, so the workers are started by Beam itself. "
            "The output is the same; each worker takes some seconds longer to start and loads its own tokenizer."
        )
    if reason:
        with loopback_servers():
            logging.getLogger(__name__).warning(
                "%s They have no secret: other users of this machine can connect to the servers of this build, and run "
                "code in it. These listen on the loopback interface alone.",
                reason,
            )
            yield _RUNNER
        return
    from pipeline.local.local_workers import LocalWorkers

    direct.direct_running_mode = None  # or Beam would replace our workers by its own
    show_phase(f"starting {workers} worker{'s' * (workers != 1)}")
    starter: str | ForkServer = "spawn"
    if server:
        if not server.has_loaded:
            server.load(read_tokenizer_folder(folder.tokenizer(job.tokenizer)))
        starter = server
    elif can_fork(options) and not _has_threads():  # what is loaded now is shared by all forks
        _load(job, folder, options)
        starter = "fork"
    with LocalWorkers(workers, starter, reports).runner() as runner:
        yield runner


def _load(job: Job, folder: Folder, options: Options) -> None:
    """Load what the workers of a build need."""
    load_tokenizer(folder.tokenizer(job.tokenizer))
    if options.engine == "auto" and job.unpacked_bytes >= WORTH_LOADING:
        load_fast_encoder(folder.tokenizer(job.tokenizer))


def _has_threads() -> bool:
    """Whether there are threads that a fork would lack."""
    return any(thread is not threading.main_thread() for thread in threading.enumerate())


class Internal(NamedTuple):
    """A function or class inside Beam that local_workers calls or overrides.

    positional: how many positional arguments it is called with (`self` included). keywords: the keyword arguments.
    """

    module: str
    name: str
    positional: int
    keywords: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ImportError, AttributeError or TypeError if Beam does not have it, or takes other arguments."""
        found = operator.attrgetter(self.name)(importlib.import_module(self.module))
        inspect.signature(found).bind(*range(self.positional), **dict.fromkeys(self.keywords))


_HANDLERS = "apache_beam.runners.portability.fn_api_runner.worker_handlers"
_ENVIRONMENTS = "apache_beam.transforms.environments"
_WORKER = "apache_beam.runners.worker.sdk_worker_main"

INTERNALS = (
    Internal(_HANDLERS, "grpc.server", 1, ("options",)),
    Internal("apache_beam.runners.portability.fn_api_runner", "FnApiRunner", 0, ("default_environment",)),
    Internal(_HANDLERS, "WorkerHandler.register_environment", 2),
    Internal(_HANDLERS, "GrpcWorkerHandler", 3),
    Internal(_HANDLERS, "GrpcWorkerHandler.start_worker", 1),
    Internal(_HANDLERS, "GrpcWorkerHandler.stop_worker", 1),
    Internal(_HANDLERS, "ControlConnection.abort", 2),
    Internal(_HANDLERS, "GrpcWorkerHandler.control_api_service_descriptor", 1),
    Internal(_ENVIRONMENTS, "python_sdk_capabilities", 0),
    Internal(_ENVIRONMENTS, "Environment", 3),
    Internal(_ENVIRONMENTS, "Environment.register_urn", 2),
    Internal(_ENVIRONMENTS, "Environment.to_runner_api_parameter", 2),
    Internal(_WORKER, "main", 1),
)
# The environment variables that Beam's worker program reads. It would not start without them, and Beam would wait.
WORKER_VARIABLES = ("WORKER_ID", "CONTROL_API_SERVICE_DESCRIPTOR", "PIPELINE_OPTIONS")


def missing_internals() -> str | None:
    """Return the first of Beam's internals that local_workers needs and Beam lacks, or has with other arguments.

    None if all are there.
    """
    for internal in INTERNALS:
        try:
            internal.check()
        except (ImportError, AttributeError, TypeError):
            return f"{internal.module}.{internal.name}"
    source = inspect.getsource(importlib.import_module(_WORKER))
    return next((f"{_WORKER} that reads {name}" for name in WORKER_VARIABLES if name not in source), None)
