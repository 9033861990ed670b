"""Listing: from urls, folders and globs to the input files, each with its format."""

from __future__ import annotations

import logging
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec
from fsspec.implementations.local import LocalFileSystem

from transforms.base.errors import ParameterError, StoreError, Unavailable
from transforms.base.options import check_choice
from transforms.files.detection import detect_format
from transforms.files.formats import INPUT_FORMATS, input_format, suffix_format
from transforms.files.hub import Commits, expand_hub_name, find_dataset
from transforms.files.splits import STATE, Choice, Entries, log_skipped, records_below, split_suffixes
from transforms.storage.compression import COMPRESSION_OF_SUFFIX, estimated_size
from transforms.storage.files import exists, file_system, full_url, read_range
from transforms.storage.hub import hub_name, strip_commit
from transforms.storage.retries import with_retries
from transforms.storage.versions import file_version
from transforms.storage.walking import WILDCARDS, find_matching, glob_folder

_REQUESTS_AT_ONCE = 32
# Of more files of one suffix than this, the first few are looked at, and the others are taken to be like these.
_MANY, _FIRST = 100, 4
# Roughly how much larger conversations are than the same ones compressed.
_COMPRESSION_RATIO = 5
# From this size on, the start of a compressed file is decompressed to estimate how large all of it is.
_WORTH_SAMPLING, _SAMPLED = 1 << 18, 1 << 20
_LOGGER = logging.getLogger(__name__)

Key = tuple[int, str]
# Whether a file is taken, by its key and its version.
Accepts = Callable[[Key, str], bool]


class InputFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """An input file.

    Args:
        url: where it is.
        format: its format, by name.
        compression: of the file as a whole: gzip, bz2, xz, zstd or None.
        bytes: its size.
        version: differs if the file has changed, as far as its store can tell; of file_version.
        source: the number of the source that lists it, from 0.
        unpacked: about how many bytes it is when it is decompressed; 0 if it is not compressed.
    """

    url: str
    format: str
    compression: str | None
    bytes: int
    version: str
    source: int = 0
    unpacked: int = 0

    @property
    def key(self) -> Key:
        """What it is known by in all its versions: the source that lists it, and its url, without a commit."""
        return self.source, strip_commit(self.url)

    @property
    def unpacked_bytes(self) -> int:
        """About how many bytes it is without compression."""
        return self.unpacked or self.bytes


def list_inputs(
    patterns: str | Sequence[str],
    format: str = "auto",
    parameter: str = "patterns",
    splits: Sequence[str] | None = (),
    commits: Commits | None = None,
    accepts: Callable[[str, str], bool] | None = None,
    source: int = 0,
) -> list[InputFile]:
    """List the files that patterns name, each once, in the order of the patterns.

    Args:
        patterns: one or several urls of files, folders and globs, or datasets on the Hub. The files of a folder or a
            glob are in the order of their names. Of a folder, those with a known suffix are listed, and not those that
            are hidden or begin with an underscore. One that is named itself or by a glob is listed whatever its
            suffix. Of a dataset of this project that is named itself, its rows are listed; any other is logged.
        format: one of INPUT_FORMATS.
        parameter: what the caller calls the patterns, for errors.
        splits: of datasets on the Hub and of folders; none if each has only one; None if there is no option for them.
        commits: that revisions on the Hub stand for, of all lists that belong together.
        accepts: whether a file is listed, by its url and its version, if files may be still to come: then a pattern may
            name none yet, and what is not a regular file is logged and left out. It is asked again after the file was
            looked at, which takes time.
        source: its number, from 0.

    Raises:
        ParameterError: if a pattern names no file, or a file that cannot be read.
        Unavailable: if a store does not answer.
    """
    check_choice("input_format", format, INPUT_FORMATS)
    patterns = [patterns] if isinstance(patterns, str) else patterns
    choice = Choice(splits, format, arriving=accepts is not None)
    try:
        entries = _find_files(patterns, choice, Commits() if commits is None else commits)
        if accepts is None:
            if not entries:
                raise ParameterError("patterns", ",".join(patterns), "all files are empty.")
            return _input_files(entries, format, source)
        accepted = {}
        for url, entry in entries.items():
            with suppress(OSError):  # it has just vanished
                if accepts(url, _version(url, entry)):
                    accepted[url] = entry
        return [file for file in _input_files(accepted, format, source) if accepts(file.url, file.version)]
    except ParameterError as error:
        named = parameter if error.parameter == "patterns" else error.parameter
        raise ParameterError(named, error.value, error.problem) from None
    except StoreError as error:
        if error.is_transient:
            raise Unavailable(str(error)) from None
        raise ParameterError(parameter, error.url, f"it cannot be {error.action} ({error.reason}).") from None
    except OSError as error:
        raise ParameterError(parameter, error.filename or str(error), f"it cannot be read ({error}).") from None


