"""Splits: from input files to the input of each shard. They depend on the files and one number alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, groupby

from transforms.inputs.formats import input_format
from transforms.inputs.listing import InputFile
from transforms.model.batches import Slice, Split

_MEBIBYTE = 1 << 20

# With more, one worker would wait for a store long after the others have finished.
_MOST_SLICES = 4096


def default_split_bytes(total: int) -> int:
    """Return the split size for an input of `total` bytes: about 200 splits, each of 4 MiB to 256 MiB.

    With 4 MiB, little is lost to the cost of each split; with 256 MiB, 10 TB are 40,000 shards. A split is processed in
    parts, so its size does not change the memory that a worker needs.
    """
    return min(max(total // 200, 4 * _MEBIBYTE), 256 * _MEBIBYTE)


def splits_of(files: Sequence[InputFile], split_bytes: int) -> Iterator[Split]:
    """Make splits of about split_bytes, numbered in the order of the files.

    A larger file is cut into equal slices. Small files of one source that follow each other are in one split. A file
    that cannot be cut, since its records can only be found by reading it from its start, is in one split, whatever its
    size.
    """
    numbers = count()
    for source, of_source in groupby(files, key=lambda file: file.source):
        for slices in _grouped(of_source, split_bytes):
            yield Split(next(numbers), slices, source)


def _grouped(files: Iterable[InputFile], split_bytes: int) -> Iterator[tuple[Slice, ...]]:
    """Yield the slices of each split."""
    group: list[Slice] = []
    free = 0
    for piece in chain.from_iterable(_slices(file, split_bytes) for file in files):
        size = piece.unpacked_bytes
        if group and (size > free or len(group) == _MOST_SLICES):
            yield tuple(group)
            group = []
        free = free - size if group else split_bytes - size
        group.append(piece)
    if group:
        yield tuple(group)


def _slices(file: InputFile, split_bytes: int) -> Iterator[Slice]:
    can_be_cut = input_format(file.format).can_be_cut and not file.compression
    slices = -(-file.bytes // split_bytes) if can_be_cut else 1
    for i in range(slices):
        start, stop = file.bytes * i // slices, file.bytes * (i + 1) // slices
        yield Slice(file.url, file.format, file.compression, start, stop)


def largest_first(splits: Iterable[Split]) -> list[Split]:
    """Order splits so that at the end no worker is idle for long while another is busy. Their numbers stay.

    This holds if each worker takes the next split when it is free (Graham 1969, longest processing time first), and if
    splits are dealt to the workers in turn, as by Beam's local runner.
    """
    return sorted(splits, key=lambda split: -split.unpacked_bytes)
