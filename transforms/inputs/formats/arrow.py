"""Arrow files in the IPC stream format, as `datasets.save_to_disk` writes them, or in the IPC file format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from transforms.inputs.formats import InputFormat, Part
from transforms.inputs.tables import ROWS_AT_ONCE, parts_of_batches

_FILE = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def read(file: BinaryIO, start: int, stop: int | None, part_bytes: int) -> Iterator[Part]:
    """Yield all rows of a file, in parts.

    Raises:
        pa.ArrowInvalid: if the file is corrupt.
    """
    if file.read(len(_FILE)) == _FILE:
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        # Otherwise a stream that was cut between two batches would look complete.
        file.seek(-len(_END_OF_STREAM), 2)
        if file.read() != _END_OF_STREAM:
            raise pa.ArrowInvalid("the stream is cut short, its end-of-stream marker is missing")
        file.seek(0)
        batches = iter(pa.ipc.open_stream(file))
    batches = (_validated(batch) for batch in batches)
    smaller = (batch.slice(i, ROWS_AT_ONCE) for batch in batches for i in range(0, len(batch), ROWS_AT_ONCE))
    yield from parts_of_batches(smaller, part_bytes)


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check that lists end within their values. Text that is not UTF-8 costs its row later, not the file."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
    return batch


FORMAT = InputFormat(
    suffixes=(".arrow",),
    read=read,
    recognizes=lambda start: start.startswith((_FILE, _STREAM)),
    may_be_compressed=False,
    position_unit="row",
    errors=(OSError, pa.ArrowException),
)
