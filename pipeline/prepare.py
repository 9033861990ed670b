"""Prepare: resolve inputs, tokenizer, template and formatter to a job, and store what workers need."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pipeline.console import shortened
from pipeline.job import Job, JobOptions, differences, read_job, write_job
from pipeline.options import Options
from pipeline.plan import decode_plan, encode_plan
from pipeline.tokenizer_files import check_tokenizer, read_tokenizer_files, resolve_template
from transforms.chat.template import NO_TEMPLATE, ChatTemplate, reads_clock
from transforms.chat.turns import TurnFinder
from transforms.dataset.description import library_versions
from transforms.dataset.layout import PARTS, Folder, check_free
from transforms.errors import RecordError, StoreError, UserError
from transforms.inputs.formats import input_format
from transforms.inputs.listing import InputFile, list_inputs
from transforms.inputs.splits import default_split_bytes, splits_of
from transforms.model.batches import Split
from transforms.model.examples import Conversation, Record
from transforms.steps.parse import Parser, load_formatter
from transforms.steps.read import read_split
from transforms.storage.files import is_inside, join, read_bytes, remove, write_atomically
from transforms.tokens.files import fingerprint

_PEEKED_BYTES = 1 << 16
_ON_TURNS = ("auto", "assistant", "last_assistant")


def prepare(options: Options, folder: Folder) -> Job:
    """Plan a job and store it in its folder, or find it there unfinished.

    Args:
        options: the options of the build.
        folder: the folder of the dataset.

    Returns:
        The job to run.

    Raises:
        UserError: if the options cannot be met, or the folder holds another job or something else.
        Unavailable: if a store does not answer.
    """
    files = list_inputs(options.input, options.input_format, parameter="input")
    for file in files:
        if is_inside(file.url, folder.output) and any(is_inside(file.url, join(folder.output, part)) for part in PARTS):
            raise UserError(
                f"--input {file.url}: it is part of the dataset in --output, which the build would replace. "
                "Give another --output."
            )
    tokenizer_files = read_tokenizer_files(options.tokenizer)
    formatter = _formatter_source(options.formatter)
    check_free(folder, options.overwrite)
    try:
        if options.overwrite:
            _remove(folder, PARTS)
        before = read_job(folder)
        if before is None:
            _remove(folder, ["_chatmill"])
            for name, content in tokenizer_files.items():
                write_atomically(join(folder.tokenizer, name), content)
        try:
            job = _resolve(options, folder, files, fingerprint(tokenizer_files), formatter, before)
        except UserError:
            if before is None:
                _remove(folder, ["_chatmill"])
            raise
        if before is None:
            if formatter is not None:
                write_atomically(folder.formatter, formatter)
            write_atomically(folder.plan, encode_plan(files))
            write_job(folder, job)
    except StoreError as error:
        raise error.as_user_error(f"--output {options.output}: it cannot be written ({error.reason}).") from None
    except OSError as error:
        raise UserError(f"--output {options.output}: it cannot be written ({error}).") from None
    if before is not None and (changed := [*differences(before, job), *_changed_files(folder, files)]):
        raise UserError(
            f"{folder.output} holds an unfinished dataset that was begun with other options or inputs: "
            f"{'; '.join(changed)}. Use the earlier ones to resume it, give another --output, or --overwrite to "
            "replace it."
        )
    return job


def _resolve(
    options: Options,
    folder: Folder,
    files: Sequence[InputFile],
    tokenizer_fingerprint: str,
    formatter: bytes | None,
    before: Job | None,
) -> Job:
    tokenizer = check_tokenizer(folder.tokenizer, options.tokenizer)
    template = resolve_template(options.chat_template, tokenizer)
    total = sum(file.bytes for file in files)
    split_bytes = options.split_bytes or default_split_bytes(total)
    _check_first_conversation(options, files, tokenizer, template)
    now = options.now
    if now is None and reads_clock(template or tokenizer.chat_template):
        now = before.now if before else datetime.now().replace(microsecond=0).isoformat()
    return Job(
        options=JobOptions.of(options),
        split_bytes=split_bytes,
        now=now,
        tokenizer=tokenizer_fingerprint,
        tokenizer_name=options.tokenizer,
        chat_template=template,
        formatter=None if formatter is None else hashlib.sha256(formatter).hexdigest(),
        inputs=hashlib.sha256(encode_plan(files)).hexdigest(),
        input_bytes=total,
        splits=sum(1 for _ in splits_of(files, split_bytes)),
        versions=library_versions(),
    )


def _formatter_source(name: str | None) -> bytes | None:
    """The source of a formatter that is a file, to be stored next to the output. Workers import one in a module."""
    if name is None:
        return None
    load_formatter(name)
    module = name.rpartition(":")[0]
    return read_bytes(module) if module.endswith(".py") else None


def _check_first_conversation(
    options: Options, files: Sequence[InputFile], tokenizer: Any, template: str | None
) -> None:
    """Raise UserError if the first record is a conversation and there is no chat template.

    If its mask cannot be established, others may have the same problem, so a warning is printed before the work.
    """
    parser = Parser(options.schema, options.columns, options.roles, options.formatter)
    first = next(splits_of(files[:1], _PEEKED_BYTES))
    for record in _records_of(first):
        try:
            content = parser.parse(record).content
        except RecordError:
            continue
        if not isinstance(content, Conversation):
            return
        if template is None and tokenizer.chat_template is None:
            raise UserError(f"--tokenizer {options.tokenizer}: {NO_TEMPLATE}: give it with --chat_template.")
        moment = datetime.fromisoformat(options.now) if options.now else datetime.now()
        finder = TurnFinder(ChatTemplate(tokenizer, template, options.chat_template_kwargs, moment))
        try:
            if options.loss_on in _ON_TURNS and content.completion_start is None:
                finder.assistant_spans(content)
        except RecordError as error:
            name = shortened(options.chat_template or f"of {options.tokenizer}")
            unit = input_format(first.format).position_unit
            print(
                f"chatmill: warning: with the chat template {name}, the first conversation ({first.url}, {unit} "
                f"{record.position:,}) would be rejected: {error.detail}. Others may be rejected for the same reason.",
                file=sys.stderr,
            )
        return


def _records_of(split: Split) -> Sequence[Record]:
    """The records of a split's first part. Raises UserError or Unavailable if its store does not give them."""
    try:
        return next(read_split(split, _PEEKED_BYTES)).records
    except StoreError as error:
        raise error.as_user_error(f"--input {error}") from None


def _remove(folder: Folder, parts: Sequence[str]) -> None:
    for part in parts:
        remove(join(folder.output, part))


def _changed_files(folder: Folder, files: Sequence[InputFile]) -> Iterator[str]:
    """Describe the first input file that is not as it was when the job was planned."""
    before: dict[str, Any] = {file.url: file for file in decode_plan(read_bytes(folder.plan))}
    now = {file.url: file for file in files}
    for url in [*before, *(now.keys() - before.keys())]:
        if before.get(url) != now.get(url):
            yield f"{url} was {'added' if url not in before else 'removed' if url not in now else 'changed'}"
            return
