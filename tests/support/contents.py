"""Contents of files: compressed, and tables as pyarrow writes them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    # Without the size in the frame header, as if zstd compresses a pipe.
    ".zst": zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress,
}


def parquet(table: pa.Table, **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def arrow(table: pa.Table, writer: Callable[..., Any] = pa.ipc.new_stream, rows_at_once: int = 50) -> bytes:
    sink = io.BytesIO()
    with writer(sink, table.schema) as file:
        file.write_table(table, max_chunksize=rows_at_once)
    return sink.getvalue()
