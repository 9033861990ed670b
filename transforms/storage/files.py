"""Files at any url that fsspec opens: they are found, and read completely.

What is read is retried, and is never less than was requested. If the file does not exist, FileNotFoundError is raised,
and StoreError if its store fails.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, BinaryIO
from urllib.parse import SplitResult, parse_qsl, urlsplit

import fsspec
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.local import LocalFileSystem

from transforms.base.errors import InputError, UserError
from transforms.storage.compression import decompressed
from transforms.storage.hub import hub_file, open_hub_file, read_hub_range
from transforms.storage.ranges import RangeReader, complete, range_reader
from transforms.storage.retries import store_errors, url_protocol, with_retries
from transforms.storage.versions import check_version

# Query parameters that say which file it is, or how it is sent. Any other one may be a credential: each service has
# names of its own for keys, tokens and signatures.
_HARMLESS = frozenset(
    ("alt", "dl", "download", "format", "generation", "inline", "raw", "ref", "rev", "revision", "version", "versionid")
)

# What reads files through another file system (archives, caches), and servers that neither give ranges nor versions.
_NOT_OPENED = frozenset({
    "", "blockcache", "cached", "dir", "filecache", "ftp", "generic", "libarchive", "reference", "simplecache", "tar",
    "zip",
})  # fmt: skip

_READ_AHEAD = 4 << 20


def file_system(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a url, and the path in it.

    A name without `://` is a path on this machine, even if it contains `::`. fsspec itself would take `::` in a path or
    in the key of an object for a url inside of another.

    Raises:
        UserError: if no file system opens such a url, or if the url contains a credential.
    """
    if "\0" in url or any("\ud800" <= character <= "\udfff" for character in url):
        raise UserError(f"{url!a}: the name is not UTF-8 text, as all names of files in a dataset are. Rename it.")
    if "://" not in url:
        return LocalFileSystem(use_listings_cache=False), LocalFileSystem._strip_protocol(url)
    try:
        links = [urlsplit(link) for link in url.split("::") if "://" in link]
    except ValueError as error:
        raise UserError(f"{url}: it is not a url ({error}).") from None
    for parts in links:
        if credential := _credential_in(parts):
            problem = f"the url has {credential}, which would be stored with the dataset"
            help = "Give the url without it, and set credentials in the environment."
            raise UserError(f"{parts.scheme}://{parts.hostname}{parts.path}: {problem}. {help}")
    protocol = url_protocol(url)
    if "::" in protocol or protocol in _NOT_OPENED:
        help = "Unpack an archive, or copy the files to a disk or a bucket."
        raise UserError(f"{url}: files on {protocol}:// are not opened. {help}")
    try:
        kind = fsspec.get_filesystem_class(protocol)
        # Other processes write to the folders that this one lists: a cached listing would hide their files. None writes
        # to a commit on the Hub, whose file system has the cache that `datasets` uses, too.
        options = {} if protocol == "hf" else {"use_listings_cache": False}
        return kind(**options, **kind._get_kwargs_from_urls(url)), kind._strip_protocol(url)
    except (ValueError, ImportError) as error:
        raise UserError(f"{url}: {error}.") from None


def _credential_in(parts: SplitResult) -> str:
    """What of a url may let anyone who has it read the file; empty if nothing does."""
    is_http = parts.scheme in ("http", "https")
    if parts.password or (is_http and parts.username):
        return "a password"
    given = [*parse_qsl(parts.query, True), *parse_qsl(parts.fragment, True)] if is_http else []
    unknown = next((name for name, _ in given if name.lower() not in _HARMLESS), None)
    return "" if unknown is None else f"{unknown[:40]!r} in its query, which may be a credential"


def check_reachable(url: str) -> None:
    """Raise StoreError if a store does not answer within 30 seconds; some clients keep trying for minutes."""
    system, path = file_system(url)
    if isinstance(system, AsyncFileSystem):
        with store_errors(url, "reached"):
            sync(system.loop, system._exists, path, timeout=30)


def join(folder: str, *names: str) -> str:
    """Return the url of a file in a folder, from the folder's url."""
    return posixpath.join(folder, *names)


def resolved(url: str) -> str:
    """Return a full url in the form that all paths to the same file or folder have: local links are resolved."""
    return os.path.realpath(url) if "://" not in url else url.rstrip("/")


