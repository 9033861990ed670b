"""Tokenize: from texts to token ids, with the offsets of each token in its text."""

from __future__ import annotations

import dataclasses
import functools
import random
import re
from collections.abc import Iterator, Mapping
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

import msgspec
import numpy as np

from transforms.base.errors import InputError, RecordError
from transforms.chat.spans.loss import assistant_turns, has_untrained_parts
from transforms.files.formats import input_format
from transforms.model.batches import Texts, Tokens
from transforms.model.examples import Content, Conversation, Text
from transforms.model.facts import RowFacts
from transforms.model.outcomes import Reject
from transforms.rows.ragged import join_slices, joined, lengths_to_offsets, slice_indices, sum_each_row
from transforms.steps.spot_checks import sample
from transforms.tokens import Encoded, TextEncoder
from transforms.tokens.fast_encoder import WORTH_LOADING, FastEncoder, NotSupported, load_fast_encoder
from transforms.tokens.plain import PlainEncoder
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer, with_white_space
from transforms.tokens.trained import find_token_spans, is_trained

# Of a longer text, an excerpt of this many characters is compared.
_EXCERPT = 4096
# Why the reference encodes a record instead of the fast encoder, and what was found in the first one. A record is
# counted for the first reason that it has; that of `tokens.plain` is the last one.
_REASONS = {
    "altered_by_normalizer": "the tokenizer changes the characters of its text",
    "newer_unicode": "",
    "long_text": "",
    "special_tokens_in_content": "",
}


class _Group(NamedTuple):
    """Some texts of one kind, encoded: fields of Tokens; and what was found, with the positions of records."""

    ids: np.ndarray
    trained: np.ndarray
    parts: np.ndarray | None
    lengths: np.ndarray  # of the texts, in tokens
    skipped: np.ndarray  # how many tokens each text loses at its start
    rejects: list[Reject]
    by_reference: list[tuple[int, str]]  # why the reference has encoded a text
    across: list[tuple[int, int]]  # the tokens across the end of a prompt
    not_prefixes: int  # the texts that do not begin with the tokens of their prompt


