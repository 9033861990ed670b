"""Check the files of shards: each against its entry in the manifest, and the rows in it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from transforms.audit.verification.ledger_check import LedgerLines
from transforms.audit.verification.row_check import Checked, Fault, check_rows
from transforms.base.errors import InputError
from transforms.catalog.consumers import RowLayout
from transforms.catalog.schema import schema_of
from transforms.outputs import ShardEntry, output_format
from transforms.reading.reader import open_shard, reading
from transforms.storage.files import join, mapped, open_file, sha256_of
from transforms.tokens.decoding import TokenDecoder
from transforms.tokens.span_ends import SpanEnds

# A file of more bytes is several tasks, if it has groups of rows, so that all processes take part in one large shard.
_BYTES_OF_A_TASK = 64 << 20


@dataclass(frozen=True)
class Expected:
    """What all shards of a dataset must agree with.

    Attributes:
        url: of the dataset's folder.
        layout: of the rows.
        tokenizer: the folder of the tokenizer; None if it is of no use.
        vocabulary: ids are below it; None if it is not known.
        about: what each file says of the dataset, if it says anything.
        has_whole_ledger: whether the ledger has a line for each segment.
    """

    url: str
    layout: RowLayout
    tokenizer: str | None
    vocabulary: int | None
    about: Mapping[str, Any]
    has_whole_ledger: bool = False


@dataclass(frozen=True)
class Task:
    """A share of the work.

    Attributes:
        shard: its entry in the manifest.
        twin: the entry of the shard that has the same rows in the format that is read; None if it is itself.
        groups: the first of the row groups to check, and the one after the last; None for all.
        checksum: whether to check that the file is the one that the manifest describes.
        ledger: the path of the file of the ledger that has lines about the shard; None if there is none.
    """

    shard: ShardEntry
    twin: ShardEntry | None = None
    groups: tuple[int, int] | None = None
    checksum: bool = True
    ledger: str | None = None


def tasks_of(url: str, shard: ShardEntry, twin: ShardEntry | None, ledger: str | None) -> list[Task]:
    """Divide the work on a shard: one task, or several if it is a large file with groups of rows.

    Args:
        url: of the dataset's folder.
        shard, ledger: as for Task.
        twin: the same, or the shard itself.
    """
    twin = None if twin and twin["path"] == shard["path"] else twin
    if shard["bytes"] <= _BYTES_OF_A_TASK or twin:
        return [Task(shard, twin, ledger=ledger)]
    try:
        with open_shard(url, shard, pa.schema([])) as reader:
            groups = len(reader.groups)
    except InputError:
        return [Task(shard)]  # which says what is wrong
    if not groups:
        return [Task(shard, ledger=ledger)]
    size = -(-groups * _BYTES_OF_A_TASK // shard["bytes"])
    shares = [
        Task(shard, groups=(start, min(start + size, groups)), checksum=False, ledger=ledger)
        for start in range(0, groups, size)
    ]
    return [Task(shard, groups=(0, 0)), *shares]


def check_shard(expected: Expected, task: Task) -> Checked:
    """Do a task.

    Raises:
        StoreError: if the store fails.
    """
    path = task.shard["path"]
    url = join(expected.url, path)
    found = Checked()
    try:
        with reading(url):
            if task.groups is not None:
                if task.checksum:
                    found.faults += _checksum_faults(task.shard, sha256_of(url))
                with open_file(url) as file:
                    _check_file(expected, task, file, found)
                return found
            content = mapped(url)
            found.faults += _checksum_faults(task.shard, hashlib.sha256(content).hexdigest())
            if not found.faults:  # what was damaged could be anything
                _check_file(expected, task, pa.BufferReader(pa.py_buffer(content)), found)
    except InputError as error:
        found.faults.append(Fault(path, str(error).removeprefix(f"{url}: ")))
    return found


def _checksum_faults(shard: ShardEntry, sha256: str) -> list[Fault]:
    if sha256 == shard["sha256"]:
        return []
    problem = f"it was changed or damaged: its sha256 is {sha256}; the manifest has {shard['sha256']}"
    return [Fault(shard["path"], problem)]


def _check_file(expected: Expected, task: Task, file: Any, found: Checked) -> None:
    path, schema = task.shard["path"], schema_of(expected.layout)
    reader = output_format(task.shard["format"]).reader(file, path, schema)
    if reader.schema is not None:
        if not reader.schema.remove_metadata().equals(schema):
            problem = f"its columns are {_described(reader.schema)}; expected {_described(schema)}"
            found.faults.append(Fault(path, problem))
            return
        if task.checksum:
            found.faults += [Fault(path, problem) for problem in _metadata_problems(reader.schema, expected.about)]
    if task.twin is not None:
        _compare(expected, task, file, task.twin, found)
        return
    start, stop = task.groups or (0, None)
    # One thread: there is a process for each core.
    _check_batches(expected, task, reader.batches(start, stop, threads=False), found, sum(reader.groups[:start]))


def _check_batches(
    expected: Expected, task: Task, batches: Iterable[pa.Table | pa.RecordBatch], found: Checked, first: int = 0
) -> None:
    """Check rows, and what the ledger says of them. first: the number in the shard of the first row."""
    path, lines = task.shard["path"], None
    if task.ledger is not None:
        with suppress(InputError):  # which is a fault of that file
            lines = LedgerLines.read(expected.url, task.ledger, task.shard["split"], expected.has_whole_ledger)
    span_ends = _span_ends(expected.tokenizer) if expected.tokenizer else None
    for batch in batches:
        checked = check_rows(batch, expected.layout, expected.vocabulary, path, first, span_ends)
        stop = first + len(batch)
        if lines is not None and checked.segments is not None and not checked.faults:
            checked.faults += lines.check(checked.segments, path, first, stop)
        found.add(checked)
        first = stop
    if lines is not None and task.groups is None:
        found.faults += lines.check_end(path, first)


@functools.lru_cache(1)
def _span_ends(tokenizer: str) -> SpanEnds:
    return SpanEnds(TokenDecoder.load(tokenizer))


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def _metadata_problems(schema: pa.Schema, about: Mapping[str, Any]) -> Iterator[str]:
    """What a file says of the dataset that is not so."""
    try:
        found = msgspec.json.decode((schema.metadata or {})[b"chatmill"], type=dict)
    except (KeyError, msgspec.MsgspecError):
        yield "its metadata do not say which dataset it belongs to (the key chatmill)"
        return
    for name, value in about.items():
        if found.get(name) != value:
            yield f"it is a shard of another dataset: its {name} is {found.get(name)}; expected {value}"


def _compare(expected: Expected, task: Task, file: Any, twin: ShardEntry, found: Checked) -> None:
    """Check that a shard has the rows of its twin, whose own task checks them."""
    path, schema = task.shard["path"], schema_of(expected.layout)
    found.tokens = found.trained_tokens = found.examples = found.span_ends = found.parts = None
    found.rows = task.shard["rows"]
    new_reader = output_format(task.shard["format"]).reader
    try:
        if new_reader(file, path, schema).has_rows(map(_table_of, _batches_of(expected, twin))):
            found.tokens, found.trained_tokens = task.shard["tokens"], task.shard["trained_tokens"]
            return
        rows = pa.Table.from_batches(_batches_of(expected, twin), schema)
    except InputError:  # the task of that shard says what is wrong with it
        return
    file.seek(0)
    others = pa.Table.from_batches(new_reader(file, path, schema).batches(threads=False), schema)
    found.rows = len(others)
    if len(others) != len(rows):
        found.faults.append(Fault(path, f"it has {len(others):,} rows, and {twin['path']} has {len(rows):,}"))
    pairs = ((number, others.slice(number, 1), rows.slice(number, 1)) for number in range(min(len(others), len(rows))))
    differing = [number for number, row, other in pairs if not row.equals(other)]
    if differing:
        problem = f"it is not the row that {twin['path']} has there"
        found.faults.append(Fault.of_rows(path, problem, differing))


def _batches_of(expected: Expected, shard: ShardEntry) -> Iterator[pa.RecordBatch]:
    with open_shard(expected.url, shard, schema_of(expected.layout)) as reader:
        yield from reader.batches(threads=False)


def _table_of(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
