"""The job: everything that decides the bytes of a dataset, resolved once at launch and stored next to the output."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pipeline import __version__
from pipeline.console import as_typed, shortened
from pipeline.options import Options, is_template, option_name
from pipeline.sources import Source
from pipeline.tokenizer_files import read_tokenizer_files
from transforms.chat.config import MAX_TEXT_BYTES
from transforms.dataset.layout import Folder
from transforms.dataset.snapshot import Snapshot
from transforms.errors import UserError
from transforms.inputs.formats import MAX_RECORD_BYTES
from transforms.inputs.options import FORMATTER_SECONDS
from transforms.storage.files import exists, full_url, read_bytes
from transforms.tokens.files import fingerprint


class JobOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a build that decide what the rows are: those that a resumed build must have the same.

    Each field is the option of its name (see pipeline.options). A new option that changes rows needs a field here, with
    a default that stands for what older jobs did.
    """

    input_format: str
    schema: str
    columns: dict[str, str] | None
    roles: dict[str, str] | None
    formatter: str | None
    split_bytes: int | None
    chat_template_kwargs: dict[str, Any] | None
    strip_bos: bool
    loss_on: str
    parity: str
    max_length: int | None
    truncation: str
    packing: str
    shift_labels: bool
    validation_fraction: float
    seed: int
    output_format: tuple[str, ...]
    write_columns: tuple[str, ...] | None
    keep_columns: tuple[str, ...]
    provenance: bool
    message_fields: dict[str, str] | None = None
    train_field: str | None = None
    tool_arguments: str = "keep"
    eot_tokens: tuple[str, ...] = ()
    spans: str = "auto"
    after_end: str = "train"
    content_format: str = "auto"
    as_chat: bool = False
    unprinted: str = "report"
    special_tokens_in_content: str = "allow"
    consumer: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    max_text_bytes: int = MAX_TEXT_BYTES
    formatter_seconds: int = FORMATTER_SECONDS
    ledger: str = "none"
    at_prompt_end: str = "join"

    @classmethod
    def of(cls, options: Options) -> JobOptions:
        """Take these options from all those of a build."""
        return cls(**{name: getattr(options, name) for name in cls.__struct_fields__})

    def differences(self, now: JobOptions) -> Iterator[str]:
        """Describe each option that is not the same now."""
        for name in sorted(self.__struct_fields__):
            if (value := getattr(self, name)) != (new := getattr(now, name)):
                yield f"--{option_name(name)} was {as_typed(value)} and is {as_typed(new)}"


class JobSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source of records.

    options: those that are its own. formatter: sha256 of the file of its own formatter. input: the files, folders and
    globs that were given for it.
    """

    name: str
    options: dict[str, Any] = {}
    formatter: str | None = None
    input: tuple[str, ...] = ()


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker must know. The same job writes the same bytes, on any runner and with any number of workers.

    split_bytes: bytes of input in each split. now: what the template's strftime_now returns, if it is used.
    tokenizer, formatter: sha256 of the files that are stored next to the job. tokenizer_name: its option.
    chat_template: the text of the template, None for the tokenizer's own. inputs: sha256 of the list of input files.
    versions: of the libraries whose version may change the output. sources: by their numbers. recipe: builds the same
    dataset, into the output that it does not name; nothing depends on it.
    """

    options: JobOptions
    split_bytes: int
    now: str | None
    tokenizer: str
    tokenizer_name: str
    chat_template: str | None
    formatter: str | None
    inputs: str
    input_bytes: int
    splits: int
    versions: dict[str, str]
    sources: tuple[JobSource, ...] = (JobSource("input"),)
    recipe: dict[str, Any] = {}


_decode = msgspec.json.Decoder(Job).decode


def job_sources(sources: Sequence[Source], formatters: Mapping[int, bytes]) -> tuple[JobSource, ...]:
    """Return the sources of a job.

    Args:
        sources: those of the build.
        formatters: by the number of the source, the content of the file of its own formatter.
    """
    return tuple(
        JobSource(
            name=source.name,
            # As they will be read from job.json.
            options=msgspec.json.decode(msgspec.json.encode(source.own)),
            formatter=hashlib.sha256(formatters[number]).hexdigest() if number in formatters else None,
            input=tuple(source.options.input),
        )
        for number, source in enumerate(sources)
    )


# Options that change nothing in the rows, or are those of one run.
_OF_A_RUN = {
    "recipe", "output", "overwrite", "expire_replaced", "max_reject_fraction", "max_lost_fraction",
    "max_parity_fraction", "max_unprinted_fraction", "report", "engine", "summary_json", "runner", "detach", "append",
    "rewritten", "retry_failed",
}  # fmt: skip


