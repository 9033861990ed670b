"""The end of custom pipelines: WriteDataset, which commits a dataset.

A custom pipeline has no command that plans it: its user says what it does, and that is recorded. It writes a dataset
once, to an empty folder.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np

from transforms.base.errors import CommittedMeanwhile, ParameterError, UserError
from transforms.base.options import Names, String, check_choice, checked, field_types, option_values
from transforms.dataset import REPORTS, Budgets
from transforms.dataset.commit import CommitDataset, commit_increment
from transforms.dataset.description import library_versions
from transforms.dataset.layout import Folder
from transforms.dataset.versions import Change, numbers
from transforms.model.batches import Rows, Task
from transforms.model.chunks import Chunks
from transforms.model.receipts import Receipt
from transforms.rows import IGNORED
from transforms.rows.columns import check_kept_columns
from transforms.rows.layout import RowLayout
from transforms.steps.row_options import PackOptions, WriteOptions
from transforms.steps.write import WriteShards
from transforms.storage.files import full_url, join, path_type, read_bytes
from transforms.storage.lock import locked
from transforms.storage.walking import names_in
from transforms.storage.writing import create, remove, write_atomically
from transforms.tokens.tokenizer_files import fingerprint, read_tokenizer_folder


class WriteDataset(beam.PTransform):
    """Write rows as a dataset, and commit it once all are written: manifest, card, report.

    PCollection[Chunks[Rows]] -> PCollection[str], the url of the manifest. The rows must come from one
    ReadConversations. Each pipeline writes a dataset of its own: none is resumed, and what is there is not replaced. Of
    two that write to one output at once, the one that comes second fails.

    Args:
        output: the folder of the dataset, at any url that fsspec opens: new or empty.
        job: what the pipeline does, in your words: a mapping that JSON can hold. It is recorded as it is, as
            `job.custom` of the manifest, and shown on the card.
        tokenizer: the folder of the tokenizer, as in Tokenize. It is stored with the dataset.
        packing, max_length, shift_labels: as in TruncateOrPack.
        keep_columns: as in ParseConversations.
        sources: the names of the sources, in the order of ReadConversations, if it reads several.
        report: `html` for a report.html of the dataset, or `none`.
        options: those of a build, by name: output_format, write_columns, provenance, max_reject_fraction,
            max_lost_fraction, max_parity_fraction, max_unprinted_fraction. A run with more than these fractions fails.

    Raises:
        ParameterError: if a value is not one of those; and, when the pipeline is built, if the output is not empty.
        UserError: if the rows are others than these parameters say, or if another pipeline writes to the output, when
            the pipeline runs.
    """

    def __init__(
        self,
        output: str,
        job: Mapping[str, Any],
        *,
        tokenizer: str,
        packing: str = "none",
        max_length: int | None = None,
        shift_labels: bool = False,
        keep_columns: Sequence[str] = (),
        sources: Sequence[str] = ("input",),
        report: str = "html",
        **options: Any,
    ):
        super().__init__()
        checked("output", output, String)
        checked("tokenizer", tokenizer, String)
        pack = PackOptions(packing=packing, max_length=max_length, shift_labels=shift_labels)
        checked("keep_columns", keep_columns, Names)
        checked("sources", sources, Names)
        check_choice("report", report, REPORTS)
        own = {name: options.pop(name) for name in field_types(Budgets) if name in options}
        self._budgets = Budgets(**own)
        self._writing = option_values(WriteOptions, WriteOptions(**options))
        check_kept_columns(keep_columns, self._writing["write_columns"], self._writing["provenance"])
        rows = {name: getattr(pack, name) for name in ("packing", "max_length", "shift_labels")}
        self._job: dict[str, Any] = {
            "custom": _as_json(job),
            "options": {**rows, "keep_columns": list(keep_columns), **self._writing},
            "sources": [{"name": name} for name in sources],
        }
        self._output, self._tokenizer, self._report = output, tokenizer, report
        self.with_input_types(Chunks[Rows])

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        content = fingerprint(read_tokenizer_folder(self._tokenizer))
        job = self._job | {"tokenizer": content, "versions": library_versions()}
        id = hashlib.sha256(msgspec.json.encode(job, order="deterministic")).hexdigest()[:16]
        job["tokenizer_name"] = self._tokenizer
        folder = Folder(full_url(self._output), id)
        _check_empty(folder, self._output)
        about = RowLayout.of(job["options"]).described() | {"tokenizer": content}
        write = WriteShards(folder.output, **self._writing, about=about, tokenizer=self._tokenizer)
        commit = functools.partial(_commit, folder=folder, job=job, budgets=self._budgets, report=self._report)
        checked = rows | "check" >> beam.Map(_checked, job, folder, uuid.uuid4().hex).with_output_types(Chunks[Rows])
        return checked | "write" >> write | "commit" >> CommitDataset(folder, commit)


def _as_json(job: Any) -> dict[str, Any]:
    if not isinstance(job, Mapping):
        raise ParameterError("job", job, "expected a value of type Mapping.")
    try:
        return msgspec.json.decode(msgspec.json.encode(dict(job)), type=dict[str, Any])
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ParameterError("job", job, f"expected a mapping that JSON can hold ({error}).") from None


def _check_empty(folder: Folder, output: str) -> None:
    """Check that a dataset can be written to a folder.

    Raises:
        ParameterError: if something is there, or its store cannot create a file only if there is none.
    """
    kind = path_type(folder.output)
    if kind == "file" or (kind and names_in(folder.output)):
        problem = (
            "it is not empty. A custom pipeline writes a new dataset: remove what is there, or give another folder."
        )
        raise ParameterError("output", output, problem)
    with locked(folder.lock, output):
        pass


def _checked(chunks: Chunks[Rows], job: Mapping[str, Any], folder: Folder, run: str) -> Chunks[Rows]:
    """The chunks of a task of an increment, each of which is checked when it is made."""
    task = dataclasses.replace(chunks.task, increment=folder.increment)

    def check(rows: Rows) -> Rows:
        _check(rows, job, task.source)
        return dataclasses.replace(rows, task=task)

    def make(_: Task) -> Iterator[Rows]:
        _begin(folder, run)
        return map(check, chunks)

    return Chunks(task, make)


def _begin(folder: Folder, run: str) -> None:
    """Check that no other pipeline writes to the folder: its files may have the same names, and other rows.

    Of several, the one that creates the file of the increment first goes on. A commit removes that file.
    """
    url = join(folder.work, "run")
    if not create(url, run.encode()) and read_bytes(url) != run.encode():
        raise UserError(f"{folder.output}: another run has begun to write a dataset to it. Give another folder.")
    if numbers(folder):
        remove(folder.work)
        raise _committed_meanwhile(folder)


def _committed_meanwhile(folder: Folder) -> UserError:
    return UserError(f"{folder.output}: another run has committed a dataset to it meanwhile. Give another folder.")


def _check(rows: Rows, job: Mapping[str, Any], source: int) -> None:
    """Raise UserError if rows are not as the job says it."""
    options, differing = job["options"], dict[str, Any]()
    kept = rows.facts.columns.column_names
    if len(rows.facts.table) and kept != options["keep_columns"]:
        differing["keep_columns"] = kept
    if rows.packing != options["packing"]:
        differing["packing"] = rows.packing
    for table in (rows.train, rows.validation):
        longest = int(np.diff(table.offsets).max(initial=0))
        if longest > (options["max_length"] or longest):
            differing["max_length"] = longest
        if not options["shift_labels"] and ((table.labels != IGNORED) & (table.labels != table.ids)).any():
            differing["shift_labels"] = True
    for name, value in differing.items():
        raise UserError(f"WriteDataset: {name} is {options[name]!r}, and the rows have {value!r}. Give the same.")
    if source >= len(job["sources"]):
        raise UserError(f"WriteDataset: there is a source {source + 1}; expected the names of all in sources.")


def _commit(receipts: Sequence[Receipt], folder: Folder, job: Mapping[str, Any], budgets: Budgets, report: str) -> None:
    """Store the tokenizer and the job, and commit. It can be repeated."""
    if len({(receipt.task, receipt.shard) for receipt in receipts}) < len(receipts):
        raise UserError(
            "WriteDataset: its rows come from several ReadConversations; expected one, of several patterns."
        )
    files = read_tokenizer_folder(job["tokenizer_name"])
    if fingerprint(files) != job["tokenizer"]:
        raise UserError(f"{job['tokenizer_name']}: the tokenizer was changed since the pipeline was built.")
    for name, content in files.items():
        write_atomically(join(folder.tokenizer(job["tokenizer"]), name), content)
    job = {**job, "tasks": len({receipt.task for receipt in receipts})}
    write_atomically(folder.plan, b"")
    write_atomically(folder.job, msgspec.json.format(msgspec.json.encode(job), indent=2))
    try:
        commit_increment(receipts, folder, budgets, report, Change())
    except CommittedMeanwhile:
        raise _committed_meanwhile(folder) from None
