"""TSV with a header: tab-separated cells, which may be in double quotes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from transforms.files.delimited import read_delimited
from transforms.files.formats import Chunk, InputFormat


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield all rows, in chunks. Raises ValueError as read_delimited does."""
    return read_delimited(file, chunk_bytes, "\t", max_record_bytes)


FORMAT = InputFormat(
    suffixes=(".tsv",), read=read, position_unit="row", errors=(OSError, ValueError, pa.ArrowException)
)
