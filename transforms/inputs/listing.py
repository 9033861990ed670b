"""Listing: from urls, folders and globs to the input files, each with its format."""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from transforms.checks import check_choice
from transforms.errors import ParameterError, StoreError, Unavailable
from transforms.inputs.formats import (
    INPUT_FORMATS,
    SNIFFED_BYTES,
    format_of_suffix,
    input_format,
    recognized_format,
)
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import file_system, full_url, open_input
from transforms.storage.retries import with_retries

# Files that `datasets` writes next to files of records.
_NOT_RECORDS = {"dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json"}
_SHOWN = 3


class InputFile(msgspec.Struct, frozen=True):
    """An input file.

    Args:
        url: where it is.
        format: its format, by name.
        compression: of the file as a whole: gzip, bz2, xz, zstd or None.
        bytes: its size.
        version: differs if the file has changed, as far as its store can tell (an ETag, a digest or a time).
    """

    url: str
    format: str
    compression: str | None
    bytes: int
    version: str


def list_inputs(patterns: str | Sequence[str], format: str = "auto", parameter: str = "patterns") -> list[InputFile]:
    """List the files that patterns name, each once, in the order of the patterns.

    Args:
        patterns: one or several urls of files, folders and globs. The files of a folder or a glob are in the order of
            their names. Of a folder, and those below it, the files with a known suffix are listed; hidden ones, and
            those whose names begin with an underscore, are not. A file that is named itself or by a glob is listed
            whatever its suffix.
        format: one of INPUT_FORMATS.
        parameter: what the caller calls the patterns, for errors.

    Raises:
        ParameterError: if a pattern names no file, or a file that cannot be read.
        Unavailable: if a store does not answer.
    """
    check_choice("input_format", format, INPUT_FORMATS)
    patterns = [patterns] if isinstance(patterns, str) else patterns
    files: dict[str, InputFile] = {}
    for pattern in patterns:
        for url, entry in _entries(pattern, parameter):
            if url not in files and entry["size"] != 0:
                files[url] = _input_file(url, entry, format, parameter)
    if not files:
        raise ParameterError(parameter, ",".join(patterns), "all files are empty.")
    return list(files.values())


def _entries(pattern: str, parameter: str) -> list[tuple[str, dict[str, Any]]]:
    """Find the files that a pattern names: the url of each, and what its store says of it."""
    try:
        found = _found(pattern)
    except FileNotFoundError:
        raise ParameterError(parameter, pattern, "there is no such file or folder.") from None
    except StoreError as error:
        if error.is_transient:
            raise Unavailable(str(error)) from None
        raise ParameterError(parameter, pattern, f"it cannot be listed ({error.reason}).") from None
    except OSError as error:
        raise ParameterError(parameter, pattern, f"{error}.") from None
    if not found:
        suffixes = ", ".join(format_of_suffix())
        raise ParameterError(parameter, pattern, f"it has no file of records ({suffixes}, compressed or not).")
    system, _ = file_system(pattern)
    if special := next((path for path, entry in found.items() if entry["type"] != "file"), None):
        raise ParameterError(parameter, special, "it is not a regular file (a broken link, a pipe or a device).")
    if unknown := next((path for path, entry in found.items() if entry.get("size") is None), None):
        raise ParameterError(
            parameter, unknown, "its server does not report its size. Copy it to a disk or a bucket first."
        )
    if "http" in system.protocol:
        _check_ranges(found, parameter)
    return [(full_url(system.unstrip_protocol(path)), found[path]) for path in sorted(found)]


@with_retries("listed")
def _found(pattern: str) -> dict[str, dict[str, Any]]:
    """Find the files that a pattern names: what the store says of each, by its path."""
    system, path = file_system(pattern)
    is_here = "://" not in pattern and os.path.exists(path)
    if not is_here and any(sign in path for sign in "*?["):
        return _matching(system, path)
    entry = system.info(path)
    return _records_below(system, path) if entry["type"] == "directory" else {path: entry}


def _check_ranges(urls: Iterable[str], parameter: str) -> None:
    """Check that a server answers requests for a part of a file, by such a request."""
    for url in urls:
        try:
            with open_input(url, None) as file:
                file.seek(1)
                file.read(1)
        except StoreError as error:
            if error.is_transient:
                raise
            raise ParameterError(
                parameter,
                url,
                f"its server does not give parts of it ({error.reason}). Copy it to a disk or a bucket first.",
            ) from None


def _matching(system: Any, pattern: str) -> dict[str, dict[str, Any]]:
    """Find the files that match a glob; as in a shell, a hidden file only if the pattern names hidden ones."""
    hidden = posixpath.basename(pattern).startswith(".")
    return {
        path: entry
        for path, entry in system.glob(pattern, detail=True).items()
        if entry["type"] != "directory" and (hidden or not posixpath.basename(path).startswith("."))
    }


def _records_below(system: Any, folder: str) -> dict[str, dict[str, Any]]:
    """Find the files of records in a folder and those below it. Logs what else is there."""
    suffixes = format_of_suffix()
    chosen, others = {}, []
    for path, entry in system.find(folder, detail=True).items():
        below = path.removeprefix(folder).strip("/")
        parts = below.split("/")
        if parts[-1] in _NOT_RECORDS or any(part.startswith((".", "_")) for part in parts):
            continue
        if _suffixes(path)[0] in suffixes:
            chosen[path] = entry
        else:
            others.append(below)
    if others:
        shown = ", ".join(sorted(others)[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
        logging.getLogger(__name__).warning(
            "%s: files with other suffixes than those of records are not read (%s): %s. To read such a file, name it.",
            folder,
            f"{len(others):,}",
            shown,
        )
    return chosen


def _suffixes(path: str) -> tuple[str, str]:
    """Return the suffix that shows the format, and that which shows the compression."""
    stem, last = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1], last) if last in COMPRESSION_OF_SUFFIX else (last, "")


def _input_file(url: str, entry: dict[str, Any], format: str, parameter: str) -> InputFile:
    suffix, compressed = _suffixes(url)
    compression = COMPRESSION_OF_SUFFIX.get(compressed)
    name = format_of_suffix().get(suffix) if format == "auto" else format
    if name is None or not input_format(name).suffix_is_certain:
        with open_input(url, compression) as file:
            name = recognized_format(file.read(SNIFFED_BYTES))
    if compression and not input_format(name).may_be_compressed:
        raise ParameterError(
            parameter, url, f"a {name} file that is compressed as a whole cannot be read. Decompress it."
        )
    version = next((str(entry[key]) for key in ("etag", "ETag", "md5Hash", "mtime") if entry.get(key)), "")
    return InputFile(url, name, compression, entry["size"], version)
