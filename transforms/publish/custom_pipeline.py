"""Custom pipelines: ReadConversations at their start, and at their end WriteDataset, which commits a dataset.

An own pipeline has no command that plans it, so its job is found from the pipeline itself, while that is built: the
inputs from ReadConversations, the options from the steps between the two. It is written to job.json, as the command
line does. A run resumes a dataset if it has the same job, with the resume_key by which its user answers for the rest:
what functions do cannot be compared.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import apache_beam as beam
import msgspec

from transforms.base.checks import check_choice, check_count, check_text
from transforms.base.declaring import takes, values_of
from transforms.base.errors import ParameterError, UserError
from transforms.chat.config import RenderConfig
from transforms.dataset import REPORTS
from transforms.dataset.budgets import Budgets
from transforms.dataset.description import NamedSource, library_versions, read_description
from transforms.dataset.finished import SkipFinished
from transforms.dataset.layout import Folder, check_free
from transforms.dataset.versions import newest
from transforms.inputs.hub.repository import Commits
from transforms.inputs.listing import InputFile, files_of_sources, list_inputs, shared_files
from transforms.inputs.plan_file import encode_plan
from transforms.inputs.splits import default_split_bytes, largest_first, splits_of
from transforms.model.batches import Records, Rows, Split
from transforms.model.parts import Parts
from transforms.publish.commit import CommitDataset
from transforms.publish.increment_commit import Change, is_committed
from transforms.rows.columns import check_kept_columns
from transforms.rows.layout import about_rows
from transforms.steps.base import Step
from transforms.steps.read import ReadSplits
from transforms.steps.row_options import WriteOptions
from transforms.steps.write import WriteShards
from transforms.storage.files import exists, full_url, join, read_bytes
from transforms.storage.lock import Lock
from transforms.storage.walking import names_below
from transforms.storage.writing import write_atomically
from transforms.tokens.tokenizer_files import fingerprint, read_tokenizer_folder

# The output is the same with any engine, so that a run can be resumed with another one.
_NOT_COMPARED = {"engine", "tokenizer"}
# What a step has that is not an option of the job.
_OF_A_STEP = {"step", "foreign", "reason", "sources"}


class ReadConversations(beam.PTransform):
    """Read the records of files of conversations.

    PBegin -> PCollection[Parts[Records]]. The files are listed while the pipeline is built, and the list is a part of
    the pipeline's graph. From some ten thousand files on, the command line is better, which keeps it next to the
    output.

    Args:
        patterns: files, folders, globs and urls; one, or several. If there are several sources of records, for which
            steps have other parameters or of which the manifest has the sums: a mapping of the name of each to these.
        input_format: the format of all files; `auto` goes by name and content.
        split: of datasets on the Hub and of folders, one or several; not needed if each has only one.
        split_bytes: bytes of input in each split, which becomes a shard; by default from the size of the input.

    Raises:
        ParameterError: if a value is not one of those.
        UserError: if a pattern names no file, when the pipeline is built.
    """

    def __init__(
        self,
        patterns: str | Sequence[str] | Mapping[str, str | Sequence[str]],
        *,
        input_format: str = "auto",
        split: str | Sequence[str] = (),
        split_bytes: int | None = None,
    ):
        super().__init__()
        self.sources = {
            name: _list_of_patterns(of_source)
            for name, of_source in (patterns if isinstance(patterns, Mapping) else {"input": patterns}).items()
        }
        if not self.sources:
            raise ParameterError("patterns", patterns, "expected at least one source.")
        check_count("split_bytes", split_bytes, optional=True)
        self.input_format = input_format
        self.split = (split,) if isinstance(split, str) else tuple(split)
        self.split_bytes = split_bytes or 0
        self.files: list[InputFile] = []
        self._skip_finished, self._uncommitted = SkipFinished(), _Uncommitted()
        self.with_output_types(Parts[Records])

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        commits = Commits()
        of_sources = [
            list_inputs(patterns, self.input_format, "patterns", self.split, commits)
            for patterns in self.sources.values()
        ]
        self.files = files_of_sources(of_sources)
        for first, again in shared_files(self.files):
            names = [*self.sources]
            problem = f"it is in two sources, {names[first.source]} and {names[again.source]}."
            raise ParameterError("patterns", again.url, problem)
        self.split_bytes = self.split_bytes or default_split_bytes(sum(file.unpacked_bytes for file in self.files))
        splits = (
            begin
            | "plan" >> beam.Create([None])
            | "split" >> beam.FlatMap(_splits, self.files, self.split_bytes).with_output_types(Split)
            | "uncommitted" >> beam.ParDo(self._uncommitted).with_output_types(Split)
            | "skip" >> self._skip_finished
        )
        self.finished = splits.finished
        return splits.unfinished | "read" >> ReadSplits()

    def skip_finished(self, folder: Folder) -> beam.PCollection:
        """Let splits be skipped that an earlier run finished; all of them if it committed what they are.

        Args:
            folder: of the increment that is written.

        Returns:
            PCollection[Receipt], their receipts.

        Raises:
            UserError: if another dataset is written from the same source, whose receipts say what is skipped.
        """
        if self._uncommitted.folder and self._uncommitted.folder.work != folder.work:
            raise UserError("WriteDataset: its ReadConversations feeds another dataset. Give each dataset its own.")
        self._uncommitted.folder = folder
        self._skip_finished.look_in(folder.output, folder.increment)
        return self.finished

    def splits(self) -> int:
        """How many splits the files have."""
        return sum(1 for _ in splits_of(self.files, self.split_bytes))


def _list_of_patterns(patterns: Any) -> list[str]:
    if not isinstance(patterns, (str, list, tuple)) or not patterns:
        raise ParameterError("patterns", patterns, "expected a string, or a list of strings.")
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in listed:
        check_text("patterns", pattern)
    return listed


class _Uncommitted(beam.DoFn):
    """Leaves out all splits if what they are was committed by an earlier run."""

    folder: Folder | None = None

    def start_bundle(self) -> None:
        self._is_done = self.folder is not None and is_committed(self.folder)

    def process(self, split: Split) -> Iterator[Split]:
        if not self._is_done:
            yield split


def _splits(_: None, files: Sequence[InputFile], split_bytes: int) -> list[Split]:
    return largest_first(splits_of(files, split_bytes))


class PipelineJob(msgspec.Struct, frozen=True):
    """What job.json holds of an own pipeline. The keys that the command line's Job has too mean the same.

    Args:
        options: the options of all steps, merged.
        steps: the name and the options of each step, in order, without functions; of a step that is not Chatmill's,
            its label, and that it is `foreign`.
        split_bytes: bytes of input in each split.
        tokenizer: sha256 of the tokenizer's files.
        formatter: sha256 of the formatter's file, if it is one.
        tokenizer_name: the tokenizer's folder.
        inputs: sha256 of the list of input files, their sizes and versions.
        input_bytes: the size of all input files.
        splits: how many splits there are.
        versions: of the libraries that can change the output.
        sources: the names of the sources.
        resume_key: of WriteDataset.
    """

    options: dict[str, Any]
    steps: list[dict[str, Any]]
    split_bytes: int
    tokenizer: str
    tokenizer_name: str
    formatter: str | None
    inputs: str
    input_bytes: int
    splits: int
    versions: dict[str, str]
    sources: tuple[NamedSource, ...] = (NamedSource("input"),)
    resume_key: str | None = None


@takes(WriteOptions)
class WriteDataset(beam.PTransform):
    """Write rows as a dataset, and commit it once all are written: manifest, card, _SUCCESS.

    PCollection[Parts[Rows]] -> PCollection[str], the url of the manifest. The records must come from one
    ReadConversations. With a resume_key, running the pipeline again resumes a dataset that is not finished, and finds a
    finished one as it is; inputs, options of Chatmill's steps, tokenizer, formatter and versions must be the same.
    Without one, an output in which splits were written is refused.

    The job is written to the output while the pipeline is built. On a disk, from then on until the dataset is complete
    or the process ends, no other process writes the same dataset to it. If another run commits another one before, this
    one fails, and what it has written stays.

    Args:
        output: the folder of the dataset, at any url that fsspec opens: new, empty, or of the same pipeline.
        resume_key: any text, by which runs that resume each other know it: give another one when you change a function,
            a library, or anything else that changes rows.
        max_reject_fraction: the run fails if a larger fraction of the records is rejected.
        max_lost_fraction: the same for the tokens to train on that are in no row because of max_length.
        max_parity_fraction: the same for the trained turns that differ from inference, of those that were compared.
        max_unprinted_fraction: the same for the records of which the chat template does not print something.
        report: `html` for a report.html of the dataset, or `none`.
        {options}

    Raises:
        ParameterError: if a value is not one of those; and, when the pipeline is built, if the output holds something
            else, or a dataset of another resume_key or of none, or another process writes to it.
        UserError: if the rows do not come from one ReadConversations, when the pipeline is built.
    """

    def __init__(
        self,
        output: str,
        *,
        resume_key: str | None = None,
        max_reject_fraction: float = 0.01,
        max_lost_fraction: float = 1.0,
        max_parity_fraction: float = 1.0,
        max_unprinted_fraction: float = 1.0,
        report: str = "html",
        **options: Any,
    ):
        super().__init__()
        check_text("output", output)
        check_text("resume_key", resume_key, optional=True)
        check_choice("report", report, REPORTS)
        self._writing = values_of(WriteOptions, WriteOptions(**options))
        self._output = output
        self._resume_key = resume_key
        self._budgets = Budgets(max_reject_fraction, max_lost_fraction, max_parity_fraction, max_unprinted_fraction)
        self._report = report
        self.with_input_types(Parts[Rows])

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        source, steps = _upstream(rows)
        job = _job(source, steps, self._writing, self._resume_key)
        output = full_url(self._output)
        folder = Folder(output, _resumed(Folder(output), job) or _id(job))
        with Lock(folder.lock, self._output) as lock:
            lock.take()  # so that no build writes to it now
            _lock(folder, self._output)
            _store(folder, job, source.files)
        finished = source.skip_finished(folder)
        written = rows | "write" >> WriteShards(
            folder.output,
            **self._writing,
            about=about_rows(job.options, job.tokenizer),
            tokenizer=folder.tokenizer(job.tokenizer),
        )
        return (
            (written, finished)
            | "all" >> beam.Flatten()
            | "commit" >> CommitDataset(folder, self._budgets, self._report, Change(is_build=True))
        )


# The name of a step, and its options.
_Step = tuple[str, Mapping[str, Any]]


def _upstream(rows: beam.PCollection) -> tuple[ReadConversations, list[_Step]]:
    """The ReadConversations that rows come from, and the steps after it, in order.

    Raises:
        UserError: if there is none, or more than one.
    """
    sources: dict[int, ReadConversations] = {}
    steps: dict[int, _Step] = {}
    waiting = [rows.producer]
    while waiting:
        node = _whole_step(waiting.pop())
        transform = node.transform
        if id(node) in steps:
            continue
        if isinstance(transform, ReadConversations):
            sources[id(node)] = transform
            continue
        if isinstance(transform, Step):
            steps[id(node)] = type(transform).__name__, transform.options
        else:
            steps[id(node)] = node.full_label, {"foreign": True}
        if len(node.inputs) != 1 or node.side_inputs:
            raise UserError(
                f"WriteDataset: the step {node.full_label} before it has {len(node.inputs)} inputs and "
                f"{len(node.side_inputs)} side inputs; expected one line of steps from one ReadConversations, which "
                "takes several patterns."
            )
        waiting += [collection.producer for collection in node.inputs if collection.producer]
    if len(sources) != 1:
        raise UserError(
            f"WriteDataset: its rows come from {len(sources)} ReadConversations; expected one, which takes several "
            "patterns."
        )
    return next(iter(sources.values())), [*steps.values()][::-1]


def _whole_step(node: Any) -> Any:
    """The application of our own step that an application is a part of, or itself."""
    within = node
    while within and not isinstance(within.transform, (Step, ReadConversations)):
        within = within.parent
    return within or node


def _job(
    source: ReadConversations, steps: Sequence[_Step], writing: Mapping[str, Any], resume_key: str | None
) -> PipelineJob:
    for name, of_step in steps:
        if "sources" in of_step and len(of_step["sources"]) != len(source.sources):
            raise UserError(
                f"WriteDataset: {name} has parameters for {len(of_step['sources'])} sources, and ReadConversations "
                f"reads {len(source.sources)}: {', '.join(source.sources)}."
            )
    described = [{"step": name, **_plain(options)} for name, options in steps]
    options: dict[str, Any] = {}
    for step in described:
        for name, value in step.items():
            if name not in _OF_A_STEP and options.setdefault(name, value) != value:
                raise UserError(f"WriteDataset: the steps before it have {name} {options[name]} and {value}.")
    check_kept_columns(options.get("keep_columns") or (), writing["write_columns"], writing["provenance"])
    tokenizers = {option.tokenizer for _, options in steps for option in options.values() if _is_config(option)}
    tokenizers |= {options["tokenizer"] for _, options in steps if "tokenizer" in options}
    if len(tokenizers) != 1:
        names = ", ".join(sorted(tokenizers)) or "none"
        raise UserError(f"WriteDataset: the steps before it have the tokenizers {names}; expected one and the same.")
    (tokenizer,) = tokenizers
    return PipelineJob(
        options=options | _plain(writing),
        steps=described,
        split_bytes=source.split_bytes,
        tokenizer=fingerprint(read_tokenizer_folder(tokenizer)),
        tokenizer_name=tokenizer,
        formatter=_formatter_digest(
            [of.get("formatter") for _, step in steps for of in (step, *step.get("sources", ()))]
        ),
        inputs=hashlib.sha256(encode_plan(source.files)).hexdigest(),
        input_bytes=sum(file.bytes for file in source.files),
        splits=source.splits(),
        versions=library_versions(),
        sources=tuple(map(NamedSource, source.sources)),
        resume_key=resume_key,
    )


def _formatter_digest(names: Sequence[str | None]) -> str | None:
    """A digest of the files of formatters, None if no formatter is a file."""
    files = [file for name in names if (file := (name or "").rpartition(":")[0]).endswith(".py")]
    return hashlib.sha256(b"".join(map(read_bytes, files))).hexdigest() if files else None


def _is_config(option: Any) -> TypeGuard[RenderConfig]:
    return isinstance(option, RenderConfig)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON: those of a configuration one by one, without functions."""
    plain: dict[str, Any] = {}
    for name, value in options.items():
        if _is_config(value):
            plain |= _plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
        elif name not in _NOT_COMPARED and not callable(value):
            plain[name] = msgspec.json.decode(msgspec.json.encode(value))
    return plain