def _find_files(patterns: Sequence[str], choice: Choice, commits: Commits) -> Entries:
    """What its store says of each file that patterns name, by its url; those that are empty do not count."""
    entries: dict[str, Mapping[str, Any]] = {}
    for pattern in patterns:
        name = hub_name(expand_hub_name(pattern))
        try:
            if name and not name.path:
                named = find_dataset(name, choice, commits)
            else:
                url = name._replace(revision=commits[name.repository, name.revision]).url if name else pattern
                named = _entries(url, choice)
        except FileNotFoundError:
            if not choice.arriving:
                raise ParameterError("patterns", pattern, "there is no such file or folder.") from None
            named = {}
        if not named and not choice.arriving:
            suffixes = ", ".join(suffix_format())
            raise ParameterError("patterns", pattern, f"it has no file of records ({suffixes}, compressed or not).")
        entries |= {url: entry for url, entry in named.items() if url not in entries and entry["size"]}
    names = Counter(map(strip_commit, entries))
    if twice := next((name for name, count in names.items() if count > 1), None):
        raise ParameterError("patterns", twice, "it is an input in two revisions. Give each in a source of its own.")
    return entries


@with_retries("listed")
def _entries(pattern: str, choice: Choice) -> Entries:
    """What its store says of each file that a pattern names, by its url. Raises FileNotFoundError."""
    system, path = file_system(pattern)
    is_here = "://" not in pattern and os.path.exists(path)
    wildcards = WILDCARDS.replace("?", "") if "http" in system.protocol else WILDCARDS  # a url may have a query
    by_path: Entries
    if not is_here and any(wildcard in path for wildcard in wildcards):
        by_path, has_splits = _matching(system, path), False
    else:
        by_path = {path: system.info(path)}
        if has_splits := by_path[path]["type"] == "directory":
            by_path = records_below(system, path, choice)
    if choice.splits and not has_splits:
        problem = f"{pattern} is not a dataset, and has no splits. Give it without, such as in another source."
        raise ParameterError("split", ",".join(choice.splits), problem)
    entries = {}
    for path, entry in sorted(by_path.items()):
        if entry["type"] != "file":
            problem = "it is not a regular file (a broken link, a pipe or a device)."
            if entry["type"] == "directory":
                problem = "it is a link to a folder, which is not followed. Name the folder that it leads to instead."
            if not choice.arriving:
                raise ParameterError("patterns", path, problem)
            _LOGGER.warning("%s: %s It is not read.", path, problem)
            continue
        if entry.get("size") is None:
            problem = "its server does not report its size. Copy it to a disk or a bucket first."
            raise ParameterError("patterns", path, problem)
        entries[full_url(system.unstrip_protocol(path))] = entry
    return entries


