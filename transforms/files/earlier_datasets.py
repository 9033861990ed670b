"""Datasets that this project wrote, among the files of a corpus: their rows and rejects are not records of it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from transforms.base.phrases import counted
from transforms.outputs import output_folders

_STATE = "_chatmill"  # of each dataset, finished or not
_READ_FORMAT = "parquet"
_MANIFEST = "manifest.json"


def dataset_folders(names: Collection[str], read: Callable[[str], bytes]) -> list[str]:
    """Find the folders that hold a dataset.

    Args:
        names: the files below a folder, relative to it.
        read: returns the content of one of them.

    Returns:
        The folders, relative to the same folder and in order; "" is that folder itself.
    """
    found = {before.rstrip("/") for name in names for before, state, _ in [_at_state(name)] if state}
    folders = {posixpath.dirname(name) for name in names}
    for name in names:  # of a copy without its folder _chatmill
        folder = posixpath.dirname(name)
        if posixpath.basename(name) == _MANIFEST and folder not in found:
            has_rows = any(posixpath.join(folder, part) in folders for part in output_folders())
            if has_rows and _manifest(read(name)):
                found.add(folder)
    return sorted(found)


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
    """Return whether a relative name is below a relative folder; everything is below ""."""
    return not folder or name.startswith(f"{folder}/")


def _at_state(name: str) -> tuple[str, str, str]:
    """The path of a dataset that a file belongs to, what shows that it does, and the rest of its path."""
    before, state, after = f"/{name}".partition(f"/{_STATE}/")
    return before[1:], state, after


class DatasetRows(NamedTuple):
    """The rows of a dataset that are read as records.

    shards: the names of the files of each split. loss: what the rows do not have of the records they were made of;
    empty if all is there.
    """

    shards: Mapping[str, Sequence[str]]
    loss: str


def rows_of_dataset(
    sizes: Mapping[str, int], read: Callable[[str], bytes], splits: Sequence[str] | None = ()
) -> DatasetRows:
    """Find the rows of the newest version of a dataset, since its folder has others, too.

    Args:
        sizes: of the files below the folder of the dataset, by their names.
        read: returns the content of one of them.
        splits: those that are read; all if it is none.

    Raises:
        ValueError: if its rows are no records, a shard that is read is not there with the size that it was written
            with, or it is not known which they are.
    """
    manifest = _manifest(read(_MANIFEST)) if _MANIFEST in sizes else None
    if manifest is None:
        if any(name.startswith((f"{_STATE}/versions/", f"{_STATE}/log/")) for name in sizes):
            raise ValueError(
                f"{_MANIFEST} is missing or damaged, and which of the shards are those of the newest version is not "
                "known. The next build or append writes it again."
            )
        raise ValueError("it is a dataset that is not finished. Finish it with the command that began it.")
    layout = manifest.layout
    if layout.packing != "none":
        raise ValueError(
            f"it was built with packing {layout.packing}, so that a row has several examples. Build from its inputs "
            "again, or from a dataset that is not packed."
        )
    if layout.shift_labels:
        raise ValueError("it was built with shift_labels, and rows whose labels are shifted are not read.")
    shards = [shard for shard in manifest.shards if shard.format == _READ_FORMAT]
    if manifest.shards and not shards:
        raise ValueError(
            f"its rows are in {manifest.shards[0].format} alone, which is written and not read. Build it again with "
            f"{_READ_FORMAT} in output_format, too."
        )
    found: dict[str, list[str]] = {}
    for shard in shards:
        found.setdefault(shard.split, []).append(shard.path)
        if (size := sizes.get(shard.path)) != shard.bytes and shard.split in (splits or found):
            problem = "is missing" if size is None else f"has {size:,} bytes"
            raise ValueError(f"{shard.path} {problem}; expected {shard.bytes:,} bytes. Copy it again.")
    return DatasetRows(found, _loss(manifest))


def _loss(manifest: _Manifest) -> str:
    """What the rows of a dataset do not have of its records, since these were longer than its max_length."""
    cut, dropped = manifest.records.truncated, manifest.records.dropped.get("too_long", 0)
    if not cut and not dropped:
        return ""
    found = [f"{counted(cut, 'record')} {'was' if cut == 1 else 'were'} cut"] if cut else []
    found += [f"{counted(dropped, 'record')} {'was' if dropped == 1 else 'were'} dropped"] if dropped else []
    return f"{' and '.join(found)} at its max_length of {manifest.layout.max_length:,} tokens"


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
    """By these keys a manifest is known among other files of its name."""

    format: int
    records: _Records
    shards: list[_Shard]
    job: dict[str, Any]
    layout: _Layout = msgspec.field(default_factory=_Layout)


_decode = msgspec.json.Decoder(_Manifest).decode


def _manifest(content: bytes) -> _Manifest | None:
    try:
        return _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
