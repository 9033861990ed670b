"""The fast encoder: gigatoken, with offsets in bytes that are computed from the lengths of the tokens."""

from __future__ import annotations

import dataclasses
import functools
import logging
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.base.once import once_per_version
from transforms.rows.ragged import offsets_of
from transforms.storage.walking import versions_below
from transforms.tokens import Encoded, concatenated
from transforms.tokens.components import components_of
from transforms.tokens.newer import newer
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.utf8 import Utf8, bytes_before

if TYPE_CHECKING:
    from transforms.tokens.ids import IdEncoder

# With fewer bytes of input than this, the reference takes less time than loading the fast encoder.
WORTH_LOADING = 1 << 20
_META = "\u2581"  # stands for a space in the tokens of SentencePiece
# Longer texts are encoded by the reference, whose regular expressions give up at some ten million steps for one word or
# one piece of white space. gigatoken does not, and the engines have to reject the same records.
_LONG = 1 << 21


@dataclass(frozen=True)
class NotSupported:
    """A tokenizer that the fast encoder cannot load.

    Attributes:
        reason: in one line.
    """

    reason: str


@once_per_version(versions_below)
def load_fast_encoder(folder: str) -> FastEncoder | NotSupported:
    """Load the fast encoder of a tokenizer, once for each process and content of its folder.

    Args:
        folder: of the tokenizer, at any url.

    Returns:
        The encoder; NotSupported if gigatoken cannot load the tokenizer, and a warning is logged.
    """
    try:
        tokenizer = load_tokenizer(folder)
        from transforms.tokens.ids import load_id_encoder

        return FastEncoder(*load_id_encoder(tokenizer.backend_tokenizer), tokenizer)
    except Exception as error:  # gigatoken raises many classes
        reason = str(error).partition("\n")[0] or type(error).__name__
        logging.getLogger(__name__).warning("transformers tokenizes, since the fast engine cannot: %s", reason)
        return NotSupported(reason)


