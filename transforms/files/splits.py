"""Splits: which files of a dataset, on the Hub or in a folder, are a split, and those that are chosen.

What a card says is read by `datasets`. What names show is found here, by the same rules, so that a folder of plain
files needs no `datasets`.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rich.filesize import decimal

from transforms.base.errors import ParameterError, Unavailable
from transforms.base.phrases import did_you_mean
from transforms.files.formats import suffix_format
from transforms.storage.hub import hub
from transforms.storage.retries import RETRYING, is_transient, store_reason

Splits = Mapping[str, Collection[str]]  # the files of each split
Entries = Mapping[str, Mapping[str, Any]]  # what a store says of each file, by its path or url

PARTIAL = "partial-"  # how the name begins of a split of which the Hub converted a part
_SHOWN = 40
_WORDS = {
    "train": "train|training",
    "validation": "validation|valid|dev|val",
    "test": "test|testing|eval|evaluation",
}
_SHARD = re.compile(r"data/([^/]+)-\d{5}-of-\d{5}[^/]*\.[^/]*", re.ASCII)
# A word in the name of a folder, or, if no folder has one, of a file: alone, or with such a character next to it.
_PLACES = (
    r"(?:.*/)?(?:[^/]*[-._ 0-9])?(?:{words})(?:[-._ 0-9][^/]*)?/.*",
    r"(?:.*/)?(?:[^/]*[-._ 0-9])?(?:{words})[-._ 0-9][^/]*",
)
# The formats of `datasets`, the first of which it takes if as many files have another one.
_FORMATS = {
    ".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv",
    ".ndjson": "json",
}  # fmt: skip
_LOGGER = logging.getLogger(__name__)


class Dataset(NamedTuple):
    """A dataset on the Hub, or a folder, by its name for people; and what its store says of each file, by its path."""

    name: str
    files: Entries

    def error(self, problem: str) -> ParameterError:
        """Return the error that it cannot be read."""
        return ParameterError("patterns", self.name, problem)

    def choose(self, by_split: Splits, splits: Sequence[str] | None, arriving: bool = False) -> list[str]:
        """Return the files of the splits that are chosen, each once.

        splits: as of list_inputs. arriving: whether those that are not there may be still to come.

        Raises ParameterError if there is a choice and none is made, or of something that does not exist; or if a file
        is missing, or has no format that is read.
        """
        described, several = self.describe(by_split), len(by_split) > 1
        if arriving and by_split and (missing := [split for split in splits or () if split not in by_split]):
            _LOGGER.warning("%s: it has no split %s yet; it has %s", self.name, ",".join(missing), described)
            splits = [split for split in splits or () if split in by_split]
            by_split = by_split if splits else {}
        if not by_split:
            return []
        first = next(iter(by_split))
        if not splits and (several or first.startswith(PARTIAL)):
            problem = "it has several splits" if several else "the Hub converted a part of it only"
            choice = "Name the files of one." if splits is None else f"Choose with split, such as {first}."
            raise self.error(f"{problem}: {described}. {choice}")
        if unknown := next((split for split in splits or () if split not in by_split), None):
            problem = f"{self.name} has no split {unknown}; it has {described}.{did_you_mean(unknown, by_split)}"
            raise ParameterError("split", ",".join(splits or ()), problem)
        known = suffix_format().keys()
        chosen = [*dict.fromkeys(path for split in splits or by_split for path in by_split[split])]
        for path in chosen:
            if path not in self.files:
                raise self.error(f"{path} is in a split, and not there. Copy it again, or name the files to read.")
            if not {*_suffixes_in(path)} & known:
                suffix = posixpath.splitext(path)[1]
                raise self.error(f"its files end in {suffix}, which is not a format that is read.")
        return chosen

    def describe(self, by_split: Splits) -> str:
        """Return the names of splits, with the size of their files."""
        sizes = {
            split: sum(self.files[path]["size"] or 0 for path in paths if path in self.files)
            for split, paths in by_split.items()
        }
        return listed([f"{split} ({decimal(size)})" for split, size in sizes.items()])

    def log_unread(self, paths: Sequence[str], which: str = "in no split") -> None:
        """Log some files that are not read, if there are any, and which they are."""
        if paths:
            count, examples = f"{len(paths):,}", ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")
            message = "%s: files %s are not read (%s): %s. To read such a file, name it."
            _LOGGER.warning(message, self.name, which, count, examples)


def in_no_split(paths: Sequence[str], by_split: Splits) -> list[str]:
    """Return those of some files that no split has."""
    in_splits = {path for found in by_split.values() for path in found}
    return [path for path in paths if path not in in_splits]


def load_configuration(
    path: str, name: str, config: str | None = None, commit: str | None = None
) -> tuple[Splits, bool]:
    """Return the files of the splits of a configuration, as `datasets` finds them, and whether there is no other one.

    path: of a folder, or the url of a dataset on the Hub. name: what errors call it. config: None for the default.

    Raises:
        ParameterError: if there is no such configuration, or a choice, or the splits cannot be found.
        Unavailable: if the Hub does not answer.
    """
    datasets = _import_datasets(name)
    try:
        # If the Hub fails, `datasets` takes what was loaded before, which another cache does not have.
        with tempfile.TemporaryDirectory() as cache:
            builder = RETRYING(datasets.load_dataset_builder, path, config, revision=commit, cache_dir=cache)
    except Exception as error:  # of `datasets`, of YAML, or of the client of the Hub
        if is_transient(error):
            raise Unavailable(f"{name}: it cannot be listed ({store_reason(error)}).") from None
        if isinstance(error, (datasets.data_files.EmptyDatasetError, datasets.exceptions.DataFilesNotFoundError)):
            return {}, True
        names = []
        with suppress(Exception):  # that which `datasets` has just raised
            names = datasets.get_dataset_config_names(path, revision=commit)
        if names:
            check_configuration(config, names, name)
        where = f"{path}@{commit}/" if commit else f"{os.path.realpath(path)}/"
        problem = " ".join(str(error).rpartition(" Hub either: ")[2].replace(where, "").split())[:200].rstrip(".")
        raise ParameterError("patterns", name, f"its splits cannot be found: {problem}. Name its files.") from None
    names = [*builder.builder_configs]
    if config is None and len(names) > 1:
        others = listed([each for each in names if each != builder.config.name], 3)
        _LOGGER.warning("%s: its configuration %s is read, not %s", name, builder.config.name, others)
    return {str(split): files for split, files in builder.config.data_files.items() if files}, len(names) == 1


def _import_datasets(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        problem = "which of its files are a split is found by the package datasets: run `pip install 'datasets>=5'`."
        raise ParameterError("patterns", name, problem) from None
    hub()  # sets up its client, which `datasets` uses
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # a request to another host, with the name of the dataset
    datasets.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    return datasets


def check_configuration(config: str | None, names: Sequence[str], name: str) -> None:
    """Check that a configuration is one of those of a dataset, or that there is only one. Raises ParameterError.

    config: None if none is named. names: of all configurations. name: of the dataset.
    """
    if config is None and len(names) > 1:
        choice = f"Name one on the Hub, as in ORG/NAME:{names[0]}, or its files."
        raise ParameterError("patterns", name, f"it has several configurations: {listed(names)}. {choice}")
    if config is not None and config not in names:
        problem = f"it has no configuration {config}; it has {listed(names)}.{did_you_mean(config, names)}"
        raise ParameterError("patterns", name, problem)


def splits_by_name(names: Collection[str]) -> Splits:
    """Return the files of each split that the names of files of records show, by the rules of `datasets`."""
    found: dict[str, list[str]] = {}
    if shards := [shard for name in sorted(names) if (shard := _SHARD.fullmatch(name))]:
        for split in [*_WORDS, *sorted({shard[1] for shard in shards} - {*_WORDS})]:
            found[split] = [shard[0] for shard in shards if shard[1] == split]
    for place in _PLACES:
        if not any(found.values()):
            for split, words in _WORDS.items():
                matches = re.compile(place.format(words=words), re.DOTALL).fullmatch
                found[split] = [name for name in sorted(names) if matches(name)]
    if not any(found.values()):
        found = {"train": sorted(names)}
    return {split: _keep_most_frequent_format(files) for split, files in found.items() if files}


def _keep_most_frequent_format(names: Sequence[str]) -> list[str]:
    """The files of the format that most of some files have, as `datasets` loads them."""
    suffixes = {name: [suffix for suffix in _suffixes_in(name) if suffix in _FORMATS] for name in names}
    counts = Counter(suffix for found in suffixes.values() for suffix in found)
    most = _FORMATS[max(_FORMATS, key=lambda suffix: counts[suffix])]
    return [name for name in names if any(_FORMATS[suffix] == most for suffix in suffixes[name])]


def _suffixes_in(path: str) -> list[str]:
    """The suffixes by which `datasets` knows a file: each part of its name after a dot."""
    return [f".{part}" for part in posixpath.basename(path).lower().split(".")[1:]]


def listed(texts: Sequence[str], shown: int = _SHOWN) -> str:
    """Return texts with commas between them; of many, the first ones."""
    more = f", and {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more
