"""From token ids to text, with the place of each token: from the files of a tokenizer, in a tenth of a second.

A tokenizer.json of 9 MB takes `tokenizers` 0.6 to 1.2 seconds to load, most of it for the merges, which only encoding
needs. So the bytes of each token are read here from the vocabulary alone. They also give exact places if a token is a
part of a character, which a decoder of strings would turn into U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from transforms.rows.ragged import offsets_of, slices_of
from transforms.storage.files import join, read_bytes
from transforms.storage.walking import names_below
from transforms.tokens.tokenizer import load_tokenizer, loaded_tokenizer, reading_tokenizer

_FILE, _CONFIG, _ADDED = "tokenizer.json", "tokenizer_config.json", "added_tokens.json"
_UNKNOWN = "\ufffd".encode()
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


@dataclass(frozen=True)
class Decoded:
    """A text, with the place of each of its tokens.

    Attributes:
        text: a byte that is not UTF-8 there, as at the end of a text that was cut inside a character, is a lone
            surrogate, as of Python's error handler `surrogateescape`.
        starts, stops: int64, shape (tokens,): the characters of each token. Tokens that are parts of one character all
            have that character.
    """

    text: str
    starts: np.ndarray
    stops: np.ndarray


@dataclass(frozen=True)
class TokenDecoder:
    """Decodes token ids.

    Attributes:
        data: the bytes of all tokens of the vocabulary, one after the other; the last token stands for unknown ids.
        offsets: int64, shape (ids + 2,): token i is data[offsets[i]:offsets[i + 1]].
        added: bool, shape (ids + 1,): whether it is an added token, as special tokens are.
        strips_space: whether a space at the start of a text was added by the tokenizer and is not shown.
    """

    data: np.ndarray
    offsets: np.ndarray
    added: np.ndarray
    strips_space: bool = False

    @classmethod
    def load(cls, folder: str) -> TokenDecoder:
        """Load the decoder of a tokenizer.

        Args:
            folder: that holds the tokenizer's files, at any url.

        Raises:
            InputError: if the files are not those of a tokenizer.
            StoreError: if the store of the folder fails.
        """
        with reading_tokenizer(folder):
            return cls._load(folder)

    @classmethod
    def _load(cls, folder: str) -> TokenDecoder:
        names = set(names_below(folder))
        files = {name: read_bytes(join(folder, name)) for name in (_FILE, _CONFIG, _ADDED) if name in names}
        found = _TOKENIZER_FILE.decode(files[_FILE]) if _FILE in files else None
        to_bytes = _decoder_of(found.decoder) if found else None
        if found is None or to_bytes is None:
            tokenizer = load_tokenizer(folder)
            return _by_transformers(tokenizer, range(len(tokenizer)))
        added = {token.id: token.content for token in found.added_tokens}
        if _ADDED in files:
            added |= {id: content for content, id in msgspec.json.decode(files[_ADDED], type=dict[str, int]).items()}
        config = _TOKENIZER_CONFIG.decode(files.get(_CONFIG, b"{}"))
        added |= {int(id): token.content for id, token in config.added_tokens_decoder.items()}
        convert, strips_space = to_bytes
        tokens = convert(_by_id(msgspec.json.decode(found.model.vocab), added))
        return cls.of(tokens, added, strips_space)

    @classmethod
    def load_for(cls, folder: str, ids: np.ndarray) -> TokenDecoder:
        """Load the decoder of some ids: in some milliseconds, if this process has loaded the tokenizer.

        Args:
            folder: as for load.
            ids: integers, shape (any,): those that it will decode.

        Raises:
            InputError, StoreError: as load does.
        """
        tokenizer = loaded_tokenizer(folder)
        return cls.load(folder) if tokenizer is None else cls.of_tokenizer(tokenizer, ids)

    @classmethod
    def of(cls, tokens: list[bytes], added: Iterable[int], strips_space: bool = False) -> TokenDecoder:
        """Make the decoder of a vocabulary.

        Args:
            tokens: the bytes of each token, by its id.
            added: the ids of added tokens.
            strips_space: as above.
        """
        tokens = [*tokens, _UNKNOWN]
        lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
        is_added = np.zeros(len(tokens), bool)
        is_added[list(added)] = True
        return cls(np.frombuffer(b"".join(tokens), np.uint8), offsets_of(lengths), is_added, strips_space)

    @classmethod
    def of_tokenizer(cls, tokenizer: Any, ids: np.ndarray) -> TokenDecoder:
        """Make the decoder of some ids from a tokenizer that is loaded, in some milliseconds.

        Args:
            tokenizer: of transformers.
            ids: integers, shape (any,): those that it will decode.
        """
        wanted = [id for id in np.unique(ids).tolist() if 0 <= id < len(tokenizer)]
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        decoder = backend.decoder if backend else None
        to_bytes = _decoder_of(msgspec.json.decode(decoder.__getstate__())) if decoder else None
        if to_bytes is None:
            return _by_transformers(tokenizer, wanted)
        convert, strips_space = to_bytes
        strings = [backend.id_to_token(id) or _UNKNOWN.decode() for id in wanted]
        tokens = [b""] * (max(wanted, default=-1) + 1)
        for id, token in zip(wanted, convert(strings), strict=True):
            tokens[id] = token
        return cls.of(tokens, (id for id in tokenizer.added_tokens_decoder if id < len(tokens)), strips_space)

    def is_added(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each id is that of an added token. ids: shape (tokens,). Returns bool, shape (tokens,)."""
        return self.added[self._known(ids)]

    def bytes_of(self, ids: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Decode tokens to bytes.

        Args:
            ids: integers, shape (tokens,).

        Returns:
            The bytes of all tokens, and int64, shape (tokens + 1,): where each one begins, and where the last ends.
        """
        known = self._known(ids)
        starts = self.offsets[known]
        lengths = self.offsets[known + 1] - starts
        return slices_of(self.data, starts, lengths).tobytes(), offsets_of(lengths)

    def decode(self, ids: np.ndarray) -> Decoded:
        """Decode the tokens of one text. ids: integers, shape (tokens,)."""
        data, offsets = self.bytes_of(ids)
        if self.strips_space and data.startswith(b" "):
            data, offsets = data[1:], np.maximum(offsets - 1, 0)
        text = data.decode("utf-8", "surrogateescape")
        first_bytes = offsets_of(_sizes(text))
        starts = np.searchsorted(first_bytes, offsets[:-1], "right") - 1
        stops = np.searchsorted(first_bytes, offsets[1:], "left")
        return Decoded(text, np.minimum(starts, stops), stops)

    def _known(self, ids: np.ndarray) -> np.ndarray:
        last = len(self.added) - 1
        return np.where((ids >= 0) & (ids < last), ids, last)


class _AddedToken(msgspec.Struct):
    content: str
    id: int = -1


class _Model(msgspec.Struct):
    vocab: msgspec.Raw = msgspec.Raw(b"{}")


class _TokenizerFile(msgspec.Struct):
    """What is needed here of tokenizer.json."""

    model: _Model
    added_tokens: list[_AddedToken] = []
    decoder: dict[str, Any] | None = None


class _Config(msgspec.Struct):
    """What is needed here of tokenizer_config.json."""

    added_tokens_decoder: dict[str, _AddedToken] = {}


_TOKENIZER_FILE, _TOKENIZER_CONFIG = msgspec.json.Decoder(_TokenizerFile), msgspec.json.Decoder(_Config)


def _by_id(vocabulary: Any, added: Mapping[int, str]) -> list[str]:
    """The string of each token by its id. vocabulary: ids by string, or a list of strings with their scores."""
    ids: Mapping[str, int] = (
        vocabulary if isinstance(vocabulary, dict) else {token: id for id, (token, _) in enumerate(vocabulary)}
    )
    strings = [_UNKNOWN.decode()] * (max([*ids.values(), *added], default=-1) + 1)
    for string, id in ids.items():
        strings[id] = string
    for id, string in added.items():
        strings[id] = string
    return strings


_Convert = Callable[[list[str]], list[bytes]]


def _decoder_of(decoder: dict[str, Any] | None) -> tuple[_Convert, bool] | None:
    """What makes the bytes of tokens, and whether a first space is removed. None for decoders of other kinds."""
    steps = decoder["decoders"] if decoder and decoder["type"] == "Sequence" else [decoder or {"type": None}]
    match [step["type"] for step in steps]:
        case ["ByteLevel"]:
            return _from_byte_level, False
        case ["Metaspace"]:
            space = steps[0].get("replacement", "▁")
            return _from_pieces([(space, " ")], has_bytes=False), steps[0].get("prepend_scheme", "always") != "never"
        case [*_, "ByteFallback", "Fuse"] | [*_, "ByteFallback", "Fuse", "Strip"]:
            strip = next((step for step in steps if step["type"] == "Strip"), None)
            replaced = steps[: [step["type"] for step in steps].index("ByteFallback")]
            texts: list[tuple[str, str]] = [
                (step["pattern"]["String"], step["content"])
                for step in replaced
                if step["type"] == "Replace" and "String" in step["pattern"]
            ]
            understood = len(texts) == len(replaced)
            if understood and strip in (None, {"type": "Strip", "content": " ", "start": 1, "stop": 0}):
                return _from_pieces(texts, has_bytes=True), strip is not None
    return None


def _byte_level_table() -> np.ndarray:
    """The byte that each character of a byte-level vocabulary stands for, as in GPT-2: int16, -1 for other ones."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = np.full(256 + len(others), -1, np.int16)
    table[printable] = printable
    table[256:] = others
    return table


def _from_byte_level(strings: list[str]) -> list[bytes]:
    """All at once: a lookup for each character of a vocabulary would take longer than reading it."""
    table = _byte_level_table()
    codes = np.frombuffer("".join(strings).encode("utf-32-le"), np.uint32)
    found = np.where(codes < len(table), table[np.minimum(codes, len(table) - 1)], -1)
    data = found.astype(np.uint8).tobytes()
    edges = offsets_of(np.fromiter(map(len, strings), np.int64, len(strings))).tolist()
    tokens = [data[start:stop] for start, stop in pairwise(edges)]
    # An added token may have characters that stand for no byte: its string is its text.
    ends = np.array(edges[1:])
    for token in set(np.searchsorted(ends, np.flatnonzero(found < 0), "right").tolist()):
        tokens[token] = strings[token].encode()
    return tokens


def _from_pieces(replaced: list[tuple[str, str]], has_bytes: bool) -> _Convert:
    """What makes the bytes of SentencePiece's tokens. has_bytes: whether <0x0A> is a byte."""

    def bytes_of(string: str) -> bytes:
        if has_bytes and _BYTE.fullmatch(string):
            return bytes([int(string[3:5], 16)])
        for old, new in replaced:
            string = string.replace(old, new)
        return string.encode()

    return lambda strings: list(map(bytes_of, strings))


def _sizes(text: str) -> np.ndarray:
    """The bytes of each character, int64 (characters,): a lone surrogate stands for one byte."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    sizes = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    return np.where((codes >= 0xD800) & (codes < 0xE000), 1, sizes)


def _by_transformers(tokenizer: Any, ids: Iterable[int]) -> TokenDecoder:
    """Decode each of some tokens with transformers, after another one, since many decoders change what is first.

    Of a character of several tokens, each is shown as U+FFFD.
    """

    def decode(ids: list[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    added = tokenizer.added_tokens_decoder
    first = next((id for id in range(len(tokenizer)) if id not in added and decode([id]).isalpha()), 0)
    start = decode([first])
    tokens = [b""] * len(tokenizer)
    for id in ids:
        tokens[id] = decode([first, id]).removeprefix(start).encode()
    return TokenDecoder.of(tokens, added, strips_space=True)
