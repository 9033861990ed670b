"""Texts cut at their numerals, as tokenizers' pre-tokenizer `Digits` does (SmolLM, StarCoder, Granite, Cohere).

gigatoken does not know `Digits`. If it comes first and cuts at each numeral, what follows sees each piece alone, so
gigatoken gets the pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from tokenizers import AddedToken, pre_tokenizers

from transforms.tokens.pieces import PieceEncoder
from transforms.tokens.utf8 import Utf8


class DigitsEncoder:
    """Encodes the pieces between the numerals, and the numerals, with gigatoken.

    Args:
        encoder: of the tokenizer without `Digits`.
        added: the added tokens, which are found before a text is cut.

    Raises:
        ValueError: if an added token begins with a numeral.
    """

    def __init__(self, encoder: PieceEncoder, added: Iterable[AddedToken]):
        self._encoder = encoder
        self._numerals = _Numerals()
        self._added = _AddedTokens(added, self._numerals)

    def encode(self, texts: Utf8) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts, see IdEncoder."""
        edges = self._edges(np.frombuffer(texts.data, np.uint8), texts.offsets, self._added.mask(texts))
        ids, offsets = self._encoder.encode(texts.data, edges)
        return ids, offsets[np.searchsorted(edges, texts.offsets)]

    def _edges(self, data: np.ndarray, firsts: np.ndarray, whole: np.ndarray | None) -> np.ndarray:
        """The bytes at which pieces begin, and the end of the last one.

        data: uint8, the bytes of all texts.
        firsts: the byte at which each text begins, and the end of the last one.
        whole: bool, whether each byte is in an added token, if any is.
        """
        starts, stops = self._numerals.spans(data)
        if whole is not None:
            starts, stops = starts[~whole[starts]], stops[~whole[starts]]
        is_edge = np.zeros(len(data) + 1, bool)
        is_edge[starts] = is_edge[stops] = is_edge[firsts] = True
        return np.flatnonzero(is_edge)


class _Numerals:
    """The characters at which `Digits` cuts: those that Rust calls numeric, in tokenizers' version of Unicode.

    Python's version may be another one, so each character is looked up in tokenizers when it is first met.
    """

    def __init__(self) -> None:
        self._kinds = np.zeros(0x110000, np.uint8)  # 0: not looked up, 1: not numeric, 2: numeric
        self._cut = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str

    def spans(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bytes at which the numerals of a UTF-8 text begin and end."""
        starts = np.flatnonzero(data - np.uint8(ord("0")) < 10)
        stops = starts + 1
        high = data[data >= 0x80].tobytes()  # the characters outside of ASCII, still valid UTF-8
        if high:
            is_numeric = self._are_numeric(np.frombuffer(high.decode().encode("utf-32-le"), np.uint32))
            leads = np.flatnonzero(data >= 0xC0)[is_numeric]
            first = data[leads]
            starts = np.concatenate([starts, leads])
            stops = np.concatenate([stops, leads + 2 + (first >= 0xE0) + (first >= 0xF0)])
        return starts, stops

    def _are_numeric(self, codes: np.ndarray) -> np.ndarray:
        unknown = np.unique(codes[self._kinds[codes] == 0]).tolist()
        if unknown:
            pieces = self._cut("".join(f" {chr(code)}" for code in unknown))
            # A numeral is a piece of its own. Others stay with the space before them.
            kinds = np.ones(len(unknown), np.uint8)
            kinds[[start // 2 for _, (start, _) in pieces if start % 2]] = 2
            self._kinds[unknown] = kinds  # at once, since threads share the encoder
        return self._kinds[codes] == 2


class _AddedTokens:
    """The added tokens, inside of which texts are not cut: tokenizers finds them first."""

    def __init__(self, added: Iterable[AddedToken], numerals: _Numerals):
        contents: dict[bool, list[bytes]] = {False: [], True: []}
        self._beginnings = set[bytes]()  # of the tokens with numerals, up to the first one
        for token in added:
            content = token.content.encode()
            contents[token.normalized].append(content)
            starts, _ = numerals.spans(np.frombuffer(content, np.uint8))
            if len(starts):
                self._beginnings.add(content[: starts.min()])
        if b"" in self._beginnings:
            raise ValueError("an added token begins with a numeral")
        # The longest one matches. Those that are compared with the normalized text are searched between the others.
        self._first, self._second = (_longest_of(contents[normalized]) for normalized in (False, True))

    def mask(self, texts: Utf8) -> np.ndarray | None:
        """Whether each byte of all texts is in an added token, or None if none of those with numerals occurs."""
        if not any(beginning in texts.data for beginning in self._beginnings):
            return None
        mask = np.zeros(len(texts.data), bool)
        for first, stop in pairwise(texts.offsets.tolist()):
            text = texts.data[first:stop]
            if any(beginning in text for beginning in self._beginnings):
                for span in self._spans(text):
                    mask[first + span[0] : first + span[1]] = True
        return mask

    def _spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        last = 0
        for span in [*(match.span() for match in self._first.finditer(text)), (len(text), len(text))]:
            yield span
            yield from (match.span() for match in self._second.finditer(text, last, span[0]))
            last = span[1]


def _longest_of(contents: list[bytes]) -> re.Pattern[bytes]:
    alternatives = sorted(contents, key=len, reverse=True)
    return re.compile(b"|".join(map(re.escape, alternatives)) if alternatives else rb"(?!)")
