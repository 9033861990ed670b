"""From token ids to text, with the place of each token, by `tokenizers`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from transforms.base.errors import InputError, StoreError, UserError
from transforms.tokens.backend import load_backend

_UNKNOWN = "\ufffd"  # stands for bytes that are no character, and for ids that the tokenizer does not have
_MOST_SHOWN = 200  # characters of an error


@dataclass(frozen=True)
class Decoded:
    """A text, with the place of each of its tokens.

    Attributes:
        text: bytes that are no character, as at the end of a text that was cut inside of one, are U+FFFD.
        starts, stops: int64, shape (tokens,): the characters of each token. Tokens that are parts of one character all
            have that character.
    """

    text: str
    starts: np.ndarray
    stops: np.ndarray


class TokenDecoder:
    """Decodes token ids.

    Args:
        tokenizer: of the ids.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._added = tokenizer.get_added_tokens_decoder()

    @classmethod
    def load(cls, folder: str) -> TokenDecoder:
        """Load the decoder of a tokenizer: in some milliseconds, if this process has loaded the tokenizer.

        Args:
            folder: that holds the tokenizer's files, at any url.

        Raises:
            InputError: if the files are not those of a tokenizer.
            StoreError: if the store of the folder fails.
        """
        try:
            return cls(load_backend(folder, only_decodes=True))
        except (StoreError, UserError):
            raise
        except Exception as error:  # each kind of tokenizer has its own
            reason = " ".join(str(error).split())[:_MOST_SHOWN]
            raise InputError(f"{folder}: the tokenizer is missing or damaged ({reason}). Copy it again.") from None

    def is_added(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is that of an added token. ids: shape (tokens,). Returns bool, shape (tokens,)."""
        return np.isin(ids, [*self._added])

    def is_space(self, id: int) -> bool:
        """Return whether a token is white space alone."""
        # Twice, since some decoders remove a space at the start of a text.
        return self._is_known(id) and self._decoded([id, id]).isspace()

    def added_token(self, id: int) -> str | None:
        """Return the text of an added token; None if the token is none."""
        token = self._added.get(id)
        return token and token.content

    def texts(self, rows: list[list[int]]) -> list[str]:
        """Return the text of each of some lists of ids, faster than `decode`."""
        texts: list[str] = self._tokenizer.decode_batch(rows, skip_special_tokens=False)
        return texts

    def decode(self, ids: np.ndarray) -> Decoded:
        """Decode the tokens of one text. ids: integers, shape (tokens,)."""
        given: list[int] = ids.tolist()
        stream, pieces, length = DecodeStream(skip_special_tokens=False), list[str](), 0
        starts, stops = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        first = 0  # of the tokens whose text is not complete
        for number, id in enumerate(given):
            try:
                piece = stream.step(self._tokenizer, id) if self._is_known(id) else _UNKNOWN
            except Exception:  # of no class of its own: bytes that are no character change what was before them
                stream = DecodeStream(skip_special_tokens=False)
                piece = stream.step(self._tokenizer, id)
            if piece is None and number == first and not self._decoded([id]):
                piece = ""
            if piece is None and number + 1 == len(given):
                before = given[max(first - 1, 0) : first]
                piece = self._decoded(before + given[first:])[len(self._decoded(before)) :]
            if piece is not None:
                pieces.append(piece)
                starts[first : number + 1], stops[first : number + 1] = length, length + len(piece)
                if first < number:  # of the first token, what is before the character that it begins is its own
                    starts[first + 1 : number + 1] += len(self._decoded([given[first]]).rstrip(_UNKNOWN))
                first, length = number + 1, length + len(piece)
        return Decoded("".join(pieces), starts, stops)

    def _is_known(self, id: int) -> bool:
        return 0 <= id < 1 << 32 and self._tokenizer.id_to_token(id) is not None

    def _decoded(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text
