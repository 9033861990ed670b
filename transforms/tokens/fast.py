"""The fast encoder: gigatoken, with places in bytes that come from the lengths of the tokens."""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from transforms.errors import UserError
from transforms.model.examples import Span
from transforms.once import once_per_version
from transforms.rows.ragged import indices_of, offsets_of
from transforms.storage.files import versions_below
from transforms.tokens import Encoded, in_one_space
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer

_META = "\u2581"  # stands for a space in the tokens of SentencePiece


@once_per_version(lambda folder, engine: versions_below(folder))
def load_fast_encoder(folder: str, engine: str) -> FastEncoder | None:
    """The fast encoder of the tokenizer in a folder, at any url.

    Where it cannot be loaded: raises UserError for the engine fast; for auto it is None, which is said once.
    """
    try:
        tokenizer = load_tokenizer(folder)
        if not tokenizer.is_fast:
            raise ValueError("it has no tokenizer.json")
        import gigatoken

        return FastEncoder(gigatoken.Tokenizer.from_json(tokenizer.backend_tokenizer.to_str()), tokenizer)
    except Exception as error:  # what it cannot load it says in many ways
        reason = str(error).partition("\n")[0] or type(error).__name__
        if engine == "fast":
            raise UserError(f"--engine fast cannot load the tokenizer: {reason}. Use --engine auto.") from None
        logging.getLogger(__name__).warning("transformers tokenizes, since the fast engine cannot: %s", reason)
        return None