def full_url(url: str) -> str:
    """Return the url that is the same file in any process and working directory."""
    system, path = file_system(url)
    return os.path.normpath(path) if isinstance(system, LocalFileSystem) else system.unstrip_protocol(path)


@contextmanager
def open_input(url: str, compression: str | None, version: str = "", reads: int = 0) -> Iterator[BinaryIO]:
    """Open an input file for reading: inside, its bytes without compression.

    Args:
        url: of the file.
        compression: gzip, bz2, xz, zstd or None.
        version: that all bytes are of, of file_version; any if it is empty.
        reads: about how many bytes of the file will be read; 0 for a look at it. It decides whether a file of the Hub
            is downloaded.

    Raises:
        InputError: while it is read, if it is corrupt or ends early.
        UserError: if it does not exist or is of another version, also if that shows only after the last byte.
    """
    try:
        with open_file(url, version, reads) as raw, _held_to(version, url, raw) if version else nullcontext():
            yield decompressed(raw, compression)
    except FileNotFoundError:
        problem = "the file was deleted after the job was planned. Restore it, or run again with other inputs."
        raise UserError(f"{url}: {problem}") from None
    except EOFError as error:
        problem = f"the {compression} stream is corrupt or cut short ({error}), so the rest of it cannot be read"
        raise InputError(f"{url}: {problem}. Restore the file, or remove it from the inputs.") from None


@with_retries("read")
def open_file(url: str, version: str = "", reads: int = 0) -> io.BufferedReader:
    """Open a file for reading, without decompression. version, reads: as of open_input."""
    if file := hub_file(url):
        return open_hub_file(file, int(version.split()[0]) if version else _info(url)["size"], reads)
    system, path = file_system(url)
    if isinstance(system, LocalFileSystem):
        return open(path, "rb")
    # Not fsspec's own buffer: that of s3fs reads 50 MiB ahead of each task.
    return io.BufferedReader(range_reader(url, system, path), buffer_size=_READ_AHEAD)


@contextmanager
def _held_to(version: str, url: str, file: io.BufferedReader) -> Iterator[None]:
    """Check before the first byte of a file and after its last that it is of a version."""
    reader = file.raw if isinstance(file.raw, RangeReader) else None

    def look() -> dict[str, Any]:
        if reader:
            return _info(url)
        status = os.fstat(file.fileno())
        return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}

    check_version(url, version, reader.entry if reader else look())
    try:
        yield
    except Exception:
        check_version(url, version, look())  # what was read makes no sense if it is of two versions
        raise
    if not (reader and reader.is_pinned):
        check_version(url, version, look())


@with_retries("read")
def _info(url: str) -> dict[str, Any]:
    system, path = file_system(url)
    return system.info(path)


@with_retries("read")
def read_bytes(url: str) -> bytes:
    """Return the content of a file, without decompression."""
    with open_file(url) as file:
        return file.read()


def map_file(file: BinaryIO) -> mmap.mmap | None:
    """Return the content of an open file as the system has it in memory; None if it is not on a disk, or is empty."""
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None


@with_retries("read")
def size_and_sha256(url: str) -> tuple[int, str]:
    """Return the bytes of a file, and the sha256 of its content, in hexadecimal, which is read in pieces."""
    digest, size = hashlib.sha256(), 0
    with open_file(url) as file:
        while piece := file.read(_READ_AHEAD):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


@with_retries("read")
def read_range(url: str, start: int, stop: int) -> bytes:
    """Return the bytes of a file from start to stop, which is not after its end, without decompression."""
    if file := hub_file(url):
        return read_hub_range(file, start, stop)
    system, path = file_system(url)
    return complete(system.cat_file(path, start=start, end=stop), start, stop - start)


@with_retries("reached")
def exists(url: str) -> bool:
    """Return whether there is a file or folder."""
    system, path = file_system(url)
    # The other clients take any error for "no"; that of an http server, which may refuse to say, is one.
    return system.exists(path) if isinstance(system, AsyncFileSystem) else path_type(url) is not None


def path_type(url: str) -> str | None:
    """Return "file" or "directory"; None if there is neither."""
    with suppress(FileNotFoundError):
        return _info(url)["type"]
    return None
