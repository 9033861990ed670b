"""Prepare: from options and what they name to a job, and the files that workers need besides it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from posixpath import commonprefix, dirname
from typing import Any, NamedTuple

import msgspec

from pipeline.cli.console import as_typed, show_phase
from pipeline.config import RowOptions
from pipeline.existing import output_errors
from pipeline.first_records import check_first_records
from pipeline.job import Job, JobEvaluations, Request, describe_recipe, job_sources, tokenizer_name
from pipeline.plan import warn_about_much_input, with_plan
from pipeline.tokenizer import checked_tokenizer, read_tokenizer_files
from transforms.base.errors import UserError, before_the_work
from transforms.base.options import option_values
from transforms.base.phrases import counted
from transforms.chat.rendering.template import reads_clock
from transforms.contamination.index import MOST_RECORDS, EvaluationIndex
from transforms.contamination.texts import encode_evaluations, evaluation_text
from transforms.dataset.description import library_versions
from transforms.dataset.layout import check_free
from transforms.dataset.versions import Version
from transforms.files.formats import input_format
from transforms.files.listing import InputFile, list_inputs
from transforms.files.tasks import make_tasks
from transforms.model.batches import Task
from transforms.records.formatter import load_formatter
from transforms.report.trainers import layout_warnings
from transforms.rows.layout import RowLayout
from transforms.steps.read import CHUNK_BYTES, read_task
from transforms.storage.files import join, read_bytes
from transforms.tokens.tokenizer_files import fingerprint


class Prepared(NamedTuple):
    """What the increments of a run have in common.

    job: with the plan of the files. stored: the content of each file that workers need besides it, by its url.
    warnings: to be printed when the first increment is begun.
    """

    job: Job
    files: Sequence[InputFile]
    stored: Mapping[str, bytes]
    warnings: Sequence[str]


@before_the_work()
def prepare(request: Request, version: Version | None, files: Sequence[InputFile]) -> Prepared:
    """Resolve the options of a run, before it writes anything.

    Args:
        request: of the run.
        version: the newest one; None if there is none.
        files: the inputs. A source need not have any.

    Raises:
        UserError: if the options cannot be met, or what they name is not there or of no use.
        Unavailable: if a store or the hub does not answer.
    """
    options, sources, folder = request.options, request.sources, request.folder
    traps = () if options.consumer else layout_warnings(RowLayout.of(vars(options)))
    warnings = [f"warning: --{option} {as_typed(getattr(options, option))}: {text}" for option, text in traps]
    show_phase(f"reading the tokenizer {options.tokenizer}")
    tokenizer = read_tokenizer_files(options.tokenizer)
    evaluations, sets = None, b""
    if options.decontaminate:
        evaluations, sets = _read_evaluation_sets(options.decontaminate, options.decontaminate_words)
    contents: dict[int | None, bytes] = {None: _read_formatter(options.formatter)}
    for number, source in enumerate(sources):
        if source.own.get("formatter"):
            with source.named_in_errors():
                contents[number] = _read_formatter(source.options.formatter)
    with output_errors(options):
        check_free(folder, options.overwrite)
        with checked_tokenizer(options, tokenizer) as checked:
            warnings += checked.warnings()
            # Later, nobody could follow an advice on the first records: an append rejects what does not fit.
            for number, source in enumerate(() if options.append and version else sources):
                if first := next((file for file in files if file.source == number), None):
                    with source.named_in_errors():
                        warnings += check_first_records(source, first, checked)
    formatters = {number: hashlib.sha256(content).hexdigest() for number, content in contents.items() if content}
    now = options.now
    if now is None and reads_clock(checked.template or checked.tokenizer.chat_template):
        now = datetime.now().replace(microsecond=0).isoformat()
    job = Job(
        options=RowOptions(**option_values(RowOptions, options)),
        now=now,
        tokenizer=fingerprint(tokenizer),
        tokenizer_name=tokenizer_name(options.tokenizer),
        chat_template=checked.template,
        formatter=formatters.get(None),
        versions=library_versions(),
        sources=job_sources(sources, formatters),
        recipe=describe_recipe(options, sources, now, files),
        evaluations=evaluations,
    )
    stored = {join(folder.tokenizer(job.tokenizer), name): content for name, content in tokenizer.items()}
    stored |= {folder.formatter(sha256): contents[number] for number, sha256 in formatters.items()}
    if evaluations:
        stored[folder.evaluations(evaluations.sha256)] = sets
        warnings += _warn_about_evaluations(evaluations)
    job = with_plan(job, files)
    return Prepared(job, files, stored, [*warnings, *warn_about_much_input(job)])


def _read_formatter(name: str | None) -> bytes:
    """The source of a formatter that is a file, to be stored next to the output; nothing if workers import a module."""
    if name is None:
        return b""
    load_formatter(name)
    module = name.rpartition(":")[0]
    return read_bytes(module) if module.endswith(".py") else b""


def _read_evaluation_sets(patterns: Sequence[str], words: int) -> tuple[JobEvaluations, bytes]:
    """Read evaluation sets, in any format that inputs may have: what the job says of them, and the file to store.

    Their files are named as they are below the folder that they have in common, so that it is the same wherever they
    are. words: how many words a run has.
    """
    files = list_inputs(list(patterns), parameter="decontaminate", splits=None)
    above = "".join(f"{folder}/" for folder in commonprefix([dirname(file.url).split("/") for file in files]))
    with before_the_work("--decontaminate "):
        evaluations = [
            evaluation_text(f"{url.removeprefix(above)}:{position}", record)
            for task in make_tasks(files, max(file.unpacked_bytes for file in files))
            for url, position, record in _read_records(task)
        ]
    content, index = encode_evaluations(evaluations), EvaluationIndex(evaluations, words)
    sha256 = hashlib.sha256(content).hexdigest()
    return JobEvaluations(sha256, len(evaluations), index.too_short, index.runs, index.in_templates), content


def _read_records(task: Task) -> Iterator[tuple[str, int, Any]]:
    """Yield the records of a task: the url of the file of each, its position there, and itself."""
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


def _warn_about_evaluations(evaluations: JobEvaluations) -> Iterator[str]:
    """Say what of the evaluation sets is not looked for."""
    if evaluations.too_short:
        yield (
            f"note: {counted(evaluations.too_short, 'record')} of {evaluations.records:,} of the evaluation sets "
            "cannot be found: no text of them has enough words. docs/corpus.md"
        )
    if evaluations.in_templates:
        yield (
            f"note: {counted(evaluations.in_templates, 'run')} of words of the evaluation sets are not looked for: "
            f"more than {MOST_RECORDS} of their records have them. docs/corpus.md"
        )
