"""Sent examples: the tokens of examples of a part of a split, as bytes, in which an exchange sends them to a bucket.

They are whole: before they are cut and packed. With them are the outcomes of their records so far.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import pyarrow as pa

from transforms.base.errors import InputError
from transforms.model.batches import Labels, RowSource, Split, Tokens
from transforms.model.outcomes import Outcomes
from transforms.rows import IGNORED

_CHECKSUM_BYTES = 32


class _Sent(msgspec.Struct, frozen=True):
    """A part. Arrays are bytes, little endian, in the types of Tokens and RowSource, by columns; `trained` is packed
    bits.
    """

    part: int
    last: bool
    outcomes: Outcomes
    ids: bytes
    trained: bytes
    offsets: bytes
    parts: bytes | None
    positions: bytes
    validation: bytes
    numbers: bytes | None
    columns: bytes | None
    found: list[str | None] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Sent).decode


def encode_examples(batch: Labels) -> bytes:
    """Return the bytes of examples. batch: some of those of a part; of the labels, it is sent which ones there are."""
    source = batch.source
    sent = _Sent(
        part=batch.part,
        last=batch.last,
        outcomes=batch.outcomes,
        ids=_bytes(batch.ids, "<i4"),
        trained=np.packbits(batch.labels != IGNORED).tobytes(),
        offsets=_bytes(batch.offsets, "<i8"),
        parts=None if batch.parts is None else _bytes(batch.parts, "<i4"),
        positions=_bytes(source.positions, "<i8"),
        validation=_bytes(source.validation, "?"),
        numbers=None if source.numbers is None else _bytes(source.numbers, "<i8"),
        columns=None if source.columns is None else _table_bytes(source.columns),
        found=None if source.found is None else list(source.found),
    )
    content = _encode(sent)
    packed = pa.Codec("zstd").compress(content, asbytes=True)
    body = len(content).to_bytes(8, "little") + packed
    return body + hashlib.sha256(body).digest()


def decode_examples(content: bytes, split: Split, url: str) -> Tokens:
    """Return examples that were sent.

    Args:
        content: of encode_examples.
        split: that they belong to.
        url: of the file that has them, for errors.

    Raises:
        InputError: if the file is damaged.
    """
    body, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        raise InputError(f"{url}: the examples are damaged: they are not as they were written. Build it again.")
    size = int.from_bytes(body[:8], "little")
    sent = _decode(pa.Codec("zstd").decompress(body[8:], size, asbytes=True))
    ids = np.frombuffer(sent.ids, "<i4")
    trained = np.unpackbits(np.frombuffer(sent.trained, np.uint8), count=len(ids)).astype(bool)
    source = RowSource(
        positions=np.frombuffer(sent.positions, "<i8"),
        validation=np.frombuffer(sent.validation, "?"),
        columns=None if sent.columns is None else pa.ipc.open_stream(sent.columns).read_all(),
        numbers=None if sent.numbers is None else np.frombuffer(sent.numbers, "<i8"),
        found=sent.found,
    )
    return Tokens(
        split=split,
        part=sent.part,
        last=sent.last,
        outcomes=sent.outcomes,
        ids=ids,
        offsets=np.frombuffer(sent.offsets, "<i8"),
        trained=trained,
        source=source,
        parts=None if sent.parts is None else np.frombuffer(sent.parts, "<i4").reshape(-1, 1),
    )


def _bytes(values: np.ndarray, kind: str) -> bytes:
    return values.astype(kind, copy=False).tobytes()


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
