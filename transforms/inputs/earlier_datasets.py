"""Datasets that this project wrote, among the files of a corpus: their rows and rejects are not records of it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

_JOB = "_chatmill/job.json"  # of each dataset, finished or not
_MANIFEST, _SUCCESS = "manifest.json", "_SUCCESS"  # of a copy without its folder _chatmill
_KEYS = {"format", "records", "shards", "job"}


def dataset_folders(names: Collection[str], read: Callable[[str], bytes]) -> list[str]:
    """Find the folders that hold a dataset.

    Args:
        names: the files below a folder, relative to it.
        read: returns the content of one of them.

    Returns:
        The folders, relative to the same folder and in order; "" is that folder itself.
    """
    found = {_folder_of(name, _JOB) for name in names if _is_or_ends_with(name, _JOB)}
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


def job_of(folder: str) -> str:
    """Return the path of the file by which a folder is known as a dataset."""
    return posixpath.join(folder, _JOB)


def is_below(name: str, folder: str) -> bool:
    """Return whether a relative name is below a relative folder; everything is below ""."""
    return not folder or name.startswith(f"{folder}/")


def _is_or_ends_with(name: str, end: str) -> bool:
    return name == end or name.endswith(f"/{end}")


def _folder_of(name: str, end: str) -> str:
    return name.removesuffix(end).rstrip("/")


def shards_of_version(names: Collection[str], read: Callable[[str], bytes]) -> frozenset[str] | None:
    """Find the shards of the newest version of a dataset that grows, whose folder has those of others, too.

    Args:
        names: the files below the folder of a dataset.
        read: returns the content of one of them.

    Returns:
        The names that its manifest lists; None if it does not grow.
    """
    manifest = _manifest(read(_MANIFEST)) if _MANIFEST in names else None
    return frozenset(shard["path"] for shard in manifest["shards"]) if manifest and "snapshot" in manifest else None


def _manifest(content: bytes) -> dict[str, Any] | None:
    try:
        manifest = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.keys() >= _KEYS else None
