"""Stopping: a run that is stopped ends at once, with all processes that it started and without its temporary files."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import get_temp_dir
from typing import NoReturn

import psutil

from pipeline.cli.console import RESUME, raise_terminated, shortened, show
from transforms.base.errors import Unavailable

_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
# For so long a process that was stopped waits for a cluster that is to cancel the job: longer than for one answer.
_SECONDS_TO_CANCEL = 12.0
# A process that was killed ends when its system call does. One whose parent was killed may stay a zombie.
_SECONDS_TO_END = 3.0
_PREFIX = "chatmill-run-"
# The path of a socket, which is in such a folder, has 107 bytes at most.
_LONG = 60


@contextmanager
def stopping_all_processes() -> Iterator[Callable[[Callable[[], None] | None, str | None], None]]:
    """Inside, Ctrl-C and SIGTERM end this process and all that it started at once; the run can be resumed.

    A cluster that does not answer delays the end by some seconds at most.

    Without it, Beam would wait for its workers. A signal that is ignored, as in the background of a shell, stays
    ignored, and one that the caller handles is left to it.

    Yields a function that installs the handlers again, because a runner may have installed its own. Its arguments are
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
    # Beam's threads lose their connections, as other processes end. Nothing restores it.
    threading.excepthook = lambda _: None
    logging.disable()
    if cancel and (error := _error_within(_SECONDS_TO_CANCEL, cancel)):  # before a job server ends, which may do it
        continuing = f"the job could not be cancelled: {shortened(str(error))}"
    children = psutil.Process().children(recursive=True)
    for process in children:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(children, timeout=_SECONDS_TO_END)  # until then they may write files
    if os.path.basename(folder := tempfile.gettempdir()).startswith(_PREFIX):  # nothing leaves `temporary_folder`
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(get_temp_dir(), ignore_errors=True)
    show(f"stopped. {f'Only this launcher: {continuing}' if continuing else RESUME}")
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


@contextmanager
def temporary_folder() -> Iterator[None]:
    """Inside, temporary files of this process and of those that it starts are in a folder of their own."""
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    if len(tempfile.gettempdir()) > _LONG:
        tempfile.tempdir = "/tmp"
    get_temp_dir()  # of multiprocessing, for all runs of this process
    tempfile.tempdir = before[0]
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            tempfile.tempdir = before[0]
            os.environ.pop("TMPDIR")
            if before[1] is not None:
                os.environ["TMPDIR"] = before[1]
