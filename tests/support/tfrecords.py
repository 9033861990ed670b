"""Read TFRecord files of tf.train.Example with Beam and protobuf, by TensorFlow's own declaration of it."""

from __future__ import annotations

import io
from typing import Any

from apache_beam.io.tfrecordio import _TFRecordUtil
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

# tensorflow/core/example/{feature,example}.proto, as a descriptor.
_PROTO = """
name: "chatmill/example.proto" package: "tensorflow" syntax: "proto3"
message_type {
  name: "BytesList" field { name: "value" number: 1 type: TYPE_BYTES label: LABEL_REPEATED }
}
message_type {
  name: "FloatList"
  field { name: "value" number: 1 type: TYPE_FLOAT label: LABEL_REPEATED options { packed: true } }
}
message_type {
  name: "Int64List"
  field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED options { packed: true } }
}
message_type {
  name: "Feature"
  oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type_name: ".tensorflow.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type_name: ".tensorflow.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type_name: ".tensorflow.Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  nested_type {
    name: "FeatureEntry"
    options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type_name: ".tensorflow.Feature" label: LABEL_OPTIONAL }
  }
  field { name: "feature" number: 1 type_name: ".tensorflow.Features.FeatureEntry" label: LABEL_REPEATED }
}
message_type { name: "Example" field { name: "features" number: 1 type_name: ".tensorflow.Features" } }
"""
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))
Example = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("tensorflow.Example"))


def rows_of_tfrecord(content: bytes) -> list[dict[str, list[Any]]]:
    """The features of each Example, by name. An Example must be as short as protobuf would write it."""
    file, rows = io.BytesIO(content), []
    while record := _TFRecordUtil.read_record(file):  # it compares both checksums
        parsed = Example.FromString(record)
        parsed.DiscardUnknownFields()
        assert parsed.ByteSize() == len(record)  # packed, each name once, no unknown field
        features = parsed.features.feature
        rows.append({name: list(getattr(features[name], features[name].WhichOneof("kind")).value) for name in features})
    return rows
