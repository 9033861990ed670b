"""The reference: transformers' tokenizer, with the places in characters that it tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from transforms.model.examples import Span
from transforms.rows.ragged import offsets_of
from transforms.tokens import Encoded, in_one_space

# ids: int32, starts, stops: int64, each (tokens,).
_Row = tuple[np.ndarray, np.ndarray, np.ndarray]


class ReferenceEncoder:
    """Encodes with a tokenizer of transformers, fast or slow. Units are characters."""

    # transformers makes Python objects of some 200 bytes for each token: no more of them at once than this needs.
    characters_at_once = 1 << 20

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        rows = self._rows(texts, special_tokens)
        bases = offsets_of(np.array([len(text) for text in texts], np.int64) + 2)[:-1] + 1
        return in_one_space([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], bases)

    def length(self, text: str) -> int:
        return len(text)

    def places(self, text: str, spans: Sequence[Span]) -> Sequence[Span]:
        return spans

    def _rows(self, texts: list[str], special_tokens: bool) -> list[_Row]:
        if not self._tokenizer.is_fast:
            return [self._encode_slowly(text, special_tokens) for text in texts]
        encoded = self._tokenizer(
            texts,
            add_special_tokens=special_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        rows = []
        for text, encoding in zip(texts, encoded.encodings, strict=True):
            places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
            starts, stops = places[:, 0], places[:, 1]
            if special_tokens:
                added = np.array(encoding.special_tokens_mask, bool)
                starts, stops = _place_special_tokens(starts, stops, added, len(text))
            rows.append((np.array(encoding.ids, np.int32), starts, stops))
        return [self._with_eos(row, text) for row, text in zip(rows, texts, strict=True)] if special_tokens else rows

    def _encode_slowly(self, text: str, special_tokens: bool) -> _Row:
        """With a tokenizer that tells no offsets: a token lies where decoding it adds to the text decoded before it."""
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        ends = [0]
        for count in range(1, len(ids) + 1):
            decoded = self._tokenizer.decode(ids[:count], clean_up_tokenization_spaces=False)
            if not text.startswith(decoded):
                decoded = decoded.rstrip("\ufffd")  # what stands for the first bytes of a character
            ends.append(len(decoded) if text.startswith(decoded) else ends[-1])
        row = np.array(ids, np.int32), np.array(ends[:-1]), np.array(ends[1:])
        if not special_tokens:
            return row
        whole = self._tokenizer(text, verbose=False)["input_ids"]
        front = next((i for i in range(len(whole)) if whole[i : i + len(ids)] == ids), 0)
        added = np.ones(len(whole), bool)
        added[front : front + len(ids)] = False
        starts, stops = np.zeros(len(whole), np.int64), np.zeros(len(whole), np.int64)
        starts[~added], stops[~added] = row[1], row[2]
        starts, stops = _place_special_tokens(starts, stops, added, len(text))
        return self._with_eos((np.array(whole, np.int32), starts, stops), text)

    def _with_eos(self, row: _Row, text: str) -> _Row:
        ids, starts, stops = row
        eos = self._tokenizer.eos_token_id
        if eos is None or (len(ids) and ids[-1] == eos):
            return row
        return np.append(ids, np.int32(eos)), np.append(starts, len(text)), np.append(stops, len(text) + 1)


def _place_special_tokens(starts: np.ndarray, stops: np.ndarray, added: np.ndarray, length: int) -> tuple[Any, Any]:
    """The places of a row's tokens, with those that are added in front at -1 and those behind at length."""
    front = added & (np.cumsum(~added) == 0)
    starts = np.where(front, -1, np.where(added, length, starts))
    stops = np.where(front, 0, np.where(added, length + 1, stops))
    return starts, stops
