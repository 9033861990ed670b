"""Kept examples: the labelled examples of a part of a split, as a file, from which other rows can be made.

They are whole: before rows are cut and packed. With them are the outcomes of the part's records so far, so that what is
made of them is what a build makes of the records.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import pyarrow as pa

from transforms.base.errors import InputError
from transforms.model.batches import Labels, RowSource, Split
from transforms.model.examples import content_digest
from transforms.model.outcomes import Outcomes
from transforms.rows import IGNORED
from transforms.storage.files import join

_CHECKSUM_BYTES = 32


class _Kept(msgspec.Struct, frozen=True):
    """A part. Arrays are bytes, little endian, in the types of Labels and RowSource; `trained` is packed bits."""

    part: int
    last: bool
    outcomes: Outcomes
    ids: bytes
    trained: bytes
    offsets: bytes
    weights: bytes | None
    parts: bytes | None
    positions: bytes
    validation: bytes
    validation_hashes: bytes | None
    numbers: bytes | None
    desirable: bytes | None
    columns: bytes | None
    contents: list[bytes | None] | None
    found: list[str | None] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


def encode_examples(batch: Labels) -> bytes:
    """Return the content of the file of a part.

    Args:
        batch: the part, as it is labelled.
    """
    source, contents = batch.source, None
    if source.contents is not None:
        contents = [content_digest(content) for content in source.contents]
    kept = _Kept(
        part=batch.part,
        last=batch.last,
        outcomes=batch.outcomes,
        ids=_bytes(batch.ids, "<i4"),
        trained=np.packbits(batch.labels != IGNORED).tobytes(),
        offsets=_bytes(batch.offsets, "<i8"),
        weights=None if batch.weights is None else _bytes(batch.weights, "<f4"),
        parts=None if batch.parts is None else _bytes(batch.parts, "<i4"),
        positions=_bytes(source.positions, "<i8"),
        validation=_bytes(source.validation, "?"),
        validation_hashes=None if source.validation_hashes is None else _bytes(source.validation_hashes, "<u8"),
        numbers=None if source.numbers is None else _bytes(source.numbers, "<i8"),
        desirable=None if source.desirable is None else _bytes(source.desirable, "?"),
        columns=None if source.columns is None else _table_bytes(source.columns),
        contents=contents,
        found=None if source.found is None else list(source.found),
    )
    content = _encode(kept)
    packed = pa.Codec("zstd").compress(content, asbytes=True)
    body = len(content).to_bytes(8, "little") + packed
    return body + hashlib.sha256(body).digest()


def decode_examples(content: bytes, split: Split, url: str) -> Labels:
    """Return a part of a split.

    Args:
        content: of the file of the part.
        split: that it belongs to.
        url: of the file, for errors.

    Raises:
        InputError: if the file is damaged.
    """
    body, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        raise InputError(f"{url}: the kept examples are damaged: they are not as they were written. Build it again.")
    size = int.from_bytes(body[:8], "little")
    kept = _decode(pa.Codec("zstd").decompress(body[8:], size, asbytes=True))
    ids = np.frombuffer(kept.ids, "<i4")
    trained = np.unpackbits(np.frombuffer(kept.trained, np.uint8), count=len(ids)).astype(bool)
    source = RowSource(
        positions=np.frombuffer(kept.positions, "<i8"),
        validation=np.frombuffer(kept.validation, "?"),
        columns=None if kept.columns is None else pa.ipc.open_stream(kept.columns).read_all(),
        numbers=None if kept.numbers is None else np.frombuffer(kept.numbers, "<i8"),
        contents=kept.contents,
        desirable=None if kept.desirable is None else np.frombuffer(kept.desirable, "?"),
        validation_hashes=None if kept.validation_hashes is None else np.frombuffer(kept.validation_hashes, "<u8"),
        found=kept.found,
    )
    return Labels(
        split=split,
        part=kept.part,
        last=kept.last,
        outcomes=kept.outcomes,
        ids=ids,
        labels=np.where(trained, ids, np.int32(IGNORED)),
        offsets=np.frombuffer(kept.offsets, "<i8"),
        source=source,
        weights=None if kept.weights is None else np.frombuffer(kept.weights, "<f4"),
        parts=None if kept.parts is None else np.frombuffer(kept.parts, "<i4"),
    )


def examples_of(output: str, increment: str) -> str:
    """Return the url of the folder of the examples that an increment keeps.

    Args:
        output: the folder of the dataset.
        increment: its id; empty for the folder of those of all increments.
    """
    return join(output, "_chatmill", "examples", increment)


def name_of_examples(split: Split, part: int) -> str:
    """Return the name of the file of a part. What the reference made again has another one, as in `steps.write`."""
    return f"{split.number:06d}-{part:03d}{'r' if split.differing else ''}"


def _bytes(values: np.ndarray, kind: str) -> bytes:
    return values.astype(kind, copy=False).tobytes()


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
