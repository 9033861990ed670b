"""The tokens of texts by the fast and by the reference encoder, to be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from transforms.rows.ragged import offsets_of
from transforms.tokens import Encoded
from transforms.tokens.fast_encoder import FastEncoder, load_fast_encoder
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer

# What tokenizers cut at: digits and other numerals (also those of Unicode 16), white space, punctuation, scripts,
# combining characters, and pieces of added tokens.
ATOMS = (
    *"abcXYZ ABC  \n\n\r\t.,!?'\"-—…0123456789²½Ⅻ٣९一二①०ßſéêñ中文かな한글我，。！？　",
    *("'s", "'LL", "  ", "   ", "\n\n", "\r\n", " 1", "  12", "123", "1234", "The wheel turns", " rain", "<s>", "</s>"),
    *("<|im_end|>", "<|t1|>", "<|t1", "1|>", "<|t12|>", "\u0301", "\u00a0", "\u2028", "\x0b", "\x1c", "\x85", "\u200b"),
    *("😀", "👍🏽", "𝟘", " ½½", " ٣٣", " 一一", " 𝟘𝟘", "22", " 22", "\U00011de0", "\U00016ff4", "\U0001ccf0", "€"),
    *("$", "+", "ا", "\ufeff", "가", "\u1100\u1161"),
)


def changed(folder: str, **parts: Any) -> str:
    """Replace parts of a tokenizer.json, such as pre_tokenizer (a list is a sequence), and return the folder."""
    path = Path(folder, "tokenizer.json")
    state = json.loads(path.read_text())
    for name, value in parts.items():
        if name == "added_tokens":
            first = len(state["model"]["vocab"])
            value = [*state[name], *({"id": first + number} | token for number, token in enumerate(value))]
        elif name == "pre_tokenizer":
            value = {"type": "Sequence", "pretokenizers": value}
        state[name] = value
    path.write_text(json.dumps(state))
    return folder


def fast_encoder(folder: str) -> FastEncoder:
    """Load the fast encoder, which must support the tokenizer."""
    encoder = load_fast_encoder(folder)
    assert isinstance(encoder, FastEncoder)
    return encoder


def assert_same_tokens(folder: str, texts: list[str], special_tokens: bool = False) -> Encoded:
    """Assert that both encoders give the same ids at the same characters, and return what the fast one gives."""
    fast = fast_encoder(folder).encode(texts, special_tokens)
    reference = ReferenceEncoder(load_tokenizer(folder)).encode(texts, special_tokens)
    for row, text in enumerate(texts):
        found, expected = _row(fast, row), _row(reference, row)
        assert found[0].tolist() == expected[0].tolist(), text
        edges = offsets_of(np.array([len(character.encode()) for character in text], np.int64))
        inside = (found[1] >= 0) & (found[2] <= edges[-1])  # not those that the tokenizer adds
        # A token of some bytes of a character has the offsets of the character.
        starts = np.searchsorted(edges, found[1][inside], "right") - 1
        stops = np.searchsorted(edges, found[2][inside], "left")
        assert starts.tolist() == expected[1][inside].tolist(), text
        assert stops.tolist() == expected[2][inside].tolist(), text
    return fast


def _row(encoded: Encoded, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    own = slice(encoded.offsets[row], encoded.offsets[row + 1])
    base = encoded.bases[row]
    return encoded.ids[own], encoded.starts[own] - base, encoded.stops[own] - base
