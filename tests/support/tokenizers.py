"""Small tokenizers, trained for the tests; and of the large ones those that the lane has time for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from support.drawn import IS_FAST
from support.models import DEEPSEEK, MISTRAL, QWEN

LARGE = (DEEPSEEK, MISTRAL) if IS_FAST else (DEEPSEEK, MISTRAL, QWEN)
WORDS = ["The wheel turns", "when the rain comes", "<s>", "</s>", "<|im_end|>", "水車は回る。"]


def save_tokenizer(
    folder: Path, post_processor: Any = None, special_tokens: dict[str, str] | None = None, words: Sequence[str] = ()
) -> str:
    """Train a small byte-level BPE, save it in the format of transformers, and return its folder.

    The more words there are next to the usual ones, the larger is its vocabulary.
    """
    special_tokens = {"bos_token": "<s>", "eos_token": "</s>"} if special_tokens is None else special_tokens
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320 + 4 * len(words),
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator([*WORDS, *words] * 3, trainer)
    if post_processor is not None:
        bpe.post_processor = post_processor
    folder.mkdir(exist_ok=True)
    bpe.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers", **special_tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def with_special_tokens(tokenizer: Path, folder: Path, tokens: dict[str, str], more: Sequence[str] = ()) -> Path:
    """Save a tokenizer with special tokens besides its own, those that have names and more; return the folder."""
    shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in [*tokens.values(), *more]]
    )
    backend.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | tokens))
    return folder
