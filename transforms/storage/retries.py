"""Retries: which errors of a store are transient, and operations that are tried again after one.

An operation may be run twice without harm: a store may have done it although its answer was lost.
"""

from __future__ import annotations

import errno
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import tenacity
from fsspec.implementations.local import LocalFileSystem

from transforms.base.errors import StoreError, UserError

# The classes of transient errors that the clients of stores raise, by name: to import aiohttp, botocore and requests
# would add a second to each start, with any store.
_TRANSIENT = {
    "ClientConnectionError", "ClientPayloadError", "HTTPClientError", "ResponseParserError", "RequestException",
    "TransportError", "ConnectionError", "TimeoutError", "FlexibleChecksumError", "ChecksumError",
}  # fmt: skip

# The errors of a disk for a path that cannot be that of a file, but for those of a folder that does not exist.
_NO_FILE = {errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}

# How often something is tried, and how long each attempt waits, in seconds.
_ATTEMPTS, _BACKOFF = 6, tenacity.wait_exponential_jitter(initial=1, max=20)
# The errors of httpx, which is the Hub's, if a host cannot be connected to: its name may be mistyped.
NOT_CONNECTED, _ATTEMPTS_TO_CONNECT = {"ConnectError", "ConnectTimeout"}, 2

_QUERY = re.compile(r"""(?<=://)([^\s?'"]*)\?[^\s'"]*""")

_Operation = TypeVar("_Operation", bound=Callable[..., Any])


def with_retries(action: str) -> Callable[[_Operation], _Operation]:
    """Decorate an operation on a url, so that transient errors are retried for about half a minute.

    The operation takes a url and further arguments, all by position. Its errors are those of store_errors, with the
    same action.
    """

    def decorate(operation: Any) -> Any:
        @functools.wraps(operation)
        def run(url: str, *arguments: Any) -> Any:
            with store_errors(url, action):
                return RETRYING(operation, url, *arguments)

        return run

    return decorate


@contextmanager
def store_errors(url: str, action: str) -> Iterator[None]:
    """Inside, what a store, which may be a disk, refuses, or what fails in it, is a StoreError.

    url: of the file or folder. action: what is done with it, as a past participle for the message: "read".

    Raises:
        FileNotFoundError: if it does not exist, unless it is written.
        StoreError: if the store fails for good or refuses.
    """
    try:
        yield
    except (StoreError, UserError):
        raise
    except Exception as error:  # each store's client has its own classes
        if _is_missing(error) and action != "written":
            raise FileNotFoundError(f"{url} does not exist") from None
        if url_protocol(url) in LocalFileSystem.protocol and not isinstance(error, (OSError, ValueError)):
            raise  # a disk has other errors than the clients of stores
        raise StoreError(url, action, store_reason(error), is_transient(error)) from None


def url_protocol(url: str) -> str:
    """Return the protocol of a url; `file` for a path on this machine, which is what has no `://`."""
    protocol, separator, _ = url.partition("://")
    return protocol if separator else "file"


def is_transient(error: BaseException) -> bool:
    """Return whether the operation that failed may succeed later. The store's client has already retried by itself."""
    status = http_status(error)
    if status is not None:
        return status in (408, 429) or status >= 500
    # httpx raises its own error from one of a library below it, whose class says nothing; fsspec does the opposite.
    kinds = {kind.__name__ for each in (error, error.__cause__) for kind in type(each).__mro__}
    return not _TRANSIENT.isdisjoint(kinds)


def _is_missing(error: BaseException) -> bool:
    """Return whether the store answered that there is no such file.

    fsspec's http file system raises FileNotFoundError for every failure, with the real one as its cause.
    """
    if isinstance(error, OSError) and error.errno in _NO_FILE:
        return True
    cause = error.__cause__
    is_answer = cause is None or isinstance(cause, KeyError)  # in memory, there is no such key
    return isinstance(error, FileNotFoundError) and (is_answer or http_status(error) == 404)


def store_reason(error: Exception) -> str:
    """Return the store's message, in one line of at most 300 characters, without the queries of urls: signatures."""
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # the message of fsspec's http file system is the url alone
    message = str(error)
    if isinstance(error, OSError) and message.startswith("[Errno"):  # it has the path, too
        message = error.strerror or message
    return " ".join(_QUERY.sub(r"\1", message).split())[:300].rstrip(".") or type(error).__name__


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status of the store's answer, from the errors of any client; None if there was no answer."""
    cause = error.__cause__ or error  # s3fs raises an OSError from botocore's error
    response = getattr(cause, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    status = getattr(response, "status_code", None) or getattr(cause, "status", None) or getattr(cause, "code", None)
    return int(status) if status and str(status).isdigit() else None


def _stop(state: tenacity.RetryCallState) -> bool:
    is_connected = type(state.outcome and state.outcome.exception()).__name__ not in NOT_CONNECTED
    return state.attempt_number >= (_ATTEMPTS if is_connected else _ATTEMPTS_TO_CONNECT)


def _seconds_to_wait(state: tenacity.RetryCallState) -> float:
    """As long as the Hub says if no request is left in its window; otherwise more with each attempt."""
    error = state.outcome and state.outcome.exception()
    headers = getattr(getattr(error and (error.__cause__ or error), "response", None), "headers", None) or {}
    if "RateLimit" in headers:
        from huggingface_hub.utils import parse_ratelimit_headers

        limit = parse_ratelimit_headers(headers)
        if limit and not limit.remaining:
            return limit.reset_in_seconds + 1
    return _BACKOFF(state)


RETRYING = tenacity.Retrying(
    retry=tenacity.retry_if_exception(is_transient), wait=_seconds_to_wait, stop=_stop, reraise=True
)
