"""Files at any url that fsspec opens: reading them, also compressed, and writing them whole or not at all.

All that the project does with files goes through here, so that it is done again where a store failed for a moment, and
never returns less than was asked for. Each operation may be done twice without harm: its answer may have been lost.
"""

from __future__ import annotations

import functools
import io
import os
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import fsspec
import tenacity
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.local import LocalFileSystem

from transforms.errors import InputError, StoreError, UserError
from transforms.storage.compression import decompressed

# Parameters that let whoever has the url read the file.
_SIGNATURE = re.compile(r"(^|&)(x-amz-signature|x-goog-signature|signature|sig|(access_)?token)=", re.IGNORECASE)

# What the clients of stores raise for what may pass, by the names of its classes: to import aiohttp, botocore and
# requests for their classes would take each start a second, whatever store is used.
_TRANSIENT = {
    "ClientConnectionError", "ClientPayloadError", "HTTPClientError", "ResponseParserError", "RequestException",
    "TransportError", "ConnectionError", "TimeoutError", "FlexibleChecksumError", "ChecksumError",
}  # fmt: skip

_SECONDS_TO_ANSWER = 30


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a url, and the path in it.

    Raises UserError where there is none for such a url, or where the url holds a credential.
    """
    for parts in [urlsplit(link) for link in url.split("::") if "://" in link]:
        is_http = parts.scheme in ("http", "https")
        if parts.password or (is_http and (parts.username or _SIGNATURE.search(parts.query))):
            raise UserError(
                f"{parts.scheme}://{parts.hostname}{parts.path}: the url holds a password or a signature, and would be "
                "written down with the dataset. Give the url without it, and credentials by the environment."
            )
    try:
        # Other processes write what this one has listed: a listing that is kept would hide it.
        return fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ValueError, ImportError) as error:
        raise UserError(f"{url}: {error}.") from None


_Operation = TypeVar("_Operation", bound=Callable[..., Any])


def with_retries(doing: str) -> Callable[[_Operation], _Operation]:
    """Let an operation on a url be done again, for some half a minute, while its store fails.

    It then raises StoreError where the store is not this machine's disk; FileNotFoundError is an answer like any other.
    doing: what cannot be done with the url then.
    """

    def decorate(operation: Any) -> Any:
        @functools.wraps(operation)
        def run(url: str, *arguments: Any) -> Any:
            try:
                return _RETRYING(operation, url, *arguments)
            except (StoreError, UserError):
                raise
            except Exception as error:  # each store's client raises its own
                if _is_missing(error) or isinstance(file_system(url)[0], LocalFileSystem):
                    raise
                raise StoreError(url, doing, _reason(error), is_transient(error)) from None

        return run

    return decorate


def is_transient(error: BaseException) -> bool:
    """Whether a store may do later what it did not do now. Its client has then tried several times already."""
    status = _status(error)
    if status is not None:
        return status in (408, 429) or status >= 500
    return not _TRANSIENT.isdisjoint(kind.__name__ for kind in type(error.__cause__ or error).__mro__)


def _is_missing(error: BaseException) -> bool:
    """Whether the store said that there is no such file; fsspec's http says so of all that fails."""
    return isinstance(error, FileNotFoundError) and (error.__cause__ is None or _status(error) == 404)


