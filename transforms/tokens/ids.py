"""Encoders that give token ids without offsets: gigatoken, and what is around it for more tokenizers than it knows."""

from __future__ import annotations

from typing import Any, Protocol

import gigatoken
import msgspec
import numpy as np
from tokenizers import Tokenizer

from transforms.tokens.components import components_of
from transforms.tokens.headers import HeadersEncoder, numerals_of
from transforms.tokens.pieces import PieceEncoder
from transforms.tokens.utf8 import Utf8


class IdEncoder(Protocol):
    """An encoder that gives ids alone."""

    def encode(self, texts: Utf8) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts, without the special tokens that the tokenizer adds.

        Returns:
            ids: int32, shape (tokens,).
            offsets: int64, shape (texts + 1,): text i has the tokens offsets[i]:offsets[i + 1].
        """
        ...


class WholeTexts:
    """Encodes texts with gigatoken."""

    def __init__(self, encoder: PieceEncoder):
        self._encoder = encoder

    def encode(self, texts: Utf8) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts, see IdEncoder."""
        return self._encoder.encode(texts.data, texts.offsets)


def load_id_encoder(tokenizer: Tokenizer) -> tuple[IdEncoder, dict[int, bytes]]:
    """Load a tokenizer with gigatoken.

    Args:
        tokenizer: as tokenizers loads it.

    Returns:
        The encoder, and the bytes of each token.

    Raises:
        ValueError: if gigatoken would encode some texts in another way than tokenizers does.
        Exception: what gigatoken raises if it does not know the tokenizer.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if any(token.single_word for token in added):
        raise ValueError("it has added tokens that match whole words only")
    components = components_of(tokenizer.pre_tokenizer)
    _check(components)
    encoder = gigatoken.Tokenizer.from_json(_source(tokenizer, components))
    vocab: dict[int, bytes] = encoder.vocab
    if numerals := numerals_of(tokenizer):
        return HeadersEncoder(PieceEncoder(encoder), added, numerals), vocab
    return WholeTexts(PieceEncoder(encoder)), vocab


def _check(components: list[dict[str, Any]]) -> None:
    """Check that gigatoken does what these pre-tokenizers do: it ignores many if there is a `Split` that it knows."""
    splits = [component for component in components if component["type"] == "Split"]
    for component in components:
        kind = component["type"]
        if kind not in ("ByteLevel", "Metaspace", "Split"):
            raise ValueError(f"its pre-tokenizer {kind} is not known")
        if kind == "Split" and "Regex" in component["pattern"]:
            # The patterns that gigatoken knows match all characters, so nothing is between their matches.
            isolates = component["behavior"] == "Isolated" or (
                component["behavior"] == "Removed" and component["invert"]
            )
            if not isolates:
                raise ValueError(f"its pre-tokenizer Split has the behavior {component['behavior']}")
        if kind == "ByteLevel" and component["use_regex"] == bool(splits):
            raise ValueError("its pre-tokenizer ByteLevel " + ("splits again" if splits else "does not split"))


def _source(tokenizer: Tokenizer, components: list[dict[str, Any]]) -> str:
    """The tokenizer.json for gigatoken, which does not know a sequence of one pre-tokenizer."""
    state = msgspec.json.decode(tokenizer.to_str(), type=dict[str, msgspec.Raw])
    own = components[0] if len(components) == 1 else {"type": "Sequence", "pretokenizers": components}
    state["pre_tokenizer"] = msgspec.Raw(msgspec.json.encode(own if components else None))
    return msgspec.json.encode(state).decode()
