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
from typing import Any, NamedTuple, TypeVar

import msgspec

from transforms.base.errors import ParameterError
from transforms.base.phrases import counted
from transforms.files.earlier_datasets import MANIFEST, dataset_folders, rows_of_dataset
from transforms.files.formats import format_of_suffix
from transforms.files.splits import (
    Dataset,
    Entries,
    Splits,
    in_no_split,
    listed,
    load_configuration,
    splits_by_name,
)
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import full_url
from transforms.storage.retries import reason_of
from transforms.storage.walking import find
from transforms.traces import TRACES

_T = TypeVar("_T")
_Read = Callable[[str], bytes]  # the content of a file of a folder; empty if there is none

_SAVED, _SAVED_INFO, _SAVED_SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
# Files that `datasets` writes next to files of records, and Claude Code next to sessions.
_NOT_RECORDS = {_SAVED, _SAVED_INFO, _SAVED_SPLITS, "dataset_infos.json", "sessions-index.json"}
_ABOUT_SESSIONS = ".meta.json"
# Where the metadata of a card are.
_CARDS = ("README.md", ".huggingface.yaml")
_HEADER = re.compile(rb"(\xef\xbb\xbf)?\s*---[\r\n].*?[\r\n]---", re.DOTALL)
_TRAIN = "train"
_LOGGER = logging.getLogger(__name__)


def records_below(system: Any, folder: str, splits: Sequence[str] | None, format: str, arriving: bool) -> Entries:
    """Find the files of records in a folder and those below it. Logs what else is there.

    Args:
        system: an fsspec file system.
        folder: its path there.
        splits: of the folder that are chosen; none if there is only one; None if there is no option for them.
        format: of INPUT_FORMATS. Names show no splits of sessions of agents: the folders of Claude Code are paths.
        arriving: whether the files of a split may be still to come.

    Returns:
        What the store says of each file, by its path.

    Raises:
        ParameterError: if the folder has several splits and none is chosen, or not those that are; or if it is a
            dataset of this project whose rows cannot be read.
        StoreError: if a folder cannot be listed.
    """
    entries = with_targets(system, find(system, folder))
    paths = {path.removeprefix(folder).strip("/"): path for path in entries}
    earlier = dataset_folders(paths)
    skipped = tuple(f"{each}/" for each in earlier if each)
    log_skipped(folder, [each for each in earlier if each])
    files = {below: entries[path] for below, path in paths.items() if not below.startswith(skipped)}
    url = full_url(system.unstrip_protocol(folder))
    dataset = Dataset(url, url, files)

    def read(below: str) -> bytes:
        return system.cat_file(paths[below]) if below in files else b""

    found = _find_rows(dataset, read) if "" in earlier else _find_records(dataset, read, splits, format)
    by_split = found.splits
    if arriving and (missing := [split for split in splits or () if split not in by_split]):
        if by_split:
            described = dataset.describe(by_split)
            _LOGGER.warning("%s: it has no split %s yet; it has %s", url, ",".join(missing), described)
        splits = [split for split in splits or () if split in by_split]
        by_split = by_split if splits else {}
    chosen = dataset.choose(by_split, splits) if by_split else []
    for path in chosen:
        if (size := files[path]["size"]) != (expected := found.sizes.get(path, size)):
            problem = f"{path} has {size:,} bytes; expected {expected:,}. Copy it again."
            raise ParameterError("patterns", url, problem)
    if found.loss:
        _LOGGER.warning("%s: what is read are its rows: %s.", url, found.loss)
    dataset.log_unread(found.others, "with other suffixes than those of records")
    dataset.log_unread(found.rest)
    return {paths[below]: files[below] for below in [*chosen, *found.links]}


class _Found(NamedTuple):
    """What is in a folder: the files of each split, records in no split, links to folders, and other files.

    sizes: that files must have. loss: what the rows of a dataset of this project do not have of its records.
    """

    splits: Splits
    rest: Sequence[str] = ()
    links: Sequence[str] = ()
    others: Sequence[str] = ()
    sizes: Mapping[str, int] = {}
    loss: str = ""