def recipe_of(options: Options, sources: Sequence[Source], now: str | None) -> dict[str, Any]:
    """Return the recipe that builds the same dataset, as a mapping: for people, and for `chatmill recipe`.

    Args:
        options: of the build.
        sources: of the same.
        now: what the template's strftime_now returns, if it is used.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(Options):
        value = now if field.name == "now" else getattr(options, field.name)
        if field.name not in _OF_A_RUN and value != field.default:
            found[option_name(field.name)] = value
    found["tokenizer"] = _from_anywhere(options.tokenizer)
    if options.chat_template and not is_template(options.chat_template):
        found["chat_template"] = _from_anywhere(options.chat_template)
    if options.formatter:
        found["formatter"] = _formatter_from_anywhere(options.formatter)
    if options.sources:
        found["sources"] = [_entry(source) for source in sources]
    else:
        found["input"] = [*map(_absolute, options.input)]
    return msgspec.to_builtins(found)


def _entry(source: Source) -> dict[str, Any]:
    """A source, as a recipe has it."""
    entry = {"name": source.name, "input": [*map(_absolute, source.options.input)], **source.own}
    if source.own.get("formatter"):
        entry["formatter"] = _formatter_from_anywhere(source.options.formatter or "")
    return entry | ({"may_repeat": True} if source.may_repeat else {})


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _from_anywhere(name: str) -> str:
    """A name as it is, or the path of a file or folder that is here, so that it means the same elsewhere."""
    return _absolute(name) if os.path.exists(os.path.expanduser(name)) else name


def _formatter_from_anywhere(formatter: str) -> str:
    module, _, function = formatter.rpartition(":")
    return f"{_absolute(module) if module.endswith('.py') else module}:{function}"


def job_name(output: str) -> str:
    """The name on a cluster of the job for an output, so that a second job for the same output is found or refused."""
    url = full_url(output).rstrip("/")
    folder = re.sub("[^a-z0-9]+", "-", posixpath.basename(url).lower())[:40].strip("-")
    return "-".join(filter(None, ("chatmill", folder, hashlib.sha256(url.encode()).hexdigest()[:8])))


def encode_job(job: Job) -> bytes:
    """Return the content of job.json: JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(job), indent=2)


def read_job(folder: Folder) -> Job | None:
    """Read the job of an increment that was begun, None if there is none, or if its file is damaged.

    Raises:
        UserError: if it was written by another version of Chatmill, which this one does not understand, or by a
            pipeline of the user's own.
    """
    if not exists(folder.job):
        return None
    try:
        return _decode(read_bytes(folder.job))
    except msgspec.ValidationError as error:
        raise _not_ours(folder.job, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def job_of(folder: Folder, snapshot: Snapshot) -> Job:
    """Return the job that a dataset has. Raises as read_job does.

    Args:
        folder: of the dataset.
        snapshot: that has a version.
    """
    try:
        return msgspec.convert(snapshot.job, Job)
    except msgspec.ValidationError as error:
        raise _not_ours(folder.output, error) from None


def _not_ours(url: str, error: msgspec.ValidationError) -> UserError:
    return UserError(
        f"{url}: this job was not planned by chatmill build {__version__} ({shortened(str(error))}). Go on with the "
        "version or the pipeline that began it, give another --output, or --overwrite to replace it."
    )


def source_differences(before: Sequence[JobSource], now: Sequence[JobSource]) -> Iterator[str]:
    """Describe each source and each of its options that is not the same now."""
    names, new_names = ([source.name for source in sources] for sources in (before, now))
    if names != new_names:
        yield f"the sources were {as_typed(names)} and are {as_typed(new_names)}"
        return
    for source, new in zip(before, now, strict=True):
        for name in sorted(source.options.keys() | new.options.keys()):
            values = [as_typed(each.options[name]) if name in each.options else "not set" for each in (source, new)]
            if values[0] != values[1]:
                yield f"{name} of the source {source.name} was {values[0]} and is {values[1]}"


def differences_without_inputs(job: Job, options: Options, sources: Sequence[Source]) -> Iterator[str]:
    """Describe what differs between the job of a dataset and some options, as far as it shows without the inputs."""
    yield from job.options.differences(JobOptions.of(options))
    yield from source_differences(job.sources, job_sources(sources, {}))
    name = options.tokenizer
    if name != job.tokenizer_name and fingerprint(read_tokenizer_files(name)) != job.tokenizer:
        yield f"--tokenizer was {job.tokenizer_name} and is {name}"
    if (options.chat_template is None) != (job.chat_template is None):
        yield "--chat_template was " + ("given" if job.chat_template else "not given")


def differences_of_inputs(job: Job, sources: Sequence[Source]) -> Iterator[str]:
    """Describe which inputs differ between the job of a dataset and its sources now, as they are given, not listed."""
    for before, now in zip(job.sources, sources, strict=False):
        if before.input and before.input != tuple(now.options.input):
            yield f"{now.option('input')} was {as_typed(before.input)} and is {as_typed(now.options.input)}"


def differences(before: Job, now: Job) -> Iterator[str]:
    """Describe what differs between the job that an earlier build planned and the one that would be planned now."""
    yield from before.options.differences(now.options)
    if before.tokenizer != now.tokenizer:
        yield f"the tokenizer's files differ (--tokenizer was {before.tokenizer_name} and is {now.tokenizer_name})"
    if before.chat_template != now.chat_template:
        yield "the chat template differs"
    if before.formatter != now.formatter:
        yield "the formatter's file differs"
    yield from source_differences(before.sources, now.sources)
    for source, new in zip(before.sources, now.sources, strict=False):
        if source.formatter != new.formatter and source.options == new.options:
            yield f"the file of the formatter of the source {source.name} differs"
    if before.now != now.now:
        yield f"--now was {before.now} and is {now.now}"
    for library in now.versions:
        if before.versions.get(library) != now.versions[library]:
            yield f"{library} was {before.versions.get(library)} and is {now.versions[library]}"