def _matching(system: Any, pattern: str) -> Entries:
    """Find the files that match a glob, but for those of an earlier dataset that nobody chose."""
    entries, base = find_matching(system, pattern), glob_folder(pattern)
    files = {path: entry for path, entry in entries.items() if entry["type"] != "directory"}
    # Of folders that only the wildcards match, nobody chose that they are read.
    slashes = ((path, at) for path in files for at, character in enumerate(path) if character == "/")
    folders = {path[:at] for path, at in slashes if at > len(base)}
    if isinstance(system, LocalFileSystem):
        files |= {folder: system.info(folder) for folder in folders if os.path.islink(folder)}
    states = [full_url(system.unstrip_protocol(posixpath.join(folder, STATE))) for folder in folders]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as threads:
        datasets = [folder for folder, is_there in zip(folders, threads.map(exists, states), strict=True) if is_there]
    log_skipped(base, sorted(folder.removeprefix(base).strip("/") for folder in datasets))
    return {path: entry for path, entry in files.items() if not path.startswith(tuple(f"{each}/" for each in datasets))}


def _input_files(entries: Entries, format: str, source: int) -> list[InputFile]:
    """Make input files of what was found, in the same order."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for url in entries:
        kinds.setdefault(split_suffixes(url), []).append(url)
    files: dict[str, InputFile] = {}
    # A store takes some 30 ms for the first bytes of a file.
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as threads:

        def look_at(urls: Sequence[str]) -> list[InputFile]:
            return [*threads.map(lambda url: _look_at(url, entries[url], format, source), urls)]

        for urls in kinds.values():
            first = look_at(urls[: _FIRST if len(urls) > _MANY else None])
            rest = urls[len(first) :]
            is_alike = len({file.format for file in first}) == 1
            others = [_like(first, url, entries[url]) for url in rest] if is_alike else look_at(rest)
            files |= {file.url: file for file in [*first, *others]}
    return [files[url] for url in entries]


def _like(files: Sequence[InputFile], url: str, entry: Mapping[str, Any]) -> InputFile:
    """The input file of a url that was not looked at, if it is like some others."""
    size = entry["size"]
    unpacked = sum(file.unpacked for file in files) * size // sum(file.bytes for file in files)
    return msgspec.structs.replace(files[0], url=url, bytes=size, version=_version(url, entry), unpacked=unpacked)


def _look_at(url: str, entry: Mapping[str, Any], format: str, source: int) -> InputFile:
    """Make an input file of what was found: its format, and its size without compression."""
    suffix, compressed = split_suffixes(url)
    compression, size = COMPRESSION_OF_SUFFIX.get(compressed), entry["size"]
    if format in ("auto", "json"):
        named, among = (suffix_format().get(suffix), None) if format == "auto" else (format, (format,))
        try:
            format = detect_format(url, named, compression, size, among)
        except ValueError as error:
            formats = ", ".join(name for name in INPUT_FORMATS if name != "auto")
            raise ParameterError("patterns", url, f"{error} These formats are read: {formats}.") from None
    unpacked = 0
    if compression:
        if not input_format(format).may_be_compressed:
            problem = f"a {format} file that is compressed as a whole cannot be read. Decompress it."
            raise ParameterError("patterns", url, problem)
        unpacked = size * _COMPRESSION_RATIO
        if size >= _WORTH_SAMPLING:
            unpacked = estimated_size(read_range(url, 0, min(size, _SAMPLED)), size, compression) or unpacked
    return InputFile(url, format, compression, size, _version(url, entry), source, unpacked)


def _version(url: str, entry: Mapping[str, Any]) -> str:
    """The version of a file. Raises OSError if it is on a disk and has vanished."""
    if "://" not in url:  # the entries of a disk have a time in seconds, as a float
        entry = {**entry, "mtime_ns": os.stat(url).st_mtime_ns}
    return file_version(entry)


def shared_files(files: Iterable[InputFile]) -> Iterator[tuple[InputFile, InputFile]]:
    """Find the files that an earlier source lists, too: yields each as that source has it, and as it is."""
    by_url: dict[str, InputFile] = {}
    for file in files:
        first = by_url.setdefault(file.url, file)
        if first.source != file.source:
            yield first, file
