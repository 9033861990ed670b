"""Evaluation sets: which texts of their records are looked for, and the file that is stored with a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from transforms.contamination.words import normalized


class Evaluation(msgspec.Struct, frozen=True):
    """A record of an evaluation set.

    Attributes:
        place: its file and its position there, as `FILE:POSITION`.
        texts: its texts, normalized, with one space between two words.
    """

    place: str
    texts: tuple[str, ...]


def evaluation_of(place: str, record: Any) -> Evaluation:
    """Return what is looked for of a record of an evaluation set: all its strings, however deep, but no keys.

    Args:
        place: its file and its position there.
        record: as JSON has it.
    """
    texts = (b" ".join(normalized(text).split()).decode() for text in _strings(record))
    return Evaluation(place, tuple(dict.fromkeys(filter(None, texts))))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Evaluation).decode


def encode_evaluations(evaluations: Sequence[Evaluation]) -> bytes:
    """Return the content of the file: JSON lines."""
    return b"".join(_encode(evaluation) + b"\n" for evaluation in evaluations)


def decode_evaluations(content: bytes) -> list[Evaluation]:
    """Return the records that the content of a file has."""
    return [_decode(line) for line in content.splitlines()]
