"""Artifacts: the tokenizer, the template and the evaluation sets of a job, read to be stored next to the output."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from posixpath import commonprefix, dirname
from typing import Any, NamedTuple

import msgspec
from jinja2 import TemplateSyntaxError

from pipeline.cli.console import show, show_phase
from pipeline.config import Options, is_template
from pipeline.recipe import Source
from transforms.base.errors import ParameterError, StoreError, Unavailable, UserError
from transforms.chat.rendering.transformers_jinja import compile_template
from transforms.contamination.texts import encode_evaluations, evaluation_of
from transforms.dataset.layout import Folder
from transforms.inputs.formats import input_format
from transforms.inputs.formatter import load_formatter
from transforms.inputs.listing import list_inputs
from transforms.inputs.tasks import tasks_of
from transforms.model.batches import Task
from transforms.storage.files import join, kind_of, read_bytes
from transforms.storage.retries import is_transient
from transforms.storage.walking import names_below
from transforms.storage.writing import remove, write_atomically
from transforms.tokens.tokenizer_files import TOKENIZER_FILES, fingerprint, read_tokenizer_folder

# Printed of a stored file.
DAMAGED = "warning: {} was damaged, and is written again"


class Artifacts(NamedTuple):
    """What workers need besides the job.

    tokenizer: the content of its files, by name. formatters: the source of each that is a file, by the number of the
    source that it is for; None for all. evaluations: of read_evaluation_sets; None if there are none.
    """

    tokenizer: dict[str, bytes]
    formatters: Mapping[int | None, bytes]
    evaluations: bytes | None = None

    def formatter_hashes(self) -> dict[int | None, str | None]:
        """Return the sha256 of each formatter, by the number of its source."""
        return {number: hashlib.sha256(content).hexdigest() for number, content in self.formatters.items()}

    def files(self, folder: Folder) -> dict[str, bytes]:
        """Return the content of each file to store, by its url. folder: of the dataset."""
        tokenizer = folder.tokenizer(fingerprint(self.tokenizer))
        files = {join(tokenizer, name): content for name, content in self.tokenizer.items()}
        for content in self.formatters.values():
            files[folder.formatter(hashlib.sha256(content).hexdigest())] = content
        if self.evaluations is not None:
            files[folder.evaluations(hashlib.sha256(self.evaluations).hexdigest())] = self.evaluations
        return files


def read_artifacts(options: Options, sources: Sequence[Source]) -> Artifacts:
    """Read the tokenizer, the formatters and the evaluation sets.

    Args:
        options: of the build.
        sources: of read_sources.

    Raises:
        UserError: if one of them is not there, or of no use.
        Unavailable: if a store or the hub does not answer.
    """
    show_phase(f"reading the tokenizer {options.tokenizer}")
    tokenizer = read_tokenizer_files(options.tokenizer)
    evaluations = read_evaluation_sets(options.decontaminate) if options.decontaminate else None
    formatters: dict[int | None, bytes | None] = {None: _formatter_source(options.formatter)}
    for number, source in enumerate(sources):
        if source.own.get("formatter"):
            with source.named_in_errors():
                formatters[number] = _formatter_source(source.options.formatter)
    files = {number: content for number, content in formatters.items() if content is not None}
    return Artifacts(tokenizer, files, evaluations)


def _formatter_source(name: str | None) -> bytes | None:
    """The source of a formatter that is a file, to be stored next to the output. Workers import one in a module."""
    if name is None:
        return None
    load_formatter(name)
    module = name.rpartition(":")[0]
    return read_bytes(module) if module.endswith(".py") else None


def store(artifacts: Artifacts, folder: Folder) -> None:
    """Store what workers need, except what is there, and remove other files from the folders.

    Args:
        artifacts: of read_artifacts.
        folder: of the dataset.
    """
    files = artifacts.files(folder)
    folders = {dirname(url) for url in files if not url.endswith(".py")}
    others = [url for each in folders for name in names_below(each) if (url := join(each, name)) not in files]
    for url in others:
        remove(url)
        show(DAMAGED.format(url))
    for url, content in files.items():
        try:
            name = url.rpartition("/")[2]
            if fingerprint({name: read_bytes(url)}) == fingerprint({name: content}):  # of some only a part matters
                continue
            show(DAMAGED.format(url))
        except FileNotFoundError:
            pass
        write_atomically(url, content)


def read_tokenizer_files(name: str) -> dict[str, bytes]:
    """Read the files of a tokenizer.

    Args:
        name: a folder, a url, or the name of a repository on the Hugging Face hub.

    Returns:
        The content of each file by its name.

    Raises:
        UserError: if there is no tokenizer, or its store refuses to give it.
        Unavailable: if its store or the hub does not answer.
    """
    if "://" in name or os.path.exists(name) or name.startswith((".", "/", "~")):
        folder = os.path.expanduser(name)
    else:
        folder = _downloaded(name)
    try:
        return read_tokenizer_folder(folder)
    except UserError:
        raise
    except StoreError as error:
        raise error.as_user_error(f"--tokenizer {error}") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"--tokenizer {name}: {error}.") from None


def check_tokenizer(folder: str, name: str) -> Any:
    """Load the tokenizer from a folder, as workers will. Raises UserError, with its option's name, if that fails."""
    from transforms.tokens.tokenizer import load_tokenizer

    try:
        return load_tokenizer(folder)
    except StoreError as error:
        raise error.as_user_error(f"--tokenizer {error}") from None
    except Exception as error:  # transformers raises any type for files that it does not understand
        raise UserError(f"--tokenizer {name}: it cannot be loaded ({_first_line(error)}).") from None


