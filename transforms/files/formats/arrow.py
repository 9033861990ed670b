"""Arrow files in the IPC stream format, as `datasets.save_to_disk` writes them, or in the IPC file format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from transforms.files.formats import Chunk, InputFormat, in_chunks
from transforms.files.tables import ROWS_AT_ONCE, check_schema, sized_records

_FILE = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def read(file: BinaryIO, start: int, stop: int | None, chunk_bytes: int, max_record_bytes: int) -> Iterator[Chunk]:
    """Yield the rows of the record batches that begin at bytes start <= position < stop, in chunks.

    In a file, of whose batches pyarrow does not tell the places, they count as if all had the same size. The batches
    before are read too, since the number of their rows is needed.

    Raises:
        pa.ArrowInvalid: if the file is corrupt.
    """
    yield from in_chunks(sized_records(_pieces(file, start, stop), max_record_bytes), chunk_bytes)


def _pieces(file: BinaryIO, start: int, stop: int | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches that begin there, in pieces, each after the number of its first row."""
    row = 0
    for begin, batch in _batches(file):
        if stop is not None and begin >= stop:
            return
        if begin >= start:
            check_schema(batch.schema)
            for column in batch.columns:  # lists must end within their values
                try:
                    column.validate(full=True)
                except pa.ArrowInvalid:  # if it is of text that is not UTF-8 alone, that costs its row later
                    column.view(_with_bytes_for_text(column.type)).validate(full=True)
            yield from ((row + at, batch.slice(at, ROWS_AT_ONCE)) for at in range(0, len(batch), ROWS_AT_ONCE))
        row += len(batch)


def _batches(file: BinaryIO) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield all batches, each after the byte at which it begins."""
    if file.read(len(_FILE)) == _FILE:
        size, reader = file.seek(0, 2), pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield size * i // reader.num_record_batches, reader.get_batch(i)
        return
    # Otherwise a stream that was cut between two batches would look complete.
    file.seek(-len(_END_OF_STREAM), 2)
    if file.read() != _END_OF_STREAM:
        raise pa.ArrowInvalid("the stream is cut short, its end-of-stream marker is missing")
    file.seek(0)
    reader = pa.ipc.open_stream(file)
    begin = file.tell()
    for batch in reader:
        yield begin, batch
        begin = file.tell()


def _with_bytes_for_text(type: pa.DataType) -> pa.DataType:
    """The same type with bytes in place of text, and of what extensions are stored as: pyarrow crashes at tensors."""
    if isinstance(type, pa.BaseExtensionType):
        return _with_bytes_for_text(type.storage_type)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return (pa.list_ if pa.types.is_list(type) else pa.large_list)(_with_bytes_for_text(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(_with_bytes_for_text(field.type)) for field in type])
    return _BYTES.get(type, type)


FORMAT = InputFormat(
    suffixes=(".arrow",),
    read=read,
    recognizes=lambda start: start.startswith((_FILE, _STREAM)),
    can_be_shared=True,
    may_be_compressed=False,
    position_unit="row",
    # Damage may be where a size is, or in the name of a column.
    errors=(OSError, pa.ArrowException, MemoryError, UnicodeDecodeError),
)