class Encoder:
    """Encodes the texts of a batch. The arguments are those of Tokenize; a tokenizer may be loaded for `reference`."""

    def __init__(self, tokenizer: Any, strip_bos: bool = False, engine: str = "auto"):
        self._tokenizer = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else with_white_space(tokenizer)
        self._strip_bos = strip_bos
        self._engine = engine
        self._folder = tokenizer
        self._reference = ReferenceEncoder(self._tokenizer)

    @functools.cached_property
    def _fast(self) -> FastEncoder | NotSupported:
        return load_fast_encoder(self._folder)

    @functools.cached_property
    def _plain(self) -> PlainEncoder:
        return PlainEncoder(self._tokenizer)

    @functools.cached_property
    def _last_id(self) -> int:
        return max(self._tokenizer.get_vocab().values())

    def __call__(self, batch: Texts) -> Tokens:
        """Encode a batch. The records that the reference encodes are counted in its outcomes, by reason.

        Raises:
            InputError: if the reference does not confirm the sample.
        """
        if self._engine == "reference":
            return self._encode(batch, self._reference, {"engine": None})
        if max(batch.task.input_bytes, batch.task.unpacked_bytes) < WORTH_LOADING:
            return self._encode(batch, self._reference, {"small_input": None})
        if isinstance(self._fast, NotSupported):
            return self._encode(batch, self._reference, {"tokenizer_not_supported": self._fast.reason})
        tokens = self._encode(batch, self._fast)
        self._check_sample(batch, tokens, self._fast)
        return tokens

    def _check_sample(self, batch: Texts, tokens: Tokens, fast: TextEncoder) -> None:
        """Raise InputError if the reference does not confirm the tokens of a sample; of long texts, of an excerpt."""
        rejected = {reject.position for reject in tokens.outcomes.rejects}
        kept = [text for text in batch.texts if text.example.position not in rejected] if rejected else batch.texts
        sizes = [len(text.text) for text in kept]
        rows = sample(batch, sizes, _EXCERPT)
        # Texts with stand-ins are encoded by the reference.
        rows = [row for row in rows if kept[row].token_ids is None and kept[row].with_stand_ins is None]
        whole, longer = ([row for row in rows if (sizes[row] > _EXCERPT) == is_longer] for is_longer in (False, True))
        excerpts = dataclasses.replace(batch, texts=[_excerpt(kept[row], f"{batch.chunk}-{row}") for row in longer])
        texts = dataclasses.replace(batch, texts=[*(kept[row] for row in whole), *excerpts.texts])
        given = [_row(tokens, row) for row in whole]
        given += _rows(self._encode(excerpts, fast)) if longer else []
        expected = _rows(self._encode(texts, self._reference))
        for text, fast_row, reference_row in zip(texts.texts, given, expected, strict=True):
            for what, encoded, confirmed in zip(("tokens", "trained tokens"), fast_row, reference_row, strict=True):
                if not np.array_equal(encoded, confirmed):
                    most = min(len(encoded), len(confirmed))
                    first = [*np.flatnonzero(encoded[:most] != confirmed[:most]), most][0]
                    piece, position = batch.task.origin(text.example.position)
                    raise InputError(
                        f"{piece.url}, {input_format(piece.format).position_unit} {position:,}: gigatoken gives other "
                        f"{what} than tokenizers, from number {first} on. Give --engine reference, which does not use "
                        "it."
                    )

    def _encode(self, batch: Texts, encoder: TextEncoder, reasons: Mapping[str, str | None] = _REASONS) -> Tokens:
        """The batch, encoded by one of the two encoders. reasons: of what the reference encodes, see _REASONS."""
        texts, has_parts = batch.texts, any(text.parts for text in batch.texts)
        alike = _groups(texts, encoder.characters_at_once)
        groups = [self._group(group, encoder, [*reasons][-1], has_parts) for group in alike]
        rejects: dict[int, Reject] = {}
        reason_by_position: dict[int, str] = {}
        for reject in chain.from_iterable(group.rejects for group in groups):
            rejects.setdefault(reject.position, reject)
        for position, reason in chain.from_iterable(group.by_reference for group in groups):
            reason_by_position[position] = min(reason_by_position.get(position, reason), reason, key=[*reasons].index)
        lengths, skipped = (joined([getattr(g, name) for g in groups], np.int64) for name in ("lengths", "skipped"))
        starts, lengths = lengths_to_offsets(lengths)[:-1] + skipped, lengths - skipped
        if rejects:  # all texts of a rejected record are removed
            left = np.array([i for i, text in enumerate(texts) if text.example.position not in rejects], np.int64)
            texts, starts, lengths = [texts[i] for i in left], starts[left], lengths[left]
        parts = _joined_columns([group.parts for group in groups if group.parts is not None])
        outcomes = batch.outcomes.reject([*rejects.values()])
        outcomes = outcomes.note("prompt_tokens_not_a_prefix", sum(group.not_prefixes for group in groups))
        if across := [each for group in groups for each in group.across if each[0] not in rejects]:
            position, token = across[0]
            detail = f"token {token} is {self._tokenizer.decode([token])!r}"
            outcomes = outcomes.note("turns_with_token_across_prompt_end", len(across), (position, detail))
        for reason, what in reasons.items():
            positions = [p for p, own_reason in reason_by_position.items() if own_reason == reason and p not in rejects]
            first = (positions[0], what) if positions and what is not None else None
            outcomes = outcomes.by_reference("tokenized_by_reference", reason, len(positions), first)
        return batch.succeeded_by(
            Tokens,
            outcomes,
            ids=join_slices(joined([group.ids for group in groups], np.int32), starts, lengths),
            offsets=lengths_to_offsets(lengths),
            trained=join_slices(joined([group.trained for group in groups], bool), starts, lengths),
            facts=RowFacts.of([text.example for text in texts]),
            parts=None if parts is None else parts[slice_indices(starts, lengths)],
            trained_parts=batch.trained_parts,
        )

    def _group(self, texts: list[Text], encoder: TextEncoder, reason: str, has_parts: bool) -> _Group:
        """The tokens of texts of one kind, see _groups. reason: why the reference encodes them, if it does."""
        positions = [text.example.position for text in texts]
        not_prefixes, by_reference = 0, dict[int, str]()
        if texts[0].token_ids is not None:
            encoded = self._given(texts)
        else:
            encoder = encoder if texts[0].with_stand_ins is None else self._plain
            strings = [text.with_stand_ins or text.text for text in texts]
            encoded = encoder.encode(strings, texts[0].special_tokens)
            is_reference = isinstance(encoder, ReferenceEncoder)
            by_reference = dict.fromkeys(range(len(texts)), reason) if is_reference else {**encoded.by_reference}
            not_prefixes = _not_prefixes(texts, strings, encoded, encoder)
        spans, counts = _spans(texts, encoded)
        parts = None
        if has_parts:
            codes = joined([np.array(text.parts or [0] * len(text.spans), np.int32) for text in texts], np.int32)
            parts = np.append(codes, np.int32(0))[find_token_spans(encoded.starts, encoded.stops, spans, codes)]
        return _Group(
            ids=encoded.ids,
            trained=is_trained(encoded.starts, encoded.stops, spans),
            parts=parts,
            lengths=np.diff(encoded.offsets),
            skipped=self._skipped(encoded),
            rejects=[texts[row].example.rejected(_failure(texts[row], error)) for row, error in encoded.failed.items()],
            by_reference=[(positions[row], why) for row, why in by_reference.items()],
            across=[(positions[row], token) for row, token in _across_prompt_end(texts, encoded, spans, counts)],
            not_prefixes=not_prefixes,
        )

    def _given(self, texts: list[Text]) -> Encoded:
        """The tokens of texts that are tokenized already. Those that the tokenizer does not know are an error."""
        rows = [text.token_ids for text in texts if text.token_ids is not None]
        offsets = lengths_to_offsets(np.array([len(row) for row in rows], np.int64))
        starts = np.arange(offsets[-1])
        lasts = [(number, int(row.max())) for number, row in enumerate(rows)]
        known = f"the tokenizer has the ids 0 to {self._last_id}"
        failed = {number: f"input_ids holds {last}; {known}" for number, last in lasts if last > self._last_id}
        return Encoded(joined(rows, np.int32), offsets, starts, starts + 1, offsets[:-1], failed=failed)

    def _skipped(self, encoded: Encoded) -> np.ndarray:
        """How many tokens each row loses: a BOS added to a text that begins with one, and with strip_bos one more."""
        bos, counts = self._tokenizer.bos_token_id, np.diff(encoded.offsets)
        skipped = np.zeros(len(counts), np.int64)
        if bos is None:
            return skipped
        some = np.flatnonzero(counts > 1)
        first, bases = encoded.offsets[some], encoded.bases[some]
        is_added = (encoded.starts[first] < bases) & (encoded.starts[first + 1] >= bases)
        skipped[some] = is_added & (encoded.ids[first] == bos) & (encoded.ids[first + 1] == bos)
        if self._strip_bos:
            some = np.flatnonzero(counts > skipped)
            skipped[some] += encoded.ids[(encoded.offsets[:-1] + skipped)[some]] == bos
        return skipped


