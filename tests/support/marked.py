"""Rows of a dataset as text, with what is trained on between ⟦ and ⟧."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from support.datasets import read_rows
from support.paths import TOKENIZER


def marked_rows(output: Path, split: str = "train", tokenizer: Path = TOKENIZER) -> dict[Any, str]:
    """Return the text of each row of an unpacked dataset that was built with `--keep_columns id`, by its id."""
    decode = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).decode
    marked = dict[Any, str]()
    for row in read_rows(output, split):
        pieces = groupby(zip(row["input_ids"], row["labels"], strict=True), lambda pair: pair[1] != -100)
        texts = ((decode([id for id, _ in pairs], skip_special_tokens=False), trained) for trained, pairs in pieces)
        marked[row["id"]] = "".join(f"⟦{text}⟧" if trained else text for text, trained in texts)
    return marked
