"""Decoding: the text of a row, as inspect shows it, is that of `tokenizers`, and each token has its own place in it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from pipeline import main
from support.command_line import chatmill
from support.datasets import read_manifest, write_jsonl
from support.paths import TOKENIZER
from support.tokenizers import LARGE

TEXTS = [
    " ", "Hello", "  two spaces\t\n\n", "家族 👩‍👩‍👧 和 🇩🇪", "é ü ß水車は回る。", "水👩",
    "<|im_start|>user\n</s><s>[INST] x", "\x00\x1b[31m \u202e abc", "a" * 50,
]  # fmt: skip
DRAW = random.Random(3)
TEXTS += [
    "".join(chr(DRAW.choice((65, 0x300, 0x4E00, 0x1F400)) + DRAW.randrange(200)) for _ in range(9)) for _ in "abc"
]


@pytest.fixture
def shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    def show(folder: Path, rows: list[list[int]]) -> list[tuple[str, list[str]]]:
        """The text of each row of ids and those of its tokens."""
        corpus = write_jsonl(tmp_path / "rows.jsonl", [{"input_ids": ids} for ids in rows])
        options = ["--tokenizer", folder, "--output", tmp_path / "out", "--report=none", "--direct_num_workers=1"]
        assert main(["build", "--input", str(corpus), *map(str, options)]) == 0  # what laws read is no such tokenizer
        found = []
        for number in range(len(rows)):
            capfd.readouterr()
            assert chatmill("inspect", tmp_path / "out", f"--row={number}", "--json", "--tokens") == 0
            [row] = json.loads(capfd.readouterr().out)["rows"]
            [example] = row["examples"]
            found.append(("".join(piece["text"] for piece in example["text"]), example["token_texts"]))
        return found

    return show


@pytest.mark.parametrize("folder", [TOKENIZER, *LARGE], ids=lambda folder: folder.name)
def test_text_is_that_of_tokenizers_and_tokens_share_no_characters_but_those_of_which_they_are_parts(folder, shown):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    rows.append(rows[5][:-1])  # which ends within a character
    for ids, (text, tokens) in zip(rows, shown(folder, rows), strict=True):
        assert text == tokenizer.decode(ids, skip_special_tokens=False)
        run, places = list[int](), list[str]()
        for id, token in zip(ids, tokens, strict=True):
            run.append(id)
            piece = tokenizer.decode(run, skip_special_tokens=False)
            places += [piece] * (len(run) == 1)
            if "\ufffd" not in piece:  # they are all parts of its last character
                assert piece.lstrip(" ").endswith(token.lstrip(" "))
                places[-1:], run = [piece], []
        assert ids == rows[-1] or "".join(places).lstrip(" ").replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("file", ["tokenizer_config.json", "added_tokens.json"])
def test_added_tokens_of_other_files_are_known(tmp_path, file, shown):
    folder = Path(shutil.copytree(TOKENIZER, tmp_path / "tokenizer"))
    size = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).get_vocab_size()
    if file == "added_tokens.json":
        added = {"<|é fin|>": size}
    else:
        config = json.loads((TOKENIZER / file).read_text())
        added = config | {"added_tokens_decoder": {str(size): {"content": "<|é fin|>", "special": True}}}
    (folder / file).write_text(json.dumps(added))
    [(text, tokens)] = shown(folder, [[5, size]])
    assert text.endswith("<|é fin|>") and tokens[1] == "<|é fin|>"
    assert read_manifest(tmp_path / "out")["statistics"]["span_ends"] == {"<|é fin|>": 1}


BYTES = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
OTHERS = [decoders.Metaspace(), decoders.Metaspace(prepend_scheme="never"), decoders.WordPiece(), BYTES]
OTHERS += [decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])]


@pytest.mark.parametrize("decoder", OTHERS, ids=lambda decoder: type(decoder).__name__)
def test_other_decoders(tmp_path, decoder, shown):
    vocabulary = ["▁the", "▁rain", "fall", "##s", "<0xC3>", "<0xA9>", "the", "a", "<0xB0>"]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(vocabulary)}, unk_token="a"))
    tokenizer.decoder = decoder
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken("<s>")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    rows = [[0, 1, 2], [6, 2, 3, 7], [9, 0, 2, 9], [1, 4, 5, 1]]
    odd = [[4, 5, 8, 0], [4, 5, 8, 5, 0], [5, 8, 4], [4, 5, 4, 5, 8]] * (decoder is BYTES)  # bytes of no character
    for ids, (text, tokens) in zip([*rows, *odd], shown(tmp_path, [*rows, *odd]), strict=True):
        if ids in rows:
            assert text == tokenizer.decode(ids, skip_special_tokens=False)
        assert len(tokens) == len(ids) and (0 not in ids or ids in rows or text.count(" the") == 1)
