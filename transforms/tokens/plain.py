"""Encode texts in which only some of the added tokens are tokens, and the others the plain text that they are.

tokenizers finds every added token of a text, or (`encode_special_tokens`) no special one. So there is a copy of the
tokenizer that finds none of its own. Instead it finds a stand-in for each, which is as long, and is replaced by the id
of the token. What is around the stand-in has the tokens that it has around the token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from tokenizers import AddedToken, Tokenizer

from transforms.base.errors import RecordError
from transforms.tokens.reference import ReferenceEncoder

# The stand-in of the n-th added token is this character and n, as often as the token has characters.
_FIRST, _LAST = 0x100000, 0x10FFFD
_STAND_INS = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")


def check_stand_ins(text: str) -> None:
    """Check that a text has no character of the stand-ins.

    Raises:
        RecordError: if it has one.
    """
    if found := _STAND_INS.search(text):
        raise RecordError(
            "special_tokens_in_content",
            f"it holds special tokens in its contents, and U+{ord(found[0]):X}, one of the characters that stand for "
            "the tokens of the chat template",
        )


class PlainEncoder(ReferenceEncoder):
    """Encodes texts with stand-ins, in which no other added tokens are found. Offsets count characters.

    Args:
        tokenizer: as transformers loads it, from a tokenizer.json.
    """

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer)
        backend: Tokenizer = tokenizer.backend_tokenizer
        added = sorted(backend.get_added_tokens_decoder().items())
        self._stand_ins = {
            token.content: chr(_FIRST + number) * len(token.content) for number, (_, token) in enumerate(added)
        }
        self._backend = _without_added_tokens(backend)
        self._backend.add_tokens([_like(token, self._stand_ins[token.content]) for _, token in added])
        self._ids = np.arange(self._backend.get_vocab_size(with_added_tokens=True), dtype=np.int32)
        for number, token in added:
            self._ids[self._backend.token_to_id(self._stand_ins[token.content])] = number

    def with_stand_ins(self, text: str, added_tokens: Sequence[tuple[int, int]]) -> str:
        """Return a text with stand-ins for some of its added tokens.

        Args:
            text: it has no character of the stand-ins, see `check_stand_ins`.
            added_tokens: the (start, stop) of the tokens, ascending.
        """
        parts: list[str] = []
        last = 0
        for start, stop in added_tokens:
            parts += text[last:start], self._stand_ins[text[start:stop]]
            last = stop
        return "".join((*parts, text[last:]))

    def _encodings(self, texts: list[str], special_tokens: bool) -> Sequence[Any]:
        found: Sequence[Any] = self._backend.encode_batch(texts, add_special_tokens=special_tokens)
        return found

    def _ids_of(self, encoding: Any) -> np.ndarray:
        return self._ids[encoding.ids]


def _without_added_tokens(backend: Tokenizer) -> Tokenizer:
    """A copy of a tokenizer that finds none of its added tokens."""
    state = msgspec.json.decode(backend.to_str(), type=dict[str, msgspec.Raw])
    added = msgspec.json.decode(state["added_tokens"])
    state["added_tokens"] = msgspec.Raw(msgspec.json.encode([{**token, "special": True} for token in added]))
    copy = Tokenizer.from_str(msgspec.json.encode(state).decode())
    copy.encode_special_tokens = True
    return copy


def _like(token: AddedToken, content: str) -> AddedToken:
    return AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=False,
        special=False,
    )
