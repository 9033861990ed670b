"""Characters that only one engine knows: both engines have the same classes of all others."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from support.chats import make_batch, text_of
from support.drawn import AT_LENGTH
from support.encodings import changed
from support.paths import ROOT
from support.tokenizers import save_tokenizer
from transforms import Tokenize

# The patterns that gigatoken knows, of one or several splits: of GPT-2, GPT-4, Phi 4, Llama 3, Qwen 2 and 3, Qwen 3.5,
# GPT-OSS, Tekken, DeepSeek 3.
PATTERNS: dict[str, list[str]] = json.loads((ROOT / "tests" / "data" / "pre_tokenizers.json").read_text())
# These name all classes.
NAMES = tuple(PATTERNS) if AT_LENGTH else ("qwen3_5", "gpt_oss", "deepseek3")
# Whatever stands next to a character: of each class, and what begins a contraction.
NEIGHBORS = ("a", "A", "1", " ", "\n", ".", "'", "/", "\u0301", "中", "ª", "ǅ", "l", "v", "e", "r")


# Of these characters so many first bytes are one token.
NEWER = {"\U000329b3": 2, "\U0001faea": 3, "\U00016ea0": 4, "\u088f": 2, "\u0c5c": 3}
OTHERS = ("plain", "é", "中文，", "😀", "हिन्दी", "한국어", "“…”")


def classes(folder: Path, name: str) -> str:
    """Save a tokenizer whose tokens show each cut: bytes of a neighbor and of a character merge if not."""
    alphabet = [chr(byte) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))]
    others = [byte for byte in range(256) if chr(byte) not in alphabet]
    symbol = {ord(character): character for character in alphabet} | {b: chr(256 + i) for i, b in enumerate(others)}
    merges: dict[tuple[str, str], None] = {}
    for character, size in NEWER.items():
        first = "".join(symbol[byte] for byte in character.encode())
        merges |= dict.fromkeys((first[:stop], first[stop]) for stop in range(1, size))
    for neighbor in NEIGHBORS:
        first, *_, last = neighbor.encode() * 2
        merges |= dict.fromkeys((symbol[last], symbol[byte]) for byte in range(0xC2, 0xF5))
        merges |= dict.fromkeys((symbol[byte], symbol[first]) for byte in range(0x80, 0xC0))
    tokens = ["<s>", "</s>", *symbol.values(), *map("".join, merges)]
    saved = save_tokenizer(folder)
    model = json.loads(Path(saved, "tokenizer.json").read_text())["model"]
    model |= {"vocab": {token: number for number, token in enumerate(tokens)}, "merges": [*map(list, merges)]}
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in PATTERNS[name]
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return changed(saved, pre_tokenizer=[*splits, byte_level], model=model)


def parts() -> list[list[str]]:
    """All characters in some parts; without TEST_SLOW one in 15 of those that Python does not know, and few others."""
    every = [chr(code) for code in range(0x110000 if AT_LENGTH else 0x34000) if not 0xD800 <= code < 0xE000]
    unknown = [character for character in every if unicodedata.category(character) == "Cn"]
    some = every if AT_LENGTH else sorted({*every[::32], *unknown[::15]})
    return [some[start : start + 20_000] for start in range(0, len(some), 20_000)]


def between(character: str) -> str:
    """A text in which a character has neighbors of each class."""
    around = "".join(f"{neighbor}{character}{neighbor} " for neighbor in "aA1.\n\u0301中ªǅ")
    contractions = "".join(f"'{start}{character} " for start in ("", "l", "r", "v"))
    return f"{around}{contractions}{character}{character}  {character}1"


def left_to_the_reference(folder: str, texts: list[str]) -> Mapping[str, int]:
    """How many texts were, by reason. All texts must have the ids of tokenizers."""
    tokens = Tokenize(folder).function()(make_batch([text_of(text, [], row) for row, text in enumerate(texts)]))
    expected = Tokenizer.from_file(folder + "/tokenizer.json").encode_batch_fast(texts, add_special_tokens=False)
    rows = zip(texts, tokens.offsets, tokens.offsets[1:], expected, strict=False)
    assert [text for text, start, stop, other in rows if tokens.ids[start:stop].tolist() != other.ids] == []
    return tokens.outcomes.tokenized_by_reference


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_engines_have_the_same_classes_of_all_characters_but_the_newer_ones(name, tmp_path):
    folder = classes(tmp_path, name)
    left = [left_to_the_reference(folder, [between(character) for character in part]) for part in parts()]
    assert set().union(*left) == {"newer_unicode"}


@pytest.mark.slow
def test_engines_compose_all_characters_alike(tmp_path):
    folder = changed(classes(tmp_path, "qwen2"), normalizer={"type": "NFC"})
    for part in parts():
        some = [one for one in part if AT_LENGTH or one < "\U00020000"]
        left_to_the_reference(
            folder, [text for one in some for text in (f"q\u0301{one}", f"q{one}\u0316", f"q{one}\u0334")]
        )


def test_marks_that_only_gigatoken_moves_are_left_where_they_are(tmp_path):
    """Python's NFC, which shows what else is moved, may not know them either."""
    folder = changed(classes(tmp_path, "qwen2"), normalizer={"type": "NFC"})
    texts = ["q\u0897\u0316", "q\u0301\U00010efd", "q\u0898\u0316", "q\U0001e5ee\u0316", "q\u0301\u0301"]
    assert sum(left_to_the_reference(folder, texts).values()) == 4  # U+0898 is known to Python from 3.11 on


@pytest.mark.parametrize("name", ["llama3", "gpt_oss", "deepseek3"])
def test_a_text_with_a_newer_character_is_encoded_by_the_reference_however_its_bytes_are_cut(name, tmp_path):
    texts = [*OTHERS, *(f"a{character}b" for character in NEWER), "\u1acf", between("\U000329b3"), "\x80"]
    some = [text_of(text, [(at, at + 1) for at in range(0, len(text), 2)], row) for row, text in enumerate(texts)]
    folder = classes(tmp_path, name)
    fast, expected = (Tokenize(folder, engine=engine).function()(make_batch(some)) for engine in ("auto", "reference"))
    assert fast.ids.tolist() == expected.ids.tolist() and fast.trained.tolist() == expected.trained.tolist()
    assert fast.outcomes.tokenized_by_reference == {"newer_unicode": len(NEWER) + 2}
    assert fast.outcomes.first_examples["tokenized_by_reference"] == (len(OTHERS), "newer_unicode")
