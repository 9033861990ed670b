"""TFRecord shards: a tf.train.Example for each row, as TensorFlow reads them.

Format: https://www.tensorflow.org/tutorials/load_data/tfrecord. A record is its length (uint64), the masked CRC32C of
the length, the Example, and the masked CRC32C of the Example. The Example is encoded here from arrays, as
https://protobuf.dev/programming-guides/encoding specifies, since protobuf would make a Python object of each token.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import google_crc32c
import numpy as np
import pyarrow as pa

from transforms.outputs import CreateFile, OutputFormat, ShardEntry, ShardReader, increment_stem_of
from transforms.rows.ragged import offsets_of, sums_of

# The integers from the first to the last of these are looked up in a table of varints, which then has 10 MB.
_FIRST_IN_TABLE, _LAST_IN_TABLE = -128, (1 << 20) - 1

# A batch that is read has so many bytes.
_BYTES_AT_ONCE = 16 << 20
_HEADER, _CRC = struct.Struct("<Q4s"), 4

# The fields of a Feature: which kind of list it is.
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


def encode_tfrecord(table: pa.Table) -> bytes:
    """Return the records of a TFRecord file, which is nothing else, as bytes.

    Lists of floats become float lists, other lists and integers int64 lists, strings bytes lists, nulls empty.
    """
    columns = [_features(name, table[name].combine_chunks()) for name in sorted(table.column_names)]
    pieces: list[bytes] = []
    for features in zip(*columns, strict=True):
        entries = b"".join([piece for feature in features for piece in feature])
        message = _start_of_field(1, len(entries)) + entries
        length = struct.pack("<Q", len(message))
        pieces += (length, masked_crc(length), message, masked_crc(message))
    return b"".join(pieces)


def encode_varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encode integers as protobuf's varints.

    Args:
        values: int64, or a narrower signed type, shape (values,).

    Returns:
        The bytes of all varints, uint8; and the offsets in them, int64, shape (values + 1,).
    """
    if len(values) and values.min() >= _FIRST_IN_TABLE and values.max() <= _LAST_IN_TABLE:
        # 10 ns for each value, and 90 to 180 without a table: -100, the label of most tokens, has ten bytes.
        table = _table_of_varints(int(values.max()).bit_length())
        found = table.take(pa.array(values.astype(np.int32, copy=False) - _FIRST_IN_TABLE))
        _, offset_bytes, encoded = found.buffers()
        offsets = np.frombuffer(offset_bytes, np.int64)[: len(values) + 1]
        return np.frombuffer(encoded, np.uint8)[: offsets[-1]], offsets
    return _computed_varints(values)


@functools.cache
def _table_of_varints(bits: int) -> pa.LargeBinaryArray:
    """Return the varints of the integers from the first in the table to the last one of so many bits."""
    encoded, offsets = _computed_varints(np.arange(_FIRST_IN_TABLE, 1 << bits))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(encoded)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _computed_varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    unsigned = values.astype(np.int64).view(np.uint64)
    thresholds = np.array([1 << (7 * i) for i in range(1, 10)], np.uint64)
    lengths = np.searchsorted(thresholds, unsigned, side="right") + 1
    offsets = offsets_of(lengths)
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    groups = np.repeat(unsigned, lengths) >> (7 * position).astype(np.uint64)
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[position < np.repeat(lengths, lengths) - 1] |= 0x80
    return encoded, offsets


