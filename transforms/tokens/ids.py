"""gigatoken: token ids without offsets. Import this module when it is used: that takes some tenths of a second."""

from __future__ import annotations

import json
from typing import Any

import awkward
import gigatoken
import msgspec
import numpy as np
from tokenizers import Tokenizer

from transforms.tokens.utf8 import Utf8


def token_ids(encoder: Any, texts: Utf8) -> tuple[np.ndarray, np.ndarray]:
    """Encode texts, without the special tokens that the tokenizer adds.

    Args:
        encoder: of `load_gigatoken`.
        texts: any number of them.

    Returns:
        ids: int32, shape (tokens,).
        offsets: int64, shape (texts + 1,): text i has the tokens offsets[i]:offsets[i + 1].
    """
    # The texts as an array of strings, without a copy.
    characters = awkward.contents.NumpyArray(np.frombuffer(texts.data, np.uint8), parameters={"__array__": "char"})
    offsets = awkward.index.Index64(texts.offsets)
    strings = awkward.contents.ListOffsetArray(offsets, characters, parameters={"__array__": "string"})
    layout = encoder.backend.encode_batch(awkward.Array(strings), parallel=False).layout
    ids = np.asarray(layout.content.data).view(np.int32)
    return ids, np.asarray(layout.offsets.data).astype(np.int64, copy=False)


def load_gigatoken(tokenizer: Tokenizer) -> Any:
    """Load a tokenizer with gigatoken.

    Args:
        tokenizer: as tokenizers loads it.

    Returns:
        A tokenizer of gigatoken. Its `vocab` has the bytes of each token.

    Raises:
        ValueError: if gigatoken would encode some texts in another way than tokenizers does.
        Exception: what gigatoken raises if it does not know the tokenizer.
    """
    if any(token.single_word for token in tokenizer.get_added_tokens_decoder().values()):
        raise ValueError("it has added tokens that match whole words only")
    components = list_components(tokenizer.pre_tokenizer)
    _check(components)
    return gigatoken.Tokenizer.from_json(_source(tokenizer, components))


def list_components(component: Any) -> list[dict[str, Any]]:
    """Return the components of a sequence in their order, of one alone, or none.

    Args:
        component: a normalizer or a pre-tokenizer of tokenizers, or None.

    Returns:
        Each one as a dict, as in tokenizer.json. A sequence in a sequence is opened.
    """
    return [] if component is None else _opened(json.loads(component.__getstate__()))


def _opened(state: dict[str, Any]) -> list[dict[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    children = state.get("normalizers", state.get("pretokenizers", []))
    return [component for child in children for component in _opened(child)]


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
