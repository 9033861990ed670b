"""Datasets that this project wrote, among the files of a corpus: their rows and rejects are not records of it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

_STATE = "_chatmill"  # of each dataset, finished or not
_MANIFEST, _SUCCESS = "manifest.json", "_SUCCESS"  # of a copy without its folder _chatmill


def dataset_folders(names: Collection[str], read: Callable[[str], bytes]) -> list[str]:
    """Find the folders that hold a dataset.

    Args:
        names: the files below a folder, relative to it.
        read: returns the content of one of them.

    Returns:
        The folders, relative to the same folder and in order; "" is that folder itself.
    """
    found = {before.rstrip("/") for name in names for before, state, _ in [_at_state(name)] if state}
    for name in names:
        folder = posixpath.dirname(name)
        is_candidate = posixpath.basename(name) == _MANIFEST and posixpath.join(folder, _SUCCESS) in names
        if is_candidate and folder not in found and _manifest(read(name)):
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


def shards_of_dataset(sizes: Mapping[str, int], read: Callable[[str], bytes]) -> frozenset[str]:
    """Find the shards of the newest version of a dataset, since its folder has others, too.

    Args:
        sizes: of the files below the folder of the dataset, by their names.
        read: returns the content of one of them.

    Returns:
        The names that its manifest lists.

    Raises:
        ValueError: if one of them is not there with the size that it was written with, or if it is not known which
            they are.
    """
    manifest = _manifest(read(_MANIFEST)) if _MANIFEST in sizes else None
    if manifest is None:
        if any(name.startswith(f"{_STATE}/log/") for name in sizes):
            raise ValueError(
                f"{_MANIFEST} is missing or damaged, and which of the shards are those of the newest version is not "
                "known. The next build or append writes it again."
            )
        raise ValueError("it is a dataset that is not finished. Finish it with the command that began it.")
    for shard in manifest.shards:
        if (size := sizes.get(shard.path)) != shard.bytes:
            found = "is missing" if size is None else f"has {size:,} bytes"
            raise ValueError(f"{shard.path} {found}; expected {shard.bytes:,} bytes. Copy it again.")
    return frozenset(shard.path for shard in manifest.shards)


class _Shard(msgspec.Struct):
    path: str
    bytes: int


class _Manifest(msgspec.Struct):
    """By these keys a manifest is known among other files of its name."""

    format: int
    records: dict[str, Any]
    shards: list[_Shard]
    job: dict[str, Any]


_decode = msgspec.json.Decoder(_Manifest).decode


def _manifest(content: bytes) -> _Manifest | None:
    try:
        return _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
