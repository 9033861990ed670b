"""Folders: which of their files are read. What is in a folder may be a dataset with splits, as on the Hub.

In this order, the splits are those of a dataset of this project, of what `datasets` saved (`save_to_disk`), of the card
in README.md, and those that the names of the files of records show.
"""

from __future__ import annotations

import logging
import os
import posixpath
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from transforms.base.errors import ParameterError, UserError
from transforms.base.phrases import counted
from transforms.files.earlier_datasets import dataset_folders, is_below, rows_of_dataset
from transforms.files.formats import format_of_suffix
from transforms.files.hub.card import CARD_FILES, Card, Configuration, read_card
from transforms.files.hub.layout import Layout, listed
from transforms.files.hub.patterns import MalformedError, Patterns
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import full_url
from transforms.storage.walking import find
from transforms.traces import TRACES

Entries = dict[str, dict[str, Any]]

_T = TypeVar("_T")

_SAVED, _SAVED_INFO, _SAVED_SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
# Files that `datasets` writes next to files of records, and Claude Code next to sessions.
_NOT_RECORDS = {_SAVED, _SAVED_INFO, _SAVED_SPLITS, "dataset_infos.json", "sessions-index.json"}
_ABOUT_SESSIONS = ".meta.json"
_DEFAULT, _TRAIN = "default", "train"
_BY_NAMES = {_DEFAULT: Configuration(None)}
_OTHERS = "with other suffixes than those of records"
_SHOWN = 3
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Folder:
    """What is in a folder.

    name: what errors call it. files: what the store says of each, by its path below the folder. read: returns the
    content of one. url_of: returns its url.
    """

    name: str
    files: Entries
    read: Callable[[str], bytes]
    url_of: Callable[[str], str]

    def layout(self, card: Card, records: Collection[str]) -> Layout:
        return Layout(self.name, self.files, card, records, self.url_of)


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

    datasets = dataset_folders(paths.keys(), read)
    skipped = [dataset for dataset in datasets if dataset]
    log_skipped(folder, skipped)
    files = {
        below: entries[path] for below, path in paths.items() if not any(is_below(below, each) for each in skipped)
    }
    inside = _Folder(folder, files, read, url_of)
    try:
        if "" in datasets:
            chosen = _chosen(_layout_of_rows(inside, splits), splits, parameter, arriving)
        else:
            chosen = _files_of_records(inside, splits, format, parameter, arriving)
    except MalformedError as error:
        raise ParameterError(parameter, folder, f"its splits cannot be found: {error}. Name its files.") from None
    return {paths[below]: files[below] for below in chosen}


def _files_of_records(
    folder: _Folder, splits: Sequence[str] | None, format: str, parameter: str, arriving: bool
) -> list[str]:
    """The files of records that are read of a folder that this project did not write."""
    records, links, others = _by_kind(folder.files)
    card = _card(folder)
    configurations = card.configurations or _BY_NAMES
    layout = folder.layout(card._replace(configurations=configurations), records)
    by_config = {config: layout.splits(config) for config in configurations}
    in_splits = {path for found in by_config.values() for paths in found.values() for path in paths}
    rest = [path for path in records if path not in in_splits]
    config, found = next(iter(by_config.items()))
    if not splits and configurations == {config: Configuration(None)}:
        has_no_splits = format in TRACES or (splits is None and _TRAIN not in found)
        if has_no_splits or found.keys() <= {_TRAIN} or (len(found) == 1 and not rest):
            _log_unread(folder, others, _OTHERS)
            return [*records, *links]
        if len(found) == 1:
            raise ParameterError(
                parameter,
                folder.name,
                f"it has a split {layout.described(config, found)}, and {counted(len(rest), 'file')} in none: "
                f"{listed(rest, _SHOWN)}. Choose with split, such as {next(iter(found))}, or name the files.",
            )
    chosen = _chosen(layout, splits, parameter, arriving)
    _log_unread(folder, others, _OTHERS)
    _log_unread(folder, rest, "in no split")
    return [*chosen, *links]


