"""Words: tokenizers that gigatoken cannot load have the same tokens if their texts are encoded word by word."""

from __future__ import annotations

import json
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from support.chats import batch_of, text_of
from support.encodings import TEXTS, changed
from support.tokenizers import WORDS, save_tokenizer
from transforms.steps.tokenize import Encoder
from transforms.tokens import words
from transforms.tokens.boundaries import can_be_cut
from transforms.tokens.fast import load_fast_encoder
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.words import WordsEncoder

P, N = pre_tokenizers, normalizers
BYTES = P.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2_BYTES = P.ByteLevel(add_prefix_space=False)
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # noqa: E501


def split(*patterns: str) -> list[Any]:
    return [P.Split(Regex(pattern), "isolated") for pattern in patterns]


BYTE_LEVEL = {
    "deepseek_coder": [
        *split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"),
        P.Digits(individual_digits=True),
        BYTES,
    ],
    "falcon": [
        P.Punctuation("contiguous"),
        GPT2_BYTES,
        P.Digits(individual_digits=False),
        *split("[0-9][0-9][0-9]"),
    ],
    "digits_after_split": [*split(GPT4), P.Digits(individual_digits=True), BYTES],
    "custom_split": [*split(r"\d{1,2}| ?[A-Za-z]+|\s+(?!\S)|\s+| ?[^\sA-Za-z\d]+"), BYTES],
    "runs": [P.Digits(individual_digits=False), GPT2_BYTES],
    "prefix_space": [P.Punctuation("isolated"), P.ByteLevel(add_prefix_space=True)],
}
SPACES = N.Replace(Regex(" {2,}"), "\u2581")
UNIGRAM = {
    "t5": (N.Sequence([N.Nmt(), N.NFKC(), N.Strip(left=False), SPACES]), P.Metaspace(prepend_scheme="always")),
    "albert": (N.Sequence([N.NFKC(), N.Lowercase()]), P.Metaspace(prepend_scheme="first")),
    "xlm_roberta": (N.NFKC(), P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="always")])),
}


