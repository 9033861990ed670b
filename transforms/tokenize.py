"""Tokenize: from texts to token ids, and where in the text each token lies."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.batches import RowSource, Texts, Tokens
from transforms.errors import RecordError
from transforms.examples import Text
from transforms.fates import Reject
from transforms.ragged import offsets_of
from transforms.step import Step
from transforms.tokenizer import load_tokenizer

# transformers makes Python objects of some 200 bytes for each token: no more of them at once than this needs.
_CHARACTERS_AT_ONCE = 1 << 20

# ids: int32, starts, stops: int64, each (tokens,). Places are characters of the text; special tokens that the tokenizer
# adds lie at -1 (in front of the text) and at len(text) (behind it).
_Row = tuple[np.ndarray, np.ndarray, np.ndarray]


class Encoder:
    """Encodes the texts of a batch with transformers.

    tokenizer: the folder of the tokenizer, at any url. strip_bos: whether to take off a BOS that a row begins with.
    """

    def __init__(self, tokenizer: str, strip_bos: bool = False):
        self._tokenizer = load_tokenizer(tokenizer)
        self._strip_bos = strip_bos

    def __call__(self, batch: Texts) -> Tokens:
        texts, rows = [], []
        rejects: dict[int, Reject] = {}
        not_prefixes = 0
        for chunk in _chunks(batch.texts):
            for text, row, prompt in zip(chunk, self._rows(chunk), self._prompts(chunk), strict=True):
                try:
                    self._check(text, row)
                except RecordError as error:
                    rejects.setdefault(text.example.position, text.example.rejected(error))
                    continue
                not_prefixes += not np.array_equal(prompt, row[0][: len(prompt)])
                texts.append(text)
                rows.append(self._without_bos(row) if self._strip_bos else row)
        if rejects:  # and with it all texts of that record
            left = [i for i, text in enumerate(texts) if text.example.position not in rejects]
            texts, rows = [texts[i] for i in left], [rows[i] for i in left]
        fates = batch.fates.reject([*rejects.values()]).note("prompt_tokens_not_a_prefix", not_prefixes)
        return batch.succeeded_by(Tokens, fates, **_flat(texts, rows))

    def _rows(self, texts: list[Text]) -> list[_Row]:
        """The tokens of each text. texts: all of one kind, see _chunks."""
        if texts[0].token_ids is None:
            return self._encode([text.text for text in texts], texts[0].special_tokens)
        lengths = [len(text.token_ids) for text in texts if text.token_ids is not None]
        places = [np.arange(length + 1) for length in lengths]
        return [(text.token_ids, place[:-1], place[1:]) for text, place in zip(texts, places, strict=True)]  # type: ignore[misc]

    def _prompts(self, texts: list[Text]) -> list[np.ndarray]:
        """The ids of each prompt as the model is given it; none where there is no prompt."""
        prompts = [text.prompt for text in texts if text.prompt]
        encoded = iter(self._encode(prompts, texts[0].special_tokens) if prompts else ())
        ids = []
        for text in texts:
            row = next(encoded) if text.prompt else None
            # What the tokenizer puts behind a text, it puts behind the completion.
            ids.append(row[0][row[1] < len(text.prompt)] if row and text.prompt else np.empty(0, np.int32))
        return ids

    def _encode(self, texts: list[str], special_tokens: bool) -> list[_Row]:
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

    def _without_bos(self, row: _Row) -> _Row:
        ids, starts, stops = row
        skip = int(len(ids) > 0 and ids[0] == self._tokenizer.bos_token_id)
        return ids[skip:], starts[skip:], stops[skip:]

    @functools.cached_property
    def _last_id(self) -> int:
        return max(self._tokenizer.get_vocab().values())

    def _check(self, text: Text, row: _Row) -> None:
        ids, starts, stops = row
        if text.token_ids is not None:
            if ids.max() > self._last_id:
                raise RecordError(
                    "bad_tokens", f"input_ids holds {ids.max()}; the tokenizer has the ids 0 to {self._last_id}"
                )
            return
        length = len(text.text)
        wholly = len(text.spans) == 1 and text.spans[0][0] <= 0 and text.spans[0][1] >= length
        reached = stops[starts < length].max(initial=0)
        if not self._tokenizer.is_fast and text.spans and not wholly and reached < length:
            raise RecordError(
                "offsets_not_established",
                "the tokenizer tells no offsets and its tokens do not decode to the text, so it is not known which of "
                "them are trained on. Use one with a tokenizer.json",
            )


def _place_special_tokens(starts: np.ndarray, stops: np.ndarray, added: np.ndarray, length: int) -> tuple[Any, Any]:
    """The places of a row's tokens, with those that are added in front at -1 and those behind at length."""
    front = added & (np.cumsum(~added) == 0)
    starts = np.where(front, -1, np.where(added, length, starts))
    stops = np.where(front, 0, np.where(added, length + 1, stops))
    return starts, stops


def _chunks(texts: list[Text]) -> Iterator[list[Text]]:
    """Texts of one kind that follow each other, of not many more characters than are encoded at once."""
    for _, alike in groupby(texts, key=lambda text: (text.token_ids is None, text.special_tokens)):
        chunk: list[Text] = []
        characters = 0
        for text in alike:
            chunk.append(text)
            characters += len(text.text)
            if characters >= _CHARACTERS_AT_ONCE:
                yield chunk
                chunk, characters = [], 0
        if chunk:
            yield chunk


def _flat(texts: list[Text], rows: list[_Row]) -> dict[str, Any]:
    """The fields of Tokens. A row's places are moved behind those of the row before, with room for special tokens."""
    lengths = np.array([len(text.text if text.token_ids is None else text.token_ids) for text in texts], np.int64)
    bases = offsets_of(lengths + 2)[:-1] + 1
    offsets = offsets_of(np.array([len(ids) for ids, _, _ in rows], np.int64))
    moved = np.repeat(bases, np.diff(offsets))
    spans = [(base + start, base + stop) for text, base in zip(texts, bases, strict=True) for start, stop in text.spans]
    examples = [text.example for text in texts]
    return {
        "ids": _joined([ids for ids, _, _ in rows], np.int32),
        "offsets": offsets,
        "starts": _joined([starts for _, starts, _ in rows], np.int64) + moved,
        "stops": _joined([stops for _, _, stops in rows], np.int64) + moved,
        "spans": np.array(spans, np.int64).reshape(-1, 2),
        "source": RowSource(
            positions=np.array([example.position for example in examples], np.int64),
            validation=np.array([example.validation for example in examples], bool),
            columns=_kept_columns([example.columns for example in examples]),
        ),
    }


def _joined(arrays: list[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)


def _kept_columns(columns: list[dict[str, str | None]]) -> pa.Table | None:
    if not columns or not columns[0]:
        return None
    return pa.table({name: pa.array([row[name] for row in columns], pa.string()) for name in columns[0]})


class Tokenize(Step):
    """PCollection[Texts] -> PCollection[Tokens]. Takes the arguments of Encoder."""

    make = Encoder
    output = Tokens
