"""The job: everything that decides the bytes of a dataset, resolved once at launch and stored next to the output."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pipeline.cli.console import as_typed, shortened, show
from pipeline.config import Options, RowOptions, is_template, option_name
from pipeline.recipe import Source
from pipeline.runners import find_runner
from pipeline.runners.runner import Runner
from transforms.base.errors import UserError
from transforms.base.options import option_values, options_in
from transforms.base.version import __version__
from transforms.corpus.mix import Mix, make_mix
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Increment, Version
from transforms.files.hub import expand_hub_name
from transforms.files.listing import InputFile
from transforms.storage.files import full_url, read_bytes
from transforms.storage.hub import hub_file, hub_name


@dataclass(frozen=True)
class Request:
    """What a run is asked for: the options and sources of a build, and options of Beam as arguments."""

    options: Options
    sources: Sequence[Source]
    flags: Sequence[str] = ()
    _warnings: set[str] = field(default_factory=set)

    @cached_property
    def folder(self) -> Folder:
        """The folder of the dataset."""
        return Folder(full_url(self.options.output))

    @cached_property
    def runner(self) -> Runner:
        """The runner of Beam."""
        return find_runner(self.options.runner)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of all sources."""
        return tuple(url for source in self.sources for url in source.options.input)

    @property
    def has_formatter(self) -> bool:
        """Whether records of a source go through a formatter."""
        return any(source.options.formatter for source in self.sources)

    def warn(self, text: str) -> None:
        """Print a warning or a note, once for all increments that the run adds."""
        if text not in self._warnings:
            self._warnings.add(text)
            show(text)

    def urls(self) -> list[tuple[str, str]]:
        """Return the urls that the job reads or writes, each after the name of its option; not the paths of files."""
        options, template = self.options, self.options.chat_template or ""
        named = [("output", options.output), ("tokenizer", options.tokenizer), *(("input", url) for url in self.inputs)]
        named += [("chat_template", "" if is_template(template) else template), ("recipe", options.recipe or "")]
        named += [("decontaminate", url) for url in options.decontaminate]
        return [(option, url) for option, url in named if "://" in url]


class Outcome(NamedTuple):
    """What became of a change to a dataset.

    status: done, done_before, nothing_new, or, if the job does not end in this process, submitted or dry_run.
    version: the newest one; None if there is none, or if the job does not end in this process.
    added: the increments that an append added.
    """

    status: str
    version: Version | None = None
    added: tuple[Increment, ...] = ()


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

    sha256: of the file that is stored next to the job. too_short: records of which no text has enough words. runs: the
    different runs of words that are looked for. in_templates: those that are not, since so many records have them.
    """

    sha256: str
    records: int
    too_short: int
    runs: int
    in_templates: int


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a worker must know. The same job writes the same bytes, on any runner and with any number of workers.

    now: what the template's strftime_now returns, if it is used. tokenizer, formatter: sha256 of the files that are
    stored next to the job. tokenizer_name: of tokenizer_name. chat_template: the text of the template, None for the
    tokenizer's own. versions: of the libraries whose version may change the output. sources: by their numbers. recipe:
    builds the same dataset, into the output that it does not name; nothing depends on it. evaluations: if there are
    any.

    A plan adds, for the files of an increment, split_bytes: bytes of input in each task; inputs: sha256 of the list of
    files; how many bytes they have, and how many tasks become of them.
    """

    options: RowOptions
    split_bytes: int = 0
    now: str | None
    tokenizer: str
    tokenizer_name: str
    chat_template: str | None
    formatter: str | None
    inputs: str = ""
    input_bytes: int = 0
    unpacked_bytes: int = 0
    tasks: int = 0
    versions: dict[str, str]
    sources: tuple[JobSource, ...] = (JobSource("input"),)
    recipe: dict[str, Any] = {}
    evaluations: JobEvaluations | None = None

    @property
    def mix(self) -> Mix | None:
        """How often each record of each source is there; None for once."""
        return make_mix(vars(self.options), [(source.name, source.options) for source in self.sources])

    @property
    def copies(self) -> int:
        """How many copies a record has at most; 0 without a mix."""
        return mix.copies if (mix := self.mix) else 0


def job_sources(sources: Sequence[Source], formatters: Mapping[int | None, str | None]) -> tuple[JobSource, ...]:
    """Return the sources of a job. formatters: sha256 of the file of the formatter of each, by its number."""
    return tuple(
        JobSource(
            name=source.name,
            # As they will be read from job.json.
            options=msgspec.json.decode(msgspec.json.encode(source.own)),
            formatter=formatters.get(number),
            input=tuple(source.options.input),
        )
        for number, source in enumerate(sources)
    )


def describe_recipe(
    options: Options, sources: Sequence[Source], now: str | None, files: Sequence[InputFile]
) -> dict[str, Any]:
    """Return the recipe that builds the same dataset, as a mapping: for people, and for recipe.yaml.

    now: what the template's strftime_now returns, if it is used. files: the inputs, with commits of those on the Hub.
    """
    recipe: dict[str, Any] = {
        option_name(field.name): getattr(options, field.name)
        for field in options_in(RowOptions)
        if getattr(options, field.name) != field.default
    }
    template = options.chat_template
    others = {
        "now": now,
        "tokenizer": _from_anywhere(options.tokenizer),
        "chat_template": _from_anywhere(template) if template and not is_template(template) else None,
        "formatter": _formatter_from_anywhere(options.formatter),
        "decontaminate": [
            path if hub_name(expand_hub_name(path)) else _absolute(path) for path in options.decontaminate
        ],
    }
    recipe |= {name: value for name, value in others.items() if value}
    entries = [_entry(source, [file for file in files if file.source == i]) for i, source in enumerate(sources)]
    return msgspec.to_builtins(recipe | ({"sources": entries} if options.sources else {"input": entries[0]["input"]}))


