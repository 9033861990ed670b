"""Kept examples: the tokens of the examples of a part of a split, as a file, from which other rows can be made.

They are whole: before they are labelled, cut and packed. With them are the outcomes of the part's records so far, so
that what is made of them is what a build makes of the records. An exchange sends examples in the same form.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import pyarrow as pa

from transforms.base.errors import InputError
from transforms.model.batches import Labels, RowSource, Split, Tokens
from transforms.model.examples import content_digest
from transforms.model.outcomes import Outcomes
from transforms.rows import IGNORED
from transforms.storage.files import join

_CHECKSUM_BYTES = 32


class _Kept(msgspec.Struct, frozen=True):
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
    validation_hashes: bytes | None
    numbers: bytes | None
    desirable: bytes | None
    columns: bytes | None
    contents: list[bytes | None] | None
    found: list[str | None] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


def encode_examples(batch: Tokens | Labels) -> bytes:
    """Return the content of the file of a part.

    Args:
        batch: the part; of one that is labelled, only what is trained on is kept.
    """
    source, contents = batch.source, None
    trained = batch.trained if isinstance(batch, Tokens) else batch.labels != IGNORED
    if source.contents is not None:
        contents = [content_digest(content) for content in source.contents]
    kept = _Kept(
        part=batch.part,
        last=batch.last,
        outcomes=batch.outcomes,
        ids=_bytes(batch.ids, "<i4"),
        trained=np.packbits(trained).tobytes(),
        offsets=_bytes(batch.offsets, "<i8"),
        parts=None if batch.parts is None else _bytes(batch.parts.T, "<i4"),
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


def decode_examples(content: bytes, split: Split, url: str) -> Tokens:
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
    return Tokens(
        split=split,
        part=kept.part,
        last=kept.last,
        outcomes=kept.outcomes,
        ids=ids,
        offsets=np.frombuffer(kept.offsets, "<i8"),
        trained=trained,
        source=source,
        parts=None if kept.parts is None else _columns(kept.parts, "<i4", len(ids)),
    )


def examples_of(output: str, increment: str) -> str:
    """Return the url of the folder of the examples that an increment keeps.

    Args:
        output: the folder of the dataset.
        increment: its id; empty for the folder of those of all increments.
    """
    return join(output, "_chatmill", "examples", increment)


def name_of_examples(split: Split, part: int) -> str:
    """Return the name of the file of a part."""
    return f"{split.number:06d}-{part:03d}"


def _bytes(values: np.ndarray, kind: str) -> bytes:
    return values.astype(kind, copy=False).tobytes()


def _columns(content: bytes, kind: str, tokens: int) -> np.ndarray:
    """The array of shape (tokens, spans) whose columns a file has; one of them if there are no tokens."""
    return np.frombuffer(content, kind).reshape(-1 if tokens else 1, tokens).T


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
