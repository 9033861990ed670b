"""Strings such as `<|im_end|>` in texts: special tokens, and what begins and ends with one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from tokenizers import AddedToken

from transforms.tokens.utf8 import Utf8

# A special token.
SPECIAL = re.compile(rb"<[^<>]+>")
# Strings are looked for in so many texts, and so many of them are chosen. They have at least so many bytes.
_SAMPLE, _CHOSEN = 8, 8
_SHORTEST = 8


def are_apart(added: Iterable[AddedToken]) -> bool:
    """Return whether no added token can overlap with another one that SPECIAL matches, unless it is within that."""
    return all(SPECIAL.fullmatch(token.content.encode()) or not set("<>") & set(token.content) for token in added)


def frequent(texts: Utf8, pattern: re.Pattern[bytes]) -> list[bytes]:
    """Return what is frequent in the first texts, the longest ones first.

    Args:
        texts: any number of them.
        pattern: matches what begins with `<`. It has no group.
    """
    counts = Counter[bytes]()
    edges = texts.offsets[: _SAMPLE + 1].tolist()
    for first, last in pairwise(edges):
        counts.update(pattern.findall(texts.data[first:last]))
    chosen = [text for text, count in counts.most_common(_CHOSEN) if 2 * count >= len(edges) - 1]
    return sorted((text for text in chosen if len(text) >= _SHORTEST), key=len, reverse=True)


class Places:
    """Finds strings that begin with `<` in texts.

    Args:
        texts: any number of them.
        longest: the length of the longest string that is looked for.

    Attributes:
        codes: uint8, the bytes of all texts, which may be written over, and zeros.
        begins: int64, where `<` is.
    """

    def __init__(self, texts: Utf8, longest: int):
        self._offsets = texts.offsets
        self._size = len(texts.data)
        self.codes = np.zeros(self._size + longest, np.uint8)
        self.codes[: self._size] = np.frombuffer(texts.data, np.uint8)
        self.begins = np.flatnonzero(self.codes == ord("<"))
        self._words = self.windows("<u8")[self.begins]

    def windows(self, dtype: str) -> np.ndarray:
        """Return what each byte of the texts begins with, as values of a type, without a copy."""
        return np.ndarray(self._size, dtype, self.codes, strides=1)  # type: ignore[call-overload,no-any-return]

    def of(self, text: bytes) -> np.ndarray:
        """Return which of `begins` is the place of a string that is within one text: int64, ascending.

        text: of at least eight bytes, as `frequent` returns it. Its places do not overlap.
        """
        rows = np.flatnonzero(self._words == int.from_bytes(text[:8], "little"))
        rows = rows[self.windows(f"S{len(text)}")[self.begins[rows]] == text]
        # The last place that begins before each text must not end in that text.
        ends = np.append(0, self.begins[rows] + len(text))
        last = np.searchsorted(self.begins[rows], self._offsets)
        return np.delete(rows, last[ends[last] > self._offsets] - 1)
