"""The job: everything that decides the bytes of a dataset, resolved once at launch and stored next to the output."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipeline.artifacts import read_tokenizer_files
from pipeline.cli.console import as_typed, shortened
from pipeline.config import Options, RowOptions, is_template, option_name
from pipeline.recipe import Source
from transforms.base.errors import UserError
from transforms.base.options import options_in, values_of
from transforms.base.version import __version__
from transforms.corpus import mix
from transforms.corpus.mix import Mix
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Version
from transforms.inputs.hub.names import hub_name, in_full
from transforms.inputs.listing import InputFile
from transforms.storage.files import read_bytes
from transforms.storage.hub.urls import hub_file
from transforms.tokens.tokenizer_files import fingerprint


class JobSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source of records.

    options: those that are its own. formatter: sha256 of the file of its own formatter. input: the files, folders and
    globs that were given for it.
    """

    name: str
    options: dict[str, Any] = {}
    formatter: str | None = None
    input: tuple[str, ...] = ()


class JobEvaluations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The evaluation sets that records are compared with.

    sha256: of the file that is stored next to the job. records: of the sets. too_short: those of them of which no text
    has enough words. runs: the different runs of words that are looked for. in_templates: those that are not, since so
    many records have them.
    """

    sha256: str
    records: int
    too_short: int
    runs: int
    in_templates: int


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker must know. The same job writes the same bytes, on any runner and with any number of workers.

    split_bytes: bytes of input in each task. now: what the template's strftime_now returns, if it is used.
    tokenizer, formatter: sha256 of the files that are stored next to the job. tokenizer_name: of tokenizer_name.
    chat_template: the text of the template, None for the tokenizer's own. inputs: sha256 of the list of input files.
    versions: of the libraries whose version may change the output. sources: by their numbers. recipe: builds the same
    dataset, into the output that it does not name; nothing depends on it. evaluations: if there are any.
    """

    options: RowOptions
    split_bytes: int
    now: str | None
    tokenizer: str
    tokenizer_name: str
    chat_template: str | None
    formatter: str | None
    inputs: str
    input_bytes: int
    unpacked_bytes: int
    tasks: int
    versions: dict[str, str]
    sources: tuple[JobSource, ...] = (JobSource("input"),)
    recipe: dict[str, Any] = {}
    evaluations: JobEvaluations | None = None


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


def recipe_of(
    options: Options, sources: Sequence[Source], now: str | None, files: Sequence[InputFile]
) -> dict[str, Any]:
    """Return the recipe that builds the same dataset, as a mapping: for people, and for recipe.yaml.

    Args:
        options: of the build.
        sources: of the same.
        now: what the template's strftime_now returns, if it is used.
        files: the inputs, with the commits of those on the Hub.
    """
    commits = [
        {file.repository: file.commit for of in files if of.source == number and (file := hub_file(of.url))}
        for number in range(len(sources))
    ]
    found: dict[str, Any] = {
        option_name(field.name): getattr(options, field.name)
        for field in options_in(RowOptions)
        if getattr(options, field.name) != field.default
    }
    if now is not None:
        found["now"] = now
    found["tokenizer"] = _from_anywhere(options.tokenizer)
    if options.chat_template and not is_template(options.chat_template):
        found["chat_template"] = _from_anywhere(options.chat_template)
    if options.formatter:
        found["formatter"] = _formatter_from_anywhere(options.formatter)
    if options.decontaminate:
        found["decontaminate"] = [
            path if hub_name(in_full(path)) else _absolute(path) for path in options.decontaminate
        ]
    if options.sources:
        found["sources"] = [_entry(source, of) for source, of in zip(sources, commits, strict=True)]
    else:
        found["input"] = [_pinned(path, commits[0]) for path in sources[0].options.input]
    return msgspec.to_builtins(found)


def _entry(source: Source, commits: Mapping[str, str]) -> dict[str, Any]:
    """A source, as a recipe has it. commits: of the repositories on the Hub."""
    inputs = [_pinned(path, commits) for path in source.options.input]
    entry = {"name": source.name, "input": inputs, **source.own}
    if source.own.get("formatter"):
        entry["formatter"] = _formatter_from_anywhere(source.options.formatter or "")
    return entry | ({"may_repeat": True} if source.may_repeat else {})


