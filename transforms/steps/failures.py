"""Failures: an error that is meant for the user, from a worker to the launcher as a small file next to the output.

A runner passes on a worker's error as text: inside its own traceback, with its own words around it, cut off, or not at
all. Therefore the worker also writes the error to a file, and the launcher reads the file when the run has failed. A
runner may repeat a bundle: then a run can succeed although there are files, and nobody reads them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from transforms.base.errors import (
    CommittedMeanwhile,
    InputError,
    ParameterError,
    RejectsError,
    StoreError,
    Unavailable,
    UserError,
)
from transforms.storage.files import join, read_bytes
from transforms.storage.walking import names_below
from transforms.storage.writing import write_atomically

_KINDS = {
    kind.__name__: kind
    for kind in (CommittedMeanwhile, InputError, ParameterError, RejectsError, StoreError, Unavailable, UserError)
}

_folder: ContextVar[str | None] = ContextVar("failures_folder", default=None)


class Failure(msgspec.Struct, frozen=True):
    """An error as JSON.

    Args:
        kind: the name of its class.
        message: what it says, for people who look at the file.
        arguments: of its class, which make the same error again.
    """

    kind: str
    message: str
    arguments: list[Any]


_decode = msgspec.json.Decoder(Failure).decode


@contextmanager
def failures_written_to(folder: str) -> Iterator[None]:
    """Let the steps that are applied inside write their failures to a folder.

    The folder is not an argument of the steps: it is the same for all of them, does not change their results, and is
    there only for a launcher. In a custom pipeline there is none, and steps write no failures.

    Args:
        folder: the url of a folder, which need not exist.
    """
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


class FailureWriter:
    """A context in which the errors that are meant for the user are written to the folder of failures, and raised on.

    Make it while the pipeline is built (in a DoFn's constructor or in `expand`), inside failures_written_to. It is
    pickled with the DoFn, and can be entered any number of times.
    """

    def __init__(self) -> None:
        self._folder = _folder.get()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._folder and isinstance(error, (InputError, StoreError, Unavailable, UserError)):
            _write(self._folder, error)


def _write(folder: str, error: Exception) -> None:
    if isinstance(error, StoreError) and error.is_transient and urlsplit(error.url)[:2] == urlsplit(folder)[:2]:
        return  # the store that the file would be written to has just failed for half a minute
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
    with suppress(Exception):  # the error itself must reach the runner in any case
        make, arguments = cast("tuple[Any, ...]", error.__reduce__())[:2]
        failure = Failure(make.__name__, str(error), list(arguments))
        write_atomically(join(folder, name), msgspec.json.encode(failure, enc_hook=repr))


def last_failure(folder: str) -> Exception | None:
    """Return the error that was written last to a folder, which is the one that a runner with retries gave up on; None
    if there is none, or the folder cannot be read.
    """
    with suppress(Exception):  # the runner's own error is raised then
        if names := names_below(folder):
            failure = _decode(read_bytes(join(folder, names[-1])))
            return _KINDS[failure.kind](*failure.arguments)
    return None
