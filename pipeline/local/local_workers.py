"""The worker processes of the local runner, which are forked if possible.

A new process needs some four seconds to import Beam and transformers and to load the tokenizer. A fork already has all
that, and shares its memory. It must be made before the launcher starts threads, and gRPC's servers are threads:
therefore all workers are started first, and wait for the address of Beam's server. If the launcher has threads or may
have anything else that forks cannot use, workers are forks of the fork server.

This module needs internals of Beam: pipeline.local.worker_processes.INTERNALS lists them, `missing_internals` checks
them before this module is imported.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import logging
import multiprocessing
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TextIO, cast

from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.transforms.environments import Environment, python_sdk_capabilities
from google.protobuf import json_format, text_format

from pipeline.cli.console import quiet_libraries
from pipeline.local.fork_server import ForkedProcess, ForkServer
from pipeline.local.loopback import loopback_servers
from pipeline.local.parent import end_with
from transforms.base.errors import WorkerDied
from transforms.steps.reports import read_place

# The exit code of a worker that Beam ended. A formatter may end its process with any other.
_DONE = 86
_SECONDS_BETWEEN_LOOKS = 0.2
_HINTS = {
    signal.SIGKILL: " (the system may be short of memory, try fewer --direct_num_workers)",
}
_ENVIRONMENT = "chatmill:environment:waiting_worker:v1"


class LocalWorkers:
    """Worker processes for one run. They end with the launcher, and all of them when one dies."""

    def __init__(self, number: int, starter: str | ForkServer, reports: str):
        """Start the processes.

        Args:
            number: how many.
            starter: fork, or spawn (a new process), as multiprocessing names them; or what forks them.
            reports: the folder in which they write down where they are.
        """
        self._workers: list[_WaitingWorker] = []
        for _ in range(number):
            self._workers.append(_WaitingWorker(starter, [worker.sender for worker in self._workers]))
        self.unused = iter(self._workers)
        self.handlers: list[_WaitingWorkerHandler] = []
        self.secret = secrets.token_hex(16)
        self._reports = reports
        self._death: str | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @contextmanager
    def runner(self) -> Iterator[FnApiRunner]:
        """Yield Beam's local runner with these workers. Raise WorkerDied if the run fails because of one."""
        WorkerHandler.register_environment(_ENVIRONMENT, None)(functools.partial(_WaitingWorkerHandler, self))
        previous, threading.excepthook = threading.excepthook, self._handle_thread_error
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            with loopback_servers(self.secret):
                yield FnApiRunner(default_environment=_WaitingWorkerEnvironment(python_sdk_capabilities()))
        except Exception:
            if death := self._recent_death():
                raise WorkerDied(
                    f"{death}. Finished shards are kept: run the same command again, without --overwrite."
                ) from None
            raise
        finally:
            self._ended.set()
            threading.excepthook = previous

    def _watch(self) -> None:
        """End the run as soon as a worker dies: Beam waits for ever for one that never connected to it."""
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            if death := self._look():
                for handler in self.handlers:
                    with suppress(Exception):  # Beam's threads connect and change it meanwhile: then the next time
                        handler.control_conn.abort(RuntimeError(death))
                        handler.data_conn.close()

    def _look(self) -> str | None:
        """Describe the first worker that died, and end the others; None if none did."""
        with self._lock:
            for worker in self._workers if self._death is None else ():
                code = worker.process.exitcode
                if code not in (None, _DONE):
                    self._death = self._described(worker.process.pid, code)
                    for each in self._workers:
                        each.process.kill()
                    break
            return self._death

    def _described(self, process: int | None, code: int | None) -> str:
        how = f"ended by itself with exit code {code}"
        if code and code < 0:
            number = signal.Signals(-code)
            how = f"was ended by {number.name}{_HINTS.get(number, '')}"
        place = read_place(self._reports, process or 0)
        return f"a worker {how}" + (f" in {place}" if place else "")

    def _recent_death(self) -> str | None:
        """The same as _look; a worker's connections close some moments before its exit code is known."""
        for _ in range(20):
            have_ended = all(worker.process.exitcode is not None for worker in self._workers)
            if (death := self._look()) or have_ended:
                return death
            time.sleep(0.05)
        return None

    def _handle_thread_error(self, error: threading.ExceptHookArgs) -> None:
        """Print the error of a thread of Beam as Python does, unless it lost a worker that died."""
        if self._recent_death() is None:
            threading.__excepthook__(error)


