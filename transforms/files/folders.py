"""Folders: which of their files are read. What is in a folder may be a dataset with splits, as on the Hub.

In this order, the splits are those of a dataset of this project, of what `datasets` saved (`save_to_disk`), of the card
in README.md, and those that the names of the files of records show.
"""

from __future__ import annotations

import json
import logging
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transforms.base.phrases import counted
from transforms.files.formats import suffix_format
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
from transforms.storage.retries import store_reason
from transforms.storage.walking import find
from transforms.traces import TRACES

_Read = Callable[[str], bytes]  # the content of a file of a folder; empty if there is none

STATE = "_chatmill"  # the folder by which a dataset of this project is known, finished or not
_MANIFEST = "manifest.json"
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
    """Find the files of records in a folder of an fsspec file system and those below it, and log what else is there.

    splits, format: as of list_inputs. arriving: whether the files of a split may be still to come.

    Raises:
        ParameterError: if the folder has several splits and none is chosen, or not those that are; or if it is a
            dataset of this project whose rows cannot be read.
        StoreError: if a folder cannot be listed.
    """
    entries = with_targets(system, find(system, folder))
    paths = {path.removeprefix(folder).strip("/"): path for path in entries}
    found = (f"/{below}".partition(f"/{STATE}/") for below in paths)
    earlier = sorted({before[1:] for before, state, _ in found if state})
    log_skipped(folder, [each for each in earlier if each])
    skipped = tuple(f"{each}/" for each in earlier if each)
    files = {below: entries[path] for below, path in paths.items() if not below.startswith(skipped)}
    dataset = Dataset(full_url(system.unstrip_protocol(folder)), files)

    def read(below: str) -> bytes:
        return system.cat_file(paths[below]) if below in files else b""

    if "" in earlier:
        return {paths[below]: files[below] for below in _rows(dataset, read, splits, arriving)}
    records, links, others = sort_files(files)
    by_split, is_only = (
        _saved_splits(dataset, read)
        or _find_card_splits(dataset, read)
        or (_splits_by_name(dataset, records, splits, format), True)
    )
    chosen = dataset.choose(by_split, splits, arriving)
    dataset.log_unread(others, "with other suffixes than those of records")
    if is_only:
        dataset.log_unread(in_no_split(records, by_split))
    return {paths[below]: files[below] for below in [*chosen, *links]}


def _rows(dataset: Dataset, read: _Read, splits: Sequence[str] | None, arriving: bool) -> list[str]:
    """The shards of the newest version of a dataset of this project, whose folder has those of others, too."""
    shards: dict[str, dict[str, int]] = {}
    try:
        manifest = json.loads(read(_MANIFEST))
        records, layout = manifest["records"], manifest.get("layout") or {}
        lost = records.get("truncated", 0) + records.get("dropped", {}).get("too_long", 0)
        for shard in manifest["shards"]:
            if shard.get("format", "parquet") == "parquet":
                shards.setdefault(shard["split"], {})[shard["path"]] = shard["bytes"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        problem = f"it is a dataset that is not finished, or its {_MANIFEST} is damaged"
        raise dataset.error(f"{problem}. Finish it with the command that began it, or append to it.") from None
    if layout.get("packing", "none") != "none" or layout.get("shift_labels"):
        problem = "its rows are packed, so that one has several examples, or their labels are shifted"
        raise dataset.error(f"{problem}. Build from its inputs again, without packing and shift_labels.")
    if manifest["shards"] and not shards:
        raise dataset.error("its rows are not in parquet, which is read. Build it again with parquet in output_format.")
    chosen = dataset.choose(shards, splits, arriving)
    for path, expected in (shard for of_split in shards.values() for shard in of_split.items()):
        if path in chosen and (size := dataset.files[path]["size"]) != expected:
            raise dataset.error(f"{path} has {size:,} bytes; expected {expected:,}. Copy it again.")
    if lost:
        loss = f"{counted(lost, 'record')} cut or dropped at its max_length of {layout.get('max_length') or 0:,} tokens"
        _LOGGER.warning("%s: what is read are its rows: %s.", dataset.name, loss)
    return chosen


def _saved_splits(dataset: Dataset, read: _Read) -> tuple[Splits, bool] | None:
    """The files of each split of what `save_to_disk` wrote, and that there is one configuration; None if it did not.

    `datasets` reads the files that are named there, and no others.
    """

    def state(folder: str) -> tuple[str, list[str]]:
        found = json.loads(read(posixpath.join(folder, _SAVED)))
        return found.get("_split"), [posixpath.join(folder, file["filename"]) for file in found["_data_files"]]

    try:
        if {_SAVED, _SAVED_INFO} <= dataset.files.keys():
            split, files = state("")
            return {split or _TRAIN: files}, True
        if _SAVED_SPLITS in dataset.files:
            return {split: state(split)[1] for split in json.loads(read(_SAVED_SPLITS))["splits"]}, True
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        problem = f"what save_to_disk wrote is incomplete or damaged ({error!r}). Name its files."
        raise dataset.error(f"its splits cannot be found: {problem}") from None
    return None


def _find_card_splits(dataset: Dataset, read: _Read) -> tuple[Splits, bool] | None:
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
                    problem = f"its splits cannot be found, since {name} cannot be a file ({store_reason(error)})."
                    raise dataset.error(f"{problem} Name its files.") from None
        splits, is_only = load_configuration(place, dataset.name)
        before = f"{os.path.realpath(place)}/"
    return {split: [path.removeprefix(before) for path in paths] for split, paths in splits.items()}, is_only


def _splits_by_name(dataset: Dataset, records: Sequence[str], splits: Sequence[str] | None, format: str) -> Splits:
    """The files of each split that names show; one split of all records if they show none, and none is chosen."""
    by_split = splits_by_name(records)
    rest = in_no_split(records, by_split)
    has_no_splits = format in TRACES or (splits is None and _TRAIN not in by_split) or by_split.keys() <= {_TRAIN}
    if splits or (len(by_split) > 1 and not has_no_splits):
        return by_split
    if has_no_splits or not rest:
        return {_TRAIN: records} if records else {}
    problem = f"it has a split {dataset.describe(by_split)}, and {counted(len(rest), 'file')} in none"
    choice = f"Choose with split, such as {next(iter(by_split))}, or name the files."
    raise dataset.error(f"{problem}: {listed(rest, 3)}. {choice}")


def sort_files(files: Entries) -> tuple[list[str], list[str], list[str]]:
    """Return the files of records, as far as their names show; links to folders, which are not followed; and others."""
    suffixes = suffix_format()
    records, links, others = list[str](), list[str](), list[str]()
    for below, entry in sorted(files.items()):
        name = posixpath.basename(below)
        is_hidden = any(part.startswith((".", "_")) for part in below.split("/"))
        if name in _NOT_RECORDS or name.endswith(_ABOUT_SESSIONS) or is_hidden or below in _CARDS:
            continue
        is_record = split_suffixes(below)[0] in suffixes
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


def split_suffixes(path: str) -> tuple[str, str]:
    """Return the suffix that shows the format, and that which shows the compression."""
    stem, last = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1], last) if last in COMPRESSION_OF_SUFFIX else (last, "")
