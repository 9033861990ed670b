"""Headers: what a chat template prints between two messages, from one special token to another.

A special token costs gigatoken 200 ns, which is three quarters of its time for chats. So a header that is frequent,
such as `<|eot_id|><|start_header_id|>user<|end_header_id|>`, is overwritten with a stand-in, which is ordinary text of
the same size, and the tokens of the stand-in are replaced by those of the header.

A stand-in is a vertical tab, then signs, then numerals. With one of `_NUMERALS` as pre-tokenizer, the texts before and
after it have the tokens that they have before and after a special token, those of a text of their own:

- Before it: no alternative for words or signs matches a vertical tab but as its first character. White space is matched
  by `\\s*[\\r\\n]+` up to its last line break, since the next sign ends it, and then by `\\s+(?!\\S)` up to the tab.
- After it: the numerals are as many as one match takes, and no alternative matches anything after them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken, Tokenizer

from transforms.rows.ragged import indices_of, joined, offsets_of, slices_of
from transforms.tokens.components import components_of
from transforms.tokens.marked import SPECIAL, Places, are_apart, frequent
from transforms.tokens.pieces import PieceEncoder
from transforms.tokens.utf8 import Utf8

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LOWER, _UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_FIRST, _WHITE_SPACE = r"[^\r\n\p{L}\p{N}]?", r"\s*[\r\n]+|\s+(?!\S)|\s+"
# How many numerals one match takes, by the pattern: of Llama 3, Qwen 2 and 3, Qwen 3.5, GPT-OSS and Llama 4.
_NUMERALS = {
    rf"{_CONTRACTION}|{_FIRST}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}": 3,
    rf"{_CONTRACTION}|{_FIRST}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}": 1,
    rf"{_CONTRACTION}|{_FIRST}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_WHITE_SPACE}": 1,
    rf"{_FIRST}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_FIRST}{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_WHITE_SPACE}": 3,
}
_TAB = b"\x0b"

_HEADER = re.compile(rb"<[^<>]+>(?:[^<>]{0,16}<[^<>]+>)*")


@dataclass(frozen=True)
class _Header:
    """A header and what it is replaced by.

    text, stand_in: of the same length.
    ids: int32, the tokens of the text.
    tokens: how many the stand-in has, not less than those of the text.
    """

    text: bytes
    ids: np.ndarray
    stand_in: bytes
    tokens: int


class HeadersEncoder:
    """Encodes texts with gigatoken, which does not get their headers.

    Args:
        encoder: of the tokenizer.
        added: the added tokens.
        numerals: of a stand-in, see numerals_of.
    """

    def __init__(self, encoder: PieceEncoder, added: Iterable[AddedToken], numerals: int):
        self._encoder = encoder
        self._numerals = numerals
        self._specials = {token.content.encode() for token in added if not token.normalized}
        self._header = functools.lru_cache(256)(self._header_of)
        self._tab = int(self._ids_of(_TAB)[0])

    def encode(self, texts: Utf8) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts, see IdEncoder."""
        headers = [header for header in map(self._header, frequent(texts, _HEADER)) if header]
        if not headers or _TAB in texts.data:
            return self._encoder.encode(texts.data, texts.offsets)
        codes, found = _replaced(texts, headers)
        ids, offsets = self._encoder.encode(codes, texts.offsets)
        marks = np.flatnonzero(ids == self._tab)
        counts = np.array([len(header.ids) for header in headers])
        extra = (np.array([header.tokens for header in headers]) - counts)[found]
        ids = ids.copy()
        flat = joined([header.ids for header in headers], np.int32)
        ids[indices_of(marks, counts[found])] = slices_of(flat, offsets_of(counts)[:-1][found], counts[found])
        if not extra.any():
            return ids, offsets
        ids = np.delete(ids, indices_of(marks + counts[found], extra))
        return ids, offsets - offsets_of(extra)[np.searchsorted(marks, offsets)]

    def _header_of(self, text: bytes) -> _Header | None:
        """The header of a text, or None if it does not begin and end with special tokens."""
        specials = SPECIAL.findall(text)
        if specials[0] not in self._specials or specials[-1] not in self._specials:
            return None
        ids = self._ids_of(text)
        for numerals in range(self._numerals, len(text), self._numerals):
            stand_in = _TAB + b"=" * (len(text) - 1 - numerals) + b"0" * numerals
            if (tokens := len(self._ids_of(stand_in))) >= len(ids):
                return _Header(text, ids, stand_in, tokens)
        return None

    def _ids_of(self, text: bytes) -> np.ndarray:
        return self._encoder.encode(text, np.array([0, len(text)]))[0]


def _replaced(texts: Utf8, headers: list[_Header]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of texts with stand-ins, and the numbers of the headers in the order in which they were found."""
    places = Places(texts, max(len(header.text) for header in headers))
    found = np.full(len(places.begins), -1)
    for number, header in enumerate(headers):
        rows = places.of(header.text)
        found[rows] = number
        places.windows(f"S{len(header.text)}")[places.begins[rows]] = header.stand_in
    return places.codes[: len(texts.data)], found[found >= 0]


def numerals_of(tokenizer: Tokenizer) -> int | None:
    """Return how many numerals a stand-in ends with, or None if its neighbors may have other tokens next to it.

    Args:
        tokenizer: as tokenizers loads it, of which gigatoken encodes whole texts.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    normalizers = {component["type"] for component in components_of(tokenizer.normalizer)}
    components = components_of(tokenizer.pre_tokenizer)
    kinds = [component["type"] for component in components]
    if kinds != ["Split", "ByteLevel"] or components[1]["add_prefix_space"] or normalizers - {"NFC"}:
        return None
    if not are_apart(added) or any(token.lstrip or token.rstrip for token in added):
        return None
    if any("\x0b" in token.content or token.content[:1] in ("=", "0") for token in added):  # it overlaps a stand-in
        return None
    return _NUMERALS.get(components[0]["pattern"].get("Regex"))
