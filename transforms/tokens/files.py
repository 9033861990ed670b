"""The files of a tokenizer: which of a folder's they are, and their fingerprint."""

from __future__ import annotations

import fnmatch
import hashlib

from transforms.errors import ParameterError
from transforms.storage.files import join, names_below, read_bytes

# What transformers reads of a model's folder to load a tokenizer; never weights, never code.
TOKENIZER_FILES = (
    "tokenizer*.json", "tokenizer.model*", "*.model", "*.spm", "*.tiktoken", "tekken.json", "vocab*", "merges.txt",
    "special_tokens_map.json", "added_tokens.json", "config.json", "chat_template*", "*.jinja",
    "additional_chat_templates/*.jinja",
)  # fmt: skip


def read_tokenizer_folder(folder: str) -> dict[str, bytes]:
    """Read the files of a tokenizer.

    Args:
        folder: its folder, at any url that fsspec opens.

    Returns:
        The content of each file, by its name relative to the folder.

    Raises:
        ParameterError: if there are none.
    """
    names = [name for name in names_below(folder) if any(fnmatch.fnmatch(name, known) for known in TOKENIZER_FILES)]
    if not names:
        raise ParameterError("tokenizer", folder, "there is no tokenizer there; expected a folder with tokenizer.json.")
    return {name: read_bytes(join(folder, name)) for name in names}


def fingerprint(files: dict[str, bytes]) -> str:
    """sha256 of names and contents of files."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()
