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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rich.filesize import decimal

from transforms.base.errors import ParameterError, Unavailable
from transforms.base.phrases import did_you_mean
from transforms.files.formats import format_of_suffix
from transforms.storage.hub import RETRYING, hub, may_pass
from transforms.storage.retries import reason_of

Splits = Mapping[str, Sequence[str]]  # the files of each split

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
_LOGGER = logging.getLogger(__name__)


class Configuration(NamedTuple):
    """A configuration of a dataset. splits: its own. names: of all configurations."""

    splits: Splits
    names: Sequence[str]


def load_configuration(
    path: str, shown: str, parameter: str, choice: str, config: str | None = None, revision: str | None = None
) -> Configuration:
    """Load a configuration with `datasets`, without the content of its files.

    Args:
        path: of a folder, or the url of a dataset on the Hub.
        shown: what errors call it.
        parameter: what the caller calls it, for errors.
        choice: how one of several configurations is chosen, for errors, with `{}` for its name.
        config: that is chosen; None for the default.
        revision: of the Hub.

    Returns:
        The configuration, without splits if there is no file that `datasets` reads.

    Raises:
        ParameterError: if there is no such configuration, or a choice, or the splits cannot be found.
        Unavailable: if the Hub does not answer.
    """
    datasets = _import_datasets(shown, parameter)
    try:
        # If the Hub fails, `datasets` takes what was loaded before, which another cache does not have.
        with tempfile.TemporaryDirectory() as cache:
            builder = RETRYING(datasets.load_dataset_builder, path, config, revision=revision, cache_dir=cache)
    except Exception as error:  # of `datasets`, of YAML, or of the client of the Hub
        if may_pass(error):
            raise Unavailable(f"{shown}: it cannot be listed ({reason_of(error)}).") from None
        if isinstance(error, (datasets.data_files.EmptyDatasetError, datasets.exceptions.DataFilesNotFoundError)):
            return Configuration({}, [""])
        names = []
        with suppress(Exception):  # that which `datasets` has just raised
            names = datasets.get_dataset_config_names(path, revision=revision)
        if names:
            check_configuration(config, names, shown, parameter, choice)
        where = f"{path}@{revision}/" if revision else f"{os.path.realpath(path)}/"
        problem = " ".join(str(error).rpartition(" Hub either: ")[2].replace(where, "").split())[:200].rstrip(".")
        raise ParameterError(parameter, shown, f"its splits cannot be found: {problem}. Name its files.") from None
    names = [*builder.builder_configs]
    if config is None and len(names) > 1:
        others = listed([each for each in names if each != builder.config.name], 3)
        _LOGGER.warning("%s: its configuration %s is read, not %s", shown, builder.config.name, others)
    return Configuration({str(split): files for split, files in builder.config.data_files.items() if files}, names)


def _import_datasets(shown: str, parameter: str) -> Any:
    try:
        import datasets
    except ImportError:
        problem = "which of its files are a split is found by the package datasets: run `pip install 'datasets>=5'`."
        raise ParameterError(parameter, shown, problem) from None
    hub()  # sets up its client, which `datasets` uses
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # a request to another host, with the name of the dataset
    datasets.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    return datasets


def check_configuration(config: str | None, names: Sequence[str], shown: str, parameter: str, choice: str) -> None:
    """Check that a configuration is one of those of a dataset, or that there is only one. Raises ParameterError.

    Args:
        names: of all configurations.
        config, shown, parameter, choice: as of load_configuration.
    """
    if config is None and len(names) > 1:
        problem = f"it has several configurations: {listed(names)}. {choice.format(names[0])}"
        raise ParameterError(parameter, shown, problem)
    if config is not None and config not in names:
        problem = f"it has no configuration {config}; it has {listed(names)}.{did_you_mean(config, names)}"
        raise ParameterError(parameter, shown, problem)


def splits_by_name(names: Collection[str]) -> Splits:
    """Return the files of each split that the names of files show, by the rules of `datasets`; none if they show none.

    Args:
        names: of the files of records below a folder.
    """
    found: dict[str, list[str]] = {}
    if shards := [shard for name in sorted(names) if (shard := _SHARD.fullmatch(name))]:
        for split in [*_WORDS, *sorted({shard[1] for shard in shards} - {*_WORDS})]:
            found[split] = [shard[0] for shard in shards if shard[1] == split]
    for place in _PLACES:
        if not any(found.values()):
            for split, words in _WORDS.items():
                matches = re.compile(place.format(words=words), re.DOTALL).fullmatch
                found[split] = [name for name in sorted(names) if matches(name)]
    if names and not any(found.values()):
        found = {"train": sorted(names)}
    return {split: _of_most_frequent_format(files) for split, files in found.items() if files}


