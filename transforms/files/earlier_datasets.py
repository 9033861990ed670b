"""Datasets that this project wrote, among the files of a corpus: their rows and rejects are not records of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from transforms.base.phrases import counted

_STATE = "_chatmill"  # the folder by which a dataset is known, finished or not
MANIFEST = "manifest.json"
_READ_FORMAT = "parquet"


def dataset_folders(names: Iterable[str]) -> list[str]:
    """Return the folders that hold a dataset, relative to a folder and in order; "" is that folder itself.

    Args:
        names: the files below the folder, relative to it.
    """
    parts = (f"/{name}".partition(f"/{_STATE}/") for name in names)
    return sorted({before[1:] for before, state, _ in parts if state})


def folders_above(path: str, base: str) -> Iterator[str]:
    """Yield the folders that a file is in, up to a folder, which is not yielded."""
    folder = posixpath.dirname(path)
    while len(folder) > len(base):
        yield folder
        folder = posixpath.dirname(folder)


def state_of(folder: str) -> str:
    """Return the path of the folder by which a folder is known as a dataset."""
    return posixpath.join(folder, _STATE)


def is_below(name: str, folder: str) -> bool:
    """Return whether a relative name is below a relative folder."""
    return name.startswith(f"{folder}/")


class _Shard(msgspec.Struct):
    path: str
    bytes: int
    split: str
    format: str = _READ_FORMAT


class _Records(msgspec.Struct):
    truncated: int = 0
    dropped: dict[str, int] = {}


class _Layout(msgspec.Struct):
    packing: str = "none"
    max_length: int | None = None
    shift_labels: bool = False


class _Manifest(msgspec.Struct):
    records: _Records
    shards: list[_Shard]
    layout: _Layout = msgspec.field(default_factory=_Layout)


_decode = msgspec.json.Decoder(_Manifest).decode


class DatasetRows(NamedTuple):
    """The rows of a dataset that are read as records.

    shards: the names of the files of each split. sizes: of each of them. loss: what the rows do not have of the records
    that they were made of; empty if all is there.
    """

    shards: Mapping[str, list[str]]
    sizes: Mapping[str, int]
    loss: str


def rows_of_dataset(manifest: bytes) -> DatasetRows:
    """Find the rows of the newest version of a dataset, since its folder has others, too.

    Args:
        manifest: the content of MANIFEST; empty if there is none.

    Raises:
        ValueError: if its rows are no records, or it is not known which they are.
    """
    try:
        found = _decode(manifest)
    except (ValueError, RecursionError):  # of msgspec, too
        problem = f"it is a dataset that is not finished, or its {MANIFEST} is damaged"
        raise ValueError(f"{problem}. Finish it with the command that began it, or append to it.") from None
    if found.layout.packing != "none":
        raise ValueError(
            f"it was built with packing {found.layout.packing}, so that a row has several examples. Build from its "
            "inputs again, or from a dataset that is not packed."
        )
    if found.layout.shift_labels:
        raise ValueError("it was built with shift_labels, and rows whose labels are shifted are not read.")
    read = [shard for shard in found.shards if shard.format == _READ_FORMAT]
    if found.shards and not read:
        problem = f"its rows are in {found.shards[0].format} alone, which is written and not read"
        raise ValueError(f"{problem}. Build it again with {_READ_FORMAT} in output_format, too.")
    shards: dict[str, list[str]] = {}
    for shard in read:
        shards.setdefault(shard.split, []).append(shard.path)
    lost = found.records.truncated + found.records.dropped.get("too_long", 0)
    loss = f"{counted(lost, 'record')} cut or dropped at its max_length of {found.layout.max_length or 0:,} tokens"
    return DatasetRows(shards, {shard.path: shard.bytes for shard in read}, loss if lost else "")
