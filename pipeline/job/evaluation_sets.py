"""The evaluation sets that records are compared with, read at launch to be stored next to the output."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from posixpath import commonprefix, dirname
from typing import Any

import msgspec

from pipeline.job.job_json import JobEvaluations
from transforms.base.errors import StoreError, UserError
from transforms.contamination.index import EvaluationIndex
from transforms.contamination.texts import decode_evaluations, encode_evaluations, evaluation_of
from transforms.inputs.formats import input_format
from transforms.inputs.listing import list_inputs
from transforms.inputs.tasks import tasks_of
from transforms.model.batches import Task
from transforms.model.chunks import CHUNK_BYTES
from transforms.steps.read import read_task


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


def evaluations_of_job(content: bytes, words: int) -> JobEvaluations:
    """Return what a job says of evaluation sets.

    Args:
        content: of the file to store.
        words: the number of words of a run.
    """
    evaluations = decode_evaluations(content)
    index = EvaluationIndex(evaluations, words)
    return JobEvaluations(
        sha256=hashlib.sha256(content).hexdigest(),
        records=len(evaluations),
        too_short=index.too_short,
        runs=index.runs,
        in_templates=index.in_templates,
    )
