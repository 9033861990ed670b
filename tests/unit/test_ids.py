"""Tokenizers that gigatoken would load without doing all that they do are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.encodings import changed
from support.tokenizers import save_tokenizer
from transforms import tokenize

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split(behavior: str = "Isolated") -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": behavior, "invert": False}


def refusal(folder: str, caplog: pytest.LogCaptureFixture) -> str:
    """The warning with which transformers tokenizes instead."""
    tokenize(["wheel"], folder)
    [warning] = caplog.messages
    assert warning.startswith("transformers tokenizes, since the fast engine cannot: ")
    return warning


DIGITS = {"type": "Digits", "individual_digits": True}
WHOLE_WORD = {"content": "wheel", "single_word": True}
WHOLE_WORD |= dict.fromkeys(("lstrip", "rstrip", "normalized", "special"), False)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"pre_tokenizer": [split(), DIGITS, byte_level(False)]}, "Digits"),
        ({"pre_tokenizer": [DIGITS, byte_level(True)]}, "Digits"),
        (
            {"pre_tokenizer": [{"type": "Punctuation", "behavior": "Isolated"}, split(), byte_level(False)]},
            "Punctuation",
        ),
        ({"pre_tokenizer": [split("MergedWithPrevious"), byte_level(False)]}, "MergedWithPrevious"),
        ({"pre_tokenizer": [split(), byte_level(True)]}, "splits again"),
        ({"pre_tokenizer": [byte_level(False)]}, "does not split"),
        ({"added_tokens": [WHOLE_WORD]}, "whole words"),
    ],
)
def test_what_gigatoken_ignores_is_refused(
    tmp_path: Path, parts: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert reason in refusal(changed(save_tokenizer(tmp_path), **parts), caplog)


def test_a_vocabulary_without_a_token_for_each_byte_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """SmolLM2 has none for some control characters, which it drops."""
    folder = save_tokenizer(tmp_path)
    model = json.loads(Path(folder, "tokenizer.json").read_text())["model"]
    del model["vocab"]["\u010b"]  # 0x0B
    assert "byte" in refusal(changed(folder, model=model), caplog).lower()