class FastEncoder:
    """Encodes with gigatoken. Units are bytes of UTF-8.

    A token lies behind those before it, as far as its own bytes reach. Where a text is not the bytes of its tokens,
    since the tokenizer normalises it, the reference tells the places.
    """

    characters_at_once = 1 << 26

    def __init__(self, encoder: Any, tokenizer: Any):
        self._encoder = encoder
        self._reference = ReferenceEncoder(tokenizer)
        self._eos = tokenizer.eos_token_id
        normalizers = _parts(tokenizer.backend_tokenizer.normalizer, "normalizers")
        self._spaces_are_meta = any(
            _META in part.values() for part in _parts(tokenizer.backend_tokenizer.pre_tokenizer, "pretokenizers")
        )
        for part in normalizers:
            self._spaces_are_meta |= _META in (part.get("prepend"), part.get("content"))
            if part["type"] != "NFC" and _META not in (part.get("prepend"), part.get("content")):
                raise ValueError(f"its normalizer {part['type']} hides where tokens lie")
        self._composes = any(part["type"] == "NFC" for part in normalizers)
        self._lengths = np.zeros(encoder.vocab_size, np.int64)
        for number, token in encoder.vocab.items():
            self._lengths[number] = len(token.replace(_META.encode(), b" ") if self._spaces_are_meta else token)
        self._front, self._back = _special_tokens(tokenizer)

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        layout = self._encoder.backend.encode_batch(texts, parallel=False).layout
        ids = np.asarray(layout.content.data).view(np.int32)
        offsets = np.asarray(layout.offsets.data).astype(np.int64, copy=False)
        lengths = self._lengths.take(ids)  # twice as fast as by an index
        ends = offsets_of(lengths)
        sizes = np.array([self.length(text) for text in texts], np.int64)
        # The tokenizer may put a space of its own in front of a text.
        longer = np.flatnonzero(ends[offsets[1:]] - ends[offsets[:-1]] == sizes + 1)
        if len(longer):
            lengths[offsets[longer]] -= 1
            ends = offsets_of(lengths)
        encoded = Encoded(ids, offsets, ends[:-1], ends[1:], ends[offsets[:-1]])
        strange = ends[offsets[1:]] - ends[offsets[:-1]] != sizes
        strange |= np.array([not text.isascii() and self._is_altered(text) for text in texts], bool)
        if strange.any():
            encoded = self._replaced(encoded, texts, sizes, np.flatnonzero(strange))
        return self._with_special_tokens(encoded, sizes) if special_tokens else encoded

    def length(self, text: str) -> int:
        return len(text) if text.isascii() else len(text.encode())

    def places(self, text: str, spans: Sequence[Span]) -> Sequence[Span]:
        if text.isascii():
            return spans
        at = {-1: -1, 0: 0}
        last = 0
        for edge in sorted({edge for span in spans for edge in span if edge > 0}):
            # What lies behind the text counts one.
            at[edge] = at[last] + len(text[last:edge].encode()) + max(edge - max(len(text), last), 0)
            last = edge
        return [(at[start], at[stop]) for start, stop in spans]

    def _is_altered(self, text: str) -> bool:
        """Whether the tokenizer may see other characters than those of a text."""
        if self._spaces_are_meta and _META in text:
            return True
        return self._composes and not unicodedata.is_normalized("NFC", text)

    def _replaced(self, encoded: Encoded, texts: list[str], sizes: np.ndarray, rows: np.ndarray) -> Encoded:
        """The same with some texts encoded by the reference."""
        counts = np.diff(encoded.offsets)
        own = np.repeat(encoded.bases, counts)
        places = (encoded.ids, encoded.starts - own, encoded.stops - own)
        ids, starts, stops = (np.split(array, encoded.offsets[1:-1]) for array in places)
        for row in rows:
            told = self._reference.encode([texts[row]], special_tokens=False)
            bytes_before = _bytes_before(texts[row])
            told_starts, told_stops = told.starts - told.bases[0], told.stops - told.bases[0]
            ids[row], starts[row], stops[row] = told.ids, bytes_before[told_starts], bytes_before[told_stops]
        return in_one_space(ids, starts, stops, offsets_of(sizes)[:-1])

    def _with_special_tokens(self, encoded: Encoded, sizes: np.ndarray) -> Encoded:
        """The same with the tokens that the tokenizer adds in front and behind, and an EOS where it is missing."""
        counts = np.diff(encoded.offsets)
        front, back = self._front, self._back
        needs_eos = np.zeros(len(counts), bool)
        if self._eos is not None:
            last = np.full(len(counts), (front[-1:] or [-1])[0])
            last[counts > 0] = encoded.ids[encoded.offsets[1:][counts > 0] - 1]
            needs_eos = (np.full(len(counts), back[-1]) if back else last) != self._eos
        offsets = offsets_of(len(front) + counts + len(back) + needs_eos)
        ids, starts, stops = (np.empty(offsets[-1], dtype) for dtype in (np.int32, np.int64, np.int64))
        own = indices_of(offsets[:-1] + len(front), counts)
        bases = offsets_of(sizes + 2)[:-1] + 1
        moved = np.repeat(bases - encoded.bases, counts)
        ids[own], starts[own], stops[own] = encoded.ids, encoded.starts + moved, encoded.stops + moved
        for number, token in enumerate(front):
            at = offsets[:-1] + number
            ids[at], starts[at], stops[at] = token, bases - 1, bases
        for number, token in enumerate([*back, *([self._eos] if needs_eos.any() else [])]):
            rows = np.flatnonzero(needs_eos) if number == len(back) else np.arange(len(counts))
            at = (offsets[:-1] + len(front) + counts)[rows] + number
            behind = bases[rows] + sizes[rows]
            ids[at], starts[at], stops[at] = token, behind, behind + 1
        return Encoded(ids, offsets, starts, stops, bases)


def _parts(component: Any, name: str) -> list[dict[str, Any]]:
    """The components, as a tokenizer.json has them, that a sequence of them, or one, or none, consists of."""
    if component is None:
        return []
    state = json.loads(component.__getstate__())
    return state[name] if state["type"] == "Sequence" else [state]


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts in front of a text and behind it."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, added = encoded["input_ids"], encoded["special_tokens_mask"]
    first, last = added.index(0), len(ids) - added[::-1].index(0)
    return ids[:first], ids[last:]


def _bytes_before(text: str) -> np.ndarray:
    """How many bytes of UTF-8 stand before each character of a text, and before its end: int64 (characters + 1,)."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return offsets_of(1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000))