class FastEncoder:
    """Encodes with gigatoken. Offsets count bytes.

    gigatoken returns ids alone. The offsets are computed from the bytes of the tokens: each begins where the one before
    it ends. Texts that are not the bytes of their tokens, since the tokenizer normalises them, are encoded by the
    reference. So are texts with characters that only gigatoken knows, see newer.py.

    Args:
        encoder: gives the ids.
        vocab: the bytes of each token.
        tokenizer: the same one, as transformers loads it.

    Raises:
        ValueError: if the normalizer may change texts in a way that leaves the offsets unknown.
    """

    characters_at_once = 1 << 26

    def __init__(self, encoder: IdEncoder, vocab: dict[int, bytes], tokenizer: Any):
        self._encoder = encoder
        self._reference = ReferenceEncoder(tokenizer)
        self._eos = tokenizer.eos_token_id
        normalizers = components_of(tokenizer.backend_tokenizer.normalizer)
        self._spaces_are_meta = any(
            _META in component.values() for component in components_of(tokenizer.backend_tokenizer.pre_tokenizer)
        )
        for component in normalizers:
            replaces_spaces = _META in (component.get("prepend"), component.get("content"))
            self._spaces_are_meta |= replaces_spaces
            if component["type"] != "NFC" and not replaces_spaces:
                raise ValueError(f"with its normalizer {component['type']} the offsets of tokens are not known")
        self._composes = any(component["type"] == "NFC" for component in normalizers)
        self._lengths = np.zeros(max(vocab) + 1, np.int64)
        for number, token in vocab.items():
            self._lengths[number] = len(token.replace(_META.encode(), b" ") if self._spaces_are_meta else token)
        self._vocab = vocab
        self._prefix, self._suffix = _special_tokens(tokenizer)

    def encode(self, texts: list[str], special_tokens: bool) -> Encoded:
        """Encode texts, see TextEncoder."""
        utf8 = Utf8.of(texts)
        sizes = utf8.sizes
        long = np.flatnonzero(utf8.lengths > _LONG)
        own = Utf8.of(["" if len(text) > _LONG else text for text in texts]) if len(long) else utf8
        ids, offsets = self._encoder.encode(own)
        lengths = self._lengths.take(ids)  # twice as fast as by an index
        ends = offsets_of(lengths)
        # The tokenizer may prepend a space to a text, which has no offset.
        longer = np.flatnonzero(np.diff(ends[offsets]) == sizes + 1)
        if len(longer):
            lengths[offsets[longer]] -= 1
            ends = offsets_of(lengths)
        encoded = Encoded(ids, offsets, ends[:-1], ends[1:], ends[offsets[:-1]])
        is_altered = np.diff(ends[offsets]) != sizes
        not_ascii = np.flatnonzero(sizes != utf8.lengths).tolist()
        for row in not_ascii:
            is_altered[row] |= self._is_altered(texts[row])
        with_newer = self._with_newer(texts, ids, offsets) if not_ascii else np.empty(0, np.int64)
        is_altered[long] = is_altered[with_newer] = False
        altered, failed = np.flatnonzero(is_altered), dict[int, str]()
        if by_reference := [*altered.tolist(), *long.tolist(), *with_newer.tolist()]:
            encoded, failed = self._replaced(encoded, texts, sizes, by_reference)
        if special_tokens:
            encoded = self._with_special_tokens(encoded, sizes)
        return dataclasses.replace(encoded, utf8=utf8, altered=altered, long=long, newer=with_newer, failed=failed)

    def _is_altered(self, text: str) -> bool:
        """Whether the tokenizer may normalise a text without a change of its length."""
        if self._spaces_are_meta and _META in text:
            return True
        return self._composes and not unicodedata.is_normalized("NFC", text)

    @functools.cached_property
    def _may_be_of_newer(self) -> np.ndarray:
        may_be = np.zeros(len(self._lengths), bool)
        may_be[newer().tokens_in(self._vocab)] = True
        return may_be

    def _with_newer(self, texts: list[str], ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The numbers of the texts with characters that only gigatoken knows."""
        tokens = np.flatnonzero(self._may_be_of_newer.take(ids))
        rows = np.unique(np.searchsorted(offsets, tokens, "right") - 1)
        return np.array([row for row in rows.tolist() if newer().is_in(texts[row])], np.int64)

    def _replaced(
        self, encoded: Encoded, texts: list[str], sizes: np.ndarray, rows: Sequence[int]
    ) -> tuple[Encoded, dict[int, str]]:
        """The same tokens, with some of the texts encoded by the reference, and the errors of those that failed."""
        failed: dict[int, str] = {}
        shifts = np.repeat(encoded.bases, np.diff(encoded.offsets))
        arrays = (encoded.ids, encoded.starts - shifts, encoded.stops - shifts)
        ids, starts, stops = (np.split(array, encoded.offsets[1:-1]) for array in arrays)
        for row in rows:
            expected = self._reference.encode([texts[row]], special_tokens=False)
            failed.update((row, error) for error in expected.failed.values())
            bytes_at = bytes_before(texts[row])
            ids[row] = expected.ids
            starts[row], stops[row] = (
                bytes_at[edges - expected.bases[0]] for edges in (expected.starts, expected.stops)
            )
        return concatenated(ids, starts, stops, offsets_of(sizes)[:-1]), failed

    def _with_special_tokens(self, encoded: Encoded, sizes: np.ndarray) -> Encoded:
        """The same tokens, with those that the tokenizer adds before and after a text, and an EOS if it is missing."""
        counts = np.diff(encoded.offsets)
        prefix, suffix = self._prefix, self._suffix
        needs_eos = np.zeros(len(counts), bool)
        if self._eos is not None:
            last = np.full(len(counts), (prefix[-1:] or [-1])[0])
            last[counts > 0] = encoded.ids[encoded.offsets[1:][counts > 0] - 1]
            needs_eos = (np.full(len(counts), suffix[-1]) if suffix else last) != self._eos
        offsets = offsets_of(len(prefix) + counts + len(suffix) + needs_eos)
        ids, starts, stops = (np.empty(offsets[-1], dtype) for dtype in (np.int32, np.int64, np.int64))
        own = np.ones(offsets[-1], bool)
        for number in range(len(prefix)):
            own[offsets[:-1] + number] = False
        for number in range(len(suffix)):
            own[offsets[:-1] + len(prefix) + counts + number] = False
        own[offsets[1:][needs_eos] - 1] = False
        bases = offsets_of(sizes + 2)[:-1] + 1
        shifts = np.repeat(bases - encoded.bases, counts)
        ids[own], starts[own], stops[own] = encoded.ids, encoded.starts + shifts, encoded.stops + shifts
        for number, token in enumerate(prefix):
            added = offsets[:-1] + number
            ids[added], starts[added], stops[added] = token, bases - 1, bases
        for number, token in enumerate([*suffix, *([self._eos] if needs_eos.any() else [])]):
            rows = np.flatnonzero(needs_eos) if number == len(suffix) else np.arange(len(counts))
            added = (offsets[:-1] + len(prefix) + counts)[rows] + number
            ends = bases[rows] + sizes[rows]
            ids[added], starts[added], stops[added] = token, ends, ends + 1
        return Encoded(ids, offsets, starts, stops, bases)


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The ids that the tokenizer adds before a text, and those that it adds after it."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, added = encoded["input_ids"], encoded["special_tokens_mask"]
    first, last = added.index(0), len(ids) - added[::-1].index(0)
    return ids[:first], ids[last:]
