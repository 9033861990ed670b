"""Excerpts: a few rows of a dataset as text, with what is trained on, its examples and its special tokens apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.dataset.layout import Folder
from transforms.dataset.reader import READ_FORMAT, open_shard
from transforms.dataset.row_examples import EXAMPLE_COLUMNS, RowExamples, examples_of
from transforms.outputs import ShardEntry
from transforms.rows.layout import RowLayout
from transforms.rows.parts import KINDS, kinds_of
from transforms.tokens.decoding import TokenDecoder

_ROWS = 10
# Of a shard, the rows are taken from its first ones: its first row group is not read to the end.
_FIRST_ROWS = 64
_TOKENS = 1024
# How many of the tokens that are shown may be before the first trained one.
_TOKENS_BEFORE = 192


class Piece(NamedTuple):
    """A piece of the text of a row, in which nothing changes.

    trained: whether it is trained on. special: whether it is special tokens. starts: the number of the example that
    begins with it, or that the excerpt begins in, from 1; otherwise 0. part: which part of a turn it is; empty if it is
    none, or that is not known.
    """

    text: str
    trained: bool
    special: bool
    starts: int
    part: str = ""


@dataclass(frozen=True)
class Excerpt:
    """A part of a row.

    Attributes:
        shard: the path of its shard.
        row: its number there, from 0.
        tokens, trained_tokens: of the whole row.
        examples: how many the row holds, as far as its columns say it.
        before, after: tokens of the row that are not shown.
        pieces: the text of the others.
    """

    shard: str
    row: int
    tokens: int
    trained_tokens: int
    examples: int
    before: int
    after: int
    pieces: tuple[Piece, ...]


def read_excerpts(folder: Folder, manifest: Mapping[str, Any]) -> list[Excerpt]:
    """Read ten rows, or all if there are fewer, from the beginnings of up to ten shards.

    Args:
        folder: of the dataset.
        manifest: its manifest.

    Returns:
        The excerpts, in the order of the shards; none if there are no rows in Parquet, or they have no ids.

    Raises:
        InputError: if a shard or the stored tokenizer is missing or damaged.
        StoreError: if the store fails.
    """
    layout = RowLayout.of(manifest["job"]["options"])
    shards = [shard for shard in manifest["shards"] if shard["format"] == READ_FORMAT and shard["rows"]]
    if not layout.has_ids or not shards:
        return []
    chosen = [shards[number] for number in _spread(len(shards), _ROWS)]
    found: list[tuple[str, int, RowExamples]] = []
    for number, shard in enumerate(chosen):
        wanted = (_ROWS - len(found)) // (len(chosen) - number)
        rows = _first_rows(folder, shard, layout)
        for row in _spread(len(rows), wanted):
            examples = examples_of(rows.slice(row, 1).to_pylist()[0], layout)
            found.append((shard["path"], row, examples))
    decoder = TokenDecoder.load(folder.tokenizer(manifest["job"]["tokenizer"]))
    return [_excerpt(*row, decoder) for row in found]


def _spread(count: int, most: int) -> list[int]:
    """Numbers from 0 to a count, at even distances, the first one among them; a limited number of them."""
    most = min(count, most)
    return [i * count // most for i in range(most)]


def _first_rows(folder: Folder, shard: ShardEntry, layout: RowLayout) -> pa.RecordBatch:
    """Some of the first rows of a shard."""
    columns = [name for name in layout.columns if name in EXAMPLE_COLUMNS]
    with open_shard(folder.output, shard, columns) as reader:
        return reader.first(_FIRST_ROWS)


def _excerpt(shard: str, row: int, examples: RowExamples, decoder: TokenDecoder) -> Excerpt:
    """The excerpt of a row: its first tokens, or those around the first trained one."""
    ids, trained = examples.ids, examples.trained
    first = int(trained.argmax())
    start = max(first - _TOKENS_BEFORE, 0)
    stop = min(start + _TOKENS, len(ids))
    kinds = kinds_of(np.zeros(len(ids), np.int32) if examples.parts is None else examples.parts)[start:stop]
    pieces = _pieces(ids[start:stop], trained[start:stop], kinds, examples.offsets[:-1] - start, decoder)
    count = len(examples.offsets) - 1
    return Excerpt(shard, row, len(ids), int(trained.sum()), count, start, len(ids) - stop, tuple(pieces))


def _pieces(
    ids: np.ndarray, trained: np.ndarray, kinds: np.ndarray, starts: np.ndarray, decoder: TokenDecoder
) -> Iterator[Piece]:
    """Cut tokens where something changes. starts: of the examples of the row, relative to these tokens."""
    decoded, special = decoder.decode(ids), decoder.is_added(ids)
    number_at = {max(start, 0): number for number, start in enumerate(starts.tolist(), start=1) if start < len(ids)}
    changes = np.flatnonzero(np.any([np.diff(each) for each in (trained, special, kinds)], axis=0)) + 1
    places = [*decoded.starts.tolist(), len(decoded.text)]
    for begin, end in pairwise(sorted({*number_at, *changes.tolist(), len(ids)})):
        text = decoded.text[places[begin] : places[end]]
        part = KINDS[kinds[begin]] if kinds[begin] else ""
        yield Piece(text, bool(trained[begin]), bool(special[begin]), number_at.get(begin, 0), part)
