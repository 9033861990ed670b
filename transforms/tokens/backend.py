"""The tokenizer of a dataset without transformers, which takes a second to import: for commands that only decode."""

from __future__ import annotations

from typing import Any

import msgspec
from tokenizers import Tokenizer

from transforms.tokens.tokenizer_files import read_tokenizer_folder

_FILE, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_ENDINGS, _WITH_TOKENS = ("_token", "_tokens"), ("added_tokens_decoder", "extra_special_tokens")


def load_backend(folder: str) -> Tokenizer:
    """Load the tokenizer of a folder.

    transformers loads it if there is no tokenizer.json, or if other files name tokens that are not in it.

    Args:
        folder: that holds the tokenizer's files, at any url.

    Raises:
        ParameterError: if there are none.
        StoreError: if the store of the folder fails.
    """
    files = read_tokenizer_folder(folder)
    if _FILE in files:
        tokenizer = Tokenizer.from_buffer(files[_FILE])
        if all(tokenizer.token_to_id(token) is not None for token in _named_tokens(files.get(_CONFIG, b"{}"))):
            return tokenizer
    from transforms.tokens.tokenizer import load_tokenizer

    return load_tokenizer(folder).backend_tokenizer


def _named_tokens(config: bytes) -> set[str]:
    """The tokens that tokenizer_config.json names, which transformers adds to those of tokenizer.json."""
    named: Any = msgspec.json.decode(config)
    values = [value for name, value in named.items() if name.endswith(_ENDINGS) or name in _WITH_TOKENS]
    tokens: set[str] = set()
    while values:
        value = values.pop()
        if isinstance(value, str):
            tokens.add(value)
        elif isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            values += [value["content"]] if "content" in value else [*value.values()]
    return tokens
