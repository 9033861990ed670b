"""Headers: texts have the same tokens if gigatoken does not get what the template prints between messages."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from support.encodings import ATOMS, assert_same_tokens, changed, fast_encoder
from support.tokenizers import save_tokenizer
from transforms.tokens.headers import HeadersEncoder, numerals_of
from transforms.tokens.pieces import PieceEncoder
from transforms.tokens.utf8 import Utf8

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # noqa: E501
QWEN = LLAMA3.replace("{1,3}", "")
QWEN3_5 = QWEN.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
GPT_OSS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # noqa: E501
NFC = {"type": "NFC"}
FAMILIES = {"llama3": (LLAMA3, None), "qwen": (QWEN, NFC), "qwen3_5": (QWEN3_5, NFC), "gpt_oss": (GPT_OSS, None)}
# With tokens for what a cut at another place would join.
WORDS = ["  ", "    ", "\n\n", "\n  ", "==", "====", "000", "0001", "\x0b=", "\u00a0\u00a0", ".\n\n", "x000", "'s a"]
SPECIALS = ["<|start|>", "<|user|>", "<|stop|>", "<tool>", "stop"]
HEADERS = [
    "<|start|><|user|>",
    "<|stop|>\n<|start|>",
    "<|stop|><|start|>assistant<|user|>",
    "<|stop|><b>x</b><|start|>",
]


def split(pattern: str, **changes: Any) -> list[dict[str, Any]]:
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **changes}
    return [cut, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]


def save(folder: Path, name: str) -> str:
    pattern, normalizer = FAMILIES[name]
    saved = save_tokenizer(folder, words=WORDS * 4)
    changed(saved, pre_tokenizer=split(pattern), normalizer=normalizer)
    tokenizer = Tokenizer.from_file(saved + "/tokenizer.json")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIALS])
    tokenizer.add_tokens([AddedToken("<|normal|>", normalized=True)])
    tokenizer.save(saved + "/tokenizer.json")
    return saved


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def llama3(tmp_path: Path) -> str:
    return save(tmp_path, "llama3")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What gigatoken got."""
    got: list[bytes] = []
    encode = PieceEncoder.encode

    def recorded(self: PieceEncoder, data: bytes | np.ndarray, edges: np.ndarray) -> Any:
        got.append(bytes(data))
        return encode(self, data, edges)

    monkeypatch.setattr(PieceEncoder, "encode", recorded)
    return got


MESSAGES = st.lists(st.sampled_from([*ATOMS, *WORDS, *SPECIALS]) | st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.tuples(st.sampled_from(HEADERS), MESSAGES.map("".join)), min_size=1, max_size=20), st.data())
@settings(max_examples=100)
def test_tokens_of_texts_with_headers_are_those_of_the_whole_texts(
    family: str, turns: list[tuple[str, str]], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(turns)), max_size=3)) | {0, len(turns)})
    texts = Utf8.of(["".join("".join(turn) for turn in turns[a:b]) for a, b in pairwise(cuts)])
    encoder = fast_encoder(family)._encoder
    assert isinstance(encoder, HeadersEncoder)
    ids, offsets = encoder.encode(texts)
    expected = encoder._encoder.encode(texts.data, texts.offsets)  # whose Unicode is older than that of tokenizers
    assert ids.tolist() == expected[0].tolist()
    assert offsets.tolist() == expected[1].tolist()


BEFORE = ["", "a", "1", ".", "'", " ", "  ", "\n", "\n  ", " \n ", ".\n", "\r", "\u00a0 ", "水"]
AFTER = ["", "a", "1", "12", "²", "'s", ".", " ", "  a", "\n", " \n", "\u0301", "\u00a0", "0"]


def test_texts_next_to_a_header_are_cut_as_texts_of_their_own(family: str, seen: list[bytes]) -> None:
    assert_same_tokens(family, [f"{before}<|stop|>\n<|start|>{after}" for before in BEFORE for after in AFTER])
    assert b"<|" not in seen[-1]


def test_gigatoken_does_not_get_the_headers_of_chats(llama3: str, seen: list[bytes]) -> None:
    turns = "user<|user|>The wheel turns when<|stop|><|start|>assistant<|user|>the rain comes 12 <|times<|stop|>\n"
    encoded = assert_same_tokens(llama3, [f"<|start|>{turns}".replace("12", str(number)) for number in range(100)])
    assert isinstance(fast_encoder(llama3)._encoder, HeadersEncoder)
    assert len(encoded.altered) == 0
    assert seen[-1].count(b"<") == 100  # of `<|times`


def test_what_begins_in_a_text_and_ends_in_the_next_one_is_no_header(llama3: str, seen: list[bytes]) -> None:
    message = "The wheel turns when the rain comes"
    texts = [f"{message}<|stop|>the rain<|start|>{message}<|stop|>the ", f"rain<|start|>{message}"] * 20
    assert_same_tokens(llama3, texts)
    assert seen[-1].count(b"<|") == 0


def test_special_tokens_of_less_than_eight_bytes_are_left_to_gigatoken(llama3: str, seen: list[bytes]) -> None:
    texts = ["<tool>The wheel turns"] * 20
    assert_same_tokens(llama3, texts)
    assert seen[-1] == "".join(texts).encode()


def test_texts_with_a_vertical_tab_are_encoded_as_they_are(llama3: str, seen: list[bytes]) -> None:
    texts = ["<|start|><|user|>a\x0b===000", "<|start|><|user|>b"]
    assert_same_tokens(llama3, texts)
    assert seen[-1] == "".join(texts).encode()


@pytest.mark.parametrize("text", ["<b>12<|stop|>12", "<|stop|>12<b>", "<|normal|>12<|stop|>", "<br-br-br>"])
def test_header_without_special_tokens_at_its_ends_stays(llama3: str, seen: list[bytes], text: str) -> None:
    texts = [text] * 8
    assert_same_tokens(llama3, texts)
    assert seen[-1] == "".join(texts).encode()


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("<|x|>", lstrip=True),
        AddedToken("<|x|>", rstrip=True),
        *map(AddedToken, ("<|x", "|stop|>", "><", "a<b>", "==", "0|", "\x0b", "a\x0bb")),
    ],
)
def test_added_tokens_that_may_overlap_with_a_header_or_a_stand_in_are_refused(llama3: str, token: AddedToken) -> None:
    tokenizer = Tokenizer.from_file(llama3 + "/tokenizer.json")
    assert numerals_of(tokenizer) == 3
    tokenizer.add_tokens([token])
    assert numerals_of(tokenizer) is None


@pytest.mark.parametrize(
    "parts",
    [
        {"pre_tokenizer": split(LLAMA3 + "|x")},
        {"pre_tokenizer": split(LLAMA3.replace(r"\p{N}{1,3}", r" ?\p{N}+"))},
        {"pre_tokenizer": split(LLAMA3)[:1]},
        {"normalizer": {"type": "NFKC"}},
    ],
)
def test_tokenizers_with_which_a_stand_in_may_change_its_neighbors_are_refused(
    llama3: str, parts: dict[str, Any]
) -> None:
    assert numerals_of(Tokenizer.from_file(changed(llama3, **parts) + "/tokenizer.json")) is None
