"""Read TFRecord files of tf.train.Example with protobuf, by TensorFlow's own declaration of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import google_crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def tf_example_class() -> Any:
    """tf.train.Example, as tensorflow/core/example/{feature,example}.proto declare it."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="chatmill/example.proto", package="tensorflow", syntax="proto3")

    def message(name: str) -> Any:
        return file.message_type.add(name=name)

    for name, kind in (
        ("BytesList", field.TYPE_BYTES),
        ("FloatList", field.TYPE_FLOAT),
        ("Int64List", field.TYPE_INT64),
    ):
        value = message(name).field.add(name="value", number=1, type=kind, label=field.LABEL_REPEATED)
        if kind != field.TYPE_BYTES:
            value.options.packed = True
    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")), start=1
    ):
        feature.field.add(
            name=name,
            number=number,
            type=field.TYPE_MESSAGE,
            type_name=f".tensorflow.{kind}",
            label=field.LABEL_OPTIONAL,
            oneof_index=0,
        )
    features = message("Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    of_message = {"type": field.TYPE_MESSAGE, "label": field.LABEL_OPTIONAL}
    entry.field.add(name="value", number=2, type_name=".tensorflow.Feature", **of_message)
    features.field.add(
        name="feature",
        number=1,
        type=field.TYPE_MESSAGE,
        type_name=".tensorflow.Features.FeatureEntry",
        label=field.LABEL_REPEATED,
    )
    message("Example").field.add(name="features", number=1, type_name=".tensorflow.Features", **of_message)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example = tf_example_class()


def masked_crc(content: bytes) -> int:
    crc = google_crc32c.value(content)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32


def read_records(content: bytes) -> Iterator[bytes]:
    """uint64 length, uint32 masked crc of the length, the record, uint32 masked crc of the record; little-endian."""
    at = 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        (crc_of_length,) = struct.unpack_from("<I", content, at + 8)
        record = content[at + 12 : at + 12 + length]
        (crc_of_record,) = struct.unpack_from("<I", content, at + 12 + length)
        assert len(record) == length
        assert crc_of_length == masked_crc(content[at : at + 8])
        assert crc_of_record == masked_crc(record)
        yield record
        at += 16 + length
    assert at == len(content)


def rows_of_tfrecord(content: bytes) -> list[dict[str, list[Any]]]:
    """The features of each Example, by name. An Example must be as short as protobuf would write it."""
    rows = []
    for record in read_records(content):
        parsed = Example.FromString(record)
        parsed.DiscardUnknownFields()
        assert parsed.ByteSize() == len(record)  # packed, each name once, no unknown field
        features = parsed.features.feature
        rows.append({name: list(getattr(features[name], features[name].WhichOneof("kind")).value) for name in features})
    return rows
