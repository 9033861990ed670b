"""Pieces of a text, encoded by gigatoken."""

from __future__ import annotations

from typing import Any

import awkward
import numpy as np


class PieceEncoder:
    """Encodes pieces of UTF-8, each as a text of its own.

    Args:
        encoder: a tokenizer, as gigatoken loads it.
    """

    def __init__(self, encoder: Any):
        self._encode = encoder.backend.encode_batch

    def encode(self, data: bytes | np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Encode pieces.

        Args:
            data: valid UTF-8.
            edges: int64, shape (pieces + 1,): piece i is data[edges[i]:edges[i + 1]].

        Returns:
            ids: int32, shape (tokens,).
            offsets: int64, shape (pieces + 1,): piece i has the tokens offsets[i]:offsets[i + 1].
        """
        layout = self._encode(_strings(data, edges), parallel=False).layout
        ids = np.asarray(layout.content.data).view(np.int32)
        return ids, np.asarray(layout.offsets.data).astype(np.int64, copy=False)


def _strings(data: bytes | np.ndarray, edges: np.ndarray) -> awkward.Array:
    """The pieces as an array of strings, without a copy."""
    characters = awkward.contents.NumpyArray(np.frombuffer(data, np.uint8), parameters={"__array__": "char"})
    offsets = awkward.index.Index64(edges)
    return awkward.Array(awkward.contents.ListOffsetArray(offsets, characters, parameters={"__array__": "string"}))