def _find_rows(dataset: Dataset, read: _Read) -> _Found:
    """Find the rows of a dataset of this project."""
    try:
        shards, loss = rows_of_dataset(read(MANIFEST))
    except ValueError as error:
        raise ParameterError("patterns", dataset.name, str(error)) from None
    return _Found(shards, sizes={path: size for each in shards.values() for path, size in each.items()}, loss=loss)


def _find_records(dataset: Dataset, read: _Read, splits: Sequence[str] | None, format: str) -> _Found:
    """Find the files of records in a folder that this project did not write."""
    records, links, others = sort_files(dataset.files)
    if stated := _saved_splits(dataset, read) or _splits_of_card(dataset, read):
        by_split, is_only = stated
        return _Found(by_split, in_no_split(records, by_split) if is_only else (), links, others)
    by_split = splits_by_name(records)
    rest = in_no_split(records, by_split)
    if not splits:
        has_no_splits = format in TRACES or (splits is None and _TRAIN not in by_split)
        if has_no_splits or by_split.keys() <= {_TRAIN} or (len(by_split) == 1 and not rest):
            return _Found({_TRAIN: records} if records else {}, (), links, others)
        if len(by_split) == 1:
            raise ParameterError(
                "patterns",
                dataset.name,
                f"it has a split {dataset.describe(by_split)}, and {counted(len(rest), 'file')} in none: "
                f"{listed(rest, 3)}. Choose with split, such as {next(iter(by_split))}, or name the files.",
            )
    return _Found(by_split, rest, links, others)


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


def _saved_splits(dataset: Dataset, read: _Read) -> tuple[Splits, bool] | None:
    """The files of each split of what `save_to_disk` wrote, which has one configuration; None if it did not."""

    def decoded(name: str, decode: Callable[[bytes], _T]) -> _T:
        try:
            return decode(read(name))
        except (ValueError, RecursionError) as error:  # of msgspec, too
            problem = f"its splits cannot be found: {name} is missing, or not as datasets writes it ({error})."
            raise ParameterError("patterns", dataset.name, f"{problem} Name its files.") from None

    if {_SAVED, _SAVED_INFO} <= dataset.files.keys():
        state = decoded(_SAVED, _decode_state)
        return {state.split or _TRAIN: [file.filename for file in state.data_files]}, True
    if _SAVED_SPLITS not in dataset.files:
        return None
    splits = decoded(_SAVED_SPLITS, _decode_splits).splits
    states = {split: decoded(f"{split}/{_SAVED}", _decode_state) for split in splits}
    return {split: [f"{split}/{file.filename}" for file in state.data_files] for split, state in states.items()}, True


def _splits_of_card(dataset: Dataset, read: _Read) -> tuple[Splits, bool] | None:
    """What `datasets` finds in a folder of empty files with these names and cards; None if no card has configurations.

    So it is the same on a disk and in a store, and no file of an earlier dataset is found.
    """
    cards = {name: read(name) for name in _CARDS}
    readme, standalone = cards.values()
    header = _HEADER.match(readme)
    if b"configs" not in (header[0] if header else b"") + standalone:
        return None
    with tempfile.TemporaryDirectory() as place:
        for name in dataset.files.keys() - {"dataset_infos.json"}:
            if not {*name.split("/")} & {"", "..", "."}:  # keys of a store may have such parts
                path = Path(place, name)
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(cards.get(name, b""))
                except OSError as error:  # as a key may be, too: too long, or below another key
                    problem = f"its splits cannot be found, since {name} cannot be a file ({reason_of(error)})."
                    raise ParameterError("patterns", dataset.name, f"{problem} Name its files.") from None
        splits, is_only = load_configuration(place, dataset.name)
        before = f"{os.path.realpath(place)}/"
    if outside := next((path for paths in splits.values() for path in paths if not path.startswith(before)), None):
        raise ParameterError("patterns", dataset.name, f"its card names {outside}, which is not in it. Name its files.")
    return {split: [path.removeprefix(before) for path in paths] for split, paths in splits.items()}, is_only


def sort_files(files: Entries) -> tuple[list[str], list[str], list[str]]:
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
