"""The fork server: a process from which workers are forked that the launcher itself cannot fork any more.

The client of a store has threads, which no fork has, and a formatter may initialize what no fork can use (CUDA). The
server is forked before the launcher has any of that, and loads what all workers need. Only Linux has it: on macOS,
forks cannot use the system's libraries.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import NoReturn

from pipeline.cli.console import import_beam
from pipeline.cli.options import Options
from pipeline.local.parent import end_with
from pipeline.runners import runner_of
from transforms.base.errors import Unavailable
from transforms.storage.files import import_client
from transforms.tokens.tokenizer import load_tokenizer

# What a worker imports, by name, since local_workers imports this module.
_MODULES_OF_WORKERS = (
    "pipeline.job.graph",
    "pipeline.local.local_workers",
    "apache_beam.runners.worker.sdk_worker_main",
)


@contextmanager
def fork_server(options: Options) -> Iterator[ForkServer | None]:
    """Yield a fork server if the job may need one, which ends with the context; otherwise None.

    Args:
        options: of the build, with all inputs of its sources.
    """
    is_needed = runner_of(options.runner).has_our_workers and sys.platform == "linux" and not can_fork(options)
    if not is_needed or threading.active_count() > 1:
        yield None
        return
    # The server gets what is imported by now.
    import_beam()
    for _, url in options.urls():
        import_client(url)
    server = ForkServer()
    try:
        yield server
    finally:
        server.close()


def can_fork(options: Options) -> bool:
    """Return whether the launcher itself can fork workers when the job is planned."""
    return sys.platform == "linux" and options.formatter is None and not options.urls()


class ForkServer:
    """A fork server. It and its workers end with the launcher. If it was killed, its methods raise Unavailable."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_serve, args=(theirs, self._connection, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()
        self._lock = threading.Lock()
        self.has_loaded = False

    def load(self, tokenizer: Mapping[str, bytes]) -> None:
        """Have it import what workers import, and load the tokenizer. It returns at once.

        Args:
            tokenizer: the content of the tokenizer's files, by their names.
        """
        self.has_loaded = True
        with self._request():
            self._connection.send((_load, (dict(tokenizer),)))

    def start(self, work: Callable[[Connection], None], receiver: Connection) -> ForkedProcess:
        """Fork a process that calls a function with a connection, and then ends."""
        with self._request():
            self._connection.send((_fork, (work,)))
            send_handle(self._connection, receiver.fileno(), self._process.pid)
            return ForkedProcess(self, self._connection.recv())

    def exit_code(self, number: int) -> int | None:
        """The exit code of a process, the negative signal if one ended it, None if it has not ended."""
        with self._request():
            self._connection.send((_exit_code, (number,)))
            return self._connection.recv()

    @contextmanager
    def _request(self) -> Iterator[None]:
        """One request and its answer. Raises Unavailable if the server has ended."""
        try:
            with self._lock:
                yield
        except (EOFError, OSError):
            raise Unavailable(
                "the process that starts the workers has ended: the system may be short of memory. Finished shards are "
                "kept: run the same command again, without --overwrite."
            ) from None

    def close(self) -> None:
        """End it."""
        self._connection.close()
        self._process.join()


class ForkedProcess:
    """A process of the fork server, with the part of multiprocessing's Process that the launcher uses."""

    def __init__(self, server: ForkServer, number: int):
        self._server = server
        self.pid = number

    @property
    def exitcode(self) -> int | None:
        return self._server.exit_code(self.pid)

    def kill(self) -> None:
        if self.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def join(self) -> None:
        while self.exitcode is None:
            time.sleep(0.02)


def _serve(connection: Connection, launchers: Connection, launcher: int) -> None:
    """Do what the launcher asks for, until it closes the connection. launcher: the id of its process."""
    end_with(launcher)
    launchers.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(EOFError):
        while True:
            function, arguments = connection.recv()
            function(connection, *arguments)


def _load(_: Connection, tokenizer: dict[str, bytes]) -> None:
    for module in _MODULES_OF_WORKERS:
        importlib.import_module(module)
    # If it cannot be loaded, the workers say so, as they load it again.
    with suppress(Exception), tempfile.TemporaryDirectory(prefix="chatmill-") as folder:
        for name, content in tokenizer.items():
            Path(folder, name).parent.mkdir(exist_ok=True)
            Path(folder, name).write_bytes(content)
        load_tokenizer(folder)


def _fork(connection: Connection, work: Callable[[Connection], None]) -> None:
    receiver = Connection(recv_handle(connection))
    server, number = os.getpid(), os.fork()
    if not number:
        end_with(server)
        connection.close()
        _end_after(work, receiver)
    receiver.close()
    _EXIT_CODES[number] = None
    connection.send(number)


def _end_after(work: Callable[[Connection], None], receiver: Connection) -> NoReturn:
    code = 1
    try:
        work(receiver)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


# In the server: the exit codes of its processes.
_EXIT_CODES: dict[int, int | None] = {}


def _exit_code(connection: Connection, number: int) -> None:
    if _EXIT_CODES[number] is None:
        ended, status = os.waitpid(number, os.WNOHANG)
        _EXIT_CODES[number] = os.waitstatus_to_exitcode(status) if ended else None
    connection.send(_EXIT_CODES[number])
