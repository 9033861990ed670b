"""The tokenizer of a dataset without transformers, which takes a second to import: for commands that only decode."""

from __future__ import annotations

from typing import Any

import msgspec
from tokenizers import Tokenizer

from transforms.tokens.tokenizer import load_tokenizer, loaded_tokenizer
from transforms.tokens.tokenizer_files import TOKENIZER_JSON, read_tokenizer_folder

_CONFIG, _ADDED = "tokenizer_config.json", "added_tokens.json"
_ENDINGS, _WITH_TOKENS = ("_token", "_tokens"), ("added_tokens_decoder", "extra_special_tokens")


def load_backend(folder: str, only_decodes: bool = False) -> Tokenizer:
    """Load the tokenizer of a folder.

    transformers loads it if other files name tokens that are not in tokenizer.json.

    Args:
        folder: that holds the tokenizer's files, at any url.
        only_decodes: it may have no merges, which take most of the time: a tokenizer.json of 18 MB takes 1.2 seconds to
            load, and 0.3 without them. It is the one of `load_tokenizer` if this process has loaded that.

    Raises:
        ParameterError: if there are none.
        StoreError: if the store of the folder fails.
    """
    files = read_tokenizer_folder(folder)
    if only_decodes and (loaded := loaded_tokenizer(files)):
        return loaded.backend_tokenizer
    content = files[TOKENIZER_JSON]
    tokenizer = Tokenizer.from_buffer(_without_merges(content) if only_decodes else content)
    named = _named_tokens(files.get(_CONFIG, b"{}")) | {*msgspec.json.decode(files.get(_ADDED, b"{}"))}
    if all(tokenizer.token_to_id(token) is not None for token in named):
        return tokenizer
    return load_tokenizer(folder).backend_tokenizer


def _without_merges(content: bytes) -> bytes:
    state = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    model = msgspec.json.decode(state["model"], type=dict[str, msgspec.Raw])
    if "merges" in model:
        state["model"] = msgspec.Raw(msgspec.json.encode(model | {"merges": msgspec.Raw(b"[]")}))
    return msgspec.json.encode(state)


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
