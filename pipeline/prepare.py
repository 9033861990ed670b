"""Prepare: from options and what they name to a job."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime

from pipeline.artifacts import Artifacts
from pipeline.config import Options
from pipeline.first_records import check_first_records
from pipeline.job import Job, JobEvaluations, describe_recipe, job_sources, row_options, tokenizer_name
from pipeline.recipe import Source
from pipeline.tokenizer import checked_tokenizer
from transforms.base.phrases import counted
from transforms.chat.rendering.template import reads_clock
from transforms.contamination.index import MOST_RECORDS, EvaluationIndex
from transforms.contamination.texts import decode_evaluations
from transforms.dataset.description import library_versions
from transforms.files.listing import InputFile
from transforms.tokens.tokenizer_files import fingerprint


def prepare(
    options: Options, sources: Sequence[Source], files: Sequence[InputFile], artifacts: Artifacts
) -> tuple[Job, list[str]]:
    """Resolve options to a job.

    Args:
        options: of the build.
        sources: of read_sources.
        files: the inputs of which the first records are looked at. A source need not have any.
        artifacts: of read_artifacts.

    Returns:
        The job, without a plan, and warnings.

    Raises:
        UserError: if the options cannot be met.
        Unavailable: if a store does not answer.
    """
    with checked_tokenizer(options, artifacts.tokenizer) as checked:
        warnings = [*checked.warnings()]
        for number, source in enumerate(sources):
            if first := next((file for file in files if file.source == number), None):
                with source.named_in_errors():
                    warnings += check_first_records(source, first, checked)
    now = options.now
    if now is None and reads_clock(checked.template or checked.tokenizer.chat_template):
        now = datetime.now().replace(microsecond=0).isoformat()
    evaluations = None
    if artifacts.evaluations is not None:
        evaluations = _describe_evaluations(artifacts.evaluations, options.decontaminate_words)
        warnings += _warn_of_evaluations(evaluations)
    formatters = artifacts.formatter_hashes()
    job = Job(
        options=row_options(options),
        now=now,
        tokenizer=fingerprint(artifacts.tokenizer),
        tokenizer_name=tokenizer_name(options.tokenizer),
        chat_template=checked.template,
        formatter=formatters.get(None),
        versions=library_versions(),
        sources=job_sources(sources, formatters),
        recipe=describe_recipe(options, sources, now, files),
        evaluations=evaluations,
    )
    return job, warnings


def _describe_evaluations(content: bytes, words: int) -> JobEvaluations:
    """What a job says of evaluation sets. content: of the stored file. words: the number of words of a run."""
    evaluations = decode_evaluations(content)
    index = EvaluationIndex(evaluations, words)
    return JobEvaluations(
        sha256=hashlib.sha256(content).hexdigest(),
        records=len(evaluations),
        too_short=index.too_short,
        runs=index.runs,
        in_templates=index.in_templates,
    )


def _warn_of_evaluations(found: JobEvaluations) -> Iterator[str]:
    """Say what of the evaluation sets is not looked for."""
    if found.too_short:
        yield (
            f"note: {counted(found.too_short, 'record')} of {found.records:,} of the evaluation sets cannot be found: "
            "no text of them has enough words. docs/corpus.md"
        )
    if found.in_templates:
        yield (
            f"note: {counted(found.in_templates, 'run')} of words of the evaluation sets are not looked for: more than "
            f"{MOST_RECORDS} of their records have them. docs/corpus.md"
        )
