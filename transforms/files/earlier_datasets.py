"""Datasets that this project wrote, among the files of a corpus: their rows and rejects are not records of it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from transforms.base.phrases import counted

STATE = "_chatmill"  # the folder by which a dataset is known, finished or not
MANIFEST = "manifest.json"


class _Shard(msgspec.Struct):
    path: str
    bytes: int
    split: str
    format: str = "parquet"


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


def dataset_folders(names: Iterable[str]) -> list[str]:
    """Return the folders that hold a dataset, relative to a folder and in order; "" is that folder itself.

    Args:
        names: the files below the folder, relative to it.
    """
    parts = (f"/{name}".partition(f"/{STATE}/") for name in names)
    return sorted({before[1:] for before, state, _ in parts if state})


def rows_of_dataset(manifest: bytes) -> tuple[dict[str, dict[str, int]], str]:
    """Find the rows of the newest version of a dataset, since its folder has others, too.

    Args:
        manifest: the content of MANIFEST; empty if there is none.

    Returns:
        Of each split the shards that are read, with their bytes; and what the rows do not have of the records that they
        were made of, empty if all is there.

    Raises:
        ValueError: if its rows are no records, or it is not known which they are.
    """
    try:
        found = _decode(manifest)
    except (ValueError, RecursionError):  # of msgspec, too
        problem = f"it is a dataset that is not finished, or its {MANIFEST} is damaged"
        raise ValueError(f"{problem}. Finish it with the command that began it, or append to it.") from None
    if found.layout.packing != "none" or found.layout.shift_labels:
        problem = "its rows are packed, so that one has several examples, or their labels are shifted"
        raise ValueError(f"{problem}. Build from its inputs again, or from a dataset without packing and shift_labels.")
    shards: dict[str, dict[str, int]] = {}
    for shard in found.shards:
        if shard.format == "parquet":
            shards.setdefault(shard.split, {})[shard.path] = shard.bytes
    if found.shards and not shards:
        raise ValueError("its rows are not in parquet, which is read. Build it again with parquet in output_format.")
    lost = found.records.truncated + found.records.dropped.get("too_long", 0)
    loss = f"{counted(lost, 'record')} cut or dropped at its max_length of {found.layout.max_length or 0:,} tokens"
    return shards, loss if lost else ""
