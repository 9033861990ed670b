"""Walking through the folders of a store: one that cannot be listed is an error.

fsspec's own find, walk and glob take a folder for empty if the store refuses to list it, or fails to: here, that is a
StoreError. A folder that does not exist is empty.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from transforms.storage.files import file_system
from transforms.storage.retries import RETRYING, store_errors, with_retries
from transforms.storage.versions import file_version

Entries = dict[str, dict[str, Any]]

WILDCARDS = "*?["

_REQUESTS_AT_ONCE = 32


def find(system: Any, folder: str) -> Entries:
    """Return what a store says of each file below a folder, by its path, in no order; of a link, of what it leads to.

    system: an fsspec file system. folder: its path there.
    """
    if _has_no_folders(system):
        return dict(_listed(system, folder, lambda: system.find(folder, detail=True)))
    return _walk(system, folder, lambda _: True)


def find_matching(system: Any, pattern: str) -> Entries:
    """Find the files that match a glob, as find does, and on a disk also those behind links to folders.

    As in a shell, a hidden file is one of them only if the pattern names hidden ones.
    """
    names, matches = pattern.split("/"), re.compile(glob_translate(pattern)).match
    base, is_deep = glob_folder(pattern), "**" in names
    above = names[: names.index("**") if is_deep else -1]

    def leads(folder: str) -> bool:
        parts = folder.split("/")
        return (is_deep or len(parts) <= len(above)) and all(map(fnmatchcase, parts, above))

    if is_deep and _has_no_folders(system):
        entries = find(system, base)
    else:
        entries = _walk(system, base, leads, follows_links=isinstance(system, LocalFileSystem))
    is_hidden = names[-1].startswith(".")
    return {
        path: entry
        for path, entry in entries.items()
        if matches(path) and (is_hidden or not posixpath.basename(path).startswith("."))
    }


def glob_folder(pattern: str) -> str:
    """Return the folder in which a glob begins to match: that of the path before its first wildcard."""
    return posixpath.dirname(re.split(f"[{re.escape(WILDCARDS)}]", pattern, maxsplit=1)[0]) or "/"


@with_retries("listed")
def link_below(folder: str) -> str | None:
    """Return the first link in a folder of a disk, or the folder itself, that leads to a folder or to nothing."""
    system, path = file_system(folder)
    if not isinstance(system, LocalFileSystem) or os.path.isfile(path):
        return None
    if os.path.islink(path):
        return path
    if os.path.isdir(path):
        with suppress(FileNotFoundError), os.scandir(path) as entries:  # somebody else may remove it
            inner = sorted(entry.path for entry in entries if not entry.is_file())
            return next(filter(None, map(link_below, inner)), None)
    return None


def names_in(folder: str, prefix: str = "") -> list[str]:
    """Return the names of what is in a folder and begins with a prefix, sorted. Some stores list only those."""
    system, path = file_system(folder)
    if prefix and _has_no_folders(system):
        paths = _listed(system, path, lambda: system.find(path, prefix=prefix))
    else:
        paths = _listed(system, path, lambda: system.ls(path, detail=False))
    names = (posixpath.basename(path.rstrip("/")) for path in paths)
    return sorted(name for name in names if name.startswith(prefix))


def entries_below(folder: str) -> Entries:
    """Return what the store says of each file below a folder, by its name relative to it, in order."""
    system, path = file_system(folder)
    return {name.removeprefix(path).lstrip("/"): entry for name, entry in sorted(find(system, path).items())}


def names_below(folder: str) -> list[str]:
    """Return the names of all files below a folder, as entries_below does."""
    return [*entries_below(folder)]


def versions_below(folder: str) -> list[tuple[str, str, int]]:
    """Return the name, the version and the inode, or 0, of each file below a folder: they change if it does."""
    return [(name, file_version(entry), entry.get("ino", 0)) for name, entry in entries_below(folder).items()]


def _has_no_folders(system: Any) -> bool:
    """Whether a store lists all names below a prefix at once: its client does not leave `find` to fsspec."""
    if isinstance(system, AsyncFileSystem):
        return type(system)._find is not AsyncFileSystem._find
    return type(system).find is not AbstractFileSystem.find


def _walk(system: Any, base: str, leads: Callable[[str], bool], follows_links: bool = False) -> Entries:
    """Find the files in a folder, and in those below it that `leads` accepts, one level of folders after another."""

    def list_entries(folder: str) -> list[dict[str, Any]]:
        return _listed(system, folder, lambda: system.ls(folder, detail=True))

    files, level = {}, [base]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as threads:
        while level:
            below = []
            for folder, entries in zip(level, threads.map(list_entries, level), strict=True):
                for entry in entries:
                    path = entry["name"].rstrip("/")
                    if entry["type"] == "directory":
                        if path != folder and leads(path):
                            below.append(path)
                    elif follows_links and entry["islink"] and leads(path) and os.path.isdir(path):
                        # One that leads to a folder that it is in would never end.
                        if not any(os.path.samefile(path, above) for above in PurePosixPath(path).parents):
                            below.append(path)
                    else:  # of a link, what it leads to, unless this is missing
                        leads_on = entry.get("islink") and os.path.exists(path)
                        files[entry["name"]] = system.info(path) if leads_on else entry
            level = below
    return files


def _listed(system: Any, path: str, request: Callable[[], Any]) -> Any:
    """Return what a store lists; nothing if there is no such folder, or if it has just been removed."""
    url = path if isinstance(system, LocalFileSystem) else system.unstrip_protocol(path)
    with suppress(FileNotFoundError), store_errors(url, "listed"):
        return RETRYING(request)
    return []