def _entry(source: Source, files: Sequence[InputFile]) -> dict[str, Any]:
    """A source, as a recipe has it, with inputs that mean the same elsewhere and later. files: of the source."""
    commits = {name.repository: name.revision for file in files if (name := hub_file(file.url))}
    entry: dict[str, Any] = {"name": source.name, "input": [], **source.own}
    for path in source.options.input:
        name = hub_name(path)
        pinned = name and name._replace(revision=commits.get(name.repository, name.revision)).url
        entry["input"].append(pinned or _absolute(path))
    if source.own.get("formatter"):
        entry["formatter"] = _formatter_from_anywhere(source.options.formatter)
    return entry | ({"may_repeat": True} if source.may_repeat else {})


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def _from_anywhere(name: str) -> str:
    """A name as it is, or the path of a file or folder that is here, so that it means the same elsewhere."""
    return _absolute(name) if os.path.exists(os.path.expanduser(name)) else name


def _formatter_from_anywhere(formatter: str | None) -> str | None:
    module, _, function = (formatter or "").rpartition(":")
    return f"{_absolute(module) if module.endswith('.py') else module}:{function}" if module else None


def encode_job(job: Job) -> bytes:
    """Return the content of job.json: JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(job), indent=2)


def read_job(folder: Folder) -> Job | None:
    """Read the job of an increment that was begun, None if there is none, or if its file is damaged.

    Raises UserError if it was written by another version of Chatmill, or by a custom pipeline.
    """
    try:
        return _job(folder.job, msgspec.json.decode(read_bytes(folder.job)))
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):  # another run may just have committed it
        return None


def version_job(folder: Folder, version: Version) -> Job:
    """Return the job that a version of a dataset has. Raises as read_job does."""
    return _job(folder.output, version.job)


def _job(url: str, content: Any) -> Job:
    """The job of the content of a job.json."""
    try:
        job = msgspec.convert(content, Job)
        if unknown := content["options"].keys() - option_values(RowOptions, job.options).keys():
            raise msgspec.ValidationError(f"unknown options: {', '.join(sorted(unknown))}")
    except msgspec.ValidationError as error:
        raise UserError(
            f"{url}: this job was not planned by chatmill build {__version__} ({shortened(str(error))}). Go on with "
            "the version or the pipeline that began it, give another --output, or --overwrite to replace it."
        ) from None
    return job


def tokenizer_name(given: str) -> str:
    """Return the name of a tokenizer; it begins with a dot if it is a folder below this one, and no name on the Hub."""
    is_folder = "://" not in given and not given.startswith(("/", "~", ".")) and Path(given).is_dir()
    return f"./{given}" if is_folder else given


def with_clock(job: Job, before: Job | None, options: Options) -> Job:
    """Return a job with the time that an earlier one has for its chat template, unless the options give another."""
    return msgspec.structs.replace(job, now=before.now) if before and job.now and options.now is None else job


def differences(before: Job, now: Job, with_inputs: bool = False) -> list[str]:
    """Describe what differs between two jobs, whatever the plans of their inputs are.

    with_inputs: whether the inputs must be the same, as they were given.
    """
    lines = []
    names = [as_typed([source.name for source in job.sources]) for job in (before, now)]
    if names[0] != names[1]:
        lines.append(f"the sources were {names[0]} and are {names[1]}")
        before, now = (msgspec.structs.replace(job, sources=()) for job in (before, now))
    if before.tokenizer == now.tokenizer:  # by whichever name
        before = msgspec.structs.replace(before, tokenizer_name=now.tokenizer_name)
    old, new = _compared(before, with_inputs), _compared(now, with_inputs)
    for name in old | new:
        was, is_now = old.get(name, "not set"), new.get(name, "not set")
        if was != is_now:
            has_values = not name.endswith(("differ", "differs"))
            lines.append(f"{name} was {as_typed(was)} and is {as_typed(is_now)}" if has_values else name)
    return lines


def _compared(job: Job, with_inputs: bool) -> dict[str, Any]:
    """What two jobs must have the same, by what errors call it; or by the error, if nobody could read the values."""
    values = {f"--{option_name(name)}": value for name, value in sorted(option_values(RowOptions, job.options).items())}
    values |= {
        "the tokenizer's files differ": job.tokenizer,
        "--tokenizer": job.tokenizer_name,
        "the chat template differs": job.chat_template,
        "--chat_template": "not given" if job.chat_template is None else "given",
        "the formatter's file differs": job.formatter,
        "the evaluation sets (--decontaminate) differ": job.evaluations,
    }
    for source in job.sources:
        values |= {f"{name} of the source {source.name}": value for name, value in sorted(source.options.items())}
        values[f"the file of the formatter of the source {source.name} differs"] = source.formatter
        if with_inputs:
            values[f"input of the source {source.name}" if job.sources[1:] else "--input"] = source.input
    return values | {"--now": job.now} | job.versions
