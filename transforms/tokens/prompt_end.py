"""Encode texts in pieces: what a server encodes as the prompt, and what the model writes after it.

A server encodes the prompt as one text, and the model writes the tokens that follow. If both are encoded as one text,
as trainers do, one token may have the end of the prompt and the beginning of the answer.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from tokenizers import Tokenizer

from transforms.rows.ragged import joined, offsets_of
from transforms.tokens import Encoded, TextEncoder
from transforms.tokens.components import components_of
from transforms.tokens.utf8 import Utf8

# What keeps a pre-tokenizer from adding a space. The normalizer Prepend adds one, too.
_ADDS_NONE: dict[str, dict[str, Any]] = {
    "Metaspace": {"prepend_scheme": "never"},
    "ByteLevel": {"add_prefix_space": False},
}


class CutEncoder:
    """Encodes each piece of a text alone.

    Args:
        encoder: encodes whole texts.
        rest: the same without the space that the tokenizer adds before a text, which is not added before what the model
            writes; None if the tokenizer adds none.
        added: the ids of the added tokens. What follows one of them does not depend on what is before it.
    """

    def __init__(self, encoder: TextEncoder, rest: TextEncoder | None, added: Sequence[int]):
        self._encoder = encoder
        self._rest = rest
        self._added = np.array(sorted(added), np.int64)

    def encode(self, texts: Sequence[str], cuts: Sequence[Sequence[int]], special_tokens: bool) -> Encoded:
        """Encode texts.

        Args:
            texts: any number of them.
            cuts: for each text the characters at which it is cut, ascending, each above 0 and below its length.
            special_tokens: as for TextEncoder. They are added before and after the whole text.
        """
        edges = [[0, *own, len(text)] for text, own in zip(texts, cuts, strict=True)]
        pieces = [text[a:b] for text, own in zip(texts, edges, strict=True) for a, b in pairwise(own)]
        counts = np.array([len(own) - 1 for own in edges], np.int64)
        firsts = offsets_of(counts)
        encoded = self._encoder.encode(pieces, special_tokens)
        if self._rest is not None:
            encoded = self._without_prefixes(encoded, pieces, firsts, special_tokens)
        utf8 = encoded.utf8
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces)) if utf8 is None else utf8.sizes
        of_text = np.repeat(np.arange(len(texts)), counts)
        of_piece = np.repeat(np.arange(len(pieces)), np.diff(encoded.offsets))
        # Of what the tokenizer adds before and after each piece, only that at the ends of a text stays.
        is_first, is_last = (np.isin(np.arange(len(pieces)), ends) for ends in (firsts[:-1], firsts[1:] - 1))
        starts, stops = (edges - encoded.bases[of_piece] for edges in (encoded.starts, encoded.stops))
        own = (is_first[of_piece] | (starts >= 0)) & (is_last[of_piece] | (stops <= sizes[of_piece]))
        ends = offsets_of(sizes)
        bases = ends[firsts[:-1]] + 1 + 2 * np.arange(len(texts))
        shifts = (ends[:-1] + (bases - ends[firsts[:-1]])[of_text])[of_piece[own]]
        altered, long, newer = (np.unique(of_text[found]) for found in (encoded.altered, encoded.long, encoded.newer))
        return Encoded(
            ids=encoded.ids[own],
            offsets=offsets_of(np.bincount(of_text[of_piece[own]], minlength=len(texts))),
            starts=starts[own] + shifts,
            stops=stops[own] + shifts,
            bases=bases,
            utf8=utf8 and Utf8(utf8.data, utf8.offsets[firsts], np.diff(offsets_of(utf8.lengths)[firsts])),
            altered=altered,
            long=long,
            newer=newer,
            failed={int(of_text[piece]): error for piece, error in encoded.failed.items()},
        )

    def _without_prefixes(
        self, encoded: Encoded, pieces: list[str], firsts: np.ndarray, special_tokens: bool
    ) -> Encoded:
        """The tokens of pieces. Those that begin no text have no added space before them."""
        assert self._rest is not None
        rest = self._rest.encode(pieces, special_tokens)
        begins_text = np.isin(np.arange(len(pieces)), firsts[:-1])
        ids, starts, stops = [], [], []
        for piece, is_first in enumerate(begins_text.tolist()):
            own, other = (slice(found.offsets[piece], found.offsets[piece + 1]) for found in (encoded, rest))
            # Up to the first added token, from where on the tokenizer adds what it always does.
            added = rest.starts[other][
                np.isin(rest.ids[other], self._added) & (rest.starts[other] >= rest.bases[piece])
            ]
            edge = -np.inf if is_first else (added.min() - rest.bases[piece] if len(added) else np.inf)
            before = rest.starts[other] - rest.bases[piece] < edge
            after = encoded.starts[own] - encoded.bases[piece] >= edge
            shift = encoded.bases[piece] - rest.bases[piece]
            ids.append(np.concatenate([rest.ids[other][before], encoded.ids[own][after]]))
            starts.append(np.concatenate([rest.starts[other][before] + shift, encoded.starts[own][after]]))
            stops.append(np.concatenate([rest.stops[other][before] + shift, encoded.stops[own][after]]))
        return dataclasses.replace(
            encoded,
            ids=joined(ids, np.int32),
            offsets=offsets_of(np.array([len(row) for row in ids], np.int64)),
            starts=joined(starts, np.int64),
            stops=joined(stops, np.int64),
            failed={**encoded.failed, **rest.failed},
        )


def without_prefix(tokenizer: Any) -> Any | None:
    """Copy a tokenizer without the space that it adds before a text.

    Args:
        tokenizer: as transformers loads it, from a tokenizer.json.

    Returns:
        The copy, or None if the tokenizer adds none.
    """
    backend: Tokenizer = tokenizer.backend_tokenizer
    normalizers, pre_tokenizers = map(components_of, (backend.normalizer, backend.pre_tokenizer))
    kept = [component for component in normalizers if component["type"] != "Prepend"]
    others = [component | _ADDS_NONE.get(component["type"], {}) for component in pre_tokenizers]
    if (kept, others) == (normalizers, pre_tokenizers):
        return None
    state = msgspec.json.decode(backend.to_str(), type=dict[str, msgspec.Raw])
    for name, members, components in (
        ("normalizer", "normalizers", kept),
        ("pre_tokenizer", "pretokenizers", others),
    ):
        sequence = {"type": "Sequence", members: components} if len(components) > 1 else next(iter(components), None)
        state[name] = msgspec.Raw(msgspec.json.encode(sequence))
    without = copy.copy(tokenizer)
    without._tokenizer = Tokenizer.from_str(msgspec.json.encode(state).decode())
    return without
