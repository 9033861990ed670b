"""Compression: the complete content of a compressed file, or an error."""

from __future__ import annotations

import bz2
import functools
import io
import lzma
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

_AT_ONCE = 1 << 20
# pyarrow gives nothing of a read in which it meets damage.
_BEFORE_DAMAGE = 1 << 16
# What `xz -9` needs is 65 MiB; the header of a file may claim 4 GiB. A zstd frame has at most 128 MiB by itself.
_XZ_MEMORY = 1 << 28
# So much of a sample says how well the file is compressed, with steps that are small to it.
_SAMPLED, _SAMPLED_AT_ONCE = 1 << 26, 1 << 16

COMPRESSION_OF_SUFFIX = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}


def decompressed(raw: Any, compression: str | None) -> BinaryIO:
    """Return a file of the decompressed content of another.

    Args:
        raw: the compressed file, open for reading.
        compression: gzip, bz2, xz, zstd or None, for which the file itself is returned.

    Returns:
        A file whose reads raise EOFError if the compressed one is corrupt or ends early.
    """
    if compression is None:
        return raw
    reader = _Frames(raw, _FRAMES[compression]) if compression in _FRAMES else _Stream(raw, compression)
    return io.BufferedReader(reader, _AT_ONCE)


def skip_to(file: BinaryIO, position: int) -> None:
    """Go to a position of a file that has not been read; to its end if it is shorter."""
    if file.seekable():
        file.seek(position)
        return
    while position and (skipped := len(file.read(min(position, _AT_ONCE)))):
        position -= skipped


def estimated_size(sample: bytes, size: int, compression: str) -> int:
    """Estimate how many bytes a compressed file is when it is decompressed.

    Args:
        sample: the start of the file.
        size: of the file.
        compression: as for decompressed.

    Returns:
        The estimate; 0 if the sample cannot be decompressed.
    """
    raw, unpacked = io.BytesIO(sample), 0
    file = decompressed(raw, compression)
    with suppress(EOFError):  # the sample ends inside a frame
        while unpacked < _SAMPLED and (found := len(file.read(_SAMPLED_AT_ONCE))):
            unpacked += found
    return unpacked * size // raw.tell()


class _Stream(io.RawIOBase):
    """Reads gzip and zstd by pyarrow."""

    def __init__(self, raw: Any, compression: str):
        import pyarrow as pa  # a tenth of a second, which only those need who read such a file

        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), compression)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._stream.readinto(memoryview(buffer)[:_BEFORE_DAMAGE])
        except OSError as error:
            if type(error) is not OSError or error.errno:  # of the compressed file itself
                raise
            raise EOFError(str(error)) from None


class _Frames(io.RawIOBase):
    """Reads bz2 and xz: all frames, and the zeros after one, with which xz files are padded.

    pyarrow has no xz, and stops at an empty frame of bz2; the files of the standard library end at a frame that is
    damaged, without an error.
    """

    def __init__(self, raw: Any, decompressor: Callable[[], Any]):
        self._raw = raw
        self._decompressor = decompressor
        self._frame: Any = None
        self._input = b""
        self._padding = b""  # what may follow the last frame

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        output = b""
        while not output:
            if self._frame is None or self._frame.needs_input:
                self._input = self._input or self._raw.read(1 << 16)
                if not self._input and self._frame is not None:
                    raise EOFError("it ends inside a frame")
            if self._frame is None:
                if not self._input:
                    return 0
                self._input = self._input.lstrip(self._padding)
                if not self._input:
                    continue
                self._frame, self._padding = self._decompressor(), b"\0"
            try:
                output = self._frame.decompress(self._input, min(len(buffer), _AT_ONCE))
            except (OSError, lzma.LZMAError) as error:
                raise EOFError(str(error)) from None
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
        buffer[: len(output)] = output
        return len(output)


# Decompressors of one frame, which report where it ends and what follows.
_FRAMES: dict[str, Callable[[], Any]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY),
}
