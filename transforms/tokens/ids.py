"""gigatoken: token ids without offsets."""

from __future__ import annotations

from typing import Any

import awkward
import gigatoken
import msgspec
import numpy as np
from tokenizers import Tokenizer

from transforms.tokens.components import components_of
from transforms.tokens.utf8 import Utf8


class IdEncoder:
    """Encodes texts with gigatoken.

    Args:
        encoder: a tokenizer, as gigatoken loads it.
    """

    def __init__(self, encoder: Any):
        self._encode = encoder.backend.encode_batch

    def encode(self, texts: Utf8) -> tuple[np.ndarray, np.ndarray]:
        """Encode texts, without the special tokens that the tokenizer adds.

        Returns:
            ids: int32, shape (tokens,).
            offsets: int64, shape (texts + 1,): text i has the tokens offsets[i]:offsets[i + 1].
        """
        layout = self._encode(_strings(texts), parallel=False).layout
        ids = np.asarray(layout.content.data).view(np.int32)
        return ids, np.asarray(layout.offsets.data).astype(np.int64, copy=False)


def _strings(texts: Utf8) -> awkward.Array:
    """The texts as an array of strings, without a copy."""
    characters = awkward.contents.NumpyArray(np.frombuffer(texts.data, np.uint8), parameters={"__array__": "char"})
    offsets = awkward.index.Index64(texts.offsets)
    return awkward.Array(awkward.contents.ListOffsetArray(offsets, characters, parameters={"__array__": "string"}))


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
    if any(token.single_word for token in tokenizer.get_added_tokens_decoder().values()):
        raise ValueError("it has added tokens that match whole words only")
    components = components_of(tokenizer.pre_tokenizer)
    _check(components)
    encoder = gigatoken.Tokenizer.from_json(_source(tokenizer, components))
    return IdEncoder(encoder), encoder.vocab


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
