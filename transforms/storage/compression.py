"""Compression: the complete content of a compressed file, or an error."""

from __future__ import annotations

import bz2
import functools
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import zstandard

_SKIPPED_AT_ONCE = 1 << 20

COMPRESSION_OF_SUFFIX = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}


def decompressed(raw: Any, compression: str | None) -> BinaryIO:
    """Return a file of the decompressed content of another.

    Args:
        raw: the compressed file, open for reading.
        compression: gzip, bz2, xz, zstd or None, for which the file itself is returned.

    Returns:
        A file whose reads raise EOFError if the compressed one is corrupt, ends early or holds only zeros.
    """
    if compression is None:
        return raw
    return io.BufferedReader(_FrameReader(raw, _DECOMPRESSORS[compression]), buffer_size=1 << 20)


# Decompressors of one frame (a gzip member, an xz stream), which report where it ends and what follows.
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": functools.partial(zlib.decompressobj, wbits=31),
    "bz2": bz2.BZ2Decompressor,
    "xz": functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ),
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


def skip_to(file: BinaryIO, position: int) -> None:
    """Go to a position of a file that has not been read; to its end if it is shorter."""
    if file.seekable():
        file.seek(position)
        return
    while position and (skipped := len(file.read(min(position, _SKIPPED_AT_ONCE)))):
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
    frames = _FrameReader(io.BytesIO(sample), _DECOMPRESSORS[compression])
    unpacked = 0
    try:
        while found := len(frames.read(_SKIPPED_AT_ONCE)):
            unpacked += found
    except EOFError:  # the sample ends inside a frame
        pass
    of_first_frame = zstandard.frame_content_size(sample.lstrip(b"\0")) if compression == "zstd" and unpacked else 0
    return max(unpacked * size // len(sample), of_first_frame)


class _FrameReader(io.RawIOBase):
    """Reads all frames of a compressed file, and checks that each is complete.

    The readers of bz2, lzma and zstandard end without an error at a frame that is damaged or cut short.
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
                    raise EOFError("it holds only zeros" if self._only_zeros else "it ends inside a frame")
                return 0
            if self._frame is None:
                self._input = self._input.lstrip(b"\0")  # padding of xz files and tapes; no frame begins with it
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
