"""The encoder for tokenizers that gigatoken cannot load: the reference, which encodes each different word once."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np

from transforms.rows.ragged import indices_of, offsets_of
from transforms.tokens import Encoded
from transforms.tokens.marked import SPECIAL, Places, are_apart, frequent
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.utf8 import Utf8

# So many tokens are kept, each of 20 bytes, and their words of about 150. Then the memo begins anew.
_KEPT = 1 << 20


class WordsEncoder(ReferenceEncoder):
    """Encodes texts in pieces of about a word, and remembers the tokens of each. Offsets count characters.

    Texts with special tokens are encoded as a whole, and so are those next to a text that is too long.

    Args:
        tokenizer: as transformers loads it. Its texts can be cut, see boundaries.py.
        longest: texts of more characters are too long.
    """

    characters_at_once = 1 << 22

    def __init__(self, tokenizer: Any, longest: int):
        super().__init__(tokenizer)
        self._longest = longest
        added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
        alone = [token for token in added if not (token.normalized or token.lstrip or token.single_word)]
        self._specials = {token.content.encode() for token in alone} if are_apart(added) else set()
        self._lock = threading.Lock()  # threads share the encoder
        self._forget()

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        """Encode texts, see TextEncoder."""
        if special_tokens or any(len(text) > self._longest for text in texts):
            return super().encode(texts, special_tokens)
        with self._lock:
            encoded = self._by_words(texts)
        return encoded or super().encode(texts, special_tokens)

    def _by_words(self, texts: list[str]) -> Encoded | None:
        """The tokens of texts, or None if the tokenizer cannot encode one of their words."""
        utf8 = Utf8.of(texts)
        specials = [token for token in frequent(utf8, SPECIAL) if token in self._specials]
        words, firsts = _words(utf8, specials)
        if not self._learn(words, tuple(specials)):
            return None
        rows = np.fromiter(map(self._number_of.__getitem__, words), np.int64, len(words))
        counts = np.diff(self._offsets)[rows]
        own = indices_of(self._offsets[:-1][rows], counts)
        ends = offsets_of(self._sizes[rows])
        gaps = 1 + 2 * np.arange(len(texts))  # before each text and after it is one unit more
        shifts = np.repeat(ends[:-1] + np.repeat(gaps, np.diff(firsts)), counts)
        offsets = offsets_of(counts)[firsts]
        starts, stops = self._starts[own] + shifts, self._stops[own] + shifts
        encoded = Encoded(self._ids[own], offsets, starts, stops, ends[firsts[:-1]] + gaps)
        if len(self._ids) > _KEPT:
            self._forget()
        return encoded

    def _forget(self) -> None:
        self._number_of: dict[bytes, int] = {}
        self._ids, self._offsets = np.empty(0, np.int32), np.zeros(1, np.int64)
        self._starts, self._stops, self._sizes = (np.empty(0, np.int64) for _ in range(3))

    def _learn(self, words: list[bytes], specials: tuple[bytes, ...]) -> bool:
        """Encode the words that are new. False if the tokenizer cannot encode one of them."""
        new = [word for word in dict.fromkeys(words) if word not in self._number_of]
        if not new:
            return True
        # A call takes longer than a word, so words that may be next to each other are encoded in one text.
        rows = _rows_of(new, specials)
        encoded = super().encode([b"".join(row).decode() for row in rows], special_tokens=False)
        if encoded.failed:
            return False
        sizes = np.array([len(word) if word.isascii() else len(word.decode()) for word in new], np.int64)
        counts = np.array([len(row) for row in rows], np.int64)
        gaps = np.repeat(1 + 2 * np.arange(len(counts)), counts)
        begins = offsets_of(sizes)[:-1] + gaps
        own = np.searchsorted(begins, encoded.starts, "right") - 1
        self._number_of.update(zip(new, range(len(self._sizes), len(self._sizes) + len(new)), strict=True))
        self._offsets = np.concatenate(
            [self._offsets, self._offsets[-1] + np.cumsum(np.bincount(own, minlength=len(new)))]
        )
        self._ids = np.concatenate([self._ids, encoded.ids])
        self._starts = np.concatenate([self._starts, encoded.starts - begins[own]])
        self._stops = np.concatenate([self._stops, encoded.stops - begins[own]])
        self._sizes = np.concatenate([self._sizes, sizes])
        return True


def _words(texts: Utf8, specials: list[bytes]) -> tuple[list[bytes], np.ndarray]:
    """Cut texts where boundaries.py says, and before some special tokens.

    What is before a special token has the tokens of a text that ends there. What begins with one has the same tokens
    wherever it is.

    Returns:
        The words of all texts, and the number of the first word of each text, and how many there are.
    """
    places = Places(texts, max(map(len, specials), default=8))
    codes = places.codes[: len(texts.data)]
    is_edge = np.zeros(len(codes) + 1, bool)
    is_letter = (codes | 0x20) - np.uint8(ord("a")) < 26
    is_printable = codes - np.uint8(ord("!")) < 94
    is_edge[1:-2] = is_printable[:-2] & (codes[1:-1] == ord(" ")) & is_letter[2:]
    is_edge[texts.offsets[texts.offsets > 0] - 1] = False  # the letter is in the next text
    is_edge[texts.offsets] = True
    for token in specials:
        is_edge[places.begins[places.of(token)]] = True
    edges = np.flatnonzero(is_edge)
    words = [texts.data[start:stop] for start, stop in pairwise(edges.tolist())]
    return words, np.searchsorted(edges, texts.offsets)


def _rows_of(words: list[bytes], specials: tuple[bytes, ...]) -> list[list[bytes]]:
    """The words, in rows of at most 64 that would be cut again if they were one text."""
    rows: list[list[bytes]] = []
    for word in words:
        last = rows[-1][-1] if rows and len(rows[-1]) < 64 else b""
        is_cut = b"!" <= last[-1:] <= b"~" and word[:1] == b" " and word[1:2].isalpha()
        if last and (is_cut or word.startswith(specials)):
            rows[-1].append(word)
        else:
            rows.append([word])
    return rows
