"""The fast encoder: gigatoken, with offsets in bytes that are computed from the lengths of the tokens."""

from __future__ import annotations

import dataclasses
import functools
import logging
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.base.once import once_per_version
from transforms.rows.ragged import lengths_to_offsets
from transforms.storage.walking import versions_below
from transforms.tokens import Encoded, concatenated
from transforms.tokens.newer import find_newer_tokens, has_newer
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.utf8 import Utf8, bytes_before

# With fewer bytes of input than this, the reference takes less time than loading the fast encoder.
WORTH_LOADING = 1 << 20
_META = "\u2581"  # stands for a space in the tokens of SentencePiece
# Longer texts are encoded by the reference, whose regular expressions give up at some ten million steps for one word or
# one piece of white space. gigatoken does not, and the engines have to reject the same records.
_LONG = 1 << 21


@dataclass(frozen=True)
class NotSupported:
    """Why the fast encoder cannot load a tokenizer, in one line."""

    reason: str


@once_per_version(versions_below)
def load_fast_encoder(folder: str) -> FastEncoder | NotSupported:
    """Load the fast encoder of a tokenizer, once for each process and content of its folder.

    Args:
        folder: of the tokenizer, at any url.

    Returns:
        The encoder; NotSupported if gigatoken cannot load the tokenizer, and a warning is logged.
    """
    try:
        return FastEncoder(load_tokenizer(folder))
    except Exception as error:  # gigatoken raises many classes
        reason = str(error).partition("\n")[0] or type(error).__name__
        logging.getLogger(__name__).warning("transformers tokenizes, since the fast engine cannot: %s", reason)
        return NotSupported(reason)


