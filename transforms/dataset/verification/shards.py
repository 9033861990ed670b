"""Check the files of shards: each against its entry in the manifest, and the rows in it."""

from __future__ import annotations

import gzip
import hashlib
import io
import mmap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.dataset.consumers import RowLayout
from transforms.dataset.reader import reading
from transforms.dataset.schema import schema_of
from transforms.dataset.tfrecord import read_tfrecord
from transforms.dataset.verification.ledger import LedgerLines
from transforms.dataset.verification.rows import Checked, Fault, check_rows
from transforms.errors import InputError
from transforms.outputs import ShardEntry
from transforms.outputs.tfrecord import encode_tfrecord
from transforms.storage.files import join, mapped, open_file, sha256_of

# A Parquet file of more bytes is several tasks, so that all processes take part in one large shard.
_BYTES_OF_A_TASK = 64 << 20


@dataclass(frozen=True)
class Expected:
    """What all shards of a dataset must agree with.

    Attributes:
        url: of the dataset's folder.
        layout: of the rows.
        vocabulary: ids are below it; None if it is not known.
        about: what each Parquet file says of the dataset.
        has_whole_ledger: whether the ledger has a line for each segment.
    """

    url: str
    layout: RowLayout
    vocabulary: int | None
    about: Mapping[str, Any]
    has_whole_ledger: bool = False


