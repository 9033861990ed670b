"""The graph of the job, from the plan to the finished dataset."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import apache_beam as beam

from pipeline.config import Options
from pipeline.job import Job
from pipeline.plan import Plan
from transforms.base.options import field_types, option_values
from transforms.chat.config import ParityOptions, RenderConfig, RenderOptions, TokenizeOptions
from transforms.corpus.buckets import unshuffled, with_buckets
from transforms.corpus.index import SendExamples
from transforms.corpus.receive import ReadBuckets, ShuffleRows
from transforms.corpus.select import SelectRecords
from transforms.dataset import Budgets
from transforms.dataset.commit import Change, CommitDataset, commit_increment, is_committed
from transforms.dataset.finished import SkipFinished
from transforms.dataset.layout import Folder
from transforms.files.tasks import decode_plan, largest_first, make_tasks
from transforms.model.batches import Task
from transforms.records.input_options import ParseOptions
from transforms.rows.layout import RowLayout
from transforms.steps.checks import choose_checks
from transforms.steps.content_checks import CheckContents, CheckLengths
from transforms.steps.decontaminate import Decontaminate
from transforms.steps.failures import FailureWriter
from transforms.steps.pack import TruncateOrPack
from transforms.steps.parse import ParseConversations
from transforms.steps.read import ReadTasks
from transforms.steps.row_options import PackOptions, WriteOptions
from transforms.steps.texts import ApplyChatTemplate, BuildLabels, CheckParity, Tokenize
from transforms.steps.write import WriteShards
from transforms.storage.files import read_bytes


def build_graph(pipeline: beam.Pipeline, plan: Plan, options: Options, change: Change) -> None:
    """Build the graph of a job.

    Args:
        pipeline: to which it is added.
        plan: of an increment.
        options: of this run, beyond the job: budgets, engine, report.
        change: what the commit of the increment does.
    """
    folder, job = plan.folder, plan.job
    # A worker reads the plan, so that it is not in the graph.
    read = beam.FlatMap(_read_tasks, folder, job, FailureWriter()).with_output_types(Task)
    receipts = _build_tasks(pipeline | beam.Impulse() | "plan" >> read, job, folder, options.engine)
    if job.options.is_exchanged:
        receipts |= "exchange" >> _exchange(job, folder)
    budgets = Budgets(**option_values(Budgets, options))
    commit = functools.partial(commit_increment, folder=folder, budgets=budgets, report=options.report, change=change)
    receipts | "commit" >> CommitDataset(folder, commit)


def _build_tasks(tasks: beam.PCollection, job: Job, folder: Folder, engine: str) -> beam.PCollection:
    """Build shards of tasks. Returns PCollection[Receipt], also of tasks that were finished before."""
    options, tokenizer = job.options, folder.tokenizer(job.tokenizer)
    parsing, rendering = _find_source_options(job, folder)
    formatter = folder.stored_formatter(options.formatter, job.formatter)
    config = RenderConfig(
        tokenizer=tokenizer,
        chat_template=job.chat_template,
        now=job.now,
        engine=engine,
        part_columns="part_lengths" in (options.write_columns or ()),
        **option_values(RenderOptions, options),
    )
    skipped = tasks | "skip" >> SkipFinished(folder.output)
    chunks = (
        skipped.unfinished
        | "read" >> ReadTasks(max_record_bytes=options.max_record_bytes)
        | "parse"
        >> ParseConversations(sources=parsing, **option_values(ParseOptions, options) | {"formatter": formatter})
    )
    if job.evaluations:
        evaluations = folder.evaluations(job.evaluations.sha256)
        chunks |= "decontaminate" >> Decontaminate(
            evaluations, words=options.decontaminate_words, contaminated=options.contaminated
        )
    chunks |= "check" >> CheckContents(check=options.check)
    chunks |= "render" >> ApplyChatTemplate(config, sources=rendering)
    chunks |= "parity" >> CheckParity(config, **option_values(ParityOptions, options), sources=rendering)
    chunks |= "tokenize" >> Tokenize(tokenizer, engine=engine, **option_values(TokenizeOptions, options))
    chunks |= "label" >> BuildLabels()
    if any(check.group == "lengths" for check in choose_checks(options.check)):
        chunks |= "lengths" >> CheckLengths(check=options.check)
    if options.is_exchanged:
        dedup = options.dedup != "none"
        chunks |= "send" >> SendExamples(folder.output, seed=options.seed, packing=options.packing, dedup=dedup)
    else:
        chunks |= "pack" >> TruncateOrPack(**option_values(PackOptions, options))
    return (chunks | "write" >> _write(job, folder), skipped.finished) | "all" >> beam.Flatten()


def _find_source_options(job: Job, folder: Folder) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The options of each source that parsing and rendering have other values for; none if no source has any."""
    parsing, rendering = list[dict[str, Any]](), list[dict[str, Any]]()
    for source in job.sources:
        own = dict(source.options)
        if "formatter" in own:
            own["formatter"] = folder.stored_formatter(own["formatter"], source.formatter)
        parsing.append({name: own[name] for name in own if name in field_types(ParseOptions)})
        rendering.append({name: own[name] for name in own if name in field_types(RenderOptions)})
    return parsing if any(parsing) else [], rendering if any(rendering) else []


def _write(job: Job, folder: Folder) -> WriteShards:
    return WriteShards(
        folder.output,
        **option_values(WriteOptions, job.options),
        about=RowLayout.of(dataclasses.asdict(job.options)).described() | {"tokenizer": job.tokenizer},
        tokenizer=folder.tokenizer(job.tokenizer),
    )


@beam.ptransform_fn
def _exchange(sent: beam.PCollection, job: Job, folder: Folder) -> beam.PCollection:
    """Build the shards of the buckets that tasks have sent to.

    PCollection[Receipt] of the tasks -> PCollection[Receipt], of the tasks and of the buckets.
    """
    options, output = job.options, folder.output
    is_shuffled, dedup = options.shuffle != "none", options.dedup != "none"
    reader = functools.partial(_read_plan, folder, job)
    select = SelectRecords(output, reader, seed=options.seed, dedup=dedup, mix=job.mix)
    skipped = sent | "select" >> select | "skip" >> SkipFinished(output)
    chunks = skipped.unfinished | "receive" >> ReadBuckets(output, options.seed if is_shuffled else None)
    chunks |= "pack" >> TruncateOrPack(**option_values(PackOptions, options))
    if is_shuffled and options.packing != "none":
        chunks |= "shuffle rows" >> ShuffleRows(options.seed)
    receipts = chunks | "write" >> _write(job, folder)
    return (sent, receipts, skipped.finished) | "all" >> beam.Flatten()


def _read_tasks(_impulse: bytes, folder: Folder, job: Job, failures: FailureWriter) -> list[Task]:
    with failures:
        return largest_first(_read_plan(folder, job))


def _read_plan(folder: Folder, job: Job) -> list[Task]:
    """The tasks of an increment, with the buckets that they send to, if they do."""
    try:
        files = decode_plan(read_bytes(folder.plan))
    except FileNotFoundError:
        if is_committed(folder):  # by an earlier run of the same pipeline, which removed it
            return []
        raise
    options, tasks = job.options, list(make_tasks(files, job.split_bytes, folder.increment))
    if options.shuffle != "none":
        return with_buckets(tasks, shards=options.shards, seed=options.seed, copies=job.copies)
    return unshuffled(tasks) if options.is_exchanged else tasks