def check_stop_tokens(texts: Sequence[str], tokenizer: Any) -> None:
    """Check that a vocabulary can express stop tokens.

    Args:
        texts: the value of --eot_tokens.
        tokenizer: the tokenizer, as transformers loads it.

    Raises:
        UserError: if it has no tokens for one of them.
    """
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if not ids or tokenizer.unk_token_id in ids:
            raise UserError(f"--eot_tokens {text}: the tokenizer has no tokens for this text.")


def check_configured_stop_tokens(folder: str, name: str) -> None:
    """Check that workers can read the stop tokens of a tokenizer, if --eot_tokens does not give them.

    Args:
        folder: of the tokenizer.
        name: the value of --tokenizer.

    Raises:
        UserError: if its generation_config.json is not valid.
    """
    from transforms.chat.spans.stop_tokens import configured_stop_tokens

    try:
        configured_stop_tokens(folder)
    except ParameterError as error:
        raise UserError(f"--tokenizer {name}: {error.problem}") from None


def unknown_stop_tokens(texts: Sequence[str], tokenizer: Any, template: str | None) -> list[str]:
    """Find stop tokens that may be mistyped: those that have no added token in them and are not in the template's text.

    Args:
        texts: the value of --eot_tokens.
        tokenizer: the tokenizer, as transformers loads it.
        template: the text of the template, None for the tokenizer's own.
    """
    printed, added = str(template or tokenizer.chat_template), tokenizer.get_added_vocab()
    return [text for text in texts if text not in printed and not any(token in text for token in added)]


def resolve_template(value: str | None, tokenizer: Any) -> str | None:
    """Find the text of the chat template.

    Args:
        value: the value of --chat_template: a template, its url, or the name of one of the tokenizer's; or None.
        tokenizer: the tokenizer, as transformers loads it.

    Returns:
        The text of the template, None for the tokenizer's own.

    Raises:
        UserError: if there is no such template, or its syntax is wrong.
        Unavailable: if its store does not answer.
    """
    if value is None:
        return None
    own = tokenizer.chat_template
    named = {name: text for name, text in (own if isinstance(own, dict) else {"default": own}).items() if text}
    if is_template(value):
        template = value
    elif value in named:
        template = named[value]
    else:
        template = _read_template(value, list(named))
    _check_syntax(template, value if template is not value else "TEMPLATE")
    return template


