"""What spans of trained tokens end with: the last token before white space, counted within each segment of a row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models

from support.datasets import read_manifest, write_jsonl

END, CALL, BREAK, SPACES, TEXT, OTHER = range(6)
NOT = -100


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A byte-level vocabulary, in which "  " is an added token, and the last token is a part of a character."""
    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = ["<|end|>", "<|call|>", "\u010a", "  ", "text", "\u00ff"]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(vocabulary)}, unk_token="text"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|call|>"])
    tokenizer.add_tokens(["  "])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([[NOT, TEXT, END, BREAK, NOT]], {"<|end|>": 1}),
        ([[NOT, TEXT, END, NOT, TEXT, CALL]], {"<|end|>": 1, "<|call|>": 1}),
        # A span ends where the next segment begins, also if that one is trained on from its first token.
        ([[TEXT, END, BREAK], [TEXT, TEXT]], {"<|end|>": 1, "others": 1}),
        ([[TEXT, END, BREAK, TEXT, TEXT]], {"others": 1}),
        ([[TEXT, TEXT, END], [TEXT, TEXT], [END]], {"<|end|>": 2, "others": 1}),
        # White space, whether it is an added token or not, and a part of a character.
        ([[TEXT, END, SPACES, BREAK, SPACES]], {"<|end|>": 1}),
        ([[TEXT, OTHER, BREAK]], {"others": 1}),
        ([[NOT, BREAK, SPACES, NOT, END]], {"others": 1, "<|end|>": 1}),
        ([[END, *[BREAK] * 8]], {"<|end|>": 1}),
        ([[END, *[BREAK] * 9]], {"others": 1}),
        ([[END, NOT], [BREAK]], {"<|end|>": 1, "others": 1}),
    ],
)
def test_last_token_of_each_span_is_counted(
    folder, build, tmp_path, segments: list[list[int]], expected: dict[str, Any]
):
    records = [{"input_ids": [TEXT if label == NOT else label for label in own], "labels": own} for own in segments]
    corpus, out = write_jsonl(tmp_path / "rows.jsonl", records * 2), tmp_path / "out"
    ended = build("--input", corpus, "--tokenizer", folder, "--output", out, "--packing=bfd", "--max_length=100")
    assert ended.code == 0, ended.err
    assert read_manifest(out)["rows"] == 1
    assert read_manifest(out)["statistics"]["span_ends"] == {name: 2 * count for name, count in expected.items()}
