"""Artifacts: the tokenizer, the formatters and the evaluation sets of a job, read to be stored next to the output."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from posixpath import commonprefix, dirname
from typing import Any, NamedTuple

import msgspec

from pipeline.cli.console import show, show_phase
from pipeline.config import Options
from pipeline.recipe import Source
from pipeline.tokenizer import read_tokenizer_files
from transforms.base.errors import UserError, before_the_work
from transforms.contamination.texts import encode_evaluations, evaluation_of
from transforms.dataset.layout import Folder
from transforms.files.formats import input_format
from transforms.files.listing import list_inputs
from transforms.files.tasks import tasks_of
from transforms.model.batches import Task
from transforms.records.formatter import load_formatter
from transforms.storage.files import join, read_bytes
from transforms.storage.walking import names_below
from transforms.storage.writing import remove, write_atomically
from transforms.tokens.tokenizer_files import fingerprint

# Printed of a stored file.
DAMAGED = "warning: {} was corrupted; rewritten"


class Artifacts(NamedTuple):
    """What workers need besides the job.

    tokenizer: the content of its files, by name. formatters: the source of each that is a file, by the number of the
    source that it is for; None for all. evaluations: of _read_evaluation_sets; None if there are none.
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
    evaluations = _read_evaluation_sets(options.decontaminate) if options.decontaminate else None
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


def _read_evaluation_sets(patterns: Sequence[str]) -> bytes:
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
    with before_the_work("--decontaminate "):
        return encode_evaluations(
            evaluation_of(f"{url.removeprefix(above)}:{position}", record)
            for task in tasks_of(files, max(file.unpacked_bytes for file in files))
            for url, position, record in _records_of(task)
        )


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