class FastEncoder:
    """Encodes with gigatoken. Offsets count bytes.

    gigatoken returns ids alone. The offsets are computed from the bytes of the tokens: each begins where the one before
    it ends. Texts that are not the bytes of their tokens, since the tokenizer normalises them, are encoded by the
    reference. So are texts with characters that only gigatoken knows, see newer.py.

    Args:
        tokenizer: of transformers.

    Raises:
        ValueError: if the offsets of its tokens cannot be known, or gigatoken would give other ids.
        Exception: what gigatoken raises if it does not know the tokenizer.
    """

    characters_at_once = 1 << 26

    def __init__(self, tokenizer: Any):
        from transforms.tokens.ids import list_components, load_gigatoken, token_ids

        self._gigatoken = load_gigatoken(tokenizer.backend_tokenizer)
        self._token_ids = functools.partial(token_ids, self._gigatoken)
        self._reference = ReferenceEncoder(tokenizer)
        self._eos = tokenizer.eos_token_id
        normalizers = list_components(tokenizer.backend_tokenizer.normalizer)
        self._spaces_are_meta = any(
            _META in component.values() for component in list_components(tokenizer.backend_tokenizer.pre_tokenizer)
        )
        for component in normalizers:
            replaces_spaces = _META in (component.get("prepend"), component.get("content"))
            self._spaces_are_meta |= replaces_spaces
            if component["type"] != "NFC" and not replaces_spaces:
                raise ValueError(f"with its normalizer {component['type']} the offsets of tokens are not known")
        self._composes = any(component["type"] == "NFC" for component in normalizers)
        vocab: dict[int, bytes] = self._gigatoken.vocab
        self._lengths = np.zeros(max(vocab) + 1, np.int64)
        for number, token in vocab.items():
            self._lengths[number] = len(token.replace(_META.encode(), b" ") if self._spaces_are_meta else token)
        self._prefix, self._suffix = self._reference.special_tokens

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        """Encode texts, see TextEncoder."""
        utf8 = Utf8.of(texts)
        sizes = utf8.sizes
        long = np.flatnonzero(utf8.lengths > _LONG).tolist()
        own = Utf8.of(["" if len(text) > _LONG else text for text in texts]) if long else utf8
        ids, offsets = self._token_ids(own)
        lengths = self._lengths.take(ids)  # twice as fast as by an index
        ends = lengths_to_offsets(lengths)
        # The tokenizer may prepend a space to a text, which has no offset.
        longer = np.flatnonzero(np.diff(ends[offsets]) == sizes + 1)
        if len(longer):
            lengths[offsets[longer]] -= 1
            ends = lengths_to_offsets(lengths)
        is_altered = np.diff(ends[offsets]) != sizes
        newer: list[int] = []
        if not_ascii := np.flatnonzero(sizes != utf8.lengths).tolist():
            for row in not_ascii:
                is_altered[row] |= self._is_altered(texts[row])
            newer = self._with_newer(texts, ids, offsets)
        reasons = dict.fromkeys(np.flatnonzero(is_altered).tolist(), "altered_by_normalizer")
        reasons |= dict.fromkeys(newer, "newer_unicode") | dict.fromkeys(long, "long_text")
        encoded = Encoded(ids, offsets, ends[:-1], ends[1:], ends[offsets[:-1]])
        if reasons:
            encoded = self._replaced(encoded, texts, sizes, reasons)
        if special_tokens:
            encoded = self._with_special_tokens(encoded, sizes)
        return dataclasses.replace(encoded, utf8=utf8, by_reference=reasons)

    def _is_altered(self, text: str) -> bool:
        """Whether the tokenizer may normalise a text without a change of its length."""
        is_composed = not self._composes or unicodedata.is_normalized("NFC", text)
        return not is_composed or (self._spaces_are_meta and _META in text)

    @functools.cached_property
    def _may_be_newer(self) -> np.ndarray:
        may_be = np.zeros(len(self._lengths), bool)
        may_be[find_newer_tokens(self._gigatoken.vocab)] = True
        return may_be

    def _with_newer(self, texts: list[str], ids: np.ndarray, offsets: np.ndarray) -> list[int]:
        """The numbers of the texts with characters that only gigatoken knows."""
        tokens = np.flatnonzero(self._may_be_newer.take(ids))
        rows = np.unique(np.searchsorted(offsets, tokens, "right") - 1)
        return [row for row in rows.tolist() if has_newer(texts[row])]

    def _replaced(self, encoded: Encoded, texts: list[str], sizes: np.ndarray, rows: Iterable[int]) -> Encoded:
        """The same tokens, with some of the texts encoded by the reference."""
        shifts = np.repeat(encoded.bases, np.diff(encoded.offsets))
        arrays = (encoded.ids, encoded.starts - shifts, encoded.stops - shifts)
        parts = [*zip(*(np.split(array, encoded.offsets[1:-1]) for array in arrays), strict=True)]
        failed: dict[int, str] = {}
        for row in rows:
            expected = self._reference.encode([texts[row]], special_tokens=False)
            if expected.failed:
                failed[row] = expected.failed[0]
            bytes_at = bytes_before(texts[row].encode())
            base = expected.bases[0]
            parts[row] = expected.ids, bytes_at[expected.starts - base], bytes_at[expected.stops - base]
        return concatenated(parts, lengths_to_offsets(sizes)[:-1], failed)

    def _with_special_tokens(self, encoded: Encoded, sizes: np.ndarray) -> Encoded:
        """The same tokens, with those that the tokenizer adds before and after a text, and an EOS if it is missing."""
        firsts, ends = encoded.offsets[:-1], encoded.offsets[1:]
        added = np.array([*self._prefix, *self._suffix, self._eos or 0], np.int32)
        last = np.full(len(sizes), [-1, *self._prefix, *self._suffix][-1])
        if not self._suffix:
            last[firsts < ends] = encoded.ids[ends[firsts < ends] - 1]
        is_added = np.ones((len(sizes), len(added)), bool)
        is_added[:, -1] = self._eos is not None and last != self._eos
        is_before = np.arange(len(added)) < len(self._prefix)
        bases = lengths_to_offsets(sizes + 2)[:-1] + 1
        at = np.where(is_before, firsts[:, None], ends[:, None])[is_added]
        starts = np.where(is_before, bases[:, None] - 1, (bases + sizes)[:, None])[is_added]
        shifts = np.repeat(bases - encoded.bases, ends - firsts)
        return dataclasses.replace(
            encoded,
            ids=np.insert(encoded.ids, at, np.broadcast_to(added, is_added.shape)[is_added]),
            offsets=lengths_to_offsets(ends - firsts + is_added.sum(axis=1)),
            starts=np.insert(encoded.starts + shifts, at, starts),
            stops=np.insert(encoded.stops + shifts, at, starts + 1),
            bases=bases,
        )
