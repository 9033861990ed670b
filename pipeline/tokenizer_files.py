"""The files of the tokenizer and the text of the chat template, found once at launch and written beside the output."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from typing import Any

from pipeline.options import is_template
from transforms.errors import StoreError, Unavailable, UserError
from transforms.storage.files import join, kind_of, names_below, read_bytes
from transforms.storage.retries import is_transient

# What transformers reads of a model's folder to make a tokenizer; never weights, never code.
_PATTERNS = (
    "tokenizer*.json", "tokenizer.model*", "*.model", "*.spm", "*.tiktoken", "tekken.json", "vocab*", "merges.txt",
    "special_tokens_map.json", "added_tokens.json", "config.json", "chat_template*", "*.jinja",
    "additional_chat_templates/*.jinja",
)  # fmt: skip


def read_tokenizer_files(name: str) -> dict[str, bytes]:
    """The files of a tokenizer, by their names: of a folder, a url, or a repository of the Hugging Face hub.

    Raises UserError where there are none.
    """
    if "://" in name or os.path.exists(name) or name.startswith((".", "/", "~")):
        folder = os.path.expanduser(name)
    else:
        folder = _downloaded(name)
    try:
        names = [file for file in names_below(folder) if any(fnmatch.fnmatch(file, pattern) for pattern in _PATTERNS)]
        files = {file: read_bytes(join(folder, file)) for file in names}
    except StoreError as error:
        raise error.as_user_error(f"--tokenizer {error}") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"--tokenizer {name}: {error}.") from None
    if not files:
        raise UserError(f"--tokenizer {name}: there is no tokenizer there; expected a folder with tokenizer.json.")
    return files


def fingerprint(files: dict[str, bytes]) -> str:
    """sha256 of names and contents."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def check_tokenizer(folder: str, name: str) -> Any:
    """The tokenizer of the files in a folder, loaded as workers will. Raises UserError where it cannot be."""
    from transforms.tokens.tokenizer import load_tokenizer

    try:
        return load_tokenizer(folder)
    except StoreError as error:
        raise error.as_user_error(f"--tokenizer {error}") from None
    except Exception as error:  # transformers raises what it likes over files that it does not understand
        raise UserError(f"--tokenizer {name}: it cannot be loaded ({_first_line(error)}).") from None


def resolve_template(given: str | None, tokenizer: Any) -> str | None:
    """The text of the chat template that was asked for; None for the tokenizer's own. Raises UserError."""
    if given is None:
        return None
    held = (
        tokenizer.chat_template if isinstance(tokenizer.chat_template, dict) else {"default": tokenizer.chat_template}
    )
    if is_template(given):
        template = given
    elif held.get(given):
        template = held[given]
    else:
        template = _read_template(given, [name for name, text in held.items() if text])
    _check_syntax(template, given if template is not given else "TEMPLATE")
    return template


def _read_template(url: str, held: list[str]) -> str:
    try:
        if kind_of(url):
            return read_bytes(url).decode()
    except StoreError as error:
        raise error.as_user_error(f"--chat_template {error}") from None
    except UnicodeDecodeError:
        raise UserError(f"--chat_template {url}: the file is not UTF-8 text.") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"--chat_template {url}: {error}.") from None
    names = f" (it holds {', '.join(held)})" if held else ""
    raise UserError(
        f"--chat_template {url}: there is no such file, nor does the tokenizer hold a template of that name{names}."
    )


def _check_syntax(template: str, name: str) -> None:
    from jinja2 import TemplateSyntaxError

    from transforms.chat.transformers_jinja import compile_template

    try:
        compile_template(template)
    except TemplateSyntaxError as error:
        raise UserError(f"--chat_template {name}: line {error.lineno}: {error.message}.") from None


def _downloaded(name: str) -> str:
    """The folder in the hub's cache to which a repository's tokenizer files were fetched, or were before."""
    from huggingface_hub import constants, snapshot_download

    try:
        return snapshot_download(name, allow_patterns=list(_PATTERNS))
    except Exception as error:  # the hub's client raises its own, those of its HTTP library and those of the system
        raise (Unavailable if is_transient(error) and not constants.HF_HUB_OFFLINE else UserError)(
            f"--tokenizer {name}: there is no such folder, and the hub does not give it ({_first_line(error)})."
        ) from None


def _first_line(error: Exception) -> str:
    said = str(error).strip()
    return said.splitlines()[0] if said else type(error).__name__
