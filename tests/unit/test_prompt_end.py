"""The end of the generation prompt: tokens that go over it are counted, and with `split` there are none."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, processors, trainers
from transformers import ByT5Tokenizer

from support.chats import assistant, batch_of, text_of, user
from support.datasets import rows_of, write_jsonl
from support.encodings import ATOMS, changed
from support.paths import SHARED
from support.tokenizers import save_tokenizer
from transforms.base.errors import ParameterError
from transforms.model.batches import Tokens
from transforms.model.examples import Conversation, Example, Text
from transforms.steps.tokenize import Encoder
from transforms.tokens.tokenizer import load_tokenizer

NOTE = "turns_with_token_across_prompt_end"
ENGINES = pytest.mark.parametrize("engine", ["fast", "reference"])
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


METASPACE = {"type": "Metaspace", "replacement": "▁", "split": False}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
# The pre-tokenizer and the normalizer of Mistral 3, of a legacy Llama 2, and of Llama 2; and Gemma's, without a prefix.
PREFIXES: dict[str, tuple[Any, Any]] = {
    "first": ({**METASPACE, "prepend_scheme": "first"}, None),
    "always": ({**METASPACE, "prepend_scheme": "always"}, None),
    "prepend": (None, {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE]}),
    "none": (None, REPLACE),
}


def save_sentencepiece(folder: Path, name: str) -> str:
    """Save a BPE with byte fallback, in which spaces are ▁."""
    bpe = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    bpe.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=specials[:5], show_progress=False)
    bpe.train_from_iterator(["▁The▁wheel▁turns", "▁when▁the▁rain▁comes", "hi▁there"] * 4, trainer)
    state = json.loads(bpe.to_str())
    first = len(state["model"]["vocab"])
    state["model"]["vocab"] |= {token: first + number for number, token in enumerate(specials[5:])}
    state["pre_tokenizer"], state["normalizer"] = PREFIXES[name]
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(state))
    config = {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def encoded(folder: str, texts: list[Text], engine: str = "reference", at_prompt_end: str = "split") -> Tokens:
    tokens = Encoder(folder, engine=engine, at_prompt_end=at_prompt_end)(batch_of(texts))
    assert not tokens.outcomes.rejects
    return tokens


def ids_of(tokens: Tokens) -> list[list[int]]:
    return [row.tolist() for row in np.split(tokens.ids, tokens.offsets[1:-1])]


def strings_of(folder: str, ids: list[int]) -> list[str]:
    return load_tokenizer(folder).convert_ids_to_tokens(ids)


def ids_alone(folder: str, text: str) -> list[int]:
    return load_tokenizer(folder)(text, add_special_tokens=False)["input_ids"]


def trained_text(folder: str, tokens: Tokens) -> str:
    return load_tokenizer(folder).decode(tokens.ids[tokens.trained], clean_up_tokenization_spaces=False)


@ENGINES
def test_turns_with_a_token_across_the_end_of_the_prompt_are_counted(folder: str, engine: str) -> None:
    texts = [
        text_of("a\nb", [(2, 3)], position=3),
        text_of("水\n\nb\n\nc", [(2, 4), (5, 7)], position=5),
        text_of("a\n\nb", [(0, 4)], position=7),
    ]
    outcomes = encoded(folder, texts, engine, "join").outcomes
    assert outcomes.notes == {NOTE: 2}
    [token] = ids_alone(folder, "\n\n")
    assert outcomes.first_examples[NOTE] == (5, rf"token {token} is '\n\n'")
    assert encoded(folder, texts, engine).outcomes.notes == {}


@ENGINES
def test_ids_are_those_of_the_prompt_and_of_what_follows_it(folder: str, engine: str) -> None:
    tokens = encoded(folder, [text_of("水\n\nb\n\nc", [(2, 4), (5, 7)])], engine)
    pieces = ("水\n", "\nb\n", "\nc")
    assert ids_of(tokens) == [[i for piece in pieces for i in ids_alone(folder, piece)]]
    assert trained_text(folder, tokens) == "\nb\nc"


@st.composite
def cut_texts(draw: st.DrawFn) -> Text:
    text = "".join(draw(st.lists(st.sampled_from([*ATOMS, *WORDS]), min_size=1, max_size=20)))
    edges = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    spans = [(a, b) for a, b in pairwise(edges)][::2]
    special_tokens = draw(st.booleans())
    if special_tokens and spans:
        spans[-1] = spans[-1][0], len(text) + 1
    return text_of(text, spans, special_tokens=special_tokens)


@given(st.lists(cut_texts(), min_size=1, max_size=6))
@settings(max_examples=150)
def test_both_engines_encode_each_piece_alone(folder: str, texts: list[Text]) -> None:
    fast, reference = (encoded(folder, texts, engine) for engine in ("fast", "reference"))
    assert ids_of(fast) == ids_of(reference)
    assert fast.trained.tolist() == reference.trained.tolist()
    assert NOTE not in fast.outcomes.notes and fast.outcomes.notes == reference.outcomes.notes
    joined = [encoded(folder, texts, engine, "join").outcomes for engine in ("fast", "reference")]
    assert joined[0].notes == joined[1].notes
    assert joined[0].first_examples.get(NOTE) == joined[1].first_examples.get(NOTE)
    for text, ids in zip(texts, ids_of(reference), strict=True):
        cuts = [start for start, _ in text.spans if 0 < start < len(text.text)]
        pieces = [text.text[a:b] for a, b in pairwise([0, *cuts, len(text.text)])]
        expected = [i for piece in pieces for i in ids_alone(folder, piece)]
        assert ids == ([0, *expected, 1] if text.special_tokens else expected)


@ENGINES
def test_the_trained_tokens_are_all_that_the_model_writes(folder: str, engine: str) -> None:
    tokens = encoded(folder, [text_of("é\n\né<|im_end|>\nx", [(2, 14)])], engine)
    assert trained_text(folder, tokens) == "\né<|im_end|>"


@ENGINES
def test_special_tokens_are_added_around_the_whole_text(folder: str, engine: str) -> None:
    text = text_of("ab", [(1, 3)], special_tokens=True, prompt="a")
    tokens = encoded(folder, [text, text_of("ab", [(-1, 3)], special_tokens=True)], engine)
    assert [strings_of(folder, ids) for ids in ids_of(tokens)] == [["<s>", "a", "b", "</s>"], ["<s>", "ab", "</s>"]]
    assert tokens.trained.tolist() == [False, False, True, True, True, True, True]
    assert "prompt_tokens_not_a_prefix" not in tokens.outcomes.notes


@ENGINES
@pytest.mark.parametrize("name", PREFIXES)
def test_no_space_is_added_in_the_middle_of_a_text(tmp_path: Path, name: str, engine: str) -> None:
    folder = save_sentencepiece(tmp_path, name)
    text = "rain the wheel</s>[INST]hi there水 u"
    spans = [(2, 4), (8, 18), (26, 32), (33, 35)]
    [ids] = ids_of(encoded(folder, [text_of(text, spans)], engine))
    prefix = "" if name == "none" else "▁"
    after_special = "▁" if name in ("always", "prepend") else ""
    rest = f"hi▁there{''.join(f'<0x{byte:02X}>' for byte in '水'.encode())}▁u"
    assert "".join(strings_of(folder, ids)) == f"{prefix}rain▁the▁wheel</s>[INST]{after_special}{rest}"
    # The ids before the first cut are those of the prompt alone.
    prompt = ids_alone(folder, text[:2])
    assert ids[: len(prompt)] == prompt


def test_byte_level_tokenizers_add_no_space_in_the_middle_of_a_text(tmp_path: Path) -> None:
    folder = changed(save_tokenizer(tmp_path), pre_tokenizer=[{**BYTE_LEVEL, "add_prefix_space": True}])
    [ids] = ids_of(encoded(folder, [text_of("hihi", [(2, 4)])]))
    assert "".join(strings_of(folder, ids)) == "Ġhihi"


def test_a_tokenizer_that_adds_a_space_is_encoded_by_the_reference(tmp_path: Path) -> None:
    tokens = encoded(save_sentencepiece(tmp_path, "first"), [text_of("the rain", [(3, 8)])], "fast")
    assert tokens.outcomes.tokenized_by_reference == {"prompt_end": 1}


@ENGINES
def test_tokens_of_the_template_alone_are_found(folder: str, engine: str) -> None:
    """With special_tokens_in_content plain. A token of the template that the cut goes through is plain text."""
    text = text_of("<s>a</s>b</s>", [(5, 9)], added_tokens=[(0, 3), (4, 8), (9, 13)])
    [ids] = ids_of(encoded(folder, [text], engine))
    strings = strings_of(folder, ids)
    assert strings[0] == "<s>" and strings[-1] == "</s>" and "</s>" not in strings[:-1]
    assert "".join(strings) == "<s>a</s>b</s>"


@ENGINES
def test_a_span_that_follows_another_one_begins_no_turn(folder: str, engine: str) -> None:
    text = text_of("a\n\nb", [(0, 2), (2, 4)], weights=[0.5, 2.0])
    for at_prompt_end in ("join", "split"):
        tokens = encoded(folder, [text], engine, at_prompt_end)
        assert ids_of(tokens) == [ids_alone(folder, "a\n\nb")]
        assert tokens.outcomes.notes == {}


@ENGINES
def test_parts_that_are_not_trained_on_begin_no_turn(folder: str, engine: str) -> None:
    parts = [{"type": "text", "text": "a\n", "weight": 0}, {"type": "text", "text": "\nb"}]
    conversation = Conversation([user("x"), {"role": "assistant", "content": parts}])
    text = Text(Example(0, conversation, {}, False, b""), "xa\n\nb", [(3, 5)])
    for at_prompt_end in ("join", "split"):
        tokens = encoded(folder, [text], engine, at_prompt_end)
        assert ids_of(tokens) == [ids_alone(folder, "xa\n\nb")]
        assert tokens.outcomes.notes == {}


def test_a_tokenizer_without_tokenizer_json_is_refused(tmp_path: Path) -> None:
    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ParameterError, match=r"at_prompt_end=.*no tokenizer\.json"):
        Encoder(str(tmp_path), at_prompt_end="split")


# Of Qwen 3.5: the generation prompt ends with `<think>\n`, and an answer without reasoning goes on with `\n</think>`.
THINKS = """
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.role == 'assistant' %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif -%}
    {{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>\\n' -}}{%- endif -%}
"""


@ENGINES
def test_a_build_has_the_ids_of_a_server(build: Any, tmp_path: Path, engine: str) -> None:
    qwen = str(SHARED / "tokenizers" / "qwen")
    if not Path(qwen, "tokenizer.json").exists():
        pytest.skip(f"{qwen} is absent: it is not part of the repository")
    messages = [user("2+2?"), assistant("4")]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"messages": messages}] * 2)
    (tmp_path / "thinks.jinja").write_text(THINKS)
    rows: dict[str, list[dict[str, Any]]] = {}
    for at_prompt_end in ("join", "split"):
        options = ("--chat_template", tmp_path / "thinks.jinja", "--at_prompt_end", at_prompt_end, "--engine", engine)
        output = tmp_path / at_prompt_end
        ended = build("--input", corpus, "--tokenizer", qwen, "--output", output, *options)
        assert ended.code == 0, ended.err
        rows[at_prompt_end] = rows_of(output)
        notes = json.loads((output / "manifest.json").read_text())["notes"]
        assert notes.get(NOTE, 0) == (2 if at_prompt_end == "join" else 0)
    prompt = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    answer = "\n</think>\n\n4<|im_end|>\n"
    before, after = (ids_alone(qwen, text) for text in (prompt, answer))
    assert rows["join"][0]["input_ids"] == ids_alone(qwen, prompt + answer)
    assert rows["split"][0]["input_ids"] == before + after
    assert rows["split"][0]["labels"] == [-100] * len(before) + after
