"""The reference encoder: a tokenizer of transformers, with its offsets in characters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from transforms.rows.ragged import offsets_of
from transforms.tokens import Encoded, concatenated

# ids: int32, starts, stops: int64, each (tokens,).
_Row = tuple[np.ndarray, np.ndarray, np.ndarray]
_NO_TOKENS: _Row = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)


class ReferenceEncoder:
    """Encodes with a tokenizer of transformers in Rust ("fast"). Offsets count characters.

    Args:
        tokenizer: the tokenizer.
    """

    # transformers makes Python objects of about 200 bytes for each token; larger calls take memory and are not faster.
    characters_at_once = 1 << 20

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        """Encode texts, see TextEncoder."""
        found = self._attempt(texts, special_tokens)
        failed = {number: row for number, row in enumerate(found) if isinstance(row, str)}
        rows = [_NO_TOKENS if isinstance(row, str) else row for row in found]
        bases = offsets_of(np.array([len(text) for text in texts], np.int64) + 2)[:-1] + 1
        encoded = concatenated([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], bases)
        return dataclasses.replace(encoded, failed=failed)

    def _attempt(self, texts: list[str], special_tokens: bool) -> Sequence[_Row | str]:
        """The tokens of each text, or the error of the tokenizer: some panic at many megabytes of white space."""
        try:
            return self._rows(texts, special_tokens)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # the class of pyo3, which no module exports
                raise
            if len(texts) == 1:
                return [f"{error}"]
        return [row for text in texts for row in self._attempt([text], special_tokens)]

    def _rows(self, texts: list[str], special_tokens: bool) -> list[_Row]:
        rows = []
        for text, encoding in zip(texts, self._encodings(texts, special_tokens), strict=True):
            edges = np.array(encoding.offsets, np.int64).reshape(-1, 2)
            starts, stops = edges[:, 0], edges[:, 1]
            if special_tokens:
                added = np.array(encoding.special_tokens_mask, bool)
                starts, stops = _with_offsets_of_added(starts, stops, added, len(text))
            rows.append((self._ids_of(encoding), starts, stops))
        return [self._with_eos(row, text) for row, text in zip(rows, texts, strict=True)] if special_tokens else rows

    def _encodings(self, texts: list[str], special_tokens: bool) -> Sequence[Any]:
        """What the tokenizer in Rust gives for each text."""
        encoded = self._tokenizer(
            texts,
            add_special_tokens=special_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        found: Sequence[Any] = encoded.encodings
        return found

    def _ids_of(self, encoding: Any) -> np.ndarray:
        return np.array(encoding.ids, np.int32)

    def _with_eos(self, row: _Row, text: str) -> _Row:
        ids, starts, stops = row
        eos = self._tokenizer.eos_token_id
        if eos is None or (len(ids) and ids[-1] == eos):
            return row
        return np.append(ids, np.int32(eos)), np.append(starts, len(text)), np.append(stops, len(text) + 1)


def _with_offsets_of_added(starts: np.ndarray, stops: np.ndarray, added: np.ndarray, length: int) -> tuple[Any, Any]:
    """The offsets of a row's tokens, with (-1, 0) for those added before the text, (length, length + 1) after it."""
    before = added & (np.cumsum(~added) == 0)
    starts = np.where(before, -1, np.where(added, length, starts))
    stops = np.where(before, 0, np.where(added, length + 1, stops))
    return starts, stops