def save_byte_level(folder: Path, name: str) -> str:
    save_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.pre_tokenizer = P.Sequence(BYTE_LEVEL[name])
    tokenizer.add_tokens(["<|t1|>", AddedToken("wheel", single_word=True), AddedToken("<|im_end|>", lstrip=True)])
    tokenizer.add_special_tokens([AddedToken("<|turn|>", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def save_unigram(folder: Path, name: str) -> str:
    save_tokenizer(folder)
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = UNIGRAM[name]
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([*WORDS, string.ascii_letters + string.punctuation + string.digits], trainer)
    tokenizer.add_tokens([AddedToken("<|im_end|>", lstrip=True)])
    tokenizer.add_special_tokens([AddedToken("<|turn|>", normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.fixture(scope="module", params=[*BYTE_LEVEL, *UNIGRAM])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    save = save_byte_level if request.param in BYTE_LEVEL else save_unigram
    return save(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def falcon(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_byte_level(tmp_path_factory.mktemp("falcon"), "falcon")


def words_encoder(folder: str) -> WordsEncoder:
    encoder = load_fast_encoder(folder, "fast")
    assert isinstance(encoder, WordsEncoder)
    return encoder


def assert_same_tokens(folder: str, texts: list[str], special_tokens: bool = False) -> None:
    found = words_encoder(folder).encode(texts, special_tokens)
    expected = ReferenceEncoder(load_tokenizer(folder)).encode(texts, special_tokens)
    for name in ("ids", "offsets", "starts", "stops", "bases"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


@given(TEXTS, st.booleans())
@settings(max_examples=60)
def test_tokens_of_all_texts_are_those_of_the_reference(family: str, texts: list[str], special_tokens: bool) -> None:
    assert_same_tokens(family, texts, special_tokens)


@given(st.lists(st.text("ab. \n1'中▁<", max_size=30), min_size=1, max_size=6))
@settings(max_examples=60)
def test_texts_are_cut_where_the_tokenizer_cuts_them(family: str, texts: list[str]) -> None:
    assert_same_tokens(family, texts)


@given(TEXTS.map(lambda messages: "<|turn|>".join(messages)), TEXTS.map(lambda messages: "<|turn|>".join(messages)))
@settings(max_examples=60)
def test_texts_are_cut_before_special_tokens(family: str, one: str, other: str) -> None:
    assert_same_tokens(family, [f"{one}<|turn|>", other, one])


def test_a_word_does_not_reach_into_the_next_text(family: str) -> None:
    assert_same_tokens(family, ["the ", "rain", " ", "comes", "", "a", " b", ""])


def test_trained_tokens_are_those_of_the_reference(family: str) -> None:
    texts = [
        text_of("The wheel turns, 水車は回る。 when the rain comes", [(4, 9), (17, 30)], 0),
        text_of("  the rain", [(0, 3)], 1),
    ]
    fast, reference = (Encoder(family, engine=engine)(batch_of(texts)) for engine in ("fast", "reference"))
    assert fast.ids.tolist() == reference.ids.tolist()
    assert fast.trained.tolist() == reference.trained.tolist()
    assert fast.trained.any()


def test_each_word_is_encoded_once(falcon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = WordsEncoder(load_tokenizer(falcon), 1000)
    encoded: list[str] = []
    encode = ReferenceEncoder.encode

    def counted(self: ReferenceEncoder, texts: list[str], special_tokens: bool) -> Any:
        encoded.extend(texts)
        return encode(self, texts, special_tokens)

    monkeypatch.setattr(ReferenceEncoder, "encode", counted)
    for _ in range(2):
        encoder.encode(["the rain and the rain, the rain"], False)
    assert encoded == ["the rain and the rain,"]
    encoder.encode(["the wheel", "and rain comes"], False)
    assert encoded == ["the rain and the rain,", " wheel", "and comes"]


def test_words_next_to_special_tokens_are_encoded_once(falcon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = WordsEncoder(load_tokenizer(falcon), 1000)
    encoder.encode(["the rain<|turn|>The wheel turns<|turn|>comes"], False)
    monkeypatch.setattr(ReferenceEncoder, "encode", lambda *_: pytest.fail("a word was encoded again"))
    encoder.encode(["the rain<|turn|>comes<|turn|>The wheel rain"], False)


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("<|turn|>", normalized=True),
        AddedToken("<|turn|>", normalized=False, lstrip=True),
        AddedToken("<|turn|>", normalized=False, single_word=True),
    ],
)
def test_texts_are_not_cut_before_tokens_that_depend_on_what_is_before_them(tmp_path: Path, token: AddedToken) -> None:
    tokenizer = Tokenizer.from_file(save_tokenizer(tmp_path) + "/tokenizer.json")
    tokenizer.pre_tokenizer = P.Sequence(BYTE_LEVEL["falcon"])
    tokenizer.add_special_tokens([token])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = ["a  <|turn|>b", "a<|turn|> b", "a <|turn|>", " <|turn|>"] * 4
    assert_same_tokens(str(tmp_path), texts)
    assert b"<|turn|>" not in words_encoder(str(tmp_path))._specials


def test_texts_are_not_cut_before_tokens_that_overlap_with_others(falcon: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(falcon + "/tokenizer.json")
    tokenizer.add_special_tokens([AddedToken("b<|tu", normalized=False)])
    save_tokenizer(tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert_same_tokens(str(tmp_path), ["a<|turn|>", "ab<|turn|>"] * 4)


def test_words_are_forgotten_when_they_are_many(falcon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_KEPT", 10)
    for number in range(5):
        assert_same_tokens(falcon, [f"The wheel turns {number} times when the rain comes"])
        assert len(words_encoder(falcon)._ids) <= 10


def test_long_texts_are_encoded_as_a_whole(falcon: str) -> None:
    texts = ["the rain " * 20, "the wheel"]
    found = WordsEncoder(load_tokenizer(falcon), 100).encode(texts, False)
    assert found.ids.tolist() == ReferenceEncoder(load_tokenizer(falcon)).encode(texts, False).ids.tolist()


def test_threads_share_an_encoder(falcon: str) -> None:
    encoder = WordsEncoder(load_tokenizer(falcon), 1000)
    reference = ReferenceEncoder(load_tokenizer(falcon))
    batches = [[f"the rain {number} {i} comes {i * number} times" for i in range(40)] for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda batch: encoder.encode(batch, False).ids, batches))
    assert all(
        np.array_equal(ids, reference.encode(batch, False).ids) for ids, batch in zip(found, batches, strict=True)
    )


@pytest.mark.parametrize(
    "parts",
    [
        {"pre_tokenizer": [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}]}
        for pattern in (
            *(r"\p{L}+ ", r"[^,]+", r"\w+\s+", r"(?<=a) \p{L}+"),
            *(r"\p{L}+(?! b)| ?\p{L}+", r"\s?[\p{L} ]+", r"\p{N}"),
        )
    ]
    + [
        {"pre_tokenizer": [{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}]},
        {"pre_tokenizer": [{"type": "FixedLength", "length": 5}]},
        {"normalizer": {"type": "Prepend", "prepend": "\u2581"}},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"normalizer": {"type": "Replace", "pattern": {"String": "e r"}, "content": "x"}},
    ],
)  # fmt: skip
def test_tokenizers_of_which_words_depend_on_their_neighbours_are_refused(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    folder = changed(save_tokenizer(tmp_path), **parts)
    assert not can_be_cut(Tokenizer.from_file(folder + "/tokenizer.json"))


@pytest.mark.parametrize(
    "token", [AddedToken("the rain"), AddedToken("<|im_end|>", rstrip=True), AddedToken("rain", lstrip=True)]
)
def test_added_tokens_that_go_over_a_cut_are_refused(tmp_path: Path, token: AddedToken) -> None:
    tokenizer = Tokenizer.from_file(save_tokenizer(tmp_path) + "/tokenizer.json")
    assert can_be_cut(tokenizer)
    tokenizer.add_tokens([token])
    assert not can_be_cut(tokenizer)


def test_dropout_is_refused(tmp_path: Path) -> None:
    folder = Path(save_tokenizer(tmp_path))
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"]["dropout"] = 0.5
    assert not can_be_cut(Tokenizer.from_str(json.dumps(state)))