# By the folder of the increment, which is removed when it is committed.
_LOCKS: dict[str, Lock] = {}


def _lock(folder: Folder, output: str) -> None:
    """Lock an increment for as long as this process lives: what functions do is not a part of its id.

    A process may build its pipeline again, as in a notebook.

    Raises:
        ParameterError: if a pipeline of another process writes the increment.
    """
    if not (folder.work in _LOCKS and _LOCKS[folder.work].is_held()):
        _LOCKS[folder.work] = Lock(join(folder.work, "lock"), output)
        _LOCKS[folder.work].take()


def _id(job: PipelineJob) -> str:
    """The id of the increment that a pipeline writes."""
    return hashlib.sha256(_encoded(job)).hexdigest()[:16]


def _encoded(job: PipelineJob) -> bytes:
    return msgspec.json.format(msgspec.json.encode(job), indent=2)


def _resumed(folder: Folder, job: PipelineJob) -> str | None:
    """Return the increment of a job that a folder has, finished or not; None if nothing is written there yet.

    Another run may have given it another id: versions and labels of foreign steps that do not matter are a part of it.

    Raises:
        ParameterError: if it holds something else, or a dataset that this job may not resume.
    """
    check_free(folder)
    version = newest(folder)
    for id, before in [(version.increments[0].id, version.job)] if version else _begun(folder):
        try:
            _check_resumable(folder, msgspec.convert(before, PipelineJob), job, finished=version is not None)
        except msgspec.ValidationError:
            problem = "it holds a dataset of the command line. Give another."
            raise ParameterError("output", folder.output, problem) from None
        return id
    return None


