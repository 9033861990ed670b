"""Compression: the complete content of a compressed file, or an error."""

from __future__ import annotations

import bz2
import functools
import io
import lzma
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

_AT_ONCE = 1 << 20
# Of what is read, and of what pyarrow is asked for: it gives nothing of a read in which it meets damage.
_PIECE = 1 << 16
# What `xz -9` needs is 65 MiB; the header of a file may claim 4 GiB. A zstd frame has at most 128 MiB by itself.
_XZ_MEMORY = 1 << 28
# So much of a sample says how well the file is compressed.
_SAMPLED = 1 << 26

COMPRESSION_OF_SUFFIX = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}

# Decompressors of one frame, which report where it ends and what follows.
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY),
}


def decompressed(raw: Any, compression: str | None) -> BinaryIO:
    """Return a file of the decompressed content of another, whose reads raise EOFError if this is corrupt or cut short.

    raw: the compressed file, open for reading. compression: gzip, bz2, xz, zstd or None.
    """
    if compression is None:
        return raw
    if compression in _DECOMPRESSORS:
        read = functools.partial(next, filter(None, _decompress_frames(raw, _DECOMPRESSORS[compression])), b"")
    else:
        import pyarrow as pa  # a tenth of a second, which only those need who read such a file

        read = functools.partial(pa.CompressedInputStream(pa.PythonFile(raw, "r"), compression).read, _PIECE)
    return io.BufferedReader(_Content(read), _AT_ONCE)


def skip_to(file: BinaryIO, position: int) -> None:
    """Go to a position of a file that has not been read; to its end if it is shorter."""
    if file.seekable():
        file.seek(position)
        return
    while position and (skipped := len(file.read(min(position, _AT_ONCE)))):
        position -= skipped


def estimated_size(sample: bytes, size: int, compression: str) -> int:
    """Estimate how many bytes a compressed file of some size is when it is decompressed, from its start, the sample.

    It is 0 if that cannot be decompressed.
    """
    raw, unpacked = io.BytesIO(sample), 0
    file = decompressed(raw, compression)
    with suppress(EOFError):  # the sample ends inside a frame
        while unpacked < _SAMPLED and (piece := file.read(_PIECE)):
            unpacked += len(piece)
    return unpacked * size // raw.tell()


class _Content(io.RawIOBase):
    """A file whose content comes in pieces. read: returns the next one, which is empty at the end."""

    def __init__(self, read: Callable[[], bytes]):
        self._read = read
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            self._rest = self._rest or self._read()
        except (OSError, lzma.LZMAError) as error:
            if isinstance(error, OSError) and (type(error) is not OSError or error.errno):
                raise  # of the compressed file itself
            raise EOFError(str(error)) from None
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _decompress_frames(raw: Any, decompressor: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the content of bz2 and xz: of all frames, without the zeros after one, with which xz files are padded.

    pyarrow has no xz, and stops at an empty frame of bz2; the files of the standard library end at a frame that is
    damaged, without an error.
    """
    content = raw.read(_PIECE)
    while content:
        frame = decompressor()
        while not frame.eof:
            if frame.needs_input and not (content := content or raw.read(_PIECE)):
                raise EOFError("it ends inside a frame")
            yield frame.decompress(content, _PIECE)
            content = b""
        content = frame.unused_data.lstrip(b"\0")
        while not content and (piece := raw.read(_PIECE)):
            content = piece.lstrip(b"\0")
