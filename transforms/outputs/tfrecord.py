"""TFRecord shards: a tf.train.Example for each row, as TensorFlow reads them.

Format: https://www.tensorflow.org/tutorials/load_data/tfrecord. A record is its length (uint64), the masked CRC32C of
the length, the Example, and the masked CRC32C of the Example. The Example is encoded here from arrays, as
https://protobuf.dev/programming-guides/encoding specifies, since protobuf would make a Python object of each token.
"""

from __future__ import annotations

import functools
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from transforms.outputs import CreateFile, OutputFormat, ShardEntry, increment_stem
from transforms.rows.ragged import lengths_to_offsets

# The integers from the first to the last of these are looked up in a table of varints, which then has 10 MB.
_FIRST_IN_TABLE, _LAST_IN_TABLE = -128, (1 << 20) - 1
# The fields of a Feature: which kind of list it is.
_BYTES_LIST, _INT64_LIST = 1, 3


def encode_tfrecord(table: pa.Table) -> bytes:
    """Return the records of a TFRecord file, which is nothing else, as bytes.

    Integers and lists of them become int64 lists, strings bytes lists, nulls empty.
    """
    columns = [_features(name, table[name].combine_chunks()) for name in sorted(table.column_names)]
    pieces: list[bytes] = []
    for features in zip(*columns, strict=True):
        entries = b"".join([piece for feature in features for piece in feature])
        message = _encode_field_start(1, len(entries)) + entries
        length = struct.pack("<Q", len(message))
        pieces += (length, masked_crc(length), message, masked_crc(message))
    return b"".join(pieces)


def encode_varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encode signed integers as protobuf's varints: the bytes of all, uint8; and the offsets in them, int64, shape
    (values + 1,).
    """
    if len(values) and values.min() >= _FIRST_IN_TABLE and values.max() <= _LAST_IN_TABLE:
        # 10 ns for each value, and 90 to 180 without a table: -100, the label of most tokens, has ten bytes.
        table = _make_varint_table(int(values.max()).bit_length())
        varints = table.take(pa.array(values.astype(np.int32, copy=False) - _FIRST_IN_TABLE))
        _, offset_bytes, encoded = varints.buffers()
        offsets = np.frombuffer(offset_bytes, np.int64)[: len(values) + 1]
        return np.frombuffer(encoded, np.uint8)[: offsets[-1]], offsets
    return _computed_varints(values)


@functools.cache
def _make_varint_table(bits: int) -> pa.LargeBinaryArray:
    """Return the varints of the integers from the first in the table to the last one of so many bits."""
    encoded, offsets = _computed_varints(np.arange(_FIRST_IN_TABLE, 1 << bits))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(encoded)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _computed_varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    unsigned = values.astype(np.int64).view(np.uint64)
    thresholds = np.array([1 << (7 * i) for i in range(1, 10)], np.uint64)
    lengths = np.searchsorted(thresholds, unsigned, side="right") + 1
    offsets = lengths_to_offsets(lengths)
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    groups = np.repeat(unsigned, lengths) >> (7 * position).astype(np.uint64)
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[position < np.repeat(lengths, lengths) - 1] |= 0x80
    return encoded, offsets


def _features(name: str, column: pa.Array) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Encode an entry of Features.feature for each row: what precedes its values, and its values."""
    is_list = pa.types.is_list(column.type)
    if pa.types.is_string(column.type.value_type if is_list else column.type):
        start = _make_feature_start(name, _BYTES_LIST)
        for texts in column.to_pylist() if is_list else ([] if text is None else [text] for text in column.to_pylist()):
            values = [(text or "").encode() for text in texts]  # a list of bytes has no nulls
            fields = b"".join([_encode_field_start(1, len(value)) + value for value in values])
            yield start(len(fields), False), fields
        return
    if is_list:
        values = column.values.to_numpy(zero_copy_only=False)
        offsets = column.offsets.to_numpy()
    else:
        values = column.to_numpy(zero_copy_only=False)
        offsets = np.arange(len(column) + 1)
    values, offsets = values[offsets[0] : offsets[-1]], offsets - offsets[0]
    start = _make_feature_start(name, _INT64_LIST)
    encoded, value_offsets = encode_varints(values)
    edges = value_offsets[offsets]
    content, at = encoded.data, edges.tolist()
    for begin, end in itertools.pairwise(at):
        yield start(end - begin, True), content[begin:end]


def _make_feature_start(name: str, kind: int) -> Callable[[int, bool], bytes]:
    """Make a function of what precedes the values of a feature, {1: name, 2: {kind: {1: values}}}.

    It takes the number of bytes of the values, and whether the last tag and length precede them. They do not if there
    are no values, or if each of several strings has its own.
    """
    key = name.encode()
    key = _encode_field_start(1, len(key)) + key

    @functools.cache
    def start(size: int, is_tagged: bool) -> bytes:
        written = _encode_field_start(1, size) if is_tagged else b""
        size += len(written)
        for number, before in ((kind, b""), (2, key), (1, b"")):
            field = before + _encode_field_start(number, size)
            written, size = field + written, size + len(field)
        return written

    return start


def _encode_field_start(number: int, length: int) -> bytes:
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


def tfrecord_loading_code(folder: str, shards: Sequence[ShardEntry]) -> str:
    """Return the Python code that loads shards of TFRecord, as OutputFormat says."""
    format = shards[0]["format"]
    compression = ', compression_type="GZIP"' if format == "tfrecord.gz" else ""
    split = "train" if any(shard["split"] == "train" for shard in shards) else "validation"
    # Each increment is named, since those of increments that were replaced are not read.
    increments = dict.fromkeys(increment_stem(shard["path"]) for shard in shards if shard["split"] == split)
    patterns = [f"{folder}/{name}-*.{format}" for name in increments]
    files = f"tf.io.gfile.glob({json.dumps(patterns if len(patterns) > 1 else patterns[0], ensure_ascii=False)})"
    return f"import tensorflow as tf; rows = tf.data.TFRecordDataset({files}{compression})"


FORMAT = OutputFormat("tfrecord", _Writer, tfrecord_loading_code)