def _of_most_frequent_format(names: Sequence[str]) -> list[str]:
    """The files of the format that most of some files have, as `datasets` loads them; of as many, the first below."""
    formats = {
        ".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv",
        ".ndjson": "json",
    }  # fmt: skip
    suffixes = {name: [suffix for suffix in suffixes_in(name) if suffix in formats] for name in names}
    counts = Counter(suffix for found in suffixes.values() for suffix in found)
    most = formats[max(counts, key=lambda suffix: (counts[suffix], -[*formats].index(suffix)))]
    return [name for name in names if any(formats[suffix] == most for suffix in suffixes[name])]


def choose_files(
    by_split: Splits,
    entries: Mapping[str, Mapping[str, Any]],
    splits: Sequence[str] | None,
    shown: str,
    parameter: str,
    url_of: Callable[[str], str],
) -> list[str]:
    """Return the files of the splits that are chosen, each once.

    Args:
        by_split: the files of each split.
        entries: what the store says of each file.
        splits: that are chosen; none if there is only one; None if there is no option for them.
        shown: what errors call the dataset.
        parameter: what the caller calls it, for errors.
        url_of: returns the url of a file.

    Raises:
        ParameterError: if there is a choice and none is made, or of something that does not exist; or if a file has no
            format that is read.
    """
    if not by_split:
        raise ParameterError(parameter, shown, "it has no file of records.")
    described = describe_splits(by_split, entries)
    first = next(iter(by_split))
    if not splits and (len(by_split) > 1 or first.startswith(PARTIAL)):
        problem = "it has several splits" if len(by_split) > 1 else "the Hub converted a part of it only"
        choice = f"Choose with split, such as {first}."
        if splits is None:
            split = "test" if "test" in by_split else first
            choice = f"Name files, such as those of {split}: {listed([*map(url_of, by_split[split])], 3)}."
        raise ParameterError(parameter, shown, f"{problem}: {described}. {choice}")
    if unknown := next((split for split in splits or () if split not in by_split), None):
        problem = f"{shown} has no split {unknown}; it has {described}.{did_you_mean(unknown, [*by_split])}"
        raise ParameterError("split", ",".join(splits or ()), problem)
    chosen = [*dict.fromkeys(path for split in splits or by_split for path in by_split[split])]
    if unread := next((path for path in chosen if not {*suffixes_in(path)} & format_of_suffix().keys()), None):
        suffix = posixpath.splitext(unread)[1]
        raise ParameterError(parameter, shown, f"its files end in {suffix}, which is not a format that is read.")
    return chosen


def names_in_no_split(names: Sequence[str], by_split: Splits) -> list[str]:
    """Return those of some files that no split has."""
    in_splits = {name for found in by_split.values() for name in found}
    return [name for name in names if name not in in_splits]


def log_unread(shown: str, names: Sequence[str], what: str = "in no split") -> None:
    """Log files that are not read.

    Args:
        shown: what messages call the dataset.
        names: of the files; nothing is logged if there are none.
        what: which files they are.
    """
    if names:
        count, examples = f"{len(names):,}", ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        message = "%s: files %s are not read (%s): %s. To read such a file, name it."
        _LOGGER.warning(message, shown, what, count, examples)


def describe_splits(by_split: Splits, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the names of splits, with the size of their files."""
    sizes = {
        split: sum(entries[path]["size"] or 0 for path in paths if path in entries) for split, paths in by_split.items()
    }
    return listed([f"{split} ({decimal(size)})" for split, size in sizes.items()])


def suffixes_in(path: str) -> list[str]:
    """Return the suffixes by which `datasets` knows a file: each part of its name after a dot."""
    return [f".{part}" for part in posixpath.basename(path).lower().split(".")[1:]]


def listed(texts: Sequence[str], shown: int = _SHOWN) -> str:
    """Return texts with commas between them; of many, the first ones."""
    more = f", and {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more
