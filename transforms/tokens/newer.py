"""Characters that gigatoken may know and tokenizers, or Python, does not.

gigatoken has a newer version of Unicode. Words are cut by the classes of characters, and NFC moves and composes some.
So texts are left to the reference if they have a character that tokenizers has no class for; or a letter or a mark that
Python does not know, whose NFC shows which other texts change. All others are treated alike, which the tests compare.
"""

from __future__ import annotations

import functools
import unicodedata

import numpy as np
from tokenizers import Regex, pre_tokenizers

# Characters are assigned in these planes. The others have no letters, and never will have, or are private.
_PLANES = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]


class Newer:
    """The newer characters of the libraries that are installed. Use `newer`, which makes it once, in 0.3 s.

    Attributes:
        codes: int64, their code points, ascending.
    """

    def __init__(self) -> None:
        codes = np.array(_PLANES)
        by_tokenizers = _matches(codes, r"\p{Cn}")
        by_python = np.array([unicodedata.category(chr(code)) == "Cn" for code in _PLANES])
        others = codes[by_python & ~by_tokenizers]
        self.codes = np.sort(np.concatenate([codes[by_tokenizers], others[_matches(others, r"[\p{L}\p{M}]")]]))
        self._is_newer = np.zeros(0x110000, bool)
        self._is_newer[self.codes] = True
        encoded = {chr(code).encode()[:-1] for code in self.codes.tolist()}  # without its last byte
        self._beginnings = frozenset(beginning[:size] for beginning in encoded for size in (1, 2, 3))
        self._no_first_bytes = bytes({*range(256)} - {beginning[0] for beginning in encoded})

    def may_be_in(self, token: bytes) -> bool:
        """Return whether a token may occur in a text with a newer character: it has one, or ends within one.

        So most texts are known by their tokens to have none: looking at their characters would cost ten times as much.
        """
        if not token.translate(None, self._no_first_bytes):
            return False
        ends_within = any(token[-size:] in self._beginnings for size in (1, 2, 3))
        return ends_within or self.is_in(token.decode(errors="ignore"))

    def is_in(self, text: str) -> bool:
        """Return whether a text has a newer character."""
        return bool(self._is_newer[np.frombuffer(text.encode("utf-32-le"), np.uint32)].any())


@functools.cache
def newer() -> Newer:
    """Return the newer characters."""
    return Newer()


def _matches(codes: np.ndarray, pattern: str) -> np.ndarray:
    """Whether tokenizers matches each of some characters: bool, shape (codes,)."""
    cut = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    matches = np.zeros(len(codes), bool)
    for _, (start, stop) in cut.pre_tokenize_str("".join(map(chr, codes.tolist()))):
        matches[start:stop] = True
    return matches
