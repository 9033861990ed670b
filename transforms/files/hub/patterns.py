"""Patterns: which files of a repository are a split, by the rules of `datasets` (datasets.data_files).

All paths are relative to the repository, and nothing is asked of the Hub.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from fsspec.utils import glob_translate

Patterns = Mapping[str, Sequence[str]]  # of each split

_TRAIN = "train"
_SPLIT = re.compile(r"\w+(\.\w+)*")
_KEYWORDS = {
    _TRAIN: ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SEPARATORS = "-._ 0-9"
_IN_FOLDER_NAME = ("**/{word}/**", "**/{word}[{by}]*/**", "**/*[{by}]{word}/**", "**/*[{by}]{word}[{by}]*/**")
_IN_FILE_NAME = ("**/{word}[{by}]*", "**/*[{by}]{word}[{by}]*")
_FIVE_DIGITS = "[0-9]" * 5
_SHARD = f"data/{{split}}-{_FIVE_DIGITS}-of-{_FIVE_DIGITS}*.*"
_SHARD_NAME = re.compile(rf"(.+)-{_FIVE_DIGITS}-of-{_FIVE_DIGITS}.*")
_SPECIAL = re.compile(r"(?:^|/)(?:__|\.)")
_IGNORED = {
    "README.md",
    "config.json",
    "dataset_info.json",
    "dataset_infos.json",
    "dummy_data.zip",
    "dataset_dict.json",
}

# The format of each suffix that `datasets` loads and that is read here, and what else it loads. Which of them most
# files of a repository without configurations have decides what is loaded; of as many files, the first one.
_READ = {
    ".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv",
    ".ndjson": "json",
}  # fmt: skip
_NOT_READ = {
    ".txt", ".xml", ".tar", ".zip", ".h5", ".hdf5", ".lance", ".vortex", ".eval", ".pdf", ".png", ".jpg", ".jpeg",
    ".gif", ".bmp", ".tif", ".tiff", ".webp", ".mp3", ".wav", ".flac", ".ogg", ".opus", ".mp4", ".mkv", ".avi", ".mov",
    ".webm",
}  # fmt: skip


class MalformedError(Exception):
    """A card, or names of files, of which nobody can say what the splits are."""


def patterns_of_data_files(data_files: Any) -> Patterns:
    """Return the patterns of each split of the `data_files` of a configuration.

    Args:
        data_files: a pattern, a list of them, or a list of mappings of `split` and `path`.

    Raises:
        MalformedError: if it is something else.
    """
    entries: list[Any] = [data_files] if not isinstance(data_files, list) else data_files
    if all(isinstance(each, str) for each in entries):
        return {_TRAIN: entries}
    found: dict[str, Sequence[str]] = {}
    for each in entries:
        path = each.get("path") if isinstance(each, dict) and "split" in each else None
        paths = [path] if isinstance(path, str) else path
        if not isinstance(paths, list) or not all(isinstance(one, str) for one in paths):
            raise MalformedError("data_files is neither a pattern, nor a list of them or of mappings of split and path")
        if (split := str(each["split"])) in found or not _SPLIT.fullmatch(split):
            raise MalformedError(f"data_files has the split {split} twice, or it is not a name")
        found[split] = paths
    return found


def patterns_of_names(paths: Collection[str], base: str = "") -> Patterns:
    """Return the patterns of each split of a folder without configurations, from the names of its files.

    Args:
        paths: of all files of the repository.
        base: the folder; empty for the repository.

    Raises:
        MalformedError: if a name gives a split that cannot be one.
    """
    if shards := files_of(_SHARD.format(split="*"), paths, base):
        names = (_SHARD_NAME.match(posixpath.basename(path)) for path in shards)
        found = {name[1] for name in names if name}
        if wrong := next((split for split in sorted(found) if not _SPLIT.fullmatch(split)), None):
            raise MalformedError(f"its files name a split {wrong}, which is not a name")
        known = [split for split in _KEYWORDS if split in found]
        return {split: [_SHARD.format(split=split)] for split in [*known, *sorted(found - {*known})]}
    for forms in (_IN_FOLDER_NAME, _IN_FILE_NAME):
        by_split = {
            split: [form.format(word=word, by=_SEPARATORS) for word in words for form in forms]
            for split, words in _KEYWORDS.items()
        }
        if found_splits := {
            split: patterns
            for split, patterns in by_split.items()
            if any(files_of(pattern, paths, base) for pattern in patterns)
        }:
            return found_splits
    return {_TRAIN: ["**"]}


def files_of_split(patterns: Iterable[str], paths: Collection[str], base: str = "") -> list[str]:
    """Return the files of a split that `datasets` would load, each once, in the order of the patterns.

    Args:
        patterns: of the split.
        paths: of all files of the repository.
        base: the folder at which the patterns begin; empty for the repository.
    """
    found = (path for pattern in patterns for path in files_of(pattern, paths, base) if _suffixes(path))
    return [*dict.fromkeys(found)]


def files_of(pattern: str, paths: Collection[str], base: str = "") -> list[str]:
    """Return the paths that match a pattern, sorted: hidden ones, and those in folders such as `__x__`, if it says so.

    Args:
        pattern: of `data_files`.
        paths: of all files of the repository.
        base: the folder at which the pattern begins; empty for the repository.
    """
    pattern = posixpath.normpath(posixpath.join(base, pattern))
    ignored = _IGNORED - {posixpath.basename(pattern)}
    found = [path for path in _matching(pattern, paths) if posixpath.basename(path) not in ignored]
    return sorted(path for path in found if _counts(path, pattern))


def _matching(pattern: str, paths: Collection[str]) -> Iterable[str]:
    if not set(pattern) & set("*?["):
        return [pattern] if pattern in paths else []
    # A folder may have 100,000 files, most of which have none of the words.
    literal = max(re.split(r"[*?/]|\[!?\]?[^]]*\]", pattern), key=len)
    return filter(_matcher(pattern), [path for path in paths if literal in path])


@functools.lru_cache(1024)
def _matcher(pattern: str) -> Callable[[str], Any]:
    return re.compile(glob_translate(pattern)).match


def _counts(path: str, pattern: str) -> bool:
    """Whether as many folders that begin with two underscores, and names that begin with a dot, are in both."""
    if not _SPECIAL.search(path) and not _SPECIAL.search(pattern):
        return True
    special = [[part for part in each.split("/")[:-1] if part.startswith("__")] for each in (path, pattern)]
    hidden = [
        [part for part in each.split("/") if part.startswith(".") and {*part} != {"."}] for each in (path, pattern)
    ]
    return len(special[0]) == len(special[1]) and len(hidden[0]) == len(hidden[1])


def of_formats_read(paths: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Return the files that a card names, which all are to be read.

    Args:
        paths: of files_of_split.

    Returns:
        The files, and the first suffix that is not one that is read here, with no files.
    """
    others = (suffixes[-1] for path in paths if not {*(suffixes := _suffixes(path))} & _READ.keys())
    unread = next(others, None)
    return ([], unread) if unread else (paths, None)


def of_most_frequent_format(paths: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Return the files of the format that most of some files have, which is the one that `datasets` would load.

    Args:
        paths: of files_of_split.

    Returns:
        The files, and the most frequent suffix if it is not one that is read here, with no files.
    """
    counts: dict[str, int] = {}
    for path in paths:
        for suffix in _suffixes(path):
            counts[suffix] = counts.get(suffix, 0) + 1
    order = [*_READ]
    best = max(counts, key=lambda suffix: (counts[suffix], -order.index(suffix) if suffix in _READ else -99, suffix))
    if best not in _READ:
        return [], best
    return [path for path in paths if any(_READ.get(suffix) == _READ[best] for suffix in _suffixes(path))], None


def _suffixes(path: str) -> list[str]:
    """The suffixes of a file's name by which `datasets` loads it: any part of the name after a dot."""
    parts = (f".{part.lower()}" for part in posixpath.basename(path).split(".")[1:])
    return [suffix for suffix in parts if suffix in _READ or suffix in _NOT_READ]
