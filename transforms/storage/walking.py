"""Walking through the folders of a store: one that cannot be listed is an error.

fsspec's own find, walk and glob take a folder for empty if the store refuses to list it, or fails to.
"""

from __future__ import annotations

import errno
import functools
import inspect
import os
import posixpath
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import glob_translate

from transforms.base.errors import StoreError
from transforms.storage.files import file_system
from transforms.storage.retries import is_missing, is_transient, reason_of, with_retries
from transforms.storage.versions import version_of

_Entries = dict[str, dict[str, Any]]
_T = TypeVar("_T")

WILDCARDS = "*?["

_REQUESTS_AT_ONCE = 32


def find(system: Any, folder: str) -> _Entries:
    """Find all files below a folder.

    Args:
        system: an fsspec file system.
        folder: its path there.

    Returns:
        What the store says of each file, by its path, in no order; nothing if the folder does not exist.

    Raises:
        StoreError: if a folder cannot be listed.
    """
    if _has_no_folders(system):
        return _listed(system, folder, lambda: system.find(folder, detail=True), {})
    return _walk(system, folder, lambda _: True)


def find_matching(system: Any, pattern: str) -> _Entries:
    """Find the files that match a glob, and on a disk also those to which it leads through links to folders.

    As in a shell, a hidden file is one of them only if the pattern names hidden ones.

    Args:
        system: an fsspec file system.
        pattern: a path there, with at least one of WILDCARDS.

    Returns:
        As find does.

    Raises:
        StoreError: if a folder that the glob can lead through cannot be listed.
    """
    names, base = pattern.split("/"), folder_of_glob(pattern)
    is_deep = "**" in names
    if is_deep and _has_no_folders(system):
        entries = find(system, base)
    else:
        steps = [re.compile(glob_translate(name)).match for name in names[: names.index("**") if is_deep else -1]]

        def leads(folder: str) -> bool:
            parts = folder.split("/")
            return (is_deep or len(parts) <= len(steps)) and all(
                step(part) for step, part in zip(steps, parts, strict=False)
            )

        entries = _walk(system, base, leads, follows_links=isinstance(system, LocalFileSystem))
    matches, hidden = re.compile(glob_translate(pattern)).match, names[-1].startswith(".")
    return {
        path: entry
        for path, entry in entries.items()
        if matches(path) and (hidden or not posixpath.basename(path).startswith("."))
    }


def folder_of_glob(pattern: str) -> str:
    """Return the folder in which a glob begins to match: that of the path before its first wildcard."""
    return posixpath.dirname(re.split(f"[{re.escape(WILDCARDS)}]", pattern, maxsplit=1)[0]) or "/"


@with_retries("listed")
def link_below(folder: str) -> str | None:
    """Return the first link in a folder of a disk, or the folder itself, that leads to a folder or to nothing.

    Raises:
        StoreError: if it cannot be listed.
    """
    system, path = file_system(folder)
    if not isinstance(system, LocalFileSystem):
        return None
    if os.path.islink(path):
        return None if os.path.isfile(path) else path
    if not os.path.isdir(path):
        return None
    found: list[tuple[str, bool]] = []
    # Somebody else may remove it.
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        found = sorted((each.path, each.is_symlink()) for each in entries if not each.is_file())
    return next(filter(None, (inner if is_link else link_below(inner) for inner, is_link in found)), None)


@with_retries("listed")
def names_in(folder: str) -> list[str]:
    """Return the names of what is in a folder, relative to it and sorted; none if it does not exist.

    Raises:
        StoreError: if the store fails.
    """
    system, path = file_system(folder)
    found = _listed(system, path, lambda: system.ls(path, detail=False), list[str]())
    return sorted(posixpath.basename(name.rstrip("/")) for name in found)


@with_retries("listed")
def entries_below(folder: str) -> dict[str, dict[str, Any]]:
    """Return what the store says of each file below a folder, by its name relative to it, in order; nothing if the
    folder does not exist.

    Raises:
        StoreError: if the store fails.
    """
    system, path = file_system(folder)
    return {name.removeprefix(path).lstrip("/"): entry for name, entry in sorted(find(system, path).items())}


