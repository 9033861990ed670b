"""Encode texts in which only some of the added tokens are tokens, and the others the plain text that they are.

A copy of the tokenizer finds none of its own tokens (`encode_special_tokens`). Instead it finds a stand-in for each,
which is as long, so that what is around it has the tokens and the offsets that it has around the token itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from tokenizers import AddedToken, Tokenizer

from transforms.tokens.reference import ReferenceEncoder

_FLAGS = ("single_word", "lstrip", "rstrip")
# The stand-in of the n-th added token is this character and n, as often as the token has characters.
_FIRST = 0x100000
STAND_INS = "[\U00100000-\U0010fffd]"


def make_placeholders(tokenizer: Any) -> dict[str, str]:
    """Return the stand-in of each added token. tokenizer: of transformers."""
    added = [token.content for _, token in sorted(tokenizer.backend_tokenizer.get_added_tokens_decoder().items())]
    return {token: chr(_FIRST + number) * len(token) for number, token in enumerate(added)}


class PlainEncoder(ReferenceEncoder):
    """Encodes texts with stand-ins, in which no other added tokens are found. Offsets count characters.

    Args:
        tokenizer: of transformers.
    """

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer)
        state, stand_ins = msgspec.json.decode(tokenizer.backend_tokenizer.to_str()), make_placeholders(tokenizer)
        added: list[dict[str, Any]] = state["added_tokens"]
        for token in added:
            token["special"] = True
        self._backend = Tokenizer.from_str(msgspec.json.encode(state).decode())
        self._backend.encode_special_tokens = True
        own = {stand_ins[token["content"]]: token for token in added}
        self._backend.add_tokens(
            [AddedToken(text, normalized=False, **{name: own[text][name] for name in _FLAGS}) for text in own]
        )
        self._ids = np.arange(max(self._backend.get_vocab().values()) + 1, dtype=np.int32)
        for text, token in own.items():
            self._ids[self._backend.token_to_id(text)] = token["id"]

    def _encodings(self, texts: list[str], special_tokens: bool) -> Sequence[Any]:
        encodings: Sequence[Any] = self._backend.encode_batch(texts, add_special_tokens=special_tokens)
        return encodings

    def _encoding_ids(self, encoding: Any) -> np.ndarray:
        return self._ids[encoding.ids]
