"""Repositories: what a dataset on the Hub consists of at a commit, in few requests.

A name is resolved to a commit once. All files are listed in pages of a thousand, with their sizes and hashes, and none
is asked for by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from transforms.storage.hub.client import SECONDS_TO_ANSWER, ask
from transforms.storage.hub.downloads import read_hub_range
from transforms.storage.hub.urls import HubFile

# What a listing says of each file, by its path: as fsspec's `info` does.
Entries = Mapping[str, dict[str, Any]]

# Where the Hub keeps what it converted to Parquet: CONFIG/SPLIT/0000.parquet.
CONVERTED = "refs/convert/parquet"


class Commits:
    """The commits that revisions stand for, each asked for once, so that a push in between changes nothing."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str | None], str] = {}

    def of(self, repository: str, revision: str | None) -> str:
        """Return the commit of a revision.

        Args:
            repository: ORG/NAME.
            revision: a branch, a tag or a commit; None for the main branch.

        Raises:
            StoreError: if there is no such repository or revision, or if the Hub refuses or fails.
        """

        def request(hub: Any) -> str:
            return hub.dataset_info(repository, revision=revision, expand=["sha"], timeout=SECONDS_TO_ANSWER).sha

        key = repository, revision
        if key not in self._known:
            url = f"hf://datasets/{repository}" + (f"@{revision}" if revision else "")
            self._known[key] = ask(url, "listed", repository, request, revision)
        return self._known[key]


@functools.lru_cache(16)
def files_at(repository: str, commit: str, folder: str = "") -> Entries:
    """Return the files of a repository at a commit, sorted by path.

    Args:
        repository: ORG/NAME.
        commit: of Commits.
        folder: below which they are; empty for the repository.

    Raises:
        FileNotFoundError: if there is no such folder.
        StoreError: if the Hub refuses or fails.
    """

    def request(hub: Any) -> Iterable[Any]:
        return [
            *hub.list_repo_tree(repository, folder or None, recursive=True, revision=commit, repo_type="dataset"),
        ]

    found = ask(HubFile(repository, commit, folder).url, "listed", repository, request, commit)
    return {each.path: _entry(each) for each in sorted(found, key=lambda each: each.path) if hasattr(each, "blob_id")}


def entry_of(repository: str, commit: str, path: str) -> dict[str, Any]:
    """Return what the Hub says of a file or folder at a commit. Raises as files_at does."""

    def request(hub: Any) -> list[Any]:
        return hub.get_paths_info(repository, [path], revision=commit, repo_type="dataset")

    url = HubFile(repository, commit, path).url
    found = ask(url, "listed", repository, request, commit)
    if not found:
        raise FileNotFoundError(url)
    return _entry(found[0])


def text_of(repository: str, commit: str, files: Entries, path: str) -> str:
    """Return the text of a file of a repository, which is empty if there is none. Raises StoreError."""
    if path not in files:
        return ""
    content = read_hub_range(HubFile(repository, commit, path), 0, files[path]["size"])
    return content.decode(errors="replace")


def _entry(found: Any) -> dict[str, Any]:
    """What huggingface_hub says of a file or folder, as fsspec's `info` does."""
    if not hasattr(found, "blob_id"):
        return {"type": "directory", "size": 0}
    return {"type": "file", "size": found.size, "blob_id": found.blob_id}
