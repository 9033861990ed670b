"""Folders: which of their files are read. What is in a folder may be a dataset with splits, as on the Hub.

In this order, the splits are those of a dataset of this project, of what `datasets` saved (`save_to_disk`), of the card
in README.md, and those that the names of the files of records show.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from transforms.base.errors import ParameterError, UserError
from transforms.base.phrases import counted
from transforms.files.earlier_datasets import MANIFEST, dataset_folders, is_below, rows_of_dataset
from transforms.files.formats import format_of_suffix
from transforms.files.splits import (
    Configuration,
    Splits,
    choose_files,
    describe_splits,
    listed,
    load_configuration,
    log_unread,
    names_in_no_split,
    splits_by_name,
)
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import full_url
from transforms.storage.retries import reason_of
from transforms.storage.walking import find
from transforms.traces import TRACES

Entries = dict[str, dict[str, Any]]

_T = TypeVar("_T")

_SAVED, _SAVED_INFO, _SAVED_SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
# Files that `datasets` writes next to files of records, and Claude Code next to sessions.
_NOT_RECORDS = {_SAVED, _SAVED_INFO, _SAVED_SPLITS, "dataset_infos.json", "sessions-index.json"}
_ABOUT_SESSIONS = ".meta.json"
# Where the metadata of a card are.
_CARDS = ("README.md", ".huggingface.yaml")
_HEADER = re.compile(rb"(\xef\xbb\xbf)?\s*---[\r\n].*?[\r\n]---", re.DOTALL)
_TRAIN = "train"
_OTHERS = "with other suffixes than those of records"
_LOGGER = logging.getLogger(__name__)


def records_below(
    system: Any, folder: str, splits: Sequence[str] | None, format: str, parameter: str, arriving: bool
) -> Entries:
    """Find the files of records in a folder and those below it. Logs what else is there.

    Args:
        system: an fsspec file system.
        folder: its path there.
        splits: of the folder that are chosen; none if there is only one; None if there is no option for them.
        format: of INPUT_FORMATS. Names show no splits of sessions of agents: the folders of Claude Code are paths.
        parameter: what the caller calls the folder, for errors.
        arriving: whether the files of a split may be still to come.

    Returns:
        What the store says of each file, by its path.

    Raises:
        ParameterError: if the folder has several splits and none is chosen, or not those that are.
        UserError: if it is a dataset of this project whose rows cannot be read.
        StoreError: if a folder cannot be listed.
    """
    entries = with_targets(system, find(system, folder))
    paths = {path.removeprefix(folder).strip("/"): path for path in entries}

    def read(below: str) -> bytes:
        content: bytes = system.cat_file(paths[below])
        return content

    def url_of(below: str) -> str:
        return full_url(system.unstrip_protocol(paths[below]))

    datasets = dataset_folders(paths)
    skipped = [dataset for dataset in datasets if dataset]
    log_skipped(folder, skipped)
    files = {
        below: entries[path] for below, path in paths.items() if not any(is_below(below, each) for each in skipped)
    }

    def choose(by_split: Splits) -> list[str]:
        wanted = splits
        if arriving and by_split and splits and (missing := [split for split in splits if split not in by_split]):
            described = describe_splits(by_split, files)
            _LOGGER.warning("%s: it has no split %s yet; it has %s", folder, ",".join(missing), described)
            wanted = [split for split in splits if split in by_split]
        is_there = by_split and (wanted or not splits)
        return choose_files(by_split, files, wanted, folder, parameter, url_of) if is_there else []

    if "" in datasets:
        chosen = _rows(folder, files, read, choose)
    else:
        chosen = _files_of_records(folder, files, read, splits, format, parameter, choose)
    return {paths[below]: files[below] for below in chosen}


def _files_of_records(
    folder: str,
    files: Entries,
    read: Callable[[str], bytes],
    splits: Sequence[str] | None,
    format: str,
    parameter: str,
    choose: Callable[[Splits], list[str]],
) -> list[str]:
    """The files of records that are read of a folder that this project did not write."""
    records, links, others = sort_files(files)
    try:
        saved = _saved_splits(files, read)
    except ValueError as error:
        raise ParameterError(parameter, folder, f"its splits cannot be found: {error}. Name its files.") from None
    stated = Configuration(saved, [""]) if saved else _configuration_of_card(folder, files, read, parameter)
    by_split = stated.splits if stated else splits_by_name(records)
    rest = names_in_no_split(records, by_split) if not stated or len(stated.names) == 1 else []
    if not stated and not splits:
        has_no_splits = format in TRACES or (splits is None and _TRAIN not in by_split)
        if has_no_splits or by_split.keys() <= {_TRAIN} or (len(by_split) == 1 and not rest):
            log_unread(folder, others, _OTHERS)
            return [*records, *links]
        if len(by_split) == 1:
            raise ParameterError(
                parameter,
                folder,
                f"it has a split {describe_splits(by_split, files)}, and {counted(len(rest), 'file')} in none: "
                f"{listed(rest, 3)}. Choose with split, such as {next(iter(by_split))}, or name the files.",
            )
    chosen = choose(by_split)
    log_unread(folder, others, _OTHERS)
    log_unread(folder, rest)
    return [*chosen, *links]


def _configuration_of_card(
    folder: str, files: Entries, read: Callable[[str], bytes], parameter: str
) -> Configuration | None:
    """What `datasets` finds in a folder of empty files with these names and cards; None if no card has configurations.

    So it is the same on a disk and in a store, and no file of an earlier dataset is found.
    """
    cards = {name: read(name) for name in _CARDS if name in files}
    readme, standalone = (cards.get(name, b"") for name in _CARDS)
    header = _HEADER.match(readme)
    if b"configs" not in (header[0] if header else b"") + standalone:
        return None
    with tempfile.TemporaryDirectory() as place:
        for name in files.keys() - {"dataset_infos.json"}:
            if not {*name.split("/")} & {"", "..", "."}:  # keys of a store may have such parts
                path = Path(place, name)
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(cards.get(name, b""))
                except OSError as error:  # as a key may be, too: too long, or below another key
                    problem = f"its splits cannot be found, since {name} cannot be a file ({reason_of(error)})."
                    raise ParameterError(parameter, folder, f"{problem} Name its files.") from None
        splits, names = load_configuration(place, folder, parameter, "Name the files of one, such as those of {}.")
        before = f"{os.path.realpath(place)}/"
    if outside := next((path for paths in splits.values() for path in paths if not path.startswith(before)), None):
        raise ParameterError(parameter, folder, f"its card names {outside}, which is not in it. Name its files.")
    by_split = {split: [path.removeprefix(before) for path in paths] for split, paths in splits.items()}
    return Configuration(by_split, names)


def sort_files(files: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[str], list[str]]:
    """Return the files of records, as far as their names show; links to folders, which are not followed; and others.

    Args:
        files: what the store says of each, by its path below a folder.
    """
    suffixes = format_of_suffix()
    records, links, others = list[str](), list[str](), list[str]()
    for below, entry in sorted(files.items()):
        name = posixpath.basename(below)
        is_hidden = any(part.startswith((".", "_")) for part in below.split("/"))
        if name in _NOT_RECORDS or name.endswith(_ABOUT_SESSIONS) or is_hidden or below in _CARDS:
            continue
        is_record = suffixes_of(below)[0] in suffixes
        (links if entry["type"] == "directory" else records if is_record else others).append(below)
    return records, links, others


def _rows(
    folder: str, files: Entries, read: Callable[[str], bytes], choose: Callable[[Splits], list[str]]
) -> list[str]:
    """The shards that are read of a dataset of this project."""
    try:
        rows = rows_of_dataset(read(MANIFEST) if MANIFEST in files else b"")
    except ValueError as error:
        raise UserError(f"{folder}: {error}") from None
    chosen = choose(rows.shards)
    if wrong := next((path for path in chosen if path not in files or files[path]["size"] != rows.sizes[path]), None):
        found = f"has {files[wrong]['size']:,} bytes" if wrong in files else "is missing"
        raise UserError(f"{folder}: {wrong} {found}; expected {rows.sizes[wrong]:,} bytes. Copy it again.")
    if rows.loss:
        _LOGGER.warning("%s: what is read are its rows: %s.", folder, rows.loss)
    return chosen


class _DataFile(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    """What `datasets` writes next to the files of a dataset; it reads those that are named here, and no others."""

    data_files: list[_DataFile] = msgspec.field(name="_data_files")
    split: str | None = msgspec.field(name="_split", default=None)


class _SavedSplits(msgspec.Struct):
    splits: list[str]


_decode_state = msgspec.json.Decoder(_State).decode
_decode_splits = msgspec.json.Decoder(_SavedSplits).decode


def _saved_splits(files: Entries, read: Callable[[str], bytes]) -> Splits | None:
    """The files of each split of what `save_to_disk` wrote; None if it did not. Raises ValueError."""

    def decoded(name: str, decode: Callable[[bytes], _T]) -> _T:
        if name not in files:
            raise ValueError(f"{name} is missing")
        try:
            return decode(read(name))
        except (ValueError, RecursionError) as error:  # of msgspec, too
            raise ValueError(f"{name} is not as datasets writes it ({error})") from None

    def named_in(before: str, state: _State) -> list[str]:
        paths = [f"{before}{file.filename}" for file in state.data_files]
        if missing := next((path for path in paths if path not in files), None):
            raise ValueError(f"{missing} is missing, which {before}{_SAVED} names")
        return paths

    if _SAVED in files and _SAVED_INFO in files:
        state = decoded(_SAVED, _decode_state)
        return {state.split or _TRAIN: named_in("", state)}
    if _SAVED_SPLITS not in files:
        return None
    splits = decoded(_SAVED_SPLITS, _decode_splits).splits
    states = {split: decoded(f"{split}/{_SAVED}", _decode_state) for split in splits}
    return {split: named_in(f"{split}/", state) for split, state in states.items()}


def with_targets(system: Any, entries: Entries) -> Entries:
    """What a disk says of files, with that of their targets for links; a broken link is as it was."""
    return {
        path: system.info(path) if entry.get("islink") and os.path.exists(path) else entry
        for path, entry in entries.items()
    }


def log_skipped(folder: str, datasets: Sequence[str]) -> None:
    """Log the datasets of this project in a folder, which are not read."""
    message = "%s: %s is a dataset of an earlier build and is not read. To read its rows, name its folder."
    for dataset in datasets:
        _LOGGER.warning(message, folder, dataset)


def suffixes_of(path: str) -> tuple[str, str]:
    """Return the suffix that shows the format, and that which shows the compression."""
    stem, last = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1], last) if last in COMPRESSION_OF_SUFFIX else (last, "")
