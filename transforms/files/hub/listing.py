"""Listing of what is named on the Hub: files at a commit, with what the Hub says of each."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fsspec.utils import glob_translate

from transforms.base.errors import ParameterError, StoreError, Unavailable
from transforms.files.hub.choice import chosen_files
from transforms.files.hub.names import HubName
from transforms.files.hub.repository import Commits, Entries, entry_of, files_at
from transforms.storage.hub.urls import HubFile

_SIGNS = "*?["


def find_on_hub(
    name: HubName, splits: Sequence[str] | None, commits: Commits, parameter: str
) -> list[tuple[str, Mapping[str, Any]]]:
    """Find the files that a name means.

    Args:
        name: of a dataset, or of a file, a folder or a glob of it.
        splits: of the dataset or the folder that are chosen; none if there is only one; None if there is no option for
            them.
        commits: that revisions stand for.
        parameter: what the caller calls the name, for errors.

    Returns:
        The url of each file at its commit, and what the Hub says of it.

    Raises:
        ParameterError: if there is no such file, or a choice is to be made.
        Unavailable: if the Hub does not answer.
    """
    try:
        commit, files, paths = _found(name, splits, commits, parameter)
    except FileNotFoundError:
        problem = f"there is no such file or folder in {name.repository}, revision {name.revision or 'main'}."
        raise ParameterError(parameter, name.url, problem) from None
    except StoreError as error:
        if error.is_transient:
            raise Unavailable(f"{name.url}: it cannot be listed ({error.reason}).") from None
        here = ", nor is there such a file or folder here" if _may_be_path(name) else ""
        shown = name.url if name.path else name.url.removeprefix("hf://datasets/")
        raise ParameterError(parameter, shown, f"it cannot be {error.action} ({error.reason}{here}).") from None
    return [(HubFile(name.repository, commit, path).url, files[path]) for path in paths]


def no_splits(pattern: str, splits: Sequence[str]) -> ParameterError:
    """Return the error of splits that are chosen of what has none."""
    problem = f"{pattern} is not a dataset, and has no splits. Give it without, such as in another source."
    return ParameterError("split", ",".join(splits), problem)


def _found(
    name: HubName, splits: Sequence[str] | None, commits: Commits, parameter: str
) -> tuple[str, Entries, Sequence[str]]:
    """The commit, files of it, and the paths of those that are meant."""
    if not name.path:
        return chosen_files(name, splits, commits, parameter)
    commit = commits.of(name.repository, name.revision)
    is_glob = set(name.path) & set(_SIGNS)
    entry = {} if is_glob else entry_of(name.repository, commit, name.path)
    if entry.get("type") == "directory":
        return chosen_files(name, splits, commits, parameter)
    if splits:
        raise no_splits(name.url, splits)
    if not is_glob:
        return commit, {name.path: entry}, [name.path]
    first_sign = min(name.path.find(sign) for sign in _SIGNS if sign in name.path)
    files = files_at(name.repository, commit, posixpath.dirname(name.path[:first_sign]))
    matches = re.compile(glob_translate(name.path)).match
    hidden = posixpath.basename(name.path).startswith(".")
    paths = [path for path in files if matches(path) and (hidden or not posixpath.basename(path).startswith("."))]
    if not paths:
        raise FileNotFoundError(name.url)
    return commit, files, paths


def _may_be_path(name: HubName) -> bool:
    """Whether a name may be a path that was mistyped: there is a folder here that is named like its organization."""
    return not name.path and os.path.isdir(name.repository.partition("/")[0])
