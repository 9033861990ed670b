"""Excerpts: a few rows of a dataset as text, with what is trained on, its examples and its special tokens apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from transforms.dataset.layout import Folder
from transforms.dataset.reader import READ_FORMAT, open_shard
from transforms.dataset.row_examples import EXAMPLE_COLUMNS, RowExamples, find_examples
from transforms.rows.layout import RowLayout
from transforms.rows.parts import KINDS
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
    """Read ten rows of a dataset, or all if there are fewer, from the beginnings of up to ten shards, in their order.

    There are none if there are no rows in Parquet, or they have no ids. Raises what make_report raises.
    """
    layout = RowLayout.of(manifest["job"]["options"])
    shards = [shard for shard in manifest["shards"] if shard["format"] == READ_FORMAT and shard["rows"]]
    if not layout.has_ids or not shards:
        return []
    columns = [name for name in layout.columns if name in EXAMPLE_COLUMNS]
    decoder = TokenDecoder.load(folder.tokenizer(manifest["job"]["tokenizer"]))
    chosen = [shards[number] for number in _spread(len(shards), _ROWS)]
    excerpts = list[Excerpt]()
    for number, shard in enumerate(chosen):
        with open_shard(folder.output, shard, columns) as reader:
            rows = reader.first(_FIRST_ROWS)
        for row in _spread(len(rows), (_ROWS - len(excerpts)) // (len(chosen) - number)):
            examples = find_examples(rows.slice(row, 1).to_pylist()[0], layout)
            excerpts.append(_excerpt(shard["path"], row, examples, decoder))
    return excerpts


def _spread(count: int, most: int) -> list[int]:
    """Numbers from 0 to a count, at even distances, the first one among them; a limited number of them."""
    most = min(count, most)
    return [i * count // most for i in range(most)]


def _excerpt(shard: str, row: int, examples: RowExamples, decoder: TokenDecoder) -> Excerpt:
    """The excerpt of a row: its first tokens, or those around the first trained one."""
    count, tokens = len(examples.offsets) - 1, len(examples.ids)
    start = max(int(examples.trained.argmax()) - _TOKENS_BEFORE, 0)
    stop = min(start + _TOKENS, tokens)
    pieces = tuple(_pieces(examples, start, stop, decoder))
    return Excerpt(shard, row, tokens, int(examples.trained.sum()), count, start, tokens - stop, pieces)


def _pieces(examples: RowExamples, start: int, stop: int, decoder: TokenDecoder) -> Iterator[Piece]:
    """Cut some tokens of a row where something changes."""
    ids, trained = examples.ids[start:stop], examples.trained[start:stop]
    kinds = np.zeros(len(ids), np.int8) if examples.kinds is None else examples.kinds[start:stop]
    decoded, special = decoder.decode(ids), decoder.is_added(ids)
    starts = enumerate((examples.offsets[:-1] - start).tolist(), 1)
    number_at = {max(begin, 0): number for number, begin in starts if begin < len(ids)}
    changes = np.flatnonzero(np.any([np.diff(each) for each in (trained, special, kinds)], axis=0)) + 1
    positions = [*decoded.starts.tolist(), len(decoded.text)]
    for begin, end in pairwise(sorted({*number_at, *changes.tolist(), len(ids)})):
        text = decoded.text[positions[begin] : positions[end]]
        part = KINDS[kinds[begin]] if kinds[begin] else ""
        yield Piece(text, bool(trained[begin]), bool(special[begin]), number_at.get(begin, 0), part)
