"""Encoders that give token ids without offsets: gigatoken, and what is around it for more tokenizers than it knows."""

from __future__ import annotations

from typing import Any, Protocol

import gigatoken
import msgspec
import numpy as np
from tokenizers import Tokenizer, pre_tokenizers

from transforms.tokens.components import components_of
from transforms.tokens.digits import DigitsEncoder
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
        The encoder, and the bytes of each token; none of one that stands for bytes that the tokenizer drops.

    Raises:
        ValueError: if gigatoken would encode some texts in another way than tokenizers does.
        Exception: what gigatoken raises if it does not know the tokenizer.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if any(token.single_word for token in added):
        raise ValueError("it has added tokens that match whole words only")
    components = components_of(tokenizer.pre_tokenizer)
    digits = components[0] if components and components[0]["type"] == "Digits" else None
    if digits and not digits["individual_digits"]:  # gigatoken would cut the runs by another version of Unicode
        raise ValueError("its pre-tokenizer Digits keeps runs of numerals")
    rest = components[1:] if digits else components
    _check(rest, digits is not None)
    source, fillers = _completed(tokenizer, rest)
    encoder = gigatoken.Tokenizer.from_json(source)
    vocab = {number: b"" if number in fillers else token for number, token in encoder.vocab.items()}
    if digits:
        return DigitsEncoder(PieceEncoder(encoder), added), vocab
    if numerals := numerals_of(tokenizer):
        return HeadersEncoder(PieceEncoder(encoder), added, numerals), vocab
    return WholeTexts(PieceEncoder(encoder)), vocab


def _check(components: list[dict[str, Any]], in_pieces: bool) -> None:
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
        if in_pieces and component.get("add_prefix_space"):
            raise ValueError("its pre-tokenizer ByteLevel adds a space to each piece")


def _completed(tokenizer: Tokenizer, components: list[dict[str, Any]]) -> tuple[str, frozenset[int]]:
    """The tokenizer.json for gigatoken, and the ids in it that are not the tokenizer's.

    gigatoken wants a token for each byte. SmolLM2 and Falcon have none for some control characters, and drop them. With
    fillers for those, only the texts that hold them fall back.
    """
    is_byte_level = any(component["type"] == "ByteLevel" for component in components)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if is_byte_level else []
    missing = [character for character in alphabet if tokenizer.token_to_id(character) is None]
    state = msgspec.json.decode(tokenizer.to_str(), type=dict[str, msgspec.Raw])
    # A sequence of one is not known.
    own = components[0] if len(components) == 1 else {"type": "Sequence", "pretokenizers": components}
    state["pre_tokenizer"] = msgspec.Raw(msgspec.json.encode(own if components else None))
    fillers: dict[str, int] = {}
    if missing:
        first = max(tokenizer.get_vocab().values()) + 1
        fillers = {character: first + number for number, character in enumerate(missing)}
        model = msgspec.json.decode(state["model"], type=dict[str, msgspec.Raw])
        vocab = msgspec.json.decode(model["vocab"], type=dict[str, int])
        model["vocab"] = msgspec.Raw(msgspec.json.encode(vocab | fillers))
        state["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(state).decode(), frozenset(fillers.values())
