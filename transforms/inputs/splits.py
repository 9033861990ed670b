"""Splits: from input files to slices of them. They depend on the files and one number, never on the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transforms.inputs.formats import input_format
from transforms.inputs.listing import InputFile
from transforms.model.batches import Split

_MEBIBYTE = 1 << 20

# Roughly how much larger conversations are than the same ones compressed.
_COMPRESSION_RATIO = 5


def default_split_bytes(total: int) -> int:
    """Return the split size for an input of `total` bytes: about 200 splits, each of 4 MiB to 64 MiB.

    With 4 MiB, little is lost to the cost of each split; with 64 MiB, 10 TB are 160,000 shards.
    """
    return min(max(total // 200, 4 * _MEBIBYTE), 64 * _MEBIBYTE)


def splits_of(files: Sequence[InputFile], split_bytes: int) -> Iterator[Split]:
    """Cut files into splits, numbered in the order of the files: equal slices of at most split_bytes.

    A file that cannot be cut, since its records can only be found by reading it from its start, is one split.
    """
    number = 0
    for file in files:
        can_be_cut = input_format(file.format).can_be_cut and not file.compression
        slices = -(-file.bytes // split_bytes) if can_be_cut else 1
        for i in range(slices):
            start, stop = file.bytes * i // slices, file.bytes * (i + 1) // slices
            yield Split(number, file.url, file.format, file.compression, start, stop, file.source)
            number += 1


def largest_first(splits: Iterable[Split]) -> list[Split]:
    """Order splits so that at the end no worker is idle for long while another is busy. Their numbers stay.

    This holds if each worker takes the next split when it is free (Graham 1969, longest processing time first), and if
    splits are dealt to the workers in turn, as by Beam's local runner.
    """
    return sorted(
        splits, key=lambda split: (split.start - split.stop) * (_COMPRESSION_RATIO if split.compression else 1)
    )
