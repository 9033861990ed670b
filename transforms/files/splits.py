"""Splits: which files of a folder, or of a dataset on the Hub, are read, if they are divided into splits.

Those of a folder are, in this order, those of a dataset of this project, of what `datasets` saved (`save_to_disk`), of
the card in README.md, and those that the names of the files of records show. What a card says is read by `datasets`.
What names show is found here, by the same rules, so that a folder of plain files needs no `datasets`.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.filesize import decimal

from transforms.base.errors import ParameterError
from transforms.base.phrases import counted, did_you_mean
from transforms.files.formats import suffix_format
from transforms.rows.layout import why_not_records
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import full_url, join, open_file
from transforms.storage.retries import store_reason
from transforms.storage.versions import file_version
from transforms.storage.walking import find
from transforms.traces import TRACES

Splits = Mapping[str, Collection[str]]  # the files of each split
Entries = Mapping[str, Mapping[str, Any]]  # what a store says of each file, by its path or url
STATE = "_chatmill"  # the folder by which a dataset of this project is known, finished or not
_SAVED, _SAVED_INFO, _SAVED_SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
# Files that `datasets` writes next to files of records, and Claude Code next to sessions.
_NOT_RECORDS = {_SAVED, _SAVED_INFO, _SAVED_SPLITS, "dataset_infos.json", "sessions-index.json"}
_ABOUT_SESSIONS = ".meta.json"
# Where the metadata of a card are.
_CARDS = ("README.md", ".huggingface.yaml")
_HEADER = re.compile(rb"(\xef\xbb\xbf)?\s*---[\r\n].*?[\r\n]---", re.DOTALL)
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)  # of JSON, or of what is in it
_PARTIAL = "partial-"  # how the name begins of a split of which the Hub converted a part
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


class Choice(NamedTuple):
    """What is to be read of an input, as of list_inputs. arriving: whether files and splits may be still to come."""

    splits: Sequence[str] | None
    format: str
    arriving: bool


class Dataset(NamedTuple):
    """A dataset on the Hub, or a folder: its name for people, its url, and what its store says of each file by path."""

    name: str
    url: str
    files: Entries
    choice: Choice

    def error(self, problem: str) -> ParameterError:
        """Return the error that it cannot be read."""
        return ParameterError("patterns", self.name, problem)

    def read(self, path: str) -> bytes:
        """Return the content of a file; nothing if there is none."""
        if not (entry := self.files.get(path)):
            return b""
        with open_file(join(self.url, path), file_version(entry), entry["size"]) as file:
            return file.read()

    def choose(self, by_split: Splits) -> list[str]:
        """Return the files of the splits that are chosen, each once.

        Raises ParameterError if there is a choice and none is made, or of something that does not exist; or if a file
        is missing, or has no format that is read.
        """
        if not by_split:
            return []
        asked, described = self.choice.splits or (), self.describe(by_split)
        first = next((split for split in by_split if "train" in split), next(iter(by_split)))
        splits = [split for split in asked if split in by_split]
        if missing := [split for split in asked if split not in by_split]:
            if not self.choice.arriving:
                help = did_you_mean(missing[0], by_split)
                problem = f"{self.name} has no split {missing[0]}; it has {described}.{help}"
                raise ParameterError("split", ",".join(asked), problem)
            _LOGGER.warning("%s: it has no split %s yet; it has %s", self.name, ",".join(missing), described)
            by_split = by_split if splits else {}
        elif not splits and (len(by_split) > 1 or first.startswith(_PARTIAL)):
            problem = "it has several splits" if len(by_split) > 1 else "the Hub converted a part of it only"
            help = "Name the files of one." if self.choice.splits is None else f"Choose with split, such as {first}."
            raise self.error(f"{problem}: {described}. {help}")
        known = suffix_format().keys()
        chosen = [*dict.fromkeys(path for split in splits or by_split for path in by_split[split])]
        for path in chosen:
            if path not in self.files:
                raise self.error(f"{path} is in a split, and not there. Copy it again, or name the files to read.")
            if not {*_suffixes_in(path)} & known:
                suffix = posixpath.splitext(path)[1]
                raise self.error(f"its files end in {suffix}, which is not a format that is read.")
        return chosen

    def load_splits(self, config: str | None = None) -> tuple[Splits, bool]:
        """Return the files of the splits of a configuration, as `datasets` finds them, and whether there is no other.

        It looks at a folder of empty files with these names and cards. So it is the same on a disk, in a store and on
        the Hub, and no file of an earlier dataset is found. config: None for the default.

        Raises ParameterError if there is no such configuration, or a choice, or the splits cannot be found.
        """
        datasets, cards = _import_datasets(self.name), {name: self.read(name) for name in _CARDS}
        with tempfile.TemporaryDirectory() as temporary:
            folder, options = Path(temporary, "files").resolve(), {"cache_dir": f"{temporary}/cache"}
            for name in self.files.keys() - {"dataset_infos.json"}:
                if not {*name.split("/")} & {"", "..", "."}:  # keys of a store may have such parts
                    try:
                        (folder / name).parent.mkdir(parents=True, exist_ok=True)
                        (folder / name).write_bytes(cards.get(name, b""))
                    except OSError as error:  # as a key may be, too: too long, or below another key
                        problem = f"its splits cannot be found, since {name} cannot be a file ({store_reason(error)})."
                        raise self.error(f"{problem} Name its files.") from None
            names = list[str]()
            try:
                builder = datasets.load_dataset_builder(str(folder), config, **options)
            except (datasets.data_files.EmptyDatasetError, datasets.exceptions.DataFilesNotFoundError):
                return {}, True
            except Exception as error:  # of `datasets`, or of YAML
                with suppress(Exception):  # that which `datasets` has just raised
                    names = datasets.get_dataset_config_names(str(folder))
                if names:
                    self.check_configuration(config, names)
                problem = " ".join(str(error).replace(f"{folder}/", "").split())[:200].rstrip(".")
                raise self.error(f"its splits cannot be found: {problem}. Name its files.") from None
        names = [*builder.builder_configs]
        if config is None and len(names) > 1:
            others = listed([each for each in names if each != builder.config.name], 3)
            _LOGGER.warning("%s: its configuration %s is read, not %s", self.name, builder.config.name, others)
        files = {str(split): paths for split, paths in builder.config.data_files.items() if paths}
        by_split = {split: [path.removeprefix(f"{folder}/") for path in paths] for split, paths in files.items()}
        return by_split, len(names) == 1

    def check_configuration(self, config: str | None, names: Sequence[str]) -> None:
        """Check that a configuration is one of several, or that there is only one. Raises ParameterError.

        config: None if none is named. names: of all configurations.
        """
        if config is None and len(names) > 1:
            choice = f"Name one on the Hub, as in ORG/NAME:{names[0]}, or its files."
            raise self.error(f"it has several configurations: {listed(names)}. {choice}")
        if config is not None and config not in names:
            problem = f"it has no configuration {config}; it has {listed(names)}."
            raise self.error(problem + did_you_mean(config, names))

    def sort_files(self) -> tuple[list[str], list[str], list[str]]:
        """Return the files of records, as their names show; links to folders, which are not followed; and others."""
        suffixes, records, links, others = suffix_format(), list[str](), list[str](), list[str]()
        for path, entry in sorted(self.files.items()):
            name = posixpath.basename(path)
            is_hidden = any(part.startswith((".", "_")) for part in path.split("/"))
            if name in _NOT_RECORDS or name.endswith(_ABOUT_SESSIONS) or is_hidden or path in _CARDS:
                continue
            is_record = split_suffixes(path)[0] in suffixes
            (links if entry["type"] == "directory" else records if is_record else others).append(path)
        return records, links, others

    def describe(self, by_split: Splits) -> str:
        """Return the names of splits, with the size of their files."""
        sizes = {
            split: sum(self.files[path]["size"] or 0 for path in paths if path in self.files)
            for split, paths in by_split.items()
        }
        return listed([f"{split} ({decimal(size)})" for split, size in sizes.items()])

    def log_unread(self, paths: Sequence[str], by_split: Splits, which: str = "in no split") -> None:
        """Log the files that no split has, if there are any, which are not read. which: what these are."""
        if rest := in_no_split(paths, by_split):
            message = "%s: files %s are not read (%s): %s. To read such a file, name it."
            _LOGGER.warning(message, self.name, which, f"{len(rest):,}", listed(rest, 3))


def records_below(system: Any, folder: str, choice: Choice) -> Entries:
    """Find the files of records in a folder of an fsspec file system and those below it, and log what else is there.

    Raises:
        ParameterError: if the folder has several splits and none is chosen, or not those that are; or if it is a
            dataset of this project whose rows cannot be read.
        StoreError: if a folder cannot be listed.
    """
    entries = find(system, folder)
    paths = {path.removeprefix(folder).strip("/"): path for path in entries}
    partitions = (f"/{below}".partition(f"/{STATE}/") for below in paths)
    datasets = sorted({before[1:] for before, state, _ in partitions if state})
    log_skipped(folder, [below for below in datasets if below])
    skipped = tuple(f"{below}/" for below in datasets if below)
    files = {below: entries[path] for below, path in paths.items() if not below.startswith(skipped)}
    url = full_url(system.unstrip_protocol(folder))
    dataset = Dataset(url, url, files, choice)
    if "" in datasets:
        chosen = _rows(dataset)
    else:
        records, links, others = dataset.sort_files()
        by_split, is_only = _saved_splits(dataset), True
        if by_split is None and _names_configurations(dataset):
            by_split, is_only = dataset.load_splits()
        elif by_split is None:
            by_split = _splits_by_name(dataset, records)
        chosen = [*dataset.choose(by_split), *links]
        dataset.log_unread(others, {}, "with other suffixes than those of records")
        if is_only:
            dataset.log_unread(records, by_split)
    return {paths[below]: files[below] for below in chosen}


def _rows(dataset: Dataset) -> list[str]:
    """The shards of the newest version of a dataset of this project, whose folder has those of others, too."""
    by_split: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    try:
        manifest = json.loads(dataset.read("manifest.json"))
        records, layout = manifest["records"], manifest.get("layout") or {}
        lost = records.get("truncated", 0) + records.get("dropped", {}).get("too_long", 0)
        for shard in manifest["shards"]:
            if shard.get("format", "parquet") == "parquet":
                by_split.setdefault(shard["split"], []).append(shard["path"])
                sizes[shard["path"]] = shard["bytes"]
    except _DAMAGE:
        problem = "it is a dataset that is not finished, or its manifest.json is damaged"
        raise dataset.error(f"{problem}. Finish it with the command that began it, or append to it.") from None
    if why := why_not_records(layout):
        raise dataset.error(why)
    if manifest["shards"] and not sizes:
        raise dataset.error("its rows are not in parquet, which is read. Build it again with parquet in output_format.")
    chosen = dataset.choose(by_split)
    for path in chosen:
        if (size := dataset.files[path]["size"]) != sizes[path]:
            raise dataset.error(f"{path} has {size:,} bytes; expected {sizes[path]:,}. Copy it again.")
    if lost:
        loss = f"{counted(lost, 'record')} cut or dropped at its max_length of {layout.get('max_length') or 0:,} tokens"
        _LOGGER.warning("%s: what is read are its rows: %s.", dataset.name, loss)
    return chosen


def _saved_splits(dataset: Dataset) -> Splits | None:
    """The files of each split of what `save_to_disk` wrote, which are named there; None if it did not."""
    by_split: dict[str, list[str]] = {}
    is_one = {_SAVED, _SAVED_INFO} <= dataset.files.keys()
    if not is_one and _SAVED_SPLITS not in dataset.files:
        return None
    try:
        for folder in [""] if is_one else json.loads(dataset.read(_SAVED_SPLITS))["splits"]:
            state = json.loads(dataset.read(join(folder, _SAVED)))
            paths = [join(folder, file["filename"]) for file in state["_data_files"]]
            by_split[folder or state.get("_split") or "train"] = paths
    except _DAMAGE as error:
        problem = f"what save_to_disk wrote is incomplete or damaged ({error!r}). Name its files."
        raise dataset.error(f"its splits cannot be found: {problem}") from None
    return by_split


def _names_configurations(dataset: Dataset) -> bool:
    """Whether a card has configurations; one that has none says nothing of splits."""
    readme, standalone = map(dataset.read, _CARDS)
    header = _HEADER.match(readme)
    return b"configs" in (header[0] if header else b"") + standalone


def _splits_by_name(dataset: Dataset, records: Sequence[str]) -> Splits:
    """The files of each split that names show; one split of all records if they show none, and none is chosen."""
    by_split, choice = splits_by_name(records), dataset.choice
    rest = in_no_split(records, by_split)
    is_whole = by_split.keys() <= {"train"} or choice.format in TRACES
    is_whole |= choice.splits is None and "train" not in by_split
    if choice.splits or (len(by_split) > 1 and not is_whole):
        return by_split
    if rest and not is_whole:
        problem = f"it has a split {dataset.describe(by_split)}, and {counted(len(rest), 'file')} in none"
        help = f"Choose with split, such as {next(iter(by_split))}, or name the files."
        raise dataset.error(f"{problem}: {listed(rest, 3)}. {help}")
    return {"train": records} if records else {}


def log_skipped(folder: str, datasets: Sequence[str]) -> None:
    """Log the datasets of this project in a folder, which are not read."""
    message = "%s: %s is a dataset of an earlier build and is not read. To read its rows, name its folder."
    for below in datasets:
        _LOGGER.warning(message, folder, below)


def split_suffixes(path: str) -> tuple[str, str]:
    """Return the suffix that shows the format, and that which shows the compression."""
    stem, last = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1], last) if last in COMPRESSION_OF_SUFFIX else (last, "")


def in_no_split(paths: Sequence[str], by_split: Splits) -> list[str]:
    """Return those of some files that no split has."""
    in_splits = {path for paths in by_split.values() for path in paths}
    return [path for path in paths if path not in in_splits]


def _import_datasets(name: str) -> Any:
    try:
        import datasets
    except ImportError:
        problem = "which of its files are a split is found by the package datasets: run `pip install 'datasets>=5'`."
        raise ParameterError("patterns", name, problem) from None
    datasets.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    return datasets


def splits_by_name(names: Collection[str]) -> Splits:
    """Return the files of each split that the names of files of records show, by the rules of `datasets`."""
    names = sorted(names)
    shards = [shard for name in names if (shard := _SHARD.fullmatch(name))]
    order = [*_WORDS, *sorted({shard[1] for shard in shards} - {*_WORDS})]
    by_split = {split: [shard[0] for shard in shards if shard[1] == split] for split in order}
    for place in _PLACES:
        if not any(by_split.values()):
            for split, words in _WORDS.items():
                matches = re.compile(place.format(words=words), re.DOTALL).fullmatch
                by_split[split] = [name for name in names if matches(name)]
    if not any(by_split.values()):
        by_split = {"train": names}
    return {split: _keep_most_frequent_format(files) for split, files in by_split.items() if files}


def _keep_most_frequent_format(names: Sequence[str]) -> list[str]:
    """The files of the format that most of some files have, as `datasets` loads them."""
    suffixes = {name: [suffix for suffix in _suffixes_in(name) if suffix in _FORMATS] for name in names}
    counts = Counter(suffix for each in suffixes.values() for suffix in each)
    most = _FORMATS[max(_FORMATS, key=lambda suffix: counts[suffix])]
    return [name for name in names if any(_FORMATS[suffix] == most for suffix in suffixes[name])]


def _suffixes_in(path: str) -> list[str]:
    """The suffixes by which `datasets` knows a file: each part of its name after a dot."""
    return [f".{part}" for part in posixpath.basename(path).lower().split(".")[1:]]


def listed(texts: Sequence[str], shown: int = _SHOWN) -> str:
    """Return texts with commas between them; of many, the first ones."""
    more = f", and {len(texts) - shown:,} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more