def names_below(folder: str) -> list[str]:
    """Return the names of all files below a folder, as entries_below does."""
    return [*entries_below(folder)]


@with_retries("listed")
def names_beginning(folder: str, prefixes: Sequence[str]) -> list[str]:
    """Return the names of what is in a folder and begins with a prefix, sorted; none if it does not exist.

    Stores that can list only those names, such as S3's and Google's, do so. A disk lists all names, and looks at no
    file: there may be many thousands.

    Args:
        folder: its url.
        prefixes: what the names may begin with.

    Raises:
        StoreError: if the store fails.
    """
    system, path = file_system(folder)
    if not _lists_by_prefix(system):
        return [name for name in names_in(folder) if name.startswith((*prefixes,))]
    found: list[str] = []
    for prefix in prefixes:
        found += _listed(system, path, functools.partial(system.find, path, prefix=prefix), found[:0])
    return sorted(name.removeprefix(path).lstrip("/") for name in found)


def versions_below(folder: str) -> tuple[Any, ...]:
    """Return a value that changes when a file below a folder is added, removed or written again, from one listing.

    Returns:
        For each file its name, and its version: the size, the time and the inode of a disk's, version_of of others.

    Raises:
        StoreError: if the store fails.
    """
    system, path = file_system(folder)
    is_local = isinstance(system, LocalFileSystem)
    found = entries_below(folder).items()
    return tuple((name, _local_version(f"{path}/{name}") if is_local else version_of(entry)) for name, entry in found)


def _local_version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:  # a link to nothing
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _has_no_folders(system: Any) -> bool:
    """Whether a store lists all names below a prefix at once: its client does not leave `find` to fsspec."""
    if isinstance(system, AsyncFileSystem):
        return type(system)._find is not AsyncFileSystem._find
    return type(system).find is not AbstractFileSystem.find


def _lists_by_prefix(system: Any) -> bool:
    """Whether `find` of a store's client has a parameter prefix."""
    find = system._find if isinstance(system, AsyncFileSystem) else system.find
    return "prefix" in inspect.signature(find).parameters


def _walk(system: Any, base: str, leads: Callable[[str], bool], follows_links: bool = False) -> _Entries:
    """Find the files in a folder, and in those below it that `leads` accepts, one level of folders after another."""

    def entries_of(folder: str) -> list[dict[str, Any]]:
        return _listed(system, folder, lambda: system.ls(folder, detail=True), [])

    found, level = {}, [base]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as threads:
        while level:
            below = []
            for folder, entries in zip(level, threads.map(entries_of, level), strict=True):
                for entry in entries:
                    path = entry["name"].rstrip("/")
                    if entry["type"] == "directory":
                        if path != folder and leads(path):
                            below.append(path)
                    elif follows_links and entry["islink"] and leads(path) and _is_folder(system, path):
                        if not _leads_upwards(path):
                            below.append(path)
                    else:
                        found[entry["name"]] = entry
            level = below
    return found


def _is_folder(system: Any, link: str) -> bool:
    return _listed(system, link, lambda: system.info(link)["type"] == "directory", False)


def _leads_upwards(link: str) -> bool:
    """Whether a link leads to a folder that it is in, so that following it would never end."""
    folder = link
    while folder != (folder := posixpath.dirname(folder)):
        if os.path.samefile(link, folder):
            return True
    return False


def _listed(system: Any, path: str, list_: Callable[[], _T], nothing: _T) -> _T:
    """Return what a store lists; nothing if there is no such folder, or if it has just been removed."""
    try:
        return list_()
    except Exception as error:  # each store's client has its own classes
        if is_missing(error) or (isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG):
            return nothing
        url = path if isinstance(system, LocalFileSystem) else system.unstrip_protocol(path)
        raise StoreError(url, "listed", reason_of(error), is_transient(error)) from error
