"""Files of the steps of a corpus: Arrow tables with a checksum, of which ranges are read side by side."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from transforms.base.errors import InputError
from transforms.storage.files import join, read_bytes, read_range

T = TypeVar("T")
# The path of a file, relative to the folder of the dataset, and the bytes of it; None for the end of the file.
Range = tuple[str, int, int | None]
_THREADS = 16
_AT_ONCE = 8 * _THREADS
_CHECKSUM_BYTES = 32
# Threads of Arrow for each column of a small table cost more than they save.
_WRITTEN = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def encode_table(table: pa.Table) -> bytes:
    """Return the bytes of a table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_WRITTEN) as writer:
        writer.write_table(table)
    content = bytes(sink.getvalue())
    return content + hashlib.sha256(content).digest()


def read_tables(output: str, ranges: Sequence[Range]) -> Iterator[pa.Table]:
    """Read tables of encode_table, in order, some at once. Raises InputError if a file is missing or damaged."""
    return in_threads(lambda *each: _read(output, *each), ranges)


def in_threads(function: Callable[..., T], arguments: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """Call a function with each of many arguments, some at once, and yield what it returns, in order."""
    each = iter(arguments)
    with ThreadPoolExecutor(_THREADS) as pool:
        while batch := [*itertools.islice(each, _AT_ONCE)]:
            yield from pool.map(lambda one: function(*one), batch)


def _read(output: str, path: str, start: int, stop: int | None) -> pa.Table:
    url = join(output, path)
    try:
        content = read_bytes(url) if stop is None else read_range(url, start, stop)
    except FileNotFoundError:
        raise InputError(f"{url}: examples that were sent are missing. Run the same command again.") from None
    if hashlib.sha256(content[:-_CHECKSUM_BYTES]).digest() != content[-_CHECKSUM_BYTES:]:
        raise InputError(f"{url}: the examples are damaged: they are not as they were written. Build it again.")
    return pa.ipc.open_stream(pa.py_buffer(content), options=_READ).read_all()
