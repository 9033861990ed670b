"""The files of a tokenizer: which of a folder's they are, and their fingerprint."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from transforms.base.errors import ParameterError
from transforms.storage.files import file_system, join, read_bytes
from transforms.storage.walking import names_below

# It names the stop tokens of a model.
GENERATION_CONFIG = "generation_config.json"
# What transformers reads of a model's folder to load a tokenizer, and the former; never weights, never code.
TOKENIZER_FILES = (
    "tokenizer*.json", "tokenizer.model*", "*.model", "*.spm", "*.tiktoken", "tekken.json", "vocab*", "merges.txt",
    "special_tokens_map.json", "added_tokens.json", "config.json", "chat_template*", "*.jinja",
    "additional_chat_templates/*.jinja", GENERATION_CONFIG,
)  # fmt: skip
TOKENIZER_JSON = "tokenizer.json"
_PICKLES = (".bin", ".pickle", ".pkl", ".pt", ".pth")
_MOST_BYTES = 1 << 30


def read_tokenizer_folder(folder: str) -> dict[str, bytes]:
    """Read the files of a tokenizer.

    Args:
        folder: its folder, at any url that fsspec opens.

    Returns:
        The content of each file, by its name relative to the folder.

    Raises:
        ParameterError: if there are none, or no tokenizer.json; if one is not a regular file of this folder, has more
            than 1 GiB, or may hold code.
    """
    names = [name for name in names_below(folder) if any(fnmatch.fnmatch(name, known) for known in TOKENIZER_FILES)]
    if not names:
        raise ParameterError("tokenizer", folder, "there is no tokenizer there; expected a folder with tokenizer.json.")
    if TOKENIZER_JSON not in names:
        how = "Convert it with AutoTokenizer.from_pretrained(OLD).save_pretrained(NEW), and give NEW, which has one."
        raise ParameterError("tokenizer", folder, f"it has no {TOKENIZER_JSON}. {how}")
    for name in names:
        if problem := _problem(folder, name):
            raise ParameterError("tokenizer", join(folder, name), problem)
    return {name: read_bytes(join(folder, name)) for name in names}


def _problem(folder: str, name: str) -> str | None:
    """Return why a file is not read, if it is not: what is read is copied next to the output."""
    if name.endswith(_PICKLES):
        return "it may be a pickle, which runs code when it is read. Save the tokenizer as tokenizer.json."
    system, path = file_system(folder)
    if not isinstance(system, LocalFileSystem):
        return None
    file, own = (Path(os.path.realpath(each)) for each in (os.path.join(path, name), path))
    # The hub's cache has the files of a snapshot in a folder next to that of all snapshots.
    is_blob = own.parent.name == "snapshots" and file.is_relative_to(own.parent.parent / "blobs")
    if not (file.is_relative_to(own) or is_blob):
        return "it is a link to a file outside of the tokenizer's folder. Copy the file into the folder."
    status = file.stat() if file.exists() else None
    if status is None or not stat.S_ISREG(status.st_mode):
        return "it is not a regular file (a broken link, a pipe or a device)."
    if status.st_size > _MOST_BYTES:
        return f"it has {status.st_size:,} bytes; files of tokenizers have at most {_MOST_BYTES:,}."
    return None


def fingerprint(files: dict[str, bytes]) -> str:
    """sha256 of names and contents of files; of generation_config.json only the stop tokens count."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        if name == GENERATION_CONFIG:
            content = _read_stop_tokens(content)
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def stop_token_ids(generation_config: Any) -> list[int]:
    """Return the ids of the stop tokens that generation_config.json names: one, several or none.

    Raises:
        ValueError: if it is not valid.
    """
    if not isinstance(generation_config, dict):
        raise ValueError("expected a JSON object")
    ids = generation_config.get("eos_token_id")
    ids = [] if ids is None else ids if isinstance(ids, list) else [ids]
    if not all(type(number) is int for number in ids):
        raise ValueError("eos_token_id: expected a number, or a list of numbers")
    return ids


def _read_stop_tokens(generation_config: bytes) -> bytes:
    """What of generation_config.json decides the rows; all of it if it is not valid."""
    try:
        return json.dumps(stop_token_ids(json.loads(generation_config))).encode()
    except ValueError:
        return generation_config
