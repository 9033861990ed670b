"""Digits: tokenizers that cut at each numeral have the same tokens in both engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.encodings import TEXTS, assert_same_tokens, changed, fast_encoder
from support.tokenizers import save_tokenizer
from transforms.tokens.digits import DigitsEncoder
from transforms.tokens.ids import load_id_encoder
from transforms.tokens.tokenizer import load_tokenizer

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def digits(individual: bool = True) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": individual}


def byte_level(use_regex: bool = True, add_prefix_space: bool = False) -> dict[str, Any]:
    flags = {"add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **flags}


def split(pattern: str, behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def added(content: str, **flags: bool) -> dict[str, Any]:
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"content": content, **dict.fromkeys(names, False), **flags}


# The pre-tokenizers of SmolLM, StarCoder, Granite and Cohere, and others that begin with Digits.
FAMILIES = {
    "smollm": ([digits(), byte_level()], None),
    "cohere": ([digits(), byte_level()], {"type": "NFC"}),
    "before_split": ([digits(), split(QWEN), byte_level(use_regex=False)], None),
}
# Those of Python, with the characters that have a numeric value such as 一, and digits of Unicode 15 to 17.
NUMERALS = [chr(code) for code in range(0x20000) if chr(code).isnumeric()] + [
    chr(code)
    for first, last in ((0x10D40, 0x10D49), (0x11DE0, 0x11DE9), (0x16FF4, 0x16FF6), (0x1CCF0, 0x1CCF9))
    for code in range(first, last + 1)
]
TOKENS = [
    added("<|t1|>"),
    added("<|t12|>", special=True),
    added("x1|>"),
    added("t2<", normalized=True),
    added("<|im_end|>", special=True),
]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    pre_tokenizers, normalizer = FAMILIES[request.param]
    # Without a cut, the two numerals of such a word are one token, with the space before them.
    folder = save_tokenizer(tmp_path_factory.mktemp(request.param), words=[f" {numeral * 2}" for numeral in NUMERALS])
    return changed(folder, pre_tokenizer=pre_tokenizers, normalizer=normalizer, added_tokens=TOKENS)


@given(TEXTS, st.booleans())
@settings(max_examples=100)
def test_tokens_of_all_texts_are_those_of_the_reference(family: str, texts: list[str], special_tokens: bool) -> None:
    assert_same_tokens(family, texts, special_tokens)


def test_each_numeral_is_cut_as_tokenizers_cuts_it(family: str) -> None:
    """What is a numeral is decided by tokenizers: ², Ⅻ and ① are, 一 is not, and its Unicode is newer than Python's."""
    assert_same_tokens(family, ["".join(f"a {numeral * 2}" for numeral in NUMERALS)])


def test_numerals_in_added_tokens_are_not_cut(family: str) -> None:
    encoded = assert_same_tokens(family, ["a<|t1|>2<|t12|>3<|t1|4x1|>5t2<<|t2<|im_end|>6"])
    ids = load_tokenizer(family).convert_tokens_to_ids([token["content"] for token in TOKENS])
    assert [number for number in encoded.ids.tolist() if number in ids] == ids


def test_texts_with_a_byte_that_the_vocabulary_lacks_fall_back(tmp_path: Path) -> None:
    """SmolLM2 has no token for some control characters, which it drops."""
    folder = changed(save_tokenizer(tmp_path), pre_tokenizer=[digits(), byte_level()])
    path = Path(folder, "tokenizer.json")
    state = json.loads(path.read_text())
    del state["model"]["vocab"]["\u010b"]  # 0x0B
    path.write_text(json.dumps(state))
    encoded = assert_same_tokens(folder, ["The wheel 1", "when\x0bthe rain 2", "comes"])
    assert encoded.altered.tolist() == [1]


@pytest.mark.parametrize(
    ("pre_tokenizers", "reason"),
    [
        ([split(QWEN), digits(), byte_level(use_regex=False)], "Digits"),
        ([{"type": "Punctuation", "behavior": "Isolated"}, split(QWEN), byte_level(use_regex=False)], "Punctuation"),
        ([split(QWEN, "MergedWithPrevious"), byte_level(use_regex=False)], "MergedWithPrevious"),
        ([split(QWEN), byte_level(use_regex=True)], "splits again"),
        ([byte_level(use_regex=False)], "does not split"),
        ([digits(), byte_level(add_prefix_space=True)], "adds a space"),
        ([digits(individual=False), byte_level()], "keeps runs"),
    ],
)
def test_pre_tokenizers_that_gigatoken_ignores_are_refused(
    tmp_path: Path, pre_tokenizers: list[dict[str, Any]], reason: str
) -> None:
    folder = changed(save_tokenizer(tmp_path), pre_tokenizer=pre_tokenizers)
    with pytest.raises(ValueError, match=reason):
        load_id_encoder(load_tokenizer(folder).backend_tokenizer)


@pytest.mark.parametrize(
    ("token", "reason"), [(added("wheel", single_word=True), "whole words"), (added("1>"), "begins with a numeral")]
)
def test_added_tokens_that_are_not_found_in_pieces_are_refused(
    tmp_path: Path, token: dict[str, Any], reason: str
) -> None:
    folder = changed(save_tokenizer(tmp_path), pre_tokenizer=[digits(), byte_level()], added_tokens=[token])
    with pytest.raises(ValueError, match=reason):
        load_id_encoder(load_tokenizer(folder).backend_tokenizer)


def test_texts_are_cut_without_the_reference(family: str) -> None:
    encoder = fast_encoder(family)
    assert isinstance(encoder._encoder, DigitsEncoder)
    assert not len(encoder.encode(["The wheel turns 12 times, ½ of it ٣ <|t1|>"], False).altered)