@dataclass(frozen=True)
class Task:
    """A share of the work.

    Attributes:
        shard: its entry in the manifest.
        twin: of a TFRecord shard, the entry of the Parquet shard that has the same rows; None if there is none.
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
    """Divide the work on a shard: one task, or several if it is a large Parquet file.

    Args:
        url: of the dataset's folder.
        shard, twin, ledger: as for Task.
    """
    if shard["format"] != "parquet" or shard["bytes"] <= _BYTES_OF_A_TASK:
        return [Task(shard, twin, ledger=ledger)]
    try:
        with reading(url), open_file(join(url, shard["path"])) as file:
            groups = pq.ParquetFile(file).num_row_groups
    except InputError:
        return [Task(shard)]  # which says what is wrong
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
                    _check_parquet(expected, task, pq.ParquetFile(file), found)
                return found
            content = mapped(url)
            found.faults += _checksum_faults(task.shard, hashlib.sha256(content).hexdigest())
            if found.faults:
                return found  # what was damaged could be anything
            if task.shard["format"] == "parquet":
                _check_parquet(expected, task, pq.ParquetFile(pa.BufferReader(pa.py_buffer(content))), found)
            elif task.twin is not None:
                _compare_tfrecord(expected, task, content, found)
            else:
                batches = read_tfrecord(_stream(content), schema_of(expected.layout), path.endswith(".gz"))
                _check_batches(expected, task, batches, found)
    except InputError as error:
        found.faults.append(Fault(path, str(error).removeprefix(f"{url}: ")))
    return found


def _checksum_faults(shard: ShardEntry, sha256: str) -> list[Fault]:
    if sha256 == shard["sha256"]:
        return []
    problem = f"it was changed or damaged: its sha256 is {sha256}; the manifest has {shard['sha256']}"
    return [Fault(shard["path"], problem)]


def _check_parquet(expected: Expected, task: Task, file: pq.ParquetFile, found: Checked) -> None:
    path, schema = task.shard["path"], schema_of(expected.layout)
    if not file.schema_arrow.remove_metadata().equals(schema):
        problem = f"its columns are {_described(file.schema_arrow)}; expected {_described(schema)}"
        found.faults.append(Fault(path, problem))
        return
    if task.checksum:
        found.faults += [Fault(path, problem) for problem in _metadata_problems(file, expected.about)]
    start, stop = task.groups or (0, file.num_row_groups)
    first = sum(file.metadata.row_group(group).num_rows for group in range(start))
    # One thread: there is a process for each core.
    tables = (file.read_row_group(group, use_threads=False) for group in range(start, stop))
    _check_batches(expected, task, filter(len, tables), found, first)


def _check_batches(
    expected: Expected, task: Task, batches: Iterable[pa.Table | pa.RecordBatch], found: Checked, first: int = 0
) -> None:
    """Check rows, and what the ledger says of them. first: the number in the shard of the first row."""
    path, lines = task.shard["path"], None
    if task.ledger is not None:
        with suppress(InputError):  # which is a fault of that file
            lines = LedgerLines.read(expected.url, task.ledger, task.shard["split"], expected.has_whole_ledger)
    for batch in batches:
        checked = check_rows(batch, expected.layout, expected.vocabulary, path, first)
        stop = first + len(batch)
        if lines is not None and checked.segments is not None and not checked.faults:
            checked.faults += lines.check(checked.segments, path, first, stop)
        found.add(checked)
        first = stop
    if lines is not None and task.groups is None:
        found.faults += lines.check_end(path, first)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def _metadata_problems(file: pq.ParquetFile, about: Mapping[str, Any]) -> Iterator[str]:
    """What the file says of the dataset that is not so."""
    try:
        found = msgspec.json.decode((file.schema_arrow.metadata or {})[b"chatmill"], type=dict)
    except (KeyError, msgspec.MsgspecError):
        yield "its metadata do not say which dataset it belongs to (the key chatmill)"
        return
    for name, value in about.items():
        if found.get(name) != value:
            yield f"it is a shard of another dataset: its {name} is {found.get(name)}; expected {value}"


def _stream(content: bytes | mmap.mmap) -> Any:
    return io.BytesIO(content) if isinstance(content, bytes) else content


def _compare_tfrecord(expected: Expected, task: Task, content: bytes | mmap.mmap, found: Checked) -> None:
    """Check that a TFRecord shard has the rows of its Parquet shard, whose own task checks them."""
    assert task.twin is not None
    found.tokens = found.trained_tokens = found.examples = None
    stream = _stream(content)
    if task.shard["path"].endswith(".gz"):
        stream = gzip.GzipFile(fileobj=stream)
    url = join(expected.url, task.twin["path"])
    try:
        with reading(url), open_file(url) as opened:
            file = pq.ParquetFile(opened)
            for group in range(file.num_row_groups):
                # The same rows are the same bytes, and to encode them is ten times as fast as to decode them.
                encoded = encode_tfrecord(file.read_row_group(group, use_threads=False))
                if stream.read(len(encoded)) != encoded:
                    break
                found.rows += file.metadata.row_group(group).num_rows
            else:
                if not stream.read(1):
                    found.tokens = task.shard["tokens"]
                    found.trained_tokens = task.shard["trained_tokens"]
                    return
            rows = file.read().replace_schema_metadata(None)
    except InputError:  # the task of that shard says what is wrong with it
        found.rows = task.shard["rows"]
        return
    _compare_rows(expected, task, content, rows, found)


def _compare_rows(expected: Expected, task: Task, content: bytes | mmap.mmap, rows: pa.Table, found: Checked) -> None:
    """Find which rows of a TFRecord shard are others than those of its Parquet shard."""
    assert task.twin is not None
    path, twin = task.shard["path"], task.twin["path"]
    stream = _stream(content)
    stream.seek(0)
    batches = [*read_tfrecord(stream, schema_of(expected.layout), path.endswith(".gz"))]
    others = pa.Table.from_batches(batches, schema_of(expected.layout))
    found.rows = len(others)
    if len(others) != len(rows):
        found.faults.append(Fault(path, f"it has {len(others):,} rows, and {twin} has {len(rows):,}"))
    pairs = ((number, others.slice(number, 1), rows.slice(number, 1)) for number in range(min(len(others), len(rows))))
    differing = [number for number, row, other in pairs if not row.equals(other)]
    if differing:
        problem = f"it is not the row that {twin} has there"
        found.faults.append(Fault.of_rows(path, problem, differing))