def _features(name: str, column: pa.Array) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Encode an entry of Features.feature for each row: what precedes its values, and its values."""
    if pa.types.is_string(column.type):
        start = _start_of_feature(name, _BYTES_LIST)
        for text in column.to_pylist():
            content = None if text is None else text.encode()
            yield start(len(content or b""), content is not None), content or b""
        return
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        start = _start_of_feature(name, _BYTES_LIST)
        for texts in column.to_pylist():
            values = [(text or "").encode() for text in texts]  # a list of bytes has no nulls
            content = b"".join([_start_of_field(1, len(value)) + value for value in values])
            yield start(len(content), False), content
        return
    if pa.types.is_list(column.type):
        values = column.values.to_numpy(zero_copy_only=False)
        offsets = column.offsets.to_numpy()
    else:
        values = column.to_numpy(zero_copy_only=False)
        offsets = np.arange(len(column) + 1)
    values, offsets = values[offsets[0] : offsets[-1]], offsets - offsets[0]
    if np.issubdtype(values.dtype, np.floating):
        start = _start_of_feature(name, _FLOAT_LIST)
        encoded, edges = values.astype("<f4").view(np.uint8), 4 * offsets.astype(np.int64)
    else:
        start = _start_of_feature(name, _INT64_LIST)
        encoded, offsets_of_values = encode_varints(values)
        edges = offsets_of_values[offsets]
    content, at = memoryview(encoded), edges.tolist()
    for begin, end in itertools.pairwise(at):
        yield start(end - begin, True), content[begin:end]


def _start_of_feature(name: str, kind: int) -> Callable[[int, bool], bytes]:
    """Make a function of what precedes the values of a feature, {1: name, 2: {kind: {1: values}}}.

    It takes the number of bytes of the values, and whether the last tag and length precede them. They do not if there
    are no values, or if each of several strings has its own.
    """
    key = name.encode()
    key = _start_of_field(1, len(key)) + key

    @functools.cache
    def start(size: int, is_tagged: bool) -> bytes:
        written = _start_of_field(1, size) if is_tagged else b""
        size += len(written)
        for number, before in ((kind, b""), (2, key), (1, b"")):
            field = before + _start_of_field(number, size)
            written, size = field + written, size + len(field)
        return written

    return start


def _start_of_field(number: int, length: int) -> bytes:
    """Encode the tag and the length of a length-delimited field of a message."""
    varint = bytearray()
    while length > 127:
        varint.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *varint, length])


def masked_crc(content: bytes) -> bytes:
    """Return the checksum of TFRecord: CRC32C, rotated, plus a constant."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class _Writer:
    def __init__(self, create: CreateFile):
        self._file = create(".tfrecord")

    def write(self, table: pa.Table) -> None:
        self._file.write(encode_tfrecord(table))

    def close(self) -> None:
        pass


class TFRecordReader(ShardReader):
    """Reads a TFRecord file as Chatmill writes them, and every checksum in it.

    Args:
        file: open for reading.
        path: of the file; if it ends in .gz, it is gzipped.
        schema: the columns to read.
    """

    def __init__(self, file: IO[bytes], path: str, columns: pa.Schema):
        self._stream = gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file
        self._columns = columns

    def batches(self, start: int = 0, stop: int | None = None, threads: bool = True) -> Iterator[pa.RecordBatch]:
        """Read all rows.

        Raises:
            ValueError: if a checksum is wrong, or an Example has not these columns. It says which record.
            EOFError, OSError: if the gzip stream is damaged.
        """
        examples: list[bytes] = []
        first = size = 0
        for example in _read_records(self._stream):
            examples.append(example)
            size += len(example)
            if size >= _BYTES_AT_ONCE:
                yield _decoded(examples, self._columns, first)
                first, examples, size = first + len(examples), [], 0
        if examples:
            yield _decoded(examples, self._columns, first)


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
            found = dict(_lists(example))
            for name, values in features.items():
                values.append(found[name])
        except (KeyError, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"record {number} is not an Example with the columns of the dataset ({error})") from None
    try:
        return pa.record_batch([_array(features[field.name], field) for field in schema], schema=schema)
    except IndexError as error:
        last = first + len(examples) - 1
        raise ValueError(f"one of the records {first} to {last} has a list without its values ({error})") from None


def _lists(example: bytes) -> Iterator[tuple[str, bytes]]:
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


def tfrecord_loading_code(folder: str, shards: Sequence[ShardEntry]) -> str:
    """Return the Python code that loads shards of TFRecord, as OutputFormat says."""
    format = shards[0]["format"]
    compression = ', compression_type="GZIP"' if format == "tfrecord.gz" else ""
    split = "train" if any(shard["split"] == "train" for shard in shards) else "validation"
    # Each increment is named, since those of increments that were replaced are not read.
    increments = dict.fromkeys(increment_stem_of(shard["path"]) for shard in shards if shard["split"] == split)
    patterns = [f"{folder}/{name}-*.{format}" for name in increments]
    files = f"tf.io.gfile.glob({json.dumps(patterns if len(patterns) > 1 else patterns[0], ensure_ascii=False)})"
    return f"import tensorflow as tf; rows = tf.data.TFRecordDataset({files}{compression})"


FORMAT = OutputFormat("tfrecord", _Writer, TFRecordReader, tfrecord_loading_code)
