"""Tokenize: from texts to token ids, with the offsets of each token in its text."""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any

import msgspec
import numpy as np

from transforms.base.errors import InputError, RecordError
from transforms.base.options import check_choice
from transforms.chat.config import ENGINES
from transforms.chat.spans.loss import assistant_turns, has_untrained_parts
from transforms.files.formats import input_format
from transforms.model.batches import Texts, Tokens
from transforms.model.examples import Conversation, Text
from transforms.model.facts import RowFacts
from transforms.model.outcomes import Reject
from transforms.rows.ragged import indices_of, joined, offsets_of, slices_of, sums_of
from transforms.steps.spot_checks import sample
from transforms.tokens import Encoded, TextEncoder
from transforms.tokens.fast_encoder import WORTH_LOADING, FastEncoder, NotSupported, load_fast_encoder
from transforms.tokens.plain import PlainEncoder
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer, with_white_space
from transforms.tokens.trained import is_trained, spans_of_tokens

# Of a longer text, an excerpt of this many characters is compared.
_EXCERPT = 4096


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows of tokens: the fields of Tokens that are of tokens."""

    ids: np.ndarray
    offsets: np.ndarray
    trained: np.ndarray
    parts: np.ndarray | None

    def cut(self, starts: np.ndarray, counts: np.ndarray) -> _Rows:
        """Return the tokens starts[i]:starts[i] + counts[i] of each row."""
        ids, trained = (slices_of(values, starts, counts) for values in (self.ids, self.trained))
        parts = None if self.parts is None else self.parts[indices_of(starts, counts)]
        return _Rows(ids, offsets_of(counts), trained, parts)

    def take(self, rows: np.ndarray) -> _Rows:
        """Return some of the rows, by their numbers."""
        return self.cut(self.offsets[:-1][rows], np.diff(self.offsets)[rows])


class Encoder:
    """Encodes the texts of a batch.

    Args:
        tokenizer: folder of the tokenizer, at any url; with the engine `reference` also one of transformers.
        strip_bos: whether to remove a BOS that a row begins with.
        engine: one of ENGINES. With auto, a sample of each batch is also encoded by the reference.

    Raises:
        ParameterError: if engine is not one of those.
    """

    def __init__(self, tokenizer: Any, strip_bos: bool = False, engine: str = "auto"):
        check_choice("engine", engine, ENGINES)
        self._tokenizer = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else with_white_space(tokenizer)
        self._strip_bos = strip_bos
        self._engine = engine
        self._folder = tokenizer
        self._reference = ReferenceEncoder(self._tokenizer)

    @functools.cached_property
    def _fast(self) -> FastEncoder | NotSupported:
        return load_fast_encoder(self._folder)

    def __call__(self, batch: Texts) -> Tokens:
        """Encode a batch. The records that the reference encodes are counted in its outcomes, by reason.

        Raises:
            InputError: if the reference does not confirm the sample.
        """
        if self._engine == "reference":
            return self._by_reference(batch, "engine")
        if max(batch.task.input_bytes, batch.task.unpacked_bytes) < WORTH_LOADING:
            return self._by_reference(batch, "small_input")
        if isinstance(self._fast, NotSupported):
            return self._by_reference(batch, "tokenizer_not_supported", (None, self._fast.reason))
        tokens = self._encode(batch, self._fast)
        self._check_sample(batch, tokens, self._fast)
        return tokens

    def _by_reference(self, batch: Texts, reason: str, example: tuple[int | None, str] | None = None) -> Tokens:
        """Encode a batch by the reference, and count its records for the reason. Rows of token ids are not encoded.

        example: the position of a record, or None for the first one, and a detail.
        """
        tokens = self._encode(batch, self._reference)
        rejected = {reject.position for reject in tokens.outcomes.rejects}
        positions = [text.example.position for text in batch.texts if text.token_ids is None]
        encoded = [position for position in positions if position not in rejected]
        record = None
        if example and encoded:
            record = (encoded[0] if example[0] is None else example[0], example[1])
        outcomes = tokens.outcomes.by_reference("tokenized_by_reference", reason, len(set(encoded)), record)
        return dataclasses.replace(tokens, outcomes=outcomes)

    def _check_sample(self, batch: Texts, tokens: Tokens, fast: TextEncoder) -> None:
        """Raise InputError if the reference does not confirm the tokens of a sample of the batch.

        Of a long text both engines encode an excerpt, since the sample is a share of the characters.
        """
        rejected = {reject.position for reject in tokens.outcomes.rejects}
        kept = [text for text in batch.texts if text.example.position not in rejected] if rejected else batch.texts
        sizes = [len(text.text) for text in kept]
        rows = sample(batch, len(sizes), lambda row: min(sizes[row], _EXCERPT), sum(sizes))
        # Texts with stand-ins are encoded by the reference.
        rows = [row for row in rows if kept[row].token_ids is None and kept[row].with_stand_ins is None]
        whole = [row for row in rows if sizes[row] <= _EXCERPT]
        longer = [row for row in rows if sizes[row] > _EXCERPT]
        excerpts = dataclasses.replace(batch, texts=[_excerpt(kept[row], f"{batch.chunk}-{row}") for row in longer])
        texts = [*(kept[row] for row in whole), *excerpts.texts]
        expected = self._encode(dataclasses.replace(batch, texts=texts), self._reference)
        found = [(tokens, row) for row in whole]
        if longer:
            found += [(self._encode(excerpts, fast), number) for number in range(len(longer))]
        for number, (text, of_fast) in enumerate(zip(texts, found, strict=True)):
            pairs = zip(("tokens", "trained tokens"), _row(*of_fast), _row(expected, number), strict=True)
            for what, one, other in pairs:
                if not np.array_equal(one, other):
                    differs = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
                    first = next(differs, min(len(one), len(other)))
                    piece, position = batch.task.origin(text.example.position)
                    raise InputError(
                        f"{piece.url}, {input_format(piece.format).position_unit} {position:,}: gigatoken gives other "
                        f"{what} than tokenizers, from number {first} on. Give --engine reference, which does not use "
                        "it."
                    )

    def _encode(self, batch: Texts, encoder: TextEncoder) -> Tokens:
        """The batch, encoded by one of the two encoders."""
        kept: list[Text] = []
        encoded_rows: list[_Rows] = []
        rejects: dict[int, Reject] = {}
        altered, newer, long, plain = (dict[int, None]() for _ in range(4))  # positions of records, in order
        not_prefixes = 0
        across: list[tuple[int, int]] = []  # the position of the record, and the token
        has_parts = any(text.parts for text in batch.texts)
        for group in _groups(batch.texts, encoder.characters_at_once):
            of_group, strings = self._encoder_of(group, encoder)
            encoded = self._encode_group(group, of_group, strings)
            if of_group is not encoder and encoder is not self._reference:
                plain |= dict.fromkeys(text.example.position for text in group)
            errors = self._errors(group, encoded)
            for row, error in errors.items():
                rejects.setdefault(group[row].example.position, group[row].example.rejected(error))
            altered |= dict.fromkeys(group[row].example.position for row in encoded.altered)
            newer |= dict.fromkeys(group[row].example.position for row in encoded.newer)
            long |= dict.fromkeys(group[row].example.position for row in encoded.long)
            not_prefixes += self._not_prefixes(group, encoded, of_group, strings, errors)
            spans, counts = _spans(group, encoded)
            found = _across_prompt_end(group, encoded, spans, counts)
            across += [(group[row].example.position, token) for row, token in found]
            kept += group
            rows = self._without_second_bos(encoded, _rows(group, encoded, spans, has_parts))
            encoded_rows.append(self._without_bos(rows) if self._strip_bos else rows)
        rows = _joined(encoded_rows)
        if rejects:  # all texts of a rejected record are removed
            left = np.array([i for i, text in enumerate(kept) if text.example.position not in rejects], np.int64)
            kept, rows = [kept[i] for i in left], rows.take(left)
        outcomes = batch.outcomes.reject([*rejects.values()]).note("prompt_tokens_not_a_prefix", not_prefixes)
        if across := [(position, token) for position, token in across if position not in rejects]:
            position, token = across[0]
            detail = f"token {token} is {self._tokenizer.decode([token])!r}"
            outcomes = outcomes.note("turns_with_token_across_prompt_end", len(across), (position, detail))
        if altered:
            first = (next(iter(altered)), "the tokenizer changes the characters of its text")
            outcomes = outcomes.by_reference("tokenized_by_reference", "altered_by_normalizer", len(altered), first)
        counted = rejects.keys() | altered.keys()
        for reason, positions in (("newer_unicode", newer), ("long_text", long), ("special_tokens_in_content", plain)):
            if by_reference := [position for position in positions if position not in counted]:
                first = by_reference[0], ""
                outcomes = outcomes.by_reference("tokenized_by_reference", reason, len(by_reference), first)
                counted |= set(by_reference)
        facts = RowFacts.of([text.example for text in kept])
        return batch.succeeded_by(Tokens, outcomes, facts=facts, trained_parts=batch.trained_parts, **vars(rows))

    @functools.cached_property
    def _plain(self) -> PlainEncoder:
        return PlainEncoder(self._tokenizer)

    def _encoder_of(self, texts: list[Text], encoder: TextEncoder) -> tuple[TextEncoder, list[str]]:
        """The encoder of texts of one kind, see _groups, and what it encodes, which is as long as the texts."""
        is_plain = texts[0].with_stand_ins is not None
        return self._plain if is_plain else encoder, [text.with_stand_ins or text.text for text in texts]

    def _encode_group(self, texts: list[Text], encoder: TextEncoder, strings: list[str]) -> Encoded:
        """The tokens of texts of one kind, see _encoder_of."""
        if texts[0].token_ids is None:
            return encoder.encode(strings, texts[0].special_tokens)
        ids = [text.token_ids for text in texts if text.token_ids is not None]
        offsets = offsets_of(np.array([len(row) for row in ids], np.int64))
        starts = np.arange(offsets[-1])
        return Encoded(joined(ids, np.int32), offsets, starts, starts + 1, offsets[:-1])

    def _not_prefixes(
        self,
        texts: list[Text],
        encoded: Encoded,
        encoder: TextEncoder,
        strings: list[str],
        errors: dict[int, RecordError],
    ) -> int:
        """The number of texts whose tokens do not begin with the tokens of the prompt, as the model gets it."""
        rows = [row for row, text in enumerate(texts) if text.prompt and row not in errors]
        if not rows:
            return 0
        # The text begins with the prompt.
        alone = encoder.encode([strings[row][: len(texts[row].prompt or "")] for row in rows], special_tokens=False)
        counts = np.diff(alone.offsets)
        starts, stops = encoded.offsets[:-1][rows], encoded.offsets[1:][rows]
        bases = encoded.bases[rows]
        while len(some := np.flatnonzero(starts < stops)) and np.any(
            added := encoded.starts[starts[some]] < bases[some]
        ):
            starts[some] += added  # a special token that the tokenizer adds before the text
        fits = counts <= stops - starts
        if not fits.all():
            counts = np.where(fits, counts, 0)
        prompts = alone.ids if fits.all() else slices_of(alone.ids, alone.offsets[:-1], counts)
        equal = slices_of(encoded.ids, starts, counts) == prompts
        return int(np.sum(~fits | (sums_of(equal, offsets_of(counts)) < counts)))

    def _without_second_bos(self, encoded: Encoded, rows: _Rows) -> _Rows:
        """The rows without the BOS that the tokenizer adds before a text that begins with one."""
        bos = self._tokenizer.bos_token_id
        some = np.flatnonzero(np.diff(encoded.offsets) > 1)
        first = encoded.offsets[some]
        is_added = [encoded.starts[first + number] < encoded.bases[some] for number in range(2)]
        is_bos = (encoded.ids[first] == bos) & (encoded.ids[first + 1] == bos)
        if bos is None or not len(twice := some[is_bos & is_added[0] & ~is_added[1]]):
            return rows
        skipped = np.zeros(len(rows.offsets) - 1, np.int64)
        skipped[twice] = 1
        return rows.cut(rows.offsets[:-1] + skipped, np.diff(rows.offsets) - skipped)

    def _without_bos(self, rows: _Rows) -> _Rows:
        counts = np.diff(rows.offsets)
        some = np.flatnonzero(counts)
        skipped = np.zeros(len(counts), np.int64)
        skipped[some] = rows.ids[rows.offsets[some]] == self._tokenizer.bos_token_id
        return rows.cut(rows.offsets[:-1] + skipped, counts - skipped)

    @functools.cached_property
    def _last_id(self) -> int:
        return max(self._tokenizer.get_vocab().values())

    def _errors(self, texts: list[Text], encoded: Encoded) -> dict[int, RecordError]:
        """What is wrong with the tokens of texts of one kind, by their numbers."""
        if texts[0].token_ids is None:
            return {row: _failure(texts[row], error) for row, error in encoded.failed.items()}
        last_ids = [(row, int(text.token_ids.max())) for row, text in enumerate(texts) if text.token_ids is not None]
        known = f"the tokenizer has the ids 0 to {self._last_id}"
        return {
            row: RecordError("bad_tokens", f"input_ids holds {last}; {known}")
            for row, last in last_ids
            if last > self._last_id
        }


def _failure(text: Text, error: str) -> RecordError:
    spaces = max(map(len, re.findall(r"\s+", text.text)), default=0)
    found = f"{len(text.text):,} characters with one piece of white space of {spaces:,}"
    return RecordError("tokenizer_failed", f"the tokenizer cannot encode this text of {found}: {error}")


def _excerpt(text: Text, seed: str) -> Text:
    """A part of a long text, and of its spans. It is not trained on as a completion, so it has no prompt."""
    start = random.Random(seed).randrange(len(text.text) - _EXCERPT + 1)
    around = int(text.special_tokens)
    clipped = [(max(first - start, -around), min(last - start, _EXCERPT + around)) for first, last in text.spans]
    spans = [span for span in clipped if span[0] < span[1]]
    return msgspec.structs.replace(
        text,
        text=text.text[start : start + _EXCERPT],
        spans=spans,
        prompt=None,
        parts=None,
    )


def _prompt_ends(text: Text) -> list[int]:
    """Where the model begins to write what is trained on, in characters, without the beginning of the text.

    A span that follows another one directly, or a part of an answer that is not trained on, is written after it.
    """
    content = text.example.content
    parted = content if isinstance(content, Conversation) and content.texts is None else None
    if text.token_ids is not None or (parted and has_untrained_parts(parted, assistant_turns(parted))):
        return []
    stops = {stop for _, stop in text.spans}
    return [start for start, _ in text.spans if 0 < start < len(text.text) and start not in stops]


def _across_prompt_end(
    texts: list[Text], encoded: Encoded, spans: np.ndarray, counts: np.ndarray
) -> list[tuple[int, int]]:
    """The tokens with a character before one of _prompt_ends and one after it: the text's number, and the id.

    spans, counts: as of _spans.
    """
    if not len(encoded.ids):
        return []
    tokens = np.searchsorted(encoded.starts, spans[:, 0]) - 1  # the last one that begins before the span
    across = np.flatnonzero((tokens >= 0) & (encoded.stops[tokens] > spans[:, 0]))
    firsts = offsets_of(counts)
    rows = np.searchsorted(firsts, across, "right") - 1
    return [
        (row, token)
        for row, number, token in zip(
            rows.tolist(), (across - firsts[rows]).tolist(), encoded.ids[tokens[across]].tolist(), strict=True
        )
        if texts[row].spans[number][0] in _prompt_ends(texts[row])
    ]


def _row(tokens: Tokens, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a row, and the numbers of those that are trained on."""
    own = slice(tokens.offsets[row], tokens.offsets[row + 1])
    return tokens.ids[own], np.flatnonzero(tokens.trained[own])


