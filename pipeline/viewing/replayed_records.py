"""Replay: process a sample of the records again, from their sources, with the reference, and compare the rows.

It is a proof of the dataset from end to end: however it was built and whatever happened to it since, its rows are
those that transformers would have made of its input.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec
import numpy as np

from pipeline.job.graph import formatters_of, steps_of
from pipeline.job.job_json import Job, job_of, mix_of
from transforms.audit.verification.row_check import Fault
from transforms.base.errors import UserError
from transforms.base.held import held_to
from transforms.base.phrases import counted
from transforms.catalog.description import library_versions
from transforms.catalog.layout import SPLITS
from transforms.catalog.log import Log
from transforms.inputs.listing import InputFile
from transforms.inputs.splits import splits_of
from transforms.model.batches import Labels, Records, Rows, Split
from transforms.model.parts import PART_BYTES
from transforms.reading.reader import Dataset
from transforms.reading.row_examples import examples_of
from transforms.rows import IGNORED
from transforms.rows.answers import ANSWER_COLUMNS
from transforms.rows.packing import longer_of
from transforms.rows.ragged import offsets_of
from transforms.steps.read import read_split
from transforms.storage.files import exists, join, sha256_of
from transforms.storage.hub.urls import without_commit

_DIGEST_BYTES = 16
_Record: TypeAlias = tuple[str, int]  # its source and position
_Outcome: TypeAlias = tuple[str, str | None]  # and its reason
# Why a record is dropped because of others.
_LEFT_OUT = ("duplicate", "not_in_mix")
_COMPARED = ("input_ids", "labels", "loss_mask", "seq_lengths", "position_ids", *ANSWER_COLUMNS)


@dataclass(frozen=True)
class Unit:
    """Tokens that must be somewhere in a dataset, one after the other: an example, a piece of one, or a packed row.

    Attributes:
        ids, labels: int32, shape (tokens,).
        split: train or validation.
        source, position: of the record; of the first one of a packed row.
    """

    ids: np.ndarray
    labels: np.ndarray
    split: str
    source: str
    position: int

    @property
    def digest(self) -> bytes:
        """A hash of the ids."""
        return _digest(self.ids)


@dataclass
class Replayed:
    """What a replay found.

    Attributes:
        records: how many were processed again.
        examples: how many examples, pieces or packed rows of them were compared.
        rejects: how many of the records are rejected.
        faults: what differs from the dataset.
        notes: what may explain a difference.
    """

    records: int = 0
    examples: int = 0
    rejects: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_replayable(dataset: Dataset, trust_formatter: bool) -> None:
    """Check that a dataset can be replayed, before it is read.

    Args:
        dataset, trust_formatter: as replay takes them.

    Raises:
        UserError: if it cannot, or has a formatter that may not be run.
    """
    _replayable_job(dataset, trust_formatter)


def replay(dataset: Dataset, fraction: float, trust_formatter: bool = False) -> Replayed:
    """Process a sample of the records again, and compare them to the rows and rejects.

    The sample is the same each time: it is chosen by a hash of the source and the position of each record. With
    packing `wrapped`, which cuts examples where a row is full, whole parts of the input are chosen, at least one.

    Args:
        dataset: that the command line built, with its folder `_chatmill`.
        fraction: how much of the records, above 0, up to 1.
        trust_formatter: whether the code of the dataset's formatters may be run.

    Raises:
        UserError: if the dataset cannot be replayed, or has a formatter that may not be run, or if an input has changed
            since.
        InputError, StoreError: if an input or the dataset cannot be read.
    """
    job = _replayable_job(dataset, trust_formatter)
    formatters = {name.rpartition(":")[0]: sha256 for name, sha256 in formatters_of(job, dataset.folder).items()}
    held = {file: sha256 or "" for file, sha256 in formatters.items() if file.endswith(".py")}
    if others := [file for file, sha256 in held.items() if not exists(file) or sha256_of(file) != sha256]:
        return Replayed(
            faults=[
                Fault(name, "it is not the formatter that the job was run with: it was not run, and nothing replayed")
                for name in (file.removeprefix(join(dataset.url, "")) for file in others)
            ]
        )
    with held_to(held):
        return _replayed(dataset, fraction, job)


def _replayed(dataset: Dataset, fraction: float, job: Job) -> Replayed:
    found = Replayed()
    for library, now in library_versions().items():
        if (before := job.versions.get(library)) != now:
            found.notes.append(f"the dataset was built with {library} {before}, and replayed with {now}")
    files, left_out = _inputs_of(dataset)
    if left_out:
        found.notes.append(
            f"not replayed: {counted(len(left_out), 'file')} taken again after a change, or by an increment that failed"
        )
    replayer = _Replayer(dataset, job, fraction, left_out)
    splits = list(splits_of(files, job.split_bytes))
    units: list[Unit] = []
    outcomes: dict[_Record, _Outcome] = {}
    rejected: defaultdict[_Record, list[str]] = defaultdict(list)  # two sources may read the same files
    for split in splits:
        for batch in replayer.batches_of(split):
            found.records += batch.outcomes.read
            units += replayer.units_of(batch)
            outcomes |= (of_batch := replayer.outcomes_of(batch))
            for record, (outcome, reason) in of_batch.items():
                if outcome == "rejected":
                    rejected[record].append(reason or "")
    if _leaves_out(job):
        of_others = _left_out_of(dataset)
        units = [unit for unit in units if (unit.source, unit.position) not in of_others]
        outcomes = {record: outcome for record, outcome in outcomes.items() if record not in of_others}
    found.examples, found.rejects = len(units), sum(map(len, rejected.values()))
    found.faults += _compare_units(dataset, units, replayer.is_wrapped)
    found.faults += _compare_rejects(dataset, rejected, replayer)
    found.faults += _compare_ledger(dataset, outcomes)
    return found


def _leaves_out(job: Job) -> bool:
    """Whether records may be dropped because of others."""
    return job.options.dedup != "none" or mix_of(job.options, job.sources) is not None


def _left_out_of(dataset: Dataset) -> set[_Record]:
    """The records that are dropped because of others, by the ledger."""
    found = set[_Record]()
    for batch in dataset.ledger():
        lines = zip(*(batch.column(name).to_pylist() for name in ("source", "position", "reason")), strict=True)
        found.update((source, position) for source, position, reason in lines if reason in _LEFT_OUT)
    return found


def _replayable_job(dataset: Dataset, trust_formatter: bool) -> Job:
    if "steps" in dataset.manifest["job"]:
        raise UserError(f"{dataset.url}: a custom pipeline wrote it, and its functions are not stored with it.")
    if dataset.snapshot is None:
        raise UserError(f"{dataset.url}: its log is missing. Copy the folder _chatmill of the dataset, too.")
    job = job_of(dataset.folder, dataset.snapshot)
    if _is_wrapped(job) and not _is_of_one_build(dataset):
        raise UserError(
            f"{dataset.url}: packing wrapped cuts examples where a row is full, and appends end rows "
            "elsewhere: a dataset with several increments cannot be replayed."
        )
    if _is_wrapped(job) and job.options.shuffle != "none":
        raise UserError(
            f"{dataset.url}: packing wrapped cuts examples where a row is full, and --shuffle decides where that is: "
            "such a dataset cannot be replayed."
        )
    if _leaves_out(job) and job.options.ledger == "none":
        raise UserError(f"{dataset.url}: there is no ledger that tells which records were left out or are lost.")
    columns = {*dataset.layout.columns}
    of_labels = {"labels"} if job.options.shift_labels else {"labels", "loss_mask", "chosen_mask", "completion_mask"}
    if not dataset.layout.has_ids or not columns & of_labels:
        raise UserError(f"{dataset.url}: the rows have no input_ids or no labels, so they cannot be compared.")
    if not dataset.layout.has_segments and job.options.packing != "wrapped":
        raise UserError(f"{dataset.url}: examples cannot be located: the rows have no seq_lengths and no position_ids.")
    if not trust_formatter and (names := [*formatters_of(job, dataset.folder)]):
        raise UserError(
            f"{dataset.url}: --replay runs code that came with the dataset, its formatter ({', '.join(names)}). "
            "Read it, and if you trust it, add --trust_formatter."
        )
    return job


def _is_wrapped(job: Job) -> bool:
    return longer_of(job.options.packing) == "keep"


def _is_of_one_build(dataset: Dataset) -> bool:
    """Whether all rows are as one build wrote them."""
    entries = Log(dataset.folder).versions()
    return [entry.kind for entry in entries if entry.version <= dataset.version][-1] == "build"


def _inputs_of(dataset: Dataset) -> tuple[list[InputFile], set[str]]:
    """The input files whose records are in a dataset, and the urls, without commits, of those that cannot be read again
    as they were.
    """
    assert dataset.snapshot
    increments = dataset.snapshot.increments
    left_out = {url for (_, url), versions in dataset.snapshot.taken().items() if len(versions) > 1}
    files = [file for each in increments for file in each.inputs if file.key[1] not in left_out]
    return sorted(files, key=lambda file: file.source), left_out  # those of a source together, as splits are


class _Replayer:
    """Processes records again, by the reference, as the job did."""

    def __init__(self, dataset: Dataset, job: Job, fraction: float, left_out: Set[str]):
        self._options = job.options
        self._left_out = left_out
        self._limit = int(fraction * (1 << 64))
        steps = steps_of(job, dataset.folder, engine="reference")
        self._packer: Any = steps.pop("pack").function()
        self._functions = [step.function() for step in steps.values()]
        self.is_wrapped = _is_wrapped(job)
        self._has_part = False

    def batches_of(self, split: Split) -> Iterator[Labels]:
        """Read a split again, and label the records of the sample."""
        for part in read_split(split, PART_BYTES, self._options.max_record_bytes):
            if not self.is_wrapped:
                part = self._sample(part)
            elif self._has_part and not self.is_chosen(split.slices[0].url, part.split.number << 20 | part.part):
                continue
            self._has_part = True
            if part.outcomes.read:
                batch: Any = part
                for function in self._functions:
                    batch = function(batch)
                yield batch

    def is_chosen(self, source: str, position: int) -> bool:
        """Whether a record is in the sample."""
        return (
            without_commit(source) not in self._left_out
            and int.from_bytes(_digest(f"{source}\n{position}".encode())[:8], "big") < self._limit
        )

    def _sample(self, part: Records) -> Records:
        def is_chosen(record: Any) -> bool:
            piece, position = part.split.origin(record.position)
            return self.is_chosen(piece.url, position)

        records = list(filter(is_chosen, part.records))
        rejects = tuple(filter(is_chosen, part.outcomes.rejects))
        outcomes = msgspec.structs.replace(part.outcomes, read=len(records) + len(rejects), rejects=rejects)
        return replace(part, records=records, outcomes=outcomes)

    def units_of(self, batch: Labels) -> Iterator[Unit]:
        """Cut the labelled rows of a batch as the job does, and yield what has a trained token."""
        if self.is_wrapped:
            yield from self._rows_of(self._packer(batch))
            return
        segments = self._packer.used(batch)
        starts, labels_of_all = batch.offsets[segments.source] + segments.start, self._packer.labels_in(batch, segments)
        offsets = offsets_of(segments.length).tolist()
        for number, (source, start) in enumerate(zip(segments.source.tolist(), starts.tolist(), strict=True)):
            labels = labels_of_all[offsets[number] : offsets[number + 1]]
            ids = batch.ids[start : start + len(labels)]
            if np.any(labels != IGNORED):
                piece, position = batch.split.origin(int(batch.source.positions[source]))
                split = "validation" if batch.source.validation[source] else "train"
                yield Unit(*_comparable(ids, labels, self._options.shift_labels), split, piece.url, position)

    def outcomes_of(self, batch: Labels) -> dict[_Record, _Outcome]:
        """Return the outcome of each record of a batch, as the ledger has it."""
        rows: Rows = self._packer(batch)
        positions = rows.source.positions[rows.source.first_rows()[rows.used.records]].tolist()
        found: list[tuple[int, _Outcome]] = [
            (position, ("truncated" if is_truncated else "kept", None))
            for position, is_truncated in zip(positions, rows.used.truncated.tolist(), strict=True)
        ]
        found += [(drop.position, ("dropped", drop.reason)) for drop in rows.outcomes.drops]
        found += [(reject.position, ("rejected", reject.reason)) for reject in rows.outcomes.rejects]
        origins = ((rows.split.origin(position), outcome) for position, outcome in found)
        return {(piece.url, position): outcome for (piece, position), outcome in origins}

    def _rows_of(self, rows: Rows) -> Iterator[Unit]:
        for split, table in (("train", rows.train), ("validation", rows.validation)):
            for row in range(len(table)):
                start, stop = table.offsets[row : row + 2]
                piece, position = rows.split.origin(
                    int(rows.source.positions[table.sources[table.segment_offsets[row]]])
                )
                yield Unit(table.ids[start:stop], table.labels[start:stop], split, piece.url, position)


def _comparable(ids: np.ndarray, labels: np.ndarray, shifted: bool) -> tuple[np.ndarray, np.ndarray]:
    """An example as far as rows with shifted labels have it: the last token of a row is there only if it is trained."""
    if not shifted:
        return ids, labels
    stop = int(np.flatnonzero(labels != IGNORED)[-1]) + 1 if np.any(labels != IGNORED) else 0
    return ids[:stop], labels[:stop]


def _units_in(dataset: Dataset, split: str, is_wrapped: bool) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """The path and the row of each example of a dataset, or of each row, with its ids and labels."""
    columns = [name for name in _COMPARED if name in dataset.layout.columns]
    shifted = dataset.layout.shift_labels and not is_wrapped
    path, before = "", 0
    for shard, first, batch in dataset.rows(split, columns):
        if shard["path"] != path:
            path, before = shard["path"], first
        found = examples_of(batch, dataset.packed and not is_wrapped, shifted)
        rows = np.repeat(np.arange(len(batch)), found.counts) + first - before
        for number, row in enumerate(rows.tolist()):
            start, stop = found.offsets[number : number + 2]
            yield path, row, *_comparable(found.ids[start:stop], found.labels[start:stop], shifted)


def _compare_units(dataset: Dataset, units: Sequence[Unit], is_wrapped: bool) -> Iterator[Fault]:
    """Find each unit in the dataset; yield those that are not there, or are there with other labels."""
    for split in SPLITS:
        wanted: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)
        of_units: dict[tuple[bytes, bytes], Unit] = {}
        for unit in units:
            if unit.split == split:
                wanted[unit.digest][_digest(unit.labels)] += 1
                of_units[unit.digest, _digest(unit.labels)] = unit
        if not wanted:
            continue
        others: dict[bytes, tuple[str, int, np.ndarray]] = {}
        for path, row, ids, labels in _units_in(dataset, split, is_wrapped):
            if (digest := _digest(ids)) in wanted:
                wanted[digest][_digest(labels)] -= 1
                if (digest, _digest(labels)) not in of_units:
                    others[digest] = path, row, labels
        for (digest, of_labels), unit in of_units.items():
            if (missing := wanted[digest][of_labels]) > 0:
                yield _fault_of(dataset, unit, missing, others.get(digest))


def _fault_of(dataset: Dataset, unit: Unit, missing: int, other: tuple[str, int, np.ndarray] | None) -> Fault:
    record = f"{unit.source}:{unit.position}"
    if other is not None:
        path, row, labels = other
        at = int(np.flatnonzero(labels != unit.labels)[0])
        problem = f"replayed, token {at} of the example of {record} has the label {unit.labels[at]}, not {labels[at]}"
        return Fault(path, problem, (row,), 1)
    times = "" if missing == 1 else f", {missing:,} times"
    problem = f"replayed, {record} gives {len(unit.ids):,} tokens that are not in {unit.split}{times}"
    return Fault("data", problem)


def _compare_rejects(dataset: Dataset, rejected: Mapping[_Record, list[str]], replayer: _Replayer) -> Iterator[Fault]:
    """Yield records that are rejected in the dataset and not in the replay, or the other way round."""
    stored: defaultdict[_Record, list[str]] = defaultdict(list)
    for batch in dataset.rejects():
        columns = [batch.column(name).to_pylist() for name in ("source", "position", "reason")]
        for source, position, reason in zip(*columns, strict=True):
            if (source, position) in rejected or (not replayer.is_wrapped and replayer.is_chosen(source, position)):
                stored[source, position].append(reason)
    for record in dict.fromkeys((*stored, *rejected)):
        now, before = ("; ".join(sorted(reasons.get(record, ()))) for reasons in (rejected, stored))
        if now == before:
            continue
        problem = f"is rejected as {now}" if now else f"is not rejected ({before})"
        both = f", not as {before}" if now and before else ""
        yield Fault("rejects", f"replayed, {record[0]}:{record[1]} {problem}{both}")


def _compare_ledger(dataset: Dataset, outcomes: Mapping[_Record, _Outcome]) -> Iterator[Fault]:
    """Yield records that have another outcome, or another reason, in the ledger."""
    kind = dataset.options.get("ledger", "none")
    if kind == "none" or len(dataset.manifest["sources"]) > 1:  # two of them may read the same files
        return
    seen = set()
    for batch in dataset.ledger():
        columns = [batch.column(name).to_pylist() for name in ("source", "position", "outcome", "reason")]
        for source, position, *line in zip(*columns, strict=True):
            now = outcomes.get((source, position))
            if now is not None and (source, position) not in seen and line[0] != "repeated":
                seen.add((source, position))
                if now != tuple(line):
                    yield Fault("ledger", f"replayed, {source}:{position} is {_named(now)}, not {_named(line)}")
    for (source, position), now in outcomes.items():
        if (source, position) not in seen and (kind == "all" or now[0] != "kept"):
            yield Fault("ledger", f"replayed, {source}:{position} is {_named(now)}; it is not in the ledger")


def _named(outcome: Sequence[str | None]) -> str:
    return " ".join(filter(None, outcome))


def _digest(content: np.ndarray | bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()  # type: ignore[arg-type]
