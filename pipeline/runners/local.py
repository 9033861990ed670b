"""Local: Beam's own runner on this machine, with workers that are forks of this process.

A new process would import Beam and transformers and load the tokenizer anew, which takes it some four seconds. A fork
has all that, and shares its memory. It must be made before anything here starts threads, as gRPC's servers do: so all
workers are made beforehand, and wait until they are told where Beam listens. Where a store was asked for something,
its client has threads, gRPC's among them: then workers are new processes.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.transforms.environments import Environment, python_sdk_capabilities
from google.protobuf import json_format, text_format

from pipeline.console import quiet_libraries
from pipeline.job import Job
from pipeline.options import Options
from transforms.dataset.layout import Folder
from transforms.tokens.fast import load_fast_encoder

# Bytes of input from which on several workers are worth what it takes to start them.
_WORTH_PROCESSES = 8 << 20

_ENVIRONMENT = "chatmill:environment:forked:v1"


def local_runner(job: Job, folder: Folder, options: PipelineOptions, asked: Options) -> FnApiRunner:
    """Beam's own local runner, by default with a worker for each core or split, in processes where there are several.

    Its name of DirectRunner would first try to download another, which takes no number of workers.
    """
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # what ends a run is raised here, and told once
    direct = options.view_as(DirectOptions)
    useful = 1 if job.input_bytes < _WORTH_PROCESSES else min(_cores(), job.splits)
    workers = direct.direct_num_workers = direct.direct_num_workers or useful
    direct.direct_running_mode = direct.direct_running_mode or ("in_memory" if workers == 1 else "multi_processing")
    if direct.direct_running_mode != "multi_processing":
        return FnApiRunner()
    direct.direct_running_mode = None
    # A formatter may have set up what no fork can use (CUDA), and macOS lets no fork use its own libraries.
    uses_stores = asked.urls() or "://" in (asked.summary_json or "")
    forks = sys.platform == "linux" and asked.formatter is None and not uses_stores
    method = "fork" if forks else "spawn"
    if forks and asked.engine != "reference":
        load_fast_encoder(folder.tokenizer, asked.engine)  # for all of them
    _WaitingWorker.made.clear()
    threading.excepthook = _tell_error_of_thread
    for _ in range(workers):
        _WaitingWorker(method)
    return FnApiRunner(default_environment=_ForkedEnvironment(python_sdk_capabilities()))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def killer_of_a_worker() -> str | None:
    """The name of the signal that has ended a worker, None where none was ended but by us."""
    for _ in range(20 if _WaitingWorker.made else 0):  # its connections end some moments before its end is known
        codes = [worker.process.exitcode or 0 for worker in _WaitingWorker.made]
        if killed := next((code for code in codes if code < 0 and code != -signal.SIGTERM), None):
            return signal.Signals(-killed).name
        time.sleep(0.05)
    return None


def _tell_error_of_thread(error: threading.ExceptHookArgs) -> None:
    """As Python does, but where Beam's threads have only lost a worker.

    The run has failed then, which Beam would say when the other workers have done all their share.
    """
    if killer_of_a_worker() is None:
        threading.__excepthook__(error)
        return
    for worker in _WaitingWorker.made:
        worker.process.terminate()


class _WaitingWorker:
    """A process that waits to be told where Beam listens, and ends where nobody is left who could tell it."""

    made: ClassVar[list[_WaitingWorker]] = []  # for one run

    def __init__(self, method: str):
        context: Any = multiprocessing.get_context(method)
        receiver, self.sender = context.Pipe(duplex=False)
        self.is_told = False
        self.made.append(self)
        senders = [worker.sender for worker in self.made]
        self.process: BaseProcess = context.Process(target=_work, args=(receiver, senders), daemon=True)
        self.process.start()
        receiver.close()


def _work(receiver: Connection, senders: list[Connection]) -> None:
    """The life of a worker. senders: copies of those that only the launcher is to have."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to all; the launcher ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for sender in senders:
        sender.close()
    try:
        os.environ |= receiver.recv()
    except EOFError:
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the cores are taken by the other workers
    gc.freeze()  # what is shared is left as it is
    gc.enable()
    quiet_libraries()
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    from apache_beam.runners.worker import sdk_worker_main

    threading.Thread(target=_end_with_launcher, args=(receiver,), daemon=True).start()
    sdk_worker_main.main([])


def _end_with_launcher(receiver: Connection) -> None:
    """End this process as soon as the launcher is gone: Beam would go on trying to reach it."""
    with suppress(EOFError):
        receiver.recv()
    os._exit(1)


@WorkerHandler.register_environment(_ENVIRONMENT, None)
class _ForkedWorkerHandler(GrpcWorkerHandler):
    """What Beam's runner knows of a worker. Its log goes to standard error as the launcher's does."""

    def __init__(self, payload: None, state: Any, provision_info: Any, grpc_server: Any):
        super().__init__(state, provision_info, grpc_server)

    def start_worker(self) -> None:
        self._worker = next(worker for worker in _WaitingWorker.made if not worker.is_told)
        self._worker.is_told = True
        self._worker.sender.send(
            {
                "WORKER_ID": self.worker_id,
                "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(self.control_api_service_descriptor()),
                "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
            }
        )

    def stop_worker(self) -> None:
        self._worker.process.join()


@Environment.register_urn(_ENVIRONMENT, None)
class _ForkedEnvironment(Environment):
    """How the graph tells Beam's runner to ask for such workers."""

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        return _ENVIRONMENT, None

    @staticmethod
    def from_runner_api_parameter(
        payload: None, capabilities: Any, artifacts: Any, resource_hints: Any, context: Any
    ) -> _ForkedEnvironment:
        return _ForkedEnvironment(capabilities, artifacts, resource_hints)