def _status(error: BaseException) -> int | None:
    """The status of the HTTP answer that an error tells of, as each client has it; None where there was no answer."""
    cause = error.__cause__ or error  # botocore's error is behind what s3fs makes of it
    response = getattr(cause, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    status = getattr(response, "status_code", None) or getattr(cause, "status", None) or getattr(cause, "code", None)
    return int(status) if status and str(status).isdigit() else None


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # fsspec's http tells the url alone
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


_RETRYING = tenacity.Retrying(
    retry=tenacity.retry_if_exception(is_transient),
    wait=tenacity.wait_exponential_jitter(initial=1, max=20),
    stop=tenacity.stop_after_attempt(6),
    reraise=True,
)


def check_reachable(url: str) -> None:
    """Raise StoreError where a store does not answer within half a minute; some clients go on trying for many."""
    system, path = file_system(url)
    if isinstance(system, AsyncFileSystem):
        try:
            sync(system.loop, system._exists, path, timeout=_SECONDS_TO_ANSWER)
        except Exception as error:  # each store's client raises its own
            raise StoreError(url, "reached", _reason(error), is_transient(error)) from None


def join(folder: str, *names: str) -> str:
    """The url of a file below a folder's url."""
    return posixpath.join(folder, *names)


def lies_in(url: str, folder: str) -> bool:
    """Whether a full url is that of a folder, or of what is below it, links followed on this machine."""
    url, folder = (os.path.realpath(full) if "://" not in full else full.rstrip("/") for full in (url, folder))
    return url == folder or url.startswith(join(folder, ""))


def full_url(url: str) -> str:
    """The url by which any working directory and any process finds the same file."""
    system, path = file_system(url)
    return os.path.normpath(path) if isinstance(system, LocalFileSystem) else system.unstrip_protocol(path)


@contextmanager
def open_input(url: str, compression: str | None) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed. Raises InputError where it is missing, corrupt or ends early."""
    try:
        with _opened(url) as raw:
            yield decompressed(raw, compression)
    except FileNotFoundError:
        raise InputError(f"{url}: the file is gone since the job was planned. Put it back, or run anew.") from None
    except EOFError as error:
        raise InputError(
            f"{url}: the {compression} stream is corrupt or cut short ({error}), so what follows cannot be read. "
            "Restore the file, or leave it out of --input."
        ) from None


@with_retries("read")
def _opened(url: str) -> BinaryIO:
    system, path = file_system(url)
    if isinstance(system, LocalFileSystem):
        return system.open(path, "rb")
    # The buffer is ours: those of s3fs read 50 MiB ahead of each split.
    return io.BufferedReader(_Ranges(url, system.open(path, "rb", cache_type="none")), buffer_size=_READ_AHEAD)


_READ_AHEAD = 4 << 20


class _Ranges(io.RawIOBase):
    """A store's file, read by ranges, each of which is whole.

    s3fs and gcsfs see a connection that ends early, but pass on an answer that holds less than the range asked for.
    """

    def __init__(self, url: str, file: Any):
        self._url = url
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def readall(self) -> bytes:
        return self._read(self._file.size)  # by one request; RawIOBase's own makes one for each 8 KiB

    def _read(self, size: int) -> bytes:
        size = max(min(size, self._file.size - self._position), 0)
        content = _read_range(self._url, self._file, self._position, size) if size else b""
        self._position += size
        return content

    def close(self) -> None:
        self._file.close()
        super().close()


@with_retries("read")
def _read_range(url: str, file: Any, start: int, size: int) -> bytes:
    file.seek(start)
    content = file.read(size)
    if len(content) != size:
        raise ConnectionError(f"of {size} bytes from {start} on, the store gave {len(content)}")
    return content


def read_bytes(url: str) -> bytes:
    with _opened(url) as file:
        return file.read()


@with_retries("reached")
def exists(url: str) -> bool:
    system, path = file_system(url)
    return system.exists(path)


@with_retries("reached")
def kind_of(url: str) -> str | None:
    """file or directory; None where there is neither."""
    system, path = file_system(url)
    try:
        return system.info(path)["type"]
    except NotADirectoryError:  # a file stands where a folder of it would
        return None
    except FileNotFoundError as error:
        if _is_missing(error):
            return None
        raise


@with_retries("listed")
def holds_anything(folder: str) -> bool:
    system, path = file_system(folder)
    return bool(system.ls(path, detail=False))


@with_retries("written")
def write_whole(url: str, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it: object stores do so by themselves, disks by a rename."""
    system, path = file_system(url)
    if not isinstance(system, LocalFileSystem):
        try:
            system.pipe_file(path, content)
        except FileNotFoundError as error:  # its bucket
            raise StoreError(url, "written", _reason(error), is_transient=False) from None
        return
    attempt = f"{path}.{uuid.uuid4().hex}"
    try:
        system.makedirs(posixpath.dirname(path), exist_ok=True)
        with open(attempt, "wb") as file:
            file.write(content)
        os.replace(attempt, path)
    except OSError as error:
        with suppress(OSError):
            os.remove(attempt)
        raise StoreError(url, "written", error.strerror or _reason(error), is_transient=False) from None


@with_retries("copied")
def publish(url: str, final: str) -> None:
    """Let a file stand under its final name: renamed on a disk, copied by the server in a store, which cannot rename.

    Where that was done before, it stays as it is. Raises FileNotFoundError where there is no file of either name.
    """
    system, source = file_system(url)
    _, target = file_system(final)
    try:
        if isinstance(system, LocalFileSystem):
            os.makedirs(posixpath.dirname(target), exist_ok=True)
            os.replace(source, target)
        else:
            system.cp_file(source, target)
    except FileNotFoundError:
        if not system.exists(target):
            raise


@with_retries("removed")
def remove(url: str) -> None:
    """Remove a file or all of a folder, where there is one."""
    system, path = file_system(url)
    if system.exists(path):
        with suppress(FileNotFoundError):  # by an attempt before, whose answer was lost
            system.rm(path, recursive=True)
        if system.exists(path):  # s3fs says nothing of files that it could not remove
            raise ConnectionError("some of it is still there")


@with_retries("listed")
def names_below(folder: str) -> list[str]:
    """The names of the files below a folder, relative to it and sorted; none where the folder does not exist."""
    system, path = file_system(folder)
    return sorted(name.removeprefix(path).lstrip("/") for name in system.find(path))
