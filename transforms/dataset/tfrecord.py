"""Read TFRecord shards as Chatmill writes them: the columns of a known schema, and every checksum."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

from transforms.outputs.tfrecord import masked_crc
from transforms.rows.ragged import offsets_of, sums_of

_BYTES_AT_ONCE = 16 << 20
_HEADER, _CRC = struct.Struct("<Q4s"), 4


def read_tfrecord(file: IO[bytes], schema: pa.Schema, compressed: bool = False) -> Iterator[pa.RecordBatch]:
    """Read the rows of a TFRecord file.

    Args:
        file: open for reading.
        schema: the columns to read, as schema_of returns them.
        compressed: whether the file is gzipped.

    Yields:
        Rows, in batches of some megabytes.

    Raises:
        ValueError: if a checksum is wrong, or an Example has not these columns. It says which record.
        EOFError, OSError: if the gzip stream is damaged.
    """
    stream = gzip.GzipFile(fileobj=file) if compressed else file
    examples: list[bytes] = []
    first = size = 0
    for example in _read_records(stream):
        examples.append(example)
        size += len(example)
        if size >= _BYTES_AT_ONCE:
            yield _decoded(examples, schema, first)
            first, examples, size = first + len(examples), [], 0
    if examples:
        yield _decoded(examples, schema, first)


def _read_records(stream: gzip.GzipFile | IO[bytes]) -> Iterator[bytes]:
    """Read the payload of each record. Raises ValueError if a checksum is wrong, or if the file ends in a record."""
    number = 0
    while header := stream.read(_HEADER.size):
        if len(header) < _HEADER.size:
            raise ValueError(f"it ends within the header of record {number}")
        length, crc = _HEADER.unpack(header)
        if masked_crc(header[:8]) != crc:
            raise ValueError(f"record {number}: the checksum of its length is wrong")
        content = stream.read(length)
        if masked_crc(content) != stream.read(_CRC) or len(content) < length:
            raise ValueError(f"record {number}: its checksum is wrong")
        yield content
        number += 1


def _decoded(examples: list[bytes], schema: pa.Schema, first: int) -> pa.RecordBatch:
    """Decode Examples. first: the number of the first one, for errors."""
    features: dict[str, list[bytes]] = {field.name: [] for field in schema}
    for number, example in enumerate(examples, first):
        try:
            found = dict(_features(example))
            for name, values in features.items():
                values.append(found[name])
        except (KeyError, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"record {number} is not an Example with the columns of the dataset ({error})") from None
    try:
        return pa.record_batch([_array(features[field.name], field) for field in schema], schema=schema)
    except IndexError as error:
        last = first + len(examples) - 1
        raise ValueError(f"one of the records {first} to {last} has a list without its values ({error})") from None


def _features(example: bytes) -> Iterator[tuple[str, bytes]]:
    """The name of each feature of an Example, and the content of its list of values."""
    start, stop = _field(example, 0)  # Features
    while start < stop:
        entry, start = _field(example, start)
        key_start, key_stop = _field(example, entry)
        value, _ = _field(example, key_stop)  # Feature
        begin, end = _field(example, value)  # its BytesList, FloatList or Int64List
        yield example[key_start:key_stop].decode(), example[begin:end]


def _field(content: bytes, at: int) -> tuple[int, int]:
    """The content of a length-delimited field whose tag is at a position: where it starts and stops."""
    at += 1
    length = shift = 0
    while True:
        byte = content[at]
        at += 1
        length |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    if at + length > len(content):
        raise IndexError("a field is longer than the record")
    return at, at + length


def _array(lists: list[bytes], field: pa.Field) -> pa.Array:
    """The column of a field, from the contents of the lists of each row."""
    kind = field.type
    if pa.types.is_string(kind):
        texts = [_texts(content) for content in lists]
        return pa.array([found[0] if found else None for found in texts], kind)
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return pa.array([_texts(content) for content in lists], kind)
    packed = [_packed(content) for content in lists]
    flat = np.frombuffer(b"".join(packed), np.uint8)
    edges = offsets_of(np.array([len(content) for content in packed], np.int64))
    if pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        values, offsets = flat.view("<f4"), edges // 4
    else:
        values, offsets = decode_varints(flat), offsets_of(sums_of(flat < 128, edges))
    if not pa.types.is_list(kind):
        return pa.array(values).cast(kind)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values).cast(kind.value_type), kind)


def _packed(content: bytes) -> bytes:
    if not content:
        return b""
    start, stop = _field(content, 0)
    return content[start:stop]


def _texts(content: bytes) -> list[str]:
    texts, at = [], 0
    while at < len(content):
        start, at = _field(content, at)
        texts.append(content[start:at].decode())
    return texts


def decode_varints(encoded: np.ndarray) -> np.ndarray:
    """Decode protobuf's varints. encoded: uint8, shape (bytes,). Returns int64, shape (values,)."""
    ends = np.flatnonzero(encoded < 128)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    places = np.arange(len(encoded)) - np.repeat(starts, ends - starts + 1)
    groups = (encoded & np.uint8(127)).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(groups, starts).view(np.int64) if len(ends) else np.empty(0, np.int64)
