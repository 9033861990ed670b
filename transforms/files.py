"""Files at any url that fsspec opens: reading them, also compressed, and writing them whole or not at all."""

from __future__ import annotations

import bz2
import functools
import io
import lzma
import os
import posixpath
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import fsspec
import zstandard
from fsspec.implementations.local import LocalFileSystem

from transforms.errors import InputError, UserError

COMPRESSION_OF_SUFFIX = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a url, and the path in it. Raises UserError where there is none for such a url."""
    try:
        return fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise UserError(f"{url}: {error}.") from None


def join(folder: str, *names: str) -> str:
    """The url of a file below a folder's url."""
    return posixpath.join(folder, *names)


def full_url(url: str) -> str:
    """The url by which any working directory and any process finds the same file."""
    system, path = file_system(url)
    return os.path.normpath(path) if isinstance(system, LocalFileSystem) else system.unstrip_protocol(path)


@contextmanager
def open_input(url: str, compression: str | None) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed. Raises InputError where it is missing, corrupt or ends early."""
    system, path = file_system(url)
    try:
        with system.open(path, "rb") as raw:
            yield _decompressed(raw, compression)
    except FileNotFoundError:
        raise InputError(f"{url}: the file is gone since the job was planned. Put it back, or run anew.") from None
    except EOFError as error:
        raise InputError(
            f"{url}: the {compression} stream is corrupt or cut short ({error}), so what follows cannot be read. "
            "Restore the file, or leave it out of --input."
        ) from None


def _decompressed(raw: Any, compression: str | None) -> BinaryIO:
    if compression is None:
        return raw
    return io.BufferedReader(_Frames(raw, _DECOMPRESSORS[compression]), buffer_size=1 << 20)


# What decompresses one frame (a gzip member, an xz stream), and tells its end and what follows it.
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": functools.partial(zlib.decompressobj, wbits=31),
    "bz2": bz2.BZ2Decompressor,
    "xz": functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ),
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


class _Frames(io.RawIOBase):
    """All frames of a compressed file, each of them whole.

    The readers that come with bz2, lzma and zstandard end silently at a frame that is damaged or cut short.
    """

    def __init__(self, raw: BinaryIO, decompressor: Callable[[], Any]):
        self._raw = raw
        self._decompressor = decompressor
        self._frame: Any = None
        self._frames = 0
        self._only_zeros = False
        self._input = b""
        self._output = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            self._input = self._input or self._raw.read(1 << 16)
            if not self._input:
                if self._frame is not None or self._only_zeros:
                    raise EOFError("it holds only zeros" if self._only_zeros else "it ends in the middle")
                return 0
            if self._frame is None:
                self._input = self._input.lstrip(b"\0")  # what xz and tapes pad with; no frame begins so
                if not self._input:
                    self._only_zeros = self._frames == 0
                    continue
                self._frame, self._only_zeros = self._decompressor(), False
                self._frames += 1
            try:
                self._output = self._frame.decompress(self._input)
            except (OSError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                raise EOFError(str(error)) from None
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._output))
        buffer[:size], self._output = self._output[:size], self._output[size:]
        return size


def read_bytes(url: str) -> bytes:
    system, path = file_system(url)
    return system.cat_file(path)


def exists(url: str) -> bool:
    system, path = file_system(url)
    return system.exists(path)


def make_folder(url: str) -> None:
    system, path = file_system(url)
    system.makedirs(path, exist_ok=True)


def write_whole(url: str, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it: object stores do so by themselves, disks by a rename."""
    system, path = file_system(url)
    if not isinstance(system, LocalFileSystem):
        system.pipe_file(path, content)
        return
    system.makedirs(posixpath.dirname(path), exist_ok=True)
    attempt = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(attempt, "wb") as file:
            file.write(content)
        os.replace(attempt, path)
    except BaseException:
        if os.path.exists(attempt):
            os.remove(attempt)
        raise


def names_below(folder: str) -> list[str]:
    """The names of the files below a folder, relative to it and sorted; none where the folder does not exist."""
    system, path = file_system(folder)
    return sorted(name.removeprefix(path).lstrip("/") for name in system.find(path))