def _chosen(layout: Layout, splits: Sequence[str] | None, parameter: str, arriving: bool) -> list[str]:
    """The files of the splits that are chosen."""
    config = layout.configuration(None, parameter)
    if not (found := layout.splits(config)):
        return []
    if arriving and splits and (missing := [split for split in splits if split not in found]):
        described = layout.described(config, found)
        _LOGGER.warning("%s: it has no split %s yet; it has %s", layout.shown, ",".join(missing), described)
        splits = [split for split in splits if split in found]
        if not splits:
            return []
    return layout.chosen(config, splits, parameter)


def _card(folder: _Folder) -> Card:
    """What `datasets` saved, or the card. Raises MalformedError."""
    if saved := _saved_splits(folder):
        return Card({_DEFAULT: Configuration(saved)}, {})
    texts = (folder.read(name).decode(errors="replace") if name in folder.files else "" for name in CARD_FILES)
    return read_card(*texts)


def _by_kind(files: Entries) -> tuple[list[str], list[str], list[str]]:
    """The files of records, as far as their names show; links to folders, which are not followed; and other files."""
    suffixes = format_of_suffix()
    records, links, others = list[str](), list[str](), list[str]()
    for below, entry in sorted(files.items()):
        name = posixpath.basename(below)
        is_hidden = any(part.startswith((".", "_")) for part in below.split("/"))
        if name in _NOT_RECORDS or name.endswith(_ABOUT_SESSIONS) or is_hidden or below in CARD_FILES:
            continue
        is_record = suffixes_of(below)[0] in suffixes
        (links if entry["type"] == "directory" else records if is_record else others).append(below)
    return records, links, others


def _layout_of_rows(folder: _Folder, splits: Sequence[str] | None) -> Layout:
    """The splits of a dataset of this project. Raises UserError if they cannot be read."""
    try:
        rows = rows_of_dataset({below: entry["size"] for below, entry in folder.files.items()}, folder.read, splits)
    except ValueError as error:
        raise UserError(f"{folder.name}: {error}") from None
    if rows.loss:
        _LOGGER.warning("%s: what is read are its rows: %s.", folder.name, rows.loss)
    return folder.layout(Card({_DEFAULT: Configuration(rows.shards)}, {}), ())


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


def _saved_splits(folder: _Folder) -> Patterns | None:
    """The files of each split of what `save_to_disk` wrote; None if it did not. Raises MalformedError."""
    if _SAVED in folder.files and _SAVED_INFO in folder.files:
        state = _decoded(folder, _SAVED, _decode_state)
        return {state.split or _TRAIN: _named_in_state(folder, "", state)}
    if _SAVED_SPLITS not in folder.files:
        return None
    splits = _decoded(folder, _SAVED_SPLITS, _decode_splits).splits
    states = {split: _decoded(folder, f"{split}/{_SAVED}", _decode_state) for split in splits}
    return {split: _named_in_state(folder, f"{split}/", state) for split, state in states.items()}


def _named_in_state(folder: _Folder, before: str, state: _State) -> list[str]:
    paths = [f"{before}{file.filename}" for file in state.data_files]
    if missing := next((path for path in paths if path not in folder.files), None):
        raise MalformedError(f"{missing} is missing, which {before}{_SAVED} names")
    return paths


def _decoded(folder: _Folder, name: str, decode: Callable[[bytes], _T]) -> _T:
    if name not in folder.files:
        raise MalformedError(f"{name} is missing")
    try:
        return decode(folder.read(name))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"{name} is not as datasets writes it ({error})") from None


def _log_unread(folder: _Folder, unread: Sequence[str], what: str) -> None:
    if unread:
        shown = ", ".join(unread[:_SHOWN]) + (", ..." if len(unread) > _SHOWN else "")
        _LOGGER.warning(
            "%s: files %s are not read (%s): %s. To read such a file, name it.",
            folder.name,
            what,
            f"{len(unread):,}",
            shown,
        )


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