def _pinned(path: str, commits: Mapping[str, str]) -> str:
    """An input that means the same elsewhere and later. commits: of the repositories on the Hub."""
    name = hub_name(path)
    return name._replace(revision=commits.get(name.repository, name.revision)).url if name else _absolute(path)


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _from_anywhere(name: str) -> str:
    """A name as it is, or the path of a file or folder that is here, so that it means the same elsewhere."""
    return _absolute(name) if os.path.exists(os.path.expanduser(name)) else name


def _formatter_from_anywhere(formatter: str) -> str:
    module, _, function = formatter.rpartition(":")
    return f"{_absolute(module) if module.endswith('.py') else module}:{function}"


def encode_job(job: Job) -> bytes:
    """Return the content of job.json: JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(job), indent=2)


def read_job(folder: Folder) -> Job | None:
    """Read the job of an increment that was begun, None if there is none, or if its file is damaged.

    Raises:
        UserError: if it was written by another version of Chatmill, which this one does not understand, or by a
            custom pipeline.
    """
    try:
        return _job(folder.job, msgspec.json.decode(read_bytes(folder.job)))
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):  # another run may just have committed it
        return None


def job_of(folder: Folder, version: Version) -> Job:
    """Return the job that a dataset has. Raises as read_job does.

    Args:
        folder: of the dataset.
        version: of the dataset.
    """
    return _job(folder.output, version.job)


def _job(url: str, content: Any) -> Job:
    """The job of the content of a job.json."""
    try:
        job = msgspec.convert(content, Job)
        if unknown := content["options"].keys() - values_of(RowOptions, job.options).keys():
            raise msgspec.ValidationError(f"unknown options: {', '.join(sorted(unknown))}")
    except msgspec.ValidationError as error:
        raise _not_ours(url, error) from None
    return job


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


def mix_of(options: RowOptions, sources: Sequence[JobSource]) -> Mix | None:
    """Return the mix of a job; None if each record of each source is to be there once.

    Args:
        options: of the job.
        sources: of the same, with options of their own.
    """
    return mix.mix_of(values_of(RowOptions, options), [(source.name, source.options) for source in sources])


def row_options_of(options: Options) -> RowOptions:
    """Return those of the options of a build that decide what the rows are."""
    return RowOptions(**values_of(RowOptions, options))


def _option_differences(before: RowOptions, now: RowOptions) -> Iterator[str]:
    """Describe each option that is not the same now."""
    values = values_of(RowOptions, now)
    for name, value in sorted(values_of(RowOptions, before).items()):
        if value != values[name]:
            yield f"--{option_name(name)} was {as_typed(value)} and is {as_typed(values[name])}"


def tokenizer_name(given: str) -> str:
    """Return the name of a tokenizer; it begins with a dot if it is a folder below this one, and no name on the Hub."""
    is_folder = "://" not in given and not given.startswith(("/", "~", ".")) and Path(given).is_dir()
    return f"./{given}" if is_folder else given


def differences_without_inputs(job: Job, options: Options, sources: Sequence[Source]) -> Iterator[str]:
    """Describe what differs between the job of a dataset and some options, as far as it shows without the inputs."""
    yield from _option_differences(job.options, row_options_of(options))
    yield from source_differences(job.sources, job_sources(sources, {}))
    name = tokenizer_name(options.tokenizer)
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
    yield from _option_differences(before.options, now.options)
    if before.tokenizer != now.tokenizer:
        yield f"the tokenizer's files differ (--tokenizer was {before.tokenizer_name} and is {now.tokenizer_name})"
    if before.chat_template != now.chat_template:
        yield "the chat template differs"
    if before.formatter != now.formatter:
        yield "the formatter's file differs"
    if before.evaluations != now.evaluations:
        yield "the evaluation sets (--decontaminate) differ"
    yield from source_differences(before.sources, now.sources)
    for source, new in zip(before.sources, now.sources, strict=False):
        if source.formatter != new.formatter and source.options == new.options:
            yield f"the file of the formatter of the source {source.name} differs"
    if before.now != now.now:
        yield f"--now was {before.now} and is {now.now}"
    for library in now.versions:
        if before.versions.get(library) != now.versions[library]:
            yield f"{library} was {before.versions.get(library)} and is {now.versions[library]}"