class _WaitingWorker:
    """A process that waits for the address of Beam's server, and ends if the launcher ends first."""

    def __init__(self, starter: str | ForkServer, earlier_senders: list[Connection]):
        receiver, self.sender = multiprocessing.Pipe(duplex=False)
        self.process: BaseProcess | ForkedProcess
        if isinstance(starter, str):
            context: Any = multiprocessing.get_context(starter)
            arguments = (receiver, [*earlier_senders, self.sender], os.getpid())
            process = self.process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
        else:
            self.process = starter.start(_work, receiver)
        receiver.close()


def _work(receiver: Connection, senders: Sequence[Connection] = (), launcher: int | None = None) -> None:
    """The life of a worker.

    Args:
        receiver: gives what Beam's worker reads from its environment.
        senders: copies of the connections that only the launcher should hold.
        launcher: the id of its process, if that started this one.
    """
    if launcher is not None:
        end_with(launcher)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; the launcher ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.disable()  # the launcher reports in one line how this process ended, and where
    for sender in senders:
        sender.close()
    try:
        os.environ |= receiver.recv()
    except EOFError:
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the other workers use the other cores
    gc.freeze()  # a collection would write to the pages that are shared with the launcher, and so copy them
    gc.enable()
    quiet_libraries()
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    sys.stderr = cast("TextIO", _WithoutBeamsTracebacks(sys.stderr))
    from apache_beam.runners.worker import sdk_worker_main

    threading.Thread(target=_end_with_launcher, args=(receiver,), daemon=True).start()
    sdk_worker_main.main([])
    sys.exit(_DONE)


def _end_with_launcher(receiver: Connection) -> None:
    """End this process as soon as the launcher has ended: Beam would go on trying to reach it."""
    with suppress(EOFError):
        receiver.recv()
    os._exit(1)


class _WithoutBeamsTracebacks:
    """Standard error without the tracebacks that Beam's worker prints of what a step raises.

    Beam also sends them to the launcher, which shows them, or one line if the error is meant for the user.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._drops_line_end = False  # the line end that print writes after the text

    def write(self, text: str) -> int:
        dropped = (self._drops_line_end and text == "\n") or (text.startswith("Traceback ") and "sdk_worker.py" in text)
        self._drops_line_end = dropped and text != "\n"
        return len(text) if dropped else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _WaitingWorkerHandler(GrpcWorkerHandler):
    """Beam's view of one worker. Beam creates as many of them as --direct_num_workers says."""

    def __init__(
        self,
        workers: LocalWorkers,
        payload: bytes,
        state: Any,
        provision_info: Any,
        grpc_server: Any,
    ):
        self._workers = workers
        self._worker: _WaitingWorker | None = None
        super().__init__(state, provision_info, grpc_server)
        workers.handlers.append(self)

    @property
    def worker_id(self) -> str:
        """The id that Beam gives, and the secret: it is sent with each request of the worker."""
        return self._worker_id

    @worker_id.setter
    def worker_id(self, given: str) -> None:
        self._worker_id = f"{given}-{self._workers.secret}"

    def start_worker(self) -> None:
        self._worker = next(self._workers.unused)
        # As Beam's own handler does, but without the address of a log server: a worker logs to standard error.
        self._worker.sender.send(
            {
                "WORKER_ID": self.worker_id,
                "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(self.control_api_service_descriptor()),
                "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
            }
        )

    def stop_worker(self) -> None:
        if self._worker:  # the run may end before all workers are given their work
            self._worker.process.join()


@Environment.register_urn(_ENVIRONMENT, None)
class _WaitingWorkerEnvironment(Environment):
    """What names these workers in the graph, as Beam's runner reads it."""

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        return _ENVIRONMENT, None

    @staticmethod
    def from_runner_api_parameter(
        payload: bytes, capabilities: Any, artifacts: Any, resource_hints: Any, context: Any
    ) -> _WaitingWorkerEnvironment:
        return _WaitingWorkerEnvironment(capabilities, artifacts, resource_hints)
