"""The end of the generation prompt: tokens that go over it are counted."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors
from transformers import AutoTokenizer

from support import models
from support.chats import assistant, make_batch, make_examples, text_of, user
from support.datasets import read_rows, write_jsonl
from support.drawn import examples
from support.encodings import ATOMS, changed
from support.templates import read_template
from support.tokenizers import save_tokenizer
from transforms import Conversation, Tokenize

NOTE = "turns_with_token_across_prompt_end"
ENGINES = pytest.mark.parametrize("engine", ["auto", "reference"])
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
WORDS = ["\n\n", "\n\n\n", ">\n\n", " the", "ab", "水車", "</s>\n"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A byte-level BPE with tokens that go over line breaks, which adds <s> and </s> to a text."""
    added = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    saved = save_tokenizer(tmp_path_factory.mktemp("byte_level"), added, words=WORDS * 4)
    split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
    return changed(saved, pre_tokenizer=[split, {**BYTE_LEVEL, "use_regex": False}])


def encoded(folder: str, texts: list[Any], engine: str = "reference") -> Any:
    tokens = Tokenize(folder, engine=engine).function()(make_batch(texts))
    assert not tokens.outcomes.rejects
    return tokens


def read_ids(tokens: Any) -> list[list[int]]:
    return [row.tolist() for row in np.split(tokens.ids, tokens.offsets[1:-1])]


def ids_alone(folder: str, text: str) -> list[int]:
    return AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]


@ENGINES
def test_turns_with_a_token_across_the_end_of_the_prompt_are_counted(folder: str, engine: str) -> None:
    texts = [
        text_of("a\nb", [(2, 3)], position=3),
        text_of("水\n\nb\n\nc", [(2, 4), (5, 7)], position=5),
        text_of("a\n\nb", [(0, 4)], position=7),
    ]
    outcomes = encoded(folder, texts, engine).outcomes
    assert outcomes.notes == {NOTE: 2}
    [token] = ids_alone(folder, "\n\n")
    assert outcomes.first_examples[NOTE] == (5, rf"token {token} is '\n\n'")


@st.composite
def cut_texts(draw: st.DrawFn) -> Any:
    text = "".join(draw(st.lists(st.sampled_from([*ATOMS, *WORDS]), min_size=1, max_size=20)))
    edges = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    spans = [(a, b) for a, b in pairwise(edges)][::2]
    special_tokens = draw(st.booleans())
    if special_tokens and spans:
        spans[-1] = spans[-1][0], len(text) + 1
    return text_of(text, spans, special_tokens=special_tokens)


@given(st.lists(cut_texts(), min_size=1, max_size=6))
@examples(150)
def test_both_engines_count_the_same(folder: str, texts: list[Any]) -> None:
    fast, reference = (encoded(folder, texts, engine).outcomes for engine in ("auto", "reference"))
    assert fast.notes == reference.notes
    assert fast.first_examples.get(NOTE) == reference.first_examples.get(NOTE)


@ENGINES
def test_a_span_that_follows_another_one_or_a_part_that_is_not_trained_on_begins_no_turn(folder: str, engine: str):
    parts = [{"type": "text", "text": "a\n", "weight": 0}, {"type": "text", "text": "\nb"}]
    conversation = Conversation([user("x"), {"role": "assistant", "content": parts}])
    [example] = make_examples(conversation).examples
    of_parts = msgspec.structs.replace(text_of("xa\n\nb", [(3, 5)]), example=example)
    for text in (text_of("a\n\nb", [(0, 2), (2, 4)]), of_parts):
        tokens = encoded(folder, [text], engine)
        assert (read_ids(tokens), tokens.outcomes.notes) == ([ids_alone(folder, text.text)], {})


# Of Qwen 3.5: the generation prompt ends with `<think>\n`, and an answer without reasoning goes on with `\n</think>`.
THINKS = read_template("thinks_nothing")


@ENGINES
def test_a_build_encodes_a_text_as_one_and_counts_such_turns(build: Any, tmp_path: Path, engine: str) -> None:
    qwen = str(models.QWEN)
    messages = [user("2+2?"), assistant("4")]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"messages": messages}] * 2)
    options = ("--chat_template", THINKS, "--engine", engine)
    output = tmp_path / "output"
    ended = build("--input", corpus, "--tokenizer", qwen, "--output", output, *options)
    assert ended.code == 0, ended.err
    assert json.loads((output / "manifest.json").read_text())["notes"][NOTE] == 2
    prompt = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    answer = "\n</think>\n\n4<|im_end|>\n"
    assert read_rows(output)[0]["input_ids"] == ids_alone(qwen, prompt + answer)