def _failure(text: Text, error: str) -> RecordError:
    if text.token_ids is not None:
        return RecordError("bad_tokens", error)
    spaces = max(map(len, re.findall(r"\s+", text.text)), default=0)
    size = f"{len(text.text):,} characters with one piece of white space of {spaces:,}"
    return RecordError("tokenizer_failed", f"the tokenizer cannot encode this text of {size}: {error}")


def _excerpt(text: Text, seed: str) -> Text:
    """A part of a long text, and of its spans. It is not trained on as a completion, so it has no prompt."""
    start = random.Random(seed).randrange(len(text.text) - _EXCERPT + 1)
    around = int(text.special_tokens)
    clipped = [(max(first - start, -around), min(last - start, _EXCERPT + around)) for first, last in text.spans]
    spans = [span for span in clipped if span[0] < span[1]]
    part = text.text[start : start + _EXCERPT]
    return msgspec.structs.replace(text, text=part, spans=spans, prompt=None, parts=None)


def _groups(texts: list[Text], characters_at_once: int) -> Iterator[list[Text]]:
    """Consecutive texts of one kind, of about as many characters as are encoded at once."""

    def kind(text_and_end: tuple[Text, int]) -> tuple[Any, ...]:
        text, end = text_and_end
        return text.token_ids is None, text.special_tokens, text.with_stand_ins is None, end // characters_at_once

    ends = accumulate([len(text.text) for text in texts])
    for _, group in groupby(zip(texts, ends, strict=True), kind):
        yield [text for text, _ in group]