def _begun(folder: Folder) -> Iterator[tuple[str, dict[str, Any]]]:
    """The increments, each with its job, of which splits were written, and which are not committed."""
    for id in folder.begun():
        begun = Folder(folder.output, id)
        if names_below(begun.receipts) and exists(begun.job):
            yield id, read_description(begun.job).job


def _check_resumable(folder: Folder, before: PipelineJob, job: PipelineJob, finished: bool) -> None:
    """Raise ParameterError if a dataset that was begun, or finished, is not the one of a job."""
    if not (before.resume_key and job.resume_key):
        advice = (
            "Give resume_key, the same as before, only if nothing that changes rows has changed; or another output."
            if before.resume_key
            else "That run had no resume_key, so it cannot be resumed: remove the folder, or give another output."
        )
        problem = f"{folder.output} holds a dataset of an earlier run. {advice}"
        raise ParameterError("resume_key", job.resume_key, problem)
    compared = [name for name in job.__struct_fields__ if not (finished and name == "versions")]
    differing = [name for name in compared if _compared(before, name) != _compared(job, name)]
    if differing:
        problem = f"it holds the dataset of another pipeline: {', '.join(differing)} differ. Give another folder."
        raise ParameterError("output", folder.output, problem)


def _compared(job: PipelineJob, name: str) -> Any:
    """What is compared of a field of a job. Labels of foreign steps are not: they may have the numbers of lines."""
    value = getattr(job, name)
    return [step for step in value if "foreign" not in step] if name == "steps" else value


def _store(folder: Folder, job: PipelineJob, files: Sequence[InputFile]) -> None:
    """Write tokenizer, plan and job to the folder, unless they are there. Raises as _resumed."""
    if _resumed(folder, job) and newest(folder):
        logging.getLogger(__name__).warning("%s is complete: no record is read again.", folder.output)
        return
    stored = folder.tokenizer(job.tokenizer)
    for name, content in read_tokenizer_folder(job.tokenizer_name).items():
        write_atomically(join(stored, name), content)
    for url, content in {folder.plan: encode_plan(files), folder.job: _encoded(job)}.items():  # the job is last
        if not exists(url):
            write_atomically(url, content)
