"""Scripts: which writing systems texts use, counted in characters of a sample.

The script of a character is that of its block in Unicode, which is fixed, so that each version of Python counts alike.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

# The code points of the blocks of letters, of the scripts that people write on screens: first-last.
_BLOCKS = {
    "Latin": "41-5A 61-7A AA-AA BA-BA C0-D6 D8-F6 F8-2AF 1E00-1EFF 2C60-2C7F A722-A7FF FB00-FB06 FF21-FF3A FF41-FF5A",
    "Greek": "370-3E1 3F0-3FF 1F00-1FFF",
    "Cyrillic": "400-52F 1C80-1C8F 2DE0-2DFF A640-A69F",
    "Armenian": "531-587 FB13-FB17",
    "Hebrew": "591-5F4 FB1D-FB4F",
    "Arabic": "620-65F 66E-6D3 6D5-6EF 6FA-6FF 750-77F 870-8FF FB50-FDFF FE70-FEFC",
    "Syriac": "710-74F",
    "Thaana": "780-7BF",
    "Devanagari": "900-963 971-97F A8E0-A8FF",
    "Bengali": "980-9E3 9F0-9F1",
    "Gurmukhi": "A01-A5E A70-A75",
    "Gujarati": "A81-AE3",
    "Oriya": "B01-B63",
    "Tamil": "B82-BD7",
    "Telugu": "C00-C63",
    "Kannada": "C80-CE3",
    "Malayalam": "D00-D63 D7A-D7F",
    "Sinhala": "D81-DDF",
    "Thai": "E01-E3A E40-E4E",
    "Lao": "E81-ECE EDC-EDF",
    "Tibetan": "F00-F00 F40-FBC",
    "Myanmar": "1000-103F 1050-108F",
    "Georgian": "10A0-10FF 1C90-1CBF 2D00-2D2F",
    "Hangul": "1100-11FF 3131-318E A960-A97F AC00-D7FB FFA0-FFDC",
    "Ethiopic": "1200-135F 1380-138F 2D80-2DDF AB01-AB2F",
    "Khmer": "1780-17D3",
    "Mongolian": "1820-18AA",
    "Hiragana": "3041-3096 309D-309F",
    "Katakana": "30A1-30FA 30FD-30FF 31F0-31FF FF66-FF6F FF71-FF9D",
    "Bopomofo": "3105-312F 31A0-31BF",
    "Han": "2E80-2FD5 3005-3007 3021-3029 3400-4DBF 4E00-9FFF F900-FAFF 20000-323AF",
}
_NAMES = [*_BLOCKS]


def count_scripts(texts: Sequence[str]) -> dict[str, int]:
    """Count the letters of texts by their script.

    Args:
        texts: any texts.

    Returns:
        The number of letters of each script, by its name in Unicode. Letters of rare scripts count as `Other`; what is
        not a letter, such as digits, punctuation and emoji, does not count.
    """
    characters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    of_block = _numbers()[characters]
    counts = np.bincount(of_block, minlength=len(_NAMES) + 1).tolist()
    found = {name: count for name, count in zip(_NAMES, counts[1:], strict=True) if count}
    rest = characters[(of_block == 0) & (characters > 0x7F)]
    if len(rest):
        others, times = np.unique(rest, return_counts=True)
        is_letter = [chr(character).isalpha() for character in others.tolist()]
        if any(is_letter):
            found["Other"] = int(times[is_letter].sum())
    return found


@functools.cache
def _numbers() -> np.ndarray:
    """For each character the number of its script from 1 on, 0 if it has none: uint8, shape (0x110000,)."""
    numbers = np.zeros(0x110000, np.uint8)
    for number, blocks in enumerate(_BLOCKS.values(), 1):
        for block in blocks.split():
            first, last = (int(code, 16) for code in block.split("-"))
            numbers[first : last + 1] = number
    return numbers
