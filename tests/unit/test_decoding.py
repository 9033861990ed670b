"""Decoding: the text of `tokenizers`, and the place of each token."""

from __future__ import annotations

import json
import shutil
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from support.paths import TOKENIZER
from support.tokenizers import LARGE
from transforms.tokens.decoding import TokenDecoder

FOLDERS = [TOKENIZER, *LARGE]
TEXTS = [
    "", " ", "Hello", "  two spaces\t\n\n", "家族 👩‍👩‍👧 和 🇩🇪", "é ü ß水車は回る。",
    "<|im_start|>user\n</s><s>[INST] x", "\x00\x1b[31m \u202e abc", "a" * 50,
]  # fmt: skip


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request) -> Path:
    return request.param


def test_text_is_that_of_tokenizers(folder):
    decoder, tokenizer = TokenDecoder.load(str(folder)), Tokenizer.from_file(str(folder / "tokenizer.json"))

    @given(st.sampled_from(TEXTS) | st.text())
    def check(text):
        ids = tokenizer.encode(text).ids
        assert decoder.decode(np.array(ids, np.int32)).text == tokenizer.decode(ids, skip_special_tokens=False)

    check()


def test_tokens_share_no_characters_but_those_of_which_they_are_parts(folder):
    decoder, tokenizer = TokenDecoder.load(str(folder)), Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        decoded = decoder.decode(np.array(ids, np.int32))
        places = [*zip(decoded.starts.tolist(), decoded.stops.tolist(), strict=True)]
        runs = [[number for number, _ in group] for _, group in groupby(enumerate(places), key=lambda one: one[1][1])]
        for numbers in runs:
            # Each run of tokens with one place is the shortest that is not a part of a character.
            start, stop = places[numbers[0]]
            run = [ids[number] for number in numbers]
            assert tokenizer.decode(run, skip_special_tokens=False).lstrip(" ") == decoded.text[start:stop].lstrip(" ")
            for count in range(1, len(run)):
                assert "\ufffd" in tokenizer.decode(run[:count], skip_special_tokens=False)
        # They follow one another.
        edges = [places[numbers[0]] for numbers in runs]
        assert [start for start, _ in edges] == [0, *(stop for _, stop in edges)][: len(edges)]
        assert not edges or edges[-1][1] == len(decoded.text)


def test_each_token_of_an_emoji_has_it_and_what_is_cut_or_unknown_is_a_replacement_character():
    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    decoder, ids = TokenDecoder.load(str(TOKENIZER)), tokenizer.encode("水👩", add_special_tokens=False).ids
    whole, cut, unknown = (decoder.decode(np.array(some)) for some in (ids, ids[:-1], [-1, 10**9]))
    assert (whole.text, whole.starts.tolist()[-2:], whole.stops.tolist()[-2:]) == ("水👩", [1, 1], [2, 2])
    assert (cut.text.rstrip("\ufffd"), cut.stops.tolist()[-1]) == ("水", len(cut.text)) and cut.text[1:]
    assert (unknown.text, unknown.starts.tolist(), unknown.stops.tolist()) == ("\ufffd\ufffd", [0, 1], [1, 2])


@pytest.mark.parametrize("file", ["tokenizer_config.json", "added_tokens.json"])
def test_added_tokens_of_other_files_are_known(tmp_path, file):
    shutil.copytree(TOKENIZER, tmp_path, dirs_exist_ok=True)
    size = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).get_vocab_size()
    if file == "added_tokens.json":
        added = {"<|é fin|>": size}
    else:
        config = json.loads((TOKENIZER / file).read_text())
        added = config | {"added_tokens_decoder": {str(size): {"content": "<|é fin|>", "special": True}}}
    (tmp_path / file).write_text(json.dumps(added))
    decoder, ids = TokenDecoder.load(str(tmp_path)), np.array([size, 5])
    assert decoder.decode(ids[:1]).text == "<|é fin|>"
    assert decoder.is_added(ids).tolist() == [True, False]
    assert [decoder.added_token(id) for id in ids.tolist()] == ["<|é fin|>", None]


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Metaspace(),
        decoders.Metaspace(prepend_scheme="never"),
        decoders.WordPiece(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    ],
    ids=lambda decoder: type(decoder).__name__,
)
def test_other_decoders(tmp_path, decoder):
    vocabulary = ["▁the", "▁rain", "fall", "##s", "<0xC3>", "<0xA9>", "the", "a"]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(vocabulary)}, unk_token="a"))
    tokenizer.decoder = decoder
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken("<s>")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    for ids in ([0, 1, 2], [6, 2, 3, 7], [8, 0, 2, 8], [1, 4, 5, 1]):
        decoder, text = TokenDecoder.load(str(tmp_path)), tokenizer.decode(ids, skip_special_tokens=False)
        assert decoder.decode(np.array(ids)).text == text
        assert decoder.texts([ids, ids[:1]]) == [text, tokenizer.decode(ids[:1], skip_special_tokens=False)]


def test_bytes_that_are_no_character_stop_nothing(tmp_path):
    vocabulary = ["<0xC3>", "<0xA9>", "<0xB0>", "▁the"]
    tokenizer = Tokenizer(models.WordLevel({token: id for id, token in enumerate(vocabulary)}, unk_token="▁the"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    for ids in ([0, 1, 2, 3], [0, 1, 2, 1, 3], [2, 3, 0], [0, 1, 0, 1, 2]):
        decoded = TokenDecoder(tokenizer).decode(np.array(ids))
        assert decoded.stops[-1] == len(decoded.text) and (3 not in ids or decoded.text.count(" the") == 1)
