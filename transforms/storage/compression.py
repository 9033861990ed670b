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

_AT_ONCE = 1 << 20
# 128 blocks, which are 16 MiB at most.
_ZSTD_PIECE = 1 << 9
# What `xz -9` needs is 65 MiB; the header of a file may claim 4 GiB. zstandard refuses more than 128 MiB by itself.
_XZ_MEMORY = 1 << 28
# So much of a sample says how well the file is compressed.
_SAMPLED = 1 << 26

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
    frames = _FrameReader(io.BytesIO(sample), _DECOMPRESSORS[compression])
    unpacked = 0
    try:
        while unpacked < _SAMPLED and (found := len(frames.read(_AT_ONCE))):
            unpacked += found
    except EOFError:  # the sample ends inside a frame
        pass
    of_first_frame = zstandard.frame_content_size(sample.lstrip(b"\0")) if compression == "zstd" and unpacked else 0
    return max(unpacked * size // len(sample), of_first_frame)


class _FrameReader(io.RawIOBase):
    """Reads all frames of a compressed file, and checks that each is complete.

    The readers of bz2, lzma and zstandard end without an error at a frame that is damaged or cut short. Each step
    decompresses at most as much as is asked for, since 164 KB can be 5 GB.
    """

    def __init__(self, raw: BinaryIO, decompressor: Callable[[], Any]):
        self._raw = raw
        self._decompressor = decompressor
        self._frame: Any = None
        self._frames = 0
        self._only_zeros = False
        self._input = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._frame is None or self._frame.needs_input:
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
                output = self._frame.decompress(self._input, min(len(buffer), _AT_ONCE))
            except (OSError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
                raise EOFError(str(error)) from None
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
            if output:
                buffer[: len(output)] = output
                return len(output)


class _Gzip:
    """zlib's decompressor with the interface of BZ2Decompressor and LZMADecompressor."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self.needs_input = True

    def decompress(self, content: bytes, max_length: int) -> bytes:
        output = self._member.decompress(self._member.unconsumed_tail + content, max_length)
        self.needs_input = len(output) < max_length and not self._member.unconsumed_tail
        return output

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data


class _Zstd:
    """zstandard's decompressor with the interface of BZ2Decompressor and LZMADecompressor.

    It has no bound on its output. Its input is given in pieces, since a block of four bytes is 128 KiB at most.
    """

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._input = self._output = memoryview(b"")

    def decompress(self, content: bytes, max_length: int) -> memoryview:
        if content:
            self._input = memoryview(content)
        while self._input and not self._output and not self._frame.eof:
            self._output = memoryview(self._frame.decompress(self._input[:_ZSTD_PIECE]))
            self._input = self._input[_ZSTD_PIECE:]
        output, self._output = self._output[:max_length], self._output[max_length:]
        return output

    @property
    def needs_input(self) -> bool:
        return not self._input and not self._output

    @property
    def eof(self) -> bool:
        return self._frame.eof and not self._output

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + bytes(self._input)


# Decompressors of one frame (a gzip member, an xz stream), which report where it ends and what follows.
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": _Gzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY),
    "zstd": _Zstd,
}
