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


@pytest.mark.parametrize(
    ("pre_tokenizers", "reason"),
    [
        ([split(), {"type": "Digits", "individual_digits": True}, byte_level(False)], "Digits"),
        ([{"type": "Digits", "individual_digits": True}, byte_level(True)], "Digits"),
        ([{"type": "Punctuation", "behavior": "Isolated"}, split(), byte_level(False)], "Punctuation"),
        ([split("MergedWithPrevious"), byte_level(False)], "MergedWithPrevious"),
        ([split(), byte_level(True)], "splits again"),
        ([byte_level(False)], "does not split"),
    ],
)
def test_pre_tokenizers_that_gigatoken_ignores_are_refused(
    tmp_path: Path, pre_tokenizers: list[dict[str, Any]], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = changed(save_tokenizer(tmp_path), pre_tokenizer=pre_tokenizers)
    assert reason in refusal(folder, caplog)


def test_added_tokens_that_match_whole_words_only_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "special"), False)
    token = {"content": "wheel", "single_word": True, **flags}
    folder = changed(save_tokenizer(tmp_path), added_tokens=[token])
    assert "whole words" in refusal(folder, caplog)


def test_a_vocabulary_without_a_token_for_each_byte_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SmolLM2 has none for some control characters, which it drops."""
    folder = save_tokenizer(tmp_path)
    path = Path(folder, "tokenizer.json")
    state = json.loads(path.read_text())
    del state["model"]["vocab"]["\u010b"]  # 0x0B
    path.write_text(json.dumps(state))
    assert "byte" in refusal(folder, caplog).lower()