def _spans(texts: list[Text], encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """The spans of all texts in the units of their tokens, int64 (spans, 2), and how many each text has."""
    counts = np.fromiter((len(text.spans) for text in texts), np.int64, len(texts))
    edges = chain.from_iterable(chain.from_iterable([text.spans for text in texts]))
    spans = np.fromiter(edges, np.int64, 2 * counts.sum()).reshape(-1, 2)
    if encoded.utf8 is not None:
        spans = encoded.utf8.spans_in_bytes(spans, counts)
    return spans + np.repeat(encoded.bases, counts)[:, None], counts


def _not_prefixes(texts: list[Text], strings: list[str], encoded: Encoded, encoder: TextEncoder) -> int:
    """The number of texts whose tokens do not begin with the tokens of the prompt. strings: what was encoded."""
    rows = [row for row, text in enumerate(texts) if text.prompt and row not in encoded.failed]
    if not rows:
        return 0
    # The text begins with the prompt.
    prompts = encoder.encode([strings[row][: len(texts[row].prompt or "")] for row in rows], special_tokens=False)
    is_before = encoded.starts < np.repeat(encoded.bases, np.diff(encoded.offsets))  # added by the tokenizer
    starts = (encoded.offsets[:-1] + sum_each_row(is_before, encoded.offsets))[rows]
    counts = np.diff(prompts.offsets)
    fits = counts <= encoded.offsets[1:][rows] - starts
    counts = np.where(fits, counts, 0)
    equal = join_slices(encoded.ids, starts, counts) == join_slices(prompts.ids, prompts.offsets[:-1], counts)
    return int(np.sum(~fits | (sum_each_row(equal, lengths_to_offsets(counts)) < counts)))


def _across_prompt_end(
    texts: list[Text], encoded: Encoded, spans: np.ndarray, counts: np.ndarray
) -> list[tuple[int, int]]:
    """The tokens with a character before the end of a prompt and one after it: the text's number, and the id.

    A model begins to write at the start of a span, but of one that follows another one directly, or a part of an answer
    that is not trained on. spans, counts: as of _spans.
    """
    tokens = np.searchsorted(encoded.starts, spans[:, 0]) - 1  # the last one that begins before the span
    some = np.flatnonzero(tokens >= 0)
    across = some[encoded.stops[tokens[some]] > spans[some, 0]]
    firsts = lengths_to_offsets(counts)
    rows = np.searchsorted(firsts, across, "right") - 1
    tokens_across = []
    for row, number, token in zip(rows.tolist(), across - firsts[rows], encoded.ids[tokens[across]], strict=True):
        text = texts[row]
        start, stop = text.spans[number]
        follows = number > 0 and text.spans[number - 1][1] == start
        if 0 < start < min(stop, len(text.text)) and not follows and not _has_untrained_parts(text.example.content):
            tokens_across.append((row, int(token)))
    return tokens_across


def _has_untrained_parts(content: Content) -> bool:
    if not isinstance(content, Conversation) or content.texts is not None:
        return False
    return has_untrained_parts(content, assistant_turns(content))


def _rows(tokens: Tokens) -> list[tuple[np.ndarray, np.ndarray]]:
    return [_row(tokens, row) for row in range(len(tokens.offsets) - 1)]


def _row(tokens: Tokens, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a row, and whether each is trained on."""
    own = slice(tokens.offsets[row], tokens.offsets[row + 1])
    return tokens.ids[own], tokens.trained[own]


def _joined_columns(arrays: list[np.ndarray]) -> np.ndarray | None:
    """Join arrays of shape (tokens, spans), filled with 0 up to the most spans. None if there are none."""
    most = max((array.shape[1] for array in arrays), default=0)
    padded = [np.pad(array, ((0, 0), (0, most - array.shape[1]))) for array in arrays]
    return np.concatenate(padded) if padded else None
