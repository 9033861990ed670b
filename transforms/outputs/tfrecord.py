"""TFRecord shards: a tf.train.Example for each row, as TensorFlow reads them.

Format: https://www.tensorflow.org/tutorials/load_data/tfrecord. A record is its length (uint64), the masked CRC32C of
the length, the Example, and the masked CRC32C of the Example. The Example is encoded here from arrays, as
https://protobuf.dev/programming-guides/encoding specifies, since protobuf would make a Python object of each token.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from transforms.outputs import OutputFormat, OutputOptions, ShardEntry
from transforms.rows.ragged import offsets_of


def encode_tfrecord(table: pa.Table) -> bytes:
    """Return the bytes of a TFRecord file.

    Lists of floats become float lists, other lists and integers int64 lists, strings bytes lists, nulls empty.
    """
    features = [_encoded_features(name, table[name].combine_chunks()) for name in sorted(table.column_names)]
    records = []
    for row in zip(*features, strict=True):
        message = b"".join(row)
        records.append(_record(_field(1, message)))
    return b"".join(records)


def encode_varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encode integers as protobuf's varints.

    Args:
        values: int64, or a narrower signed type, shape (values,).

    Returns:
        The bytes of all varints, uint8, and the number of bytes of each, int64, shape (values,).
    """
    unsigned = values.astype(np.int64).view(np.uint64)
    thresholds = np.array([1 << (7 * i) for i in range(1, 10)], np.uint64)
    lengths = np.searchsorted(thresholds, unsigned, side="right") + 1
    offsets = offsets_of(lengths)
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    groups = np.repeat(unsigned, lengths) >> (7 * position).astype(np.uint64)
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded[position < np.repeat(lengths, lengths) - 1] |= 0x80
    return encoded, lengths


def _encoded_features(name: str, column: pa.Array) -> list[bytes]:
    """Encode an entry of Features.feature for each row: {1: name, 2: Feature}."""
    key = _field(1, name.encode())
    return [_field(1, key + _field(2, feature)) for feature in _features(column)]


def _features(column: pa.Array) -> list[bytes]:
    if pa.types.is_string(column.type):
        return [_field(1, b"" if text is None else _field(1, text.encode())) for text in column.to_pylist()]
    if pa.types.is_list(column.type):
        values = column.values.to_numpy(zero_copy_only=False)
        offsets = column.offsets.to_numpy().astype(np.int64)
    else:
        values = column.to_numpy(zero_copy_only=False)
        offsets = np.arange(len(column) + 1)
    if pa.types.is_floating(column.type.value_type if pa.types.is_list(column.type) else column.type):
        content, edges = values.astype("<f4").tobytes(), 4 * offsets
        return [_field(2, part) for part in _packed(content, edges)]
    encoded, lengths = encode_varints(values)
    edges = offsets_of(lengths)[offsets]
    return [_field(3, part) for part in _packed(encoded.tobytes(), edges)]


def _packed(content: bytes, edges: np.ndarray) -> list[bytes]:
    """Encode the list of values of each row. edges: int64, shape (rows + 1,): the bytes where each row begins."""
    return [_field(1, content[a:b]) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]


def _field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field of a message."""
    length = encode_varints(np.array([len(content)]))[0].tobytes() if len(content) > 127 else bytes([len(content)])
    return bytes([number << 3 | 2]) + length + content


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _masked_crc(length) + message + _masked_crc(message)


def _masked_crc(content: bytes) -> bytes:
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _encode(table: pa.Table, options: OutputOptions) -> Mapping[str, bytes]:
    content = encode_tfrecord(table)
    if options.compress_tfrecord:
        return {".tfrecord.gz": gzip.compress(content, mtime=0)}
    return {".tfrecord": content}


def _loading_code(folder: str, shards: Sequence[ShardEntry]) -> str:
    compression = ', compression_type="GZIP"' if shards[0]["path"].endswith(".gz") else ""
    files = f'tf.io.gfile.glob("{folder}/tfrecord/train-*")'
    return f"import tensorflow as tf; rows = tf.data.TFRecordDataset({files}{compression})"


FORMAT = OutputFormat(folder="tfrecord", encode=_encode, loading_code=_loading_code)
