"""Decoding from the vocabulary alone: the text of `tokenizers`, and the exact place of each token."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from support.paths import SHARED, TOKENIZER
from transforms.tokens.decoding import TokenDecoder
from transforms.tokens.tokenizer import load_tokenizer

FOLDERS = [TOKENIZER, *(SHARED / "tokenizers" / name for name in ("llama3", "qwen", "mistral"))]
TEXTS = [
    "", " ", "Hello", "  two spaces\t\n\n", "家族 👩‍👩‍👧 和 🇩🇪", "é ü ß水車は回る。",
    "<|im_start|>user\n</s><s>[INST] x", "\x00\x1b[31m \u202e abc", "a" * 50,
]  # fmt: skip


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request) -> Path:
    if not request.param.exists():
        pytest.skip(f"{request.param} is not there")
    return request.param


def test_text_is_that_of_tokenizers(folder):
    decoder, tokenizer = TokenDecoder.load(str(folder)), Tokenizer.from_file(str(folder / "tokenizer.json"))

    @given(st.sampled_from(TEXTS) | st.text())
    def check(text):
        ids = tokenizer.encode(text).ids
        assert decoder.decode(np.array(ids, np.int32)).text == tokenizer.decode(ids, skip_special_tokens=False)

    check()


def test_each_token_has_its_place(folder):
    decoder, tokenizer = TokenDecoder.load(str(folder)), Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in TEXTS:
        ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
        decoded = decoder.decode(ids)
        data, offsets = decoder.bytes_of(ids)
        data = data[decoder.strips_space and data.startswith(b" ") :]
        shift = int(offsets[-1]) - len(data)
        for start, stop, first, last in zip(decoded.starts, decoded.stops, offsets[:-1], offsets[1:], strict=True):
            own = data[max(first - shift, 0) : max(last - shift, 0)]
            # The characters that a token has a byte of, and no others.
            assert own in decoded.text[start:stop].encode()
            before, after = decoded.text[:start].encode(), decoded.text[:stop].encode()
            assert len(before) <= max(first - shift, 0) and max(last - shift, 0) <= len(after)
            assert not own or len(decoded.text[: start + 1].encode()) > max(first - shift, 0)
            assert not own or len(decoded.text[: stop - 1].encode()) < max(last - shift, 0)


def test_emoji_of_several_tokens_is_the_text_of_each_of_them():
    folder = SHARED / "tokenizers" / "llama3"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("水 👩!", add_special_tokens=False).ids
    decoded = TokenDecoder.load(str(folder)).decode(np.array(ids))
    shown = [decoded.text[start:stop] for start, stop in zip(decoded.starts, decoded.stops, strict=True)]
    assert shown == ["水", " 👩", "👩", "!"]


def test_text_that_was_cut_inside_a_character_keeps_the_bytes():
    ids = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).encode("水👩", add_special_tokens=False).ids
    decoded = TokenDecoder.load(str(TOKENIZER)).decode(np.array(ids[:-1]))
    assert decoded.text.encode("utf-8", "surrogateescape") == "水👩".encode()[:-1]
    assert decoded.stops.tolist()[-1] == len(decoded.text)


def test_unknown_ids_are_replacement_characters():
    decoded = TokenDecoder.load(str(TOKENIZER)).decode(np.array([-1, 10**9]))
    assert (decoded.text, decoded.starts.tolist(), decoded.stops.tolist()) == ("\ufffd\ufffd", [0, 1], [1, 2])


def test_added_tokens_of_all_files_are_known(tmp_path):
    shutil.copytree(TOKENIZER, tmp_path, dirs_exist_ok=True)
    size = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).get_vocab_size()
    config = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {str(size): {"content": "<|call|>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|é fin|>": size + 1}))
    decoder, ids = TokenDecoder.load(str(tmp_path)), np.array([size, size + 1, 5])
    assert decoder.decode(ids[:2]).text == "<|call|><|é fin|>"
    assert decoder.is_added(ids).tolist() == [True, True, False]


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
        found = TokenDecoder.load(str(tmp_path)).decode(np.array(ids)).text
        assert found == tokenizer.decode(ids, skip_special_tokens=False)


def test_decoder_of_a_loaded_tokenizer_is_that_of_its_files(folder):
    tokenizer, decoder = load_tokenizer(str(folder)), TokenDecoder.load(str(folder))
    for text in TEXTS:
        ids = np.array(tokenizer.encode(text), np.int32)
        again = TokenDecoder.of_tokenizer(tokenizer, ids)
        assert again.decode(ids).text == decoder.decode(ids).text
        assert again.decode(ids).starts.tolist() == decoder.decode(ids).starts.tolist()
        assert again.is_added(ids).tolist() == decoder.is_added(ids).tolist()
    unknown = np.array([-1, 1 << 30], np.int64)
    assert TokenDecoder.of_tokenizer(tokenizer, unknown).decode(unknown).text == "\ufffd\ufffd"


def test_decoder_for_some_ids_uses_the_tokenizer_if_it_is_loaded_from_anywhere(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    tokenizer = load_tokenizer(str(folder))
    ids = np.array(tokenizer.encode("Hello 家族"), np.int32)
    loaded = TokenDecoder.load_for(str(copy), ids)
    assert len(loaded.added) <= max(ids) + 2  # it has no more than these ids
    assert loaded.decode(ids).text == TokenDecoder.load(str(folder)).decode(ids).text
    with open(copy / "tokenizer_config.json", "a") as file:  # other files: nobody has loaded them
        file.write(" ")
    other = TokenDecoder.load_for(str(copy), ids)
    assert len(other.added) > max(ids) + 2
    assert other.decode(ids).text == loaded.decode(ids).text
