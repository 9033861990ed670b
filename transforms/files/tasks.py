"""Tasks: from input files to the input of each shard. They depend on the files and one number alone.

The plan is the list of input files that is stored next to the output, one line for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, groupby

import msgspec

from transforms.files.formats import INPUT_FORMATS, input_format
from transforms.files.listing import InputFile
from transforms.model.batches import Slice, Task

_MEBIBYTE = 1 << 20

# How many tasks read a file from its start, by its compression. The last one reads all of it: together they read it so
# many times and a half. To decompress takes 3% of a build with zstd, 8% with gzip, and so on.
_MOST_READERS = {None: 8, "zstd": 8, "gzip": 4, "xz": 2, "bz2": 1}

# With more, one worker would wait for a store long after the others have finished.
_MOST_SLICES = 4096

_decode = msgspec.json.Decoder(InputFile).decode


def default_task_bytes(total: int) -> int:
    """Return the task size for an input of `total` bytes: about 200 tasks, each of 4 MiB to 256 MiB.

    With 4 MiB, little is lost to the cost of each task; with 256 MiB, 10 TB are 40,000 shards. A task is processed in
    chunks, so its size does not change the memory that a worker needs.
    """
    return min(max(total // 200, 4 * _MEBIBYTE), 256 * _MEBIBYTE)


def make_tasks(files: Sequence[InputFile], task_bytes: int, increment: str = "") -> Iterator[Task]:
    """Make tasks of about task_bytes, of an increment if its id is given, numbered in the order of the files.

    A larger file is cut into equal slices. Small files of one source that follow each other are in one task. If the
    records of a file can only be found by reading it from its start, a few tasks do so, and each takes the records of
    its own slice; with some formats, one does.
    """
    numbers, total = count(), sum(file.unpacked_bytes for file in files)
    for source, source_files in groupby(files, key=lambda file: file.source):
        group: list[Slice] = []
        free = task_bytes
        for piece in chain.from_iterable(_slices(file, task_bytes) for file in source_files):
            size = piece.unpacked_bytes
            if group and (size > free or len(group) == _MOST_SLICES):
                yield Task(next(numbers), tuple(group), source, total, increment)
                group, free = [], task_bytes
            group.append(piece)
            free -= size
        if group:
            yield Task(next(numbers), tuple(group), source, total, increment)


def _slices(file: InputFile, task_bytes: int) -> Iterator[Slice]:
    format = input_format(file.format)
    is_cut = format.can_be_cut and not file.compression
    slices = max(1, -(-file.unpacked_bytes // task_bytes))
    if not is_cut:
        slices = min(slices, _MOST_READERS[file.compression] if format.can_be_shared else 1)
    for i in range(slices):
        start, stop = file.bytes * i // slices, file.bytes * (i + 1) // slices
        if is_cut:
            yield Slice(file.url, file.format, None, start, stop, version=file.version)
            continue
        begin, end = file.unpacked_bytes * i // slices, file.unpacked_bytes * (i + 1) // slices
        content = begin, end if i + 1 < slices else None  # how large the content is, is an estimate
        yield Slice(file.url, file.format, file.compression, start, stop, content, end - begin, file.version)


def largest_first(tasks: Iterable[Task]) -> list[Task]:
    """Order tasks so that at the end no worker is idle for long while another is busy. Their numbers stay.

    This holds if each worker takes the next task when it is free (Graham 1969, longest processing time first), and if
    tasks are dealt to the workers in turn, as by Beam's local runner.
    """
    # About how much a task is to process: its bytes, and a part of those that are only read.
    return sorted(tasks, key=lambda task: -task.unpacked_bytes - sum(piece.content[0] for piece in task.slices) // 16)


def encode_plan(files: Sequence[InputFile]) -> bytes:
    """Return the content of the plan file: JSON lines."""
    return b"".join(msgspec.json.encode(file) + b"\n" for file in files)


def decode_plan(content: bytes) -> list[InputFile]:
    """Return the input files that the content of a plan file lists. Raises msgspec.MsgspecError if it is damaged."""
    files = [_decode(line) for line in content.splitlines()]
    if unknown := {file.format for file in files} - {*INPUT_FORMATS}:
        raise msgspec.ValidationError(f"there is no input format {min(unknown)}")
    return files