def _groups(texts: list[Text], characters_at_once: int) -> Iterator[list[Text]]:
    """Consecutive texts of one kind, of about as many characters as are encoded at once."""
    for _, alike in groupby(
        texts, key=lambda text: (text.token_ids is None, text.special_tokens, text.with_stand_ins is None)
    ):
        group: list[Text] = []
        characters = 0
        for text in alike:
            group.append(text)
            characters += len(text.text)
            if characters >= characters_at_once:
                yield group
                group, characters = [], 0
        if group:
            yield group


def _rows(texts: list[Text], encoded: Encoded, spans: np.ndarray, has_parts: bool) -> _Rows:
    """The tokens of texts of one kind, and which of them are trained on. spans: as of _spans."""
    starts, stops, parts = encoded.starts, encoded.stops, None
    if has_parts:
        codes = joined([np.array(text.parts or [0] * len(text.spans), np.int32) for text in texts], np.int32)
        parts = np.append(codes, np.int32(0))[spans_of_tokens(starts, stops, spans, codes)]
    return _Rows(encoded.ids, encoded.offsets, is_trained(starts, stops, spans), parts)


def _spans(texts: list[Text], encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """The spans of all texts in the units of their tokens, int64 (spans, 2), and how many each text has."""
    counts = np.fromiter((len(text.spans) for text in texts), np.int64, len(texts))
    edges = chain.from_iterable(chain.from_iterable([text.spans for text in texts]))
    spans = np.fromiter(edges, np.int64, 2 * counts.sum()).reshape(-1, 2)
    if encoded.utf8 is not None:
        spans = encoded.utf8.spans_in_bytes(spans, counts)
    return spans + np.repeat(encoded.bases, counts)[:, None], counts


def _joined(parts: list[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    return _Rows(
        ids=joined([part.ids for part in parts], np.int32),
        offsets=offsets_of(joined([np.diff(part.offsets) for part in parts], np.int64)),
        trained=joined([part.trained for part in parts], bool),
        parts=_joined_columns([part.parts for part in parts]),
    )


def _joined_columns(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Join arrays of shape (tokens, spans), filled with 0 up to the most spans. None if there are none."""
    found = [array for array in arrays if array is not None]
    if not found:
        return None
    most = max(array.shape[1] for array in found)
    return np.concatenate([np.pad(array, ((0, 0), (0, most - array.shape[1]))) for array in found])
