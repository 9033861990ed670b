"""Characters that only one engine knows: both engines have the same classes of all others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from support.chats import batch_of, text_of
from support.drawn import AT_LENGTH
from support.encodings import assert_same_tokens, changed, fast_encoder
from support.tokenizers import save_tokenizer
from transforms.steps.tokenize import Encoder
from transforms.tokens.ids import load_id_encoder
from transforms.tokens.newer import newer
from transforms.tokens.reference import ReferenceEncoder
from transforms.tokens.tokenizer import load_tokenizer
from transforms.tokens.utf8 import Utf8

_CONTRACTION, _SPACES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# The patterns that gigatoken knows, of one or several splits: of GPT-2, GPT-4, Phi 4, Llama 3, Qwen 2 and 3, Qwen 3.5,
# GPT-OSS, Tekken, DeepSeek 3.
PATTERNS = {
    "gpt2": [r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "gpt4": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s+"
    ],
    "phi4": [
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]"
        r"|\s+(?!\S)|\s+"
    ],
    "llama3": [
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
    ],
    "qwen2": [rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"],
    "qwen3_5": [
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
        rf"|{_SPACES}"
    ],
    "gpt_oss": [
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    ],
    "tekken": [
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    ],
    "deepseek3": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ],
}
NEWER = frozenset(map(chr, newer().codes.tolist()))
# These name all classes.
NAMES = tuple(PATTERNS) if AT_LENGTH else ("qwen3_5", "gpt_oss", "deepseek3")
# Whatever stands next to a character: of each class, and what begins a contraction.
NEIGHBORS = ("a", "A", "1", " ", "\n", ".", "'", "/", "\u0301", "中", "ª", "ǅ", "l", "v", "e", "r")


def classes(folder: Path, name: str) -> str:
    """Save a tokenizer whose tokens show each cut: bytes of a neighbor and of a character merge if not."""
    alphabet = [chr(byte) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))]
    others = [byte for byte in range(256) if chr(byte) not in alphabet]
    symbol = {ord(character): character for character in alphabet} | {b: chr(256 + i) for i, b in enumerate(others)}
    merges: dict[tuple[str, str], None] = {}
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
    """All characters in some parts; without TEST_SLOW one in 5 of the newer ones and one in 32 of the others."""
    codes = range(0x110000) if AT_LENGTH else sorted({*range(0, 0x34000, 32), *newer().codes[::5].tolist()})
    characters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    return [characters[start : start + 20_000] for start in range(0, len(characters), 20_000)]


def between(character: str) -> str:
    """A text in which a character has neighbors of each class."""
    around = "".join(f"{neighbor}{character}{neighbor} " for neighbor in "aA1.\n\u0301中ªǅ")
    contractions = "".join(f"'{start}{character} " for start in ("", "l", "r", "v"))
    return f"{around}{contractions}{character}{character}  {character}1"


def rows(ids: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in np.split(ids, offsets[1:-1])]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_engines_have_the_same_classes_of_all_characters_but_the_newer_ones(name, tmp_path):
    tokenizer = Tokenizer.from_file(classes(tmp_path, name) + "/tokenizer.json")
    encoder, _ = load_id_encoder(tokenizer)
    differing = set()
    for part in parts():
        texts = [between(character) for character in part]
        expected = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        pairs = zip(part, rows(*encoder.encode(Utf8.of(texts))), expected, strict=True)
        differing |= {character for character, found, other in pairs if found != other.ids}
    assert differing
    assert differing <= NEWER


@pytest.mark.slow
def test_engines_compose_all_characters_alike(tmp_path):
    folder = changed(classes(tmp_path, "qwen2"), normalizer={"type": "NFC"})
    reference = ReferenceEncoder(load_tokenizer(folder))
    for part in parts():
        some = [one for one in part if AT_LENGTH or one < "\U00020000"]
        if not some:
            continue
        texts = [text for one in some for text in (f"q\u0301{one}", f"q{one}\u0316", f"q{one}\u0334")]
        fast, expected = (encoder.encode(texts, False) for encoder in (fast_encoder(folder), reference))
        pairs = zip(texts, rows(fast.ids, fast.offsets), rows(expected.ids, expected.offsets), strict=True)
        assert not [text for text, found, other in pairs if found != other]


@pytest.mark.parametrize("name", ["llama3", "gpt_oss", "deepseek3"])
def test_texts_with_newer_characters_have_the_tokens_of_the_reference(name, tmp_path):
    folder = classes(tmp_path, name)
    texts = ["plain", *map(between, sorted(NEWER)[::97]), "😀 中文", "a\u088fb\U0001faea"]
    encoded = assert_same_tokens(folder, texts)
    assert encoded.newer.tolist() == [*range(1, len(texts) - 2), len(texts) - 1]


def test_marks_that_only_gigatoken_moves_are_left_where_they_are(tmp_path):
    """Python's NFC, which shows what else is moved, may not know them either."""
    folder = changed(classes(tmp_path, "qwen2"), normalizer={"type": "NFC"})
    texts = ["q\u0897\u0316", "q\u0301\U00010efd", "q\u0898\u0316", "q\U0001e5ee\u0316", "q\u0301\u0301"]
    encoded = assert_same_tokens(folder, texts)
    assert sorted([*encoded.newer, *encoded.altered]) == [0, 1, 2, 3]  # U+0898 is known to Python from 3.11 on


def test_records_with_newer_characters_are_counted(tmp_path):
    texts = [text_of(text, position=number) for number, text in enumerate(["one", "a\U000329b3\x80", "é\u1acf", "中"])]
    folder = classes(tmp_path, "qwen3_5")
    fast, expected = (Encoder(folder, engine=engine)(batch_of(texts)) for engine in ("auto", "reference"))
    assert fast.ids.tolist() == expected.ids.tolist()
    assert fast.outcomes.tokenized_by_reference == {"newer_unicode": 2}
    assert fast.outcomes.first_examples["tokenized_by_reference"] == (1, "newer_unicode")


def test_a_newer_character_is_seen_in_its_tokens_however_it_is_cut():
    beginnings = [
        f"a{character}b".encode()[:stop]
        for character in sorted(NEWER)[::13]
        for stop in range(2, len(f"a{character}b".encode()) + 1)
    ]
    assert newer().tokens_in(dict(enumerate(beginnings))) == [*range(len(beginnings))]
    others = [text.encode() for text in ("word", "é", "中文，", "😀", "हिन्दी", "한국어", "“…”")]
    assert newer().tokens_in(dict(enumerate([*others, beginnings[-1]]))) == [len(others)]
