"""The reference encoder: a tokenizer of transformers, with its offsets in characters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from transforms.rows.ragged import lengths_to_offsets
from transforms.tokens import Encoded, EncodedText, concatenated

_NO_TOKENS: EncodedText = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)


class ReferenceEncoder:
    """Encodes with a tokenizer of transformers in Rust ("fast"). Offsets count characters."""

    # transformers makes Python objects of about 200 bytes for each token; larger calls take memory and are not faster.
    characters_at_once = 1 << 20

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    @functools.cached_property
    def special_tokens(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer adds before a text, and those that it adds after it."""
        encoded = self._tokenizer("a", return_special_tokens_mask=True)
        ids, added = encoded["input_ids"], encoded["special_tokens_mask"]
        first, last = added.index(0), len(ids) - added[::-1].index(0)
        return ids[:first], ids[last:]

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        """Encode texts, see TextEncoder."""
        attempts = self._attempt(texts, special_tokens)
        failed = {number: row for number, row in enumerate(attempts) if isinstance(row, str)}
        rows = [_NO_TOKENS if isinstance(row, str) else row for row in attempts]
        bases = lengths_to_offsets(np.array([len(text) for text in texts], np.int64) + 2)[:-1] + 1
        return concatenated(rows, bases, failed)

    def _attempt(self, texts: list[str], special_tokens: bool) -> Sequence[EncodedText | str]:
        """The tokens of each text, or the error of the tokenizer: some panic at many megabytes of white space."""
        try:
            encodings = self._encodings(texts, special_tokens)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # the class of pyo3, which no module exports
                raise
            if len(texts) == 1:
                return [f"{error}"]
            return [row for text in texts for row in self._attempt([text], special_tokens)]
        return [self._row(*each, special_tokens) for each in zip(texts, encodings, strict=True)]

    def _row(self, text: str, encoding: Any, special_tokens: bool) -> EncodedText:
        ids = self._encoding_ids(encoding)
        starts, stops = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
        if special_tokens:
            added = np.array(encoding.special_tokens_mask, bool)
            before = added & (np.cumsum(~added) == 0)
            if added.all():  # the text has no tokens of its own
                before[len(self.special_tokens[0]) :] = False
            starts = np.where(before, -1, np.where(added, len(text), starts))
            stops = np.where(added, starts + 1, stops)
            eos = self._tokenizer.eos_token_id
            if eos is not None and ids[-1:].tolist() != [eos]:
                ids, starts, stops = (
                    np.append(ids, np.int32(eos)),
                    np.append(starts, len(text)),
                    np.append(stops, len(text) + 1),
                )
        return ids, starts, stops

    def _encodings(self, texts: list[str], special_tokens: bool) -> Sequence[Any]:
        """What the tokenizer in Rust gives for each text."""
        unneeded = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        encodings: Sequence[Any] = self._tokenizer(texts, add_special_tokens=special_tokens, **unneeded).encodings
        return encodings

    def _encoding_ids(self, encoding: Any) -> np.ndarray:
        return np.array(encoding.ids, np.int32)
