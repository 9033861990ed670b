"""The tokenizers that the set-up converts have the ids of the libraries that they come from."""

from __future__ import annotations

import base64
import unicodedata

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from support.models import MISTRAL, QWEN, QWEN_PIECES, QWEN_SPECIAL, RANKS, SENTENCEPIECE, TEMPLATES
from support.paths import ROOT

PIECES = [
    "the wheel turns", "The", "don't", "Straße", "é", "水車は回る。", "家族", "한국어", "колесо крутится",
    "والعجلة تدور", "पहिया", "👩‍👩‍👧", "🇩🇪", "3.14159", "def f(x):", "</s", "...", " ", "   ", "\n", "\n\n",
    "\t", "\r\n",
    "\u3000",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=12).map("".join)


@given(text=TEXTS)
def test_ids_of_mistral_are_those_of_sentencepiece(of_sentencepiece, text):
    text = f"x{text}"  # Metaspace and SentencePiece prepend their space to other texts that begin with one
    expected = of_sentencepiece[0].encode(text)
    assert of_sentencepiece[1].encode(text, add_special_tokens=False).ids == expected


@pytest.mark.slow
@given(text=TEXTS)
def test_ids_of_qwen_are_those_of_tiktoken(of_tiktoken, text):
    expected = of_tiktoken[0].encode(unicodedata.normalize("NFC", text), disallowed_special=())
    assert of_tiktoken[1].encode(text, add_special_tokens=False).ids == expected


def test_special_tokens_of_qwen_follow_its_ranks(of_tiktoken):
    ids = of_tiktoken[1].encode("<|im_start|>user<|im_end|><think>\n").ids
    assert ids == [151644, *of_tiktoken[0].encode("user"), 151645, 151667, *of_tiktoken[0].encode("\n")]


def test_templates_of_trl_are_there():
    assert {"llama3", "gptoss_training", "qwen3"} <= {file.stem for file in TEMPLATES.glob("*.jinja")}


def test_no_test_reads_what_is_next_to_the_repository():
    outside = "ROOT" + ".parent"
    assert [file.name for file in (ROOT / "tests").rglob("*.py") if outside in file.read_text(encoding="utf-8")] == []


@pytest.fixture(scope="module")
def of_sentencepiece():
    return SentencePieceProcessor(model_file=str(SENTENCEPIECE)), Tokenizer.from_file(str(MISTRAL / "tokenizer.json"))


@pytest.fixture(scope="module")
def of_tiktoken():
    lines = (line.split() for line in RANKS.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    special = {token: number for number, token in enumerate(QWEN_SPECIAL, len(ranks))}
    library = tiktoken.Encoding("qwen", pat_str=QWEN_PIECES, mergeable_ranks=ranks, special_tokens=special)
    return library, Tokenizer.from_file(str(QWEN / "tokenizer.json"))
