"""Texts that encoders cut at many places, and changed tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
