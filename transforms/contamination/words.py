"""Words of a text, normalized, and 64-bit hashes of runs of them.

Hashes are polynomials modulo 2^64, taken from prefix sums (Karp and Rabin 1987), so that those of all words of many
texts, and of all runs of them, are a few operations on arrays: to make a string of each word takes ten times as long.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import NamedTuple

import numpy as np

# Characters of scripts that have no spaces between words: Thai, Lao, Myanmar, Khmer, Kana, Han.
_ALONE = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u1000-\u1049\u1050-\u109d\u1780-\u17d3\u3041-\u3096\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
_sub_beyond_ascii = re.compile(f"([{_ALONE}]+)|[^\0-\x7f{_ALONE}]+").sub
_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_IN_WORDS = re.compile(rb"[0-9A-Za-z\x80-\xff]")
# Makes letters of ASCII small, and all else of ASCII but digits a space.
_SMALL = bytes(ord(bytes([one]).lower()) if _IN_WORDS.match(bytes([one])) else 32 for one in range(256))
# About as many bytes are hashed at once: arrays of so many numbers stay in the cache of a core.
_AT_ONCE = 1 << 15
_BASE, _MIXER = 0x9E3779B97F4A7C15, np.uint64(0xD6E8FEB86659FD93)
_INVERSE = pow(_BASE, -1, 1 << 64)
_HALF = np.uint64(32)
# A pseudo-random number for each byte.
_BYTE_KEYS = np.array([pow(_BASE, 3 * byte + 7, 1 << 64) ^ 0x2545F4914F6CDD1D for byte in range(256)], np.uint64)


class _Characters(dict[int, str]):
    """What each character beyond ASCII stands for, by its code."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        meaning = " "
        if category == "Cf" or _VARIATION_SELECTORS.match(character):  # invisible, such as joiners and soft hyphens
            meaning = ""
        elif category[0] in "LN" or category in ("Mn", "Mc"):
            meaning = character
        self[code] = meaning
        return meaning


_CHARACTERS = _Characters()


def _words_in(match: re.Match[str]) -> str:
    """The words in some characters beyond ASCII, which are parts of words unless they stand alone."""
    return f" {' '.join(match[1])} " if match[1] else match[0].translate(_CHARACTERS)


def normalized(text: str) -> bytes:
    """Return the words of a text, in small letters.

    Words are runs of letters, their marks, and digits, after NFKC and casefold. A character of a script without spaces
    is a word. What is invisible is left out, and all else, such as punctuation and underscores, separates words.

    Args:
        text: any text.

    Returns:
        UTF-8, in which spaces are the only separators; there may be several.
    """
    if not text.isascii():
        folded = unicodedata.normalize("NFKC", text).casefold()
        text = _sub_beyond_ascii(_words_in, folded)
    return text.encode().translate(_SMALL)


class Words(NamedTuple):
    """The words of normalized texts.

    Attributes:
        starts, stops: int64, shape (words,): in bytes.
        sums: uint64, shape (words + 1,): of the hashes of the words before each, see `_sums`.
    """

    starts: np.ndarray
    stops: np.ndarray
    sums: np.ndarray

    def hashes(self, length: int, begins: np.ndarray | None = None) -> np.ndarray:
        """Hash runs of words.

        Args:
            length: the number of words of a run.
            begins: int64, shape (runs,): the words with which they begin; None for all that begin one of a length.

        Returns:
            uint64, shape (runs,).
        """
        if begins is None:
            return _hashes(self.sums, slice(max(len(self.sums) - length, 0)), slice(length, None))
        return _hashes(self.sums, begins, begins + length)


def find_words(content: bytes) -> Words:
    """Find the words of normalized texts.

    Args:
        content: of `normalized`; several texts have a space between them.
    """
    ranges, start = list[tuple[np.ndarray, np.ndarray, np.ndarray]](), 0
    while start < len(content) or not ranges:
        stop = content.rfind(b" ", start, start + _AT_ONCE) + 1 if len(content) - start > _AT_ONCE else len(content)
        if not stop:  # a word that is longer
            stop = content.find(b" ", start + _AT_ONCE) + 1 or len(content)
        ranges.append(_find_word_ranges(content[start:stop], start))
        start = stop
    starts, stops, hashes = map(np.concatenate, zip(*ranges, strict=True))
    return Words(starts, stops, _sums(hashes))


def _find_word_ranges(content: bytes, begin: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The starts and stops of words, and their hashes. begin: how many bytes were before."""
    characters = np.frombuffer(content, np.uint8)
    is_word = np.zeros(len(characters) + 2, bool)
    np.not_equal(characters, 32, out=is_word[1:-1])
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, stops = edges[::2], edges[1::2]
    hashes = _hashes(_sums(_BYTE_KEYS.take(characters)), starts, stops)
    hashes ^= hashes >> _HALF
    return starts + begin, stops + begin, hashes * _MIXER


def _sums(values: np.ndarray) -> np.ndarray:
    """The sums of the values before each, multiplied by the power of their number: uint64, shape (values + 1,)."""
    sums = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values * _powers(_BASE, 1 << len(values).bit_length())[: len(values)], out=sums[1:])
    return sums


def _hashes(sums: np.ndarray, starts: np.ndarray | slice, stops: np.ndarray | slice) -> np.ndarray:
    """Hash runs of values, from starts to stops: the same hash for the same values, wherever they are."""
    return (sums[stops] - sums[starts]) * _powers(_INVERSE, 1 << len(sums).bit_length())[starts]


@functools.lru_cache(64)
def _powers(base: int, count: int) -> np.ndarray:
    """The first powers of a number, modulo 2^64: uint64, shape (count,)."""
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)