def _read_template(url: str, names: list[str]) -> str:
    """Read a template from a file or url. names: those of the tokenizer's own templates, for the error."""
    try:
        if kind_of(url):
            return read_bytes(url).decode()
    except StoreError as error:
        raise error.as_user_error(f"--chat_template {error}") from None
    except UnicodeDecodeError:
        raise UserError(f"--chat_template {url}: the file is not UTF-8 text.") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"--chat_template {url}: {error}.") from None
    known = f"only {', '.join(names)}" if names else "none at all"
    raise UserError(
        f"--chat_template {url}: there is no such file, and the tokenizer has no template of that name ({known})."
    )


def _check_syntax(template: str, name: str) -> None:
    try:
        compile_template(template)
    except TemplateSyntaxError as error:
        raise UserError(f"--chat_template {name}: line {error.lineno}: {error.message}.") from None
    except (RecursionError, MemoryError, SyntaxError):  # SyntaxError is of the Python that Jinja makes of it
        raise UserError(f"--chat_template {name}: its blocks or expressions are nested too deeply.") from None


def _downloaded(name: str) -> str:
    """The folder in the hub's cache with a repository's tokenizer files, which are downloaded if they are not there."""
    from huggingface_hub import constants, snapshot_download

    try:
        return snapshot_download(name, allow_patterns=list(TOKENIZER_FILES))
    except Exception as error:  # of the hub's client, of its HTTP library, or of the system
        raise (Unavailable if is_transient(error) and not constants.HF_HUB_OFFLINE else UserError)(
            f"--tokenizer {name}: there is no such folder, and it cannot be downloaded from the Hugging Face hub "
            f"({_first_line(error)})."
        ) from None


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def read_evaluation_sets(patterns: Sequence[str]) -> bytes:
    """Read evaluation sets, in any format that inputs may have.

    Args:
        patterns: the value of --decontaminate: files, folders, globs, or datasets on the Hub that have one split.

    Returns:
        The content of the file to store. Files are named as they are below the folder that they have in common, so that
        it is the same wherever they are.

    Raises:
        UserError: if a pattern names no file, or a record cannot be read.
        Unavailable: if a store does not answer.
    """
    files = list_inputs(list(patterns), parameter="decontaminate", splits=None)
    above = "".join(f"{folder}/" for folder in commonprefix([dirname(file.url).split("/") for file in files]))
    try:
        found = [
            evaluation_of(f"{url.removeprefix(above)}:{position}", record)
            for task in tasks_of(files, max(file.unpacked_bytes for file in files))
            for url, position, record in _records_of(task)
        ]
    except StoreError as error:
        raise error.as_user_error(f"--decontaminate {error}") from None
    return encode_evaluations(found)


def _records_of(task: Task) -> Iterator[tuple[str, int, Any]]:
    """Yield the records of a task: the url of the file of each, its position there, and itself."""
    from transforms.steps.read import CHUNK_BYTES, read_task  # which imports Beam

    for batch in read_task(task, CHUNK_BYTES):
        for reject in batch.outcomes.rejects:
            raise _unreadable(task, reject.position, reject.detail)
        for record in batch.records:
            piece, position = task.origin(record.position)
            try:
                fields = msgspec.json.decode(record.raw) if isinstance(record.raw, bytes) else record.raw
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise _unreadable(task, record.position, f"it is not JSON: {error}") from None
            yield piece.url, position, fields


def _unreadable(task: Task, position: int, problem: str) -> UserError:
    piece, position = task.origin(position)
    where = f"{piece.url}, {input_format(piece.format).position_unit} {position:,}"
    return UserError(
        f"--decontaminate: a record of an evaluation set cannot be read ({where}): {problem}. Correct it, or leave it "
        "out."
    )
