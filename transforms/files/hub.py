"""Datasets on the Hugging Face Hub: how one is named, and which of its files are read: those that `datasets` loads.

ORG/NAME:CONFIG@REVISION
hf://datasets/ORG/NAME:CONFIG@REVISION
hf://datasets/ORG/NAME@REVISION/PATH        a file, a folder or a glob of the repository
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import Any

from transforms.base.errors import StoreError
from transforms.files.formats import suffix_format
from transforms.files.splits import Choice, Dataset, Entries, Splits
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import file_system
from transforms.storage.hub import HUB_PREFIX, HUB_REPOSITORY, SECONDS_TO_ANSWER, HubName, ask_hub

_SHORT = re.compile(rf"({HUB_REPOSITORY})(:[^@/:]+)?(@.+)?", re.ASCII)
# Where the Hub keeps what it converted to Parquet: CONFIG/SPLIT/0000.parquet.
_CONVERTED = "refs/convert/parquet"
_CONVERTED_FILE = re.compile(r"([^/]+)/([^/]+)/\d{4}\.parquet")
_LOGGER = logging.getLogger(__name__)


def expand_hub_name(
    pattern: str, is_here: Callable[[str], bool] = lambda path: os.path.exists(os.path.expanduser(path))
) -> str:
    """Return the url of a dataset that is named in short; other patterns as they are.

    A file or folder of this name wins, if is_here finds it. What ends like a file of records is a path, even if there
    is no such file.
    """
    match = _SHORT.fullmatch(pattern)
    if not match or pattern.lower().endswith((*suffix_format(), *COMPRESSION_OF_SUFFIX)) or is_here(pattern):
        return pattern
    return f"{HUB_PREFIX}{pattern}"


class Commits(dict[tuple[str, str | None], str]):
    """The commit of each repository and revision, asked for once, so that a push in between changes nothing."""

    def __missing__(self, key: tuple[str, str | None]) -> str:
        repository, revision = key
        asked: Any = {"revision": revision, "expand": ["sha"], "timeout": SECONDS_TO_ANSWER}
        shown = repository + (f"@{revision}" if revision else "")
        self[key] = ask_hub(lambda hub: hub.dataset_info(repository, **asked).sha, shown, "listed")
        return self[key]


def find_dataset(name: HubName, choice: Choice, commits: Commits) -> Entries:
    """Find the files of a dataset, at a commit: those of a configuration and of splits that `datasets` would load.

    Raises:
        ParameterError: if there is a choice and none is made, or of something that does not exist; or if no file can be
            read.
        StoreError: if there is no such repository or revision, or if the Hub refuses or fails.
    """
    dataset = _list_files(name, choice, commits)
    script = f"{name.repository.partition('/')[2]}.py"
    if script in dataset.files and name.revision in (None, "main"):
        try:
            converted = _list_files(name._replace(revision=_CONVERTED), choice, commits)
            dataset = converted._replace(name=dataset.name)
            _LOGGER.warning("%s: what the Hub converted to Parquet is read (%s)", name.repository, _CONVERTED)
        except StoreError as error:
            if error.is_transient:
                raise
    if script in dataset.files:
        problem = f"Dataset scripts are no longer supported, but found {script}"
        raise dataset.error(f"its splits cannot be found: {problem}. Name its files.")
    by_split: Splits
    if by_config := _find_converted(dataset.files):
        dataset.check_configuration(name.config, [*by_config])
        by_split = by_config[name.config or next(iter(by_config))]
    else:
        by_split, is_only = dataset.load_splits(name.config)
        if is_only:
            dataset.log_unread(dataset.sort_files()[0], by_split)
    return {f"{dataset.url}/{path}": dataset.files[path] for path in dataset.choose(by_split)}


def _list_files(name: HubName, choice: Choice, commits: Commits) -> Dataset:
    """A dataset at a commit, with what the Hub says of each of its files. Raises StoreError."""
    url = f"{HUB_PREFIX}{name.repository}@{commits[name.repository, name.revision]}"
    system, root = file_system(url)
    entries = ask_hub(lambda _: system.find(root, detail=True), name.url, "listed")
    files = {path.removeprefix(f"{root}/"): entry for path, entry in entries.items()}
    # A split that is not there is an error also with files that are still to come: a push is complete.
    return Dataset(name.url.removeprefix(HUB_PREFIX), url, files, choice._replace(arriving=False))


def _find_converted(files: Entries) -> dict[str, dict[str, list[str]]]:
    """The splits of each configuration of files that the Hub converted, by their folders; none of other files."""
    by_config: dict[str, dict[str, list[str]]] = {}
    for path in files:
        if parts := _CONVERTED_FILE.fullmatch(path):
            by_config.setdefault(parts[1], {}).setdefault(parts[2], []).append(path)
        elif not path.startswith("."):
            return {}
    return by_config
