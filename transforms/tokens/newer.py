"""Characters that gigatoken may know and tokenizers, or Python, does not.

gigatoken has a newer version of Unicode. Words are cut by the classes of characters, and NFC moves and composes some.
So texts are left to the reference if they have a character that tokenizers has no class for; or a letter or a mark that
Python does not know, whose NFC shows which other texts change. All others are treated alike, which the tests compare.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping

import numpy as np
from tokenizers import Regex, normalizers

# Characters are assigned in these planes. The others have no letters, and never will have, or are private.
_PLANES = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000)]


def has_newer(text: str) -> bool:
    """Return whether a text has a newer character of the libraries that are installed."""
    return bool(_is_newer()[_code_points(text)].any())


def find_newer_tokens(vocab: Mapping[int, bytes]) -> list[int]:
    """Return the tokens that may occur in a text with a newer character: they have one, or end within one.

    So most texts are known by their tokens to have none: looking at their characters would cost ten times as much.

    Args:
        vocab: the bytes of each token, by its number.
    """
    encoded = {chr(code).encode()[:-1] for code in np.flatnonzero(_is_newer())}  # without its last byte
    beginnings = {beginning[:size] for beginning in encoded for size in (1, 2, 3)}
    no_first_bytes = bytes({*range(256)} - {beginning[0] for beginning in encoded})
    may_be = [(number, token) for number, token in vocab.items() if token.translate(None, no_first_bytes)]
    within = [number for number, token in may_be if any(token[-size:] in beginnings for size in (1, 2, 3))]
    texts = [token.decode(errors="ignore") for _, token in may_be]
    numbers = np.repeat([number for number, _ in may_be], [*map(len, texts)])
    return [*within, *numbers[_is_newer()[_code_points("".join(texts))]].tolist()]


@functools.cache
def _is_newer() -> np.ndarray:
    """Whether each code point is a newer character: bool. It takes 0.1 s."""
    all_characters = "".join(map(chr, _PLANES))
    unknown_to_python = "".join(code for code in all_characters if unicodedata.category(code) == "Cn")
    # These are two kinds: tokenizers has no class for the first ones, and one for the others.
    newer = _without(r"\P{Cn}", all_characters) + _without(r"[^\p{L}\p{M}]", unknown_to_python)
    table = np.zeros(0x110000, bool)
    table[_code_points(newer)] = True
    return table


def _without(pattern: str, text: str) -> str:
    """A text without the characters that tokenizers matches."""
    return normalizers.Replace(Regex(f"{pattern}+"), "").normalize_str(text)


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
