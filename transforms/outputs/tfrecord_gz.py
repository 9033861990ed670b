"""TFRecord shards that are gzipped."""

from __future__ import annotations

import gzip

import pyarrow as pa

from transforms.outputs import CreateFile, OutputFormat
from transforms.outputs.tfrecord import encode_tfrecord, tfrecord_loading_code


class _Writer:
    def __init__(self, create: CreateFile):
        # Without a time, so that the same rows are the same bytes.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=create(".tfrecord.gz"), mtime=0)

    def write(self, table: pa.Table) -> None:
        self._file.write(encode_tfrecord(table))

    def close(self) -> None:
        self._file.close()  # not the file below it


FORMAT = OutputFormat("tfrecord", _Writer, tfrecord_loading_code)
