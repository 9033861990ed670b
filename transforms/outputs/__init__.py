"""Output formats: one module each, whose name is the name of the format, with _ for a dot.

A format is a module of this package with a `FORMAT`, an OutputFormat. No other file lists the formats. Their names are
found without importing the modules, so that a command line can show them at once. All modules are imported with the
layout of a dataset, so a library that few people have is imported inside of its functions.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

OUTPUT_FORMATS: tuple[str, ...] = tuple(module.name.replace("_", ".") for module in pkgutil.iter_modules(__path__))

# Creates a file of a shard, of a suffix.
CreateFile: TypeAlias = Callable[[str], RawIOBase]

# An entry of the manifest's `shards`: path, split, format, rows, tokens, trained_tokens, bytes, sha256.
ShardEntry: TypeAlias = Mapping[str, Any]


class TableWriter(Protocol):
    """Writes the files of one shard, which may be larger than the memory."""

    def write(self, table: pa.Table) -> None:
        """Write some rows.

        Args:
            table: the rows, at least one, with columns of the types list<int8>, list<int32>, list<int64>, list<string>,
                int64 and string (docs/output.md). Only columns that are kept have nulls. The metadata of
                its schema describe the rows, under the key `chatmill`. All tables of a shard have the same schema.
        """

    def close(self) -> None:
        """Write what is left. The files are closed later."""


@dataclass(frozen=True)
class OutputFormat:
    """What the project knows of an output format.

    Args:
        folder: the folder of its shards, below that of the dataset.
        writer: makes a writer of the files of one shard. Takes a function that creates a file of a suffix, which begins
            with a dot. Most formats have one file. The same tables must give the same bytes.
        loading_code: makes the Python code that loads a dataset. Takes the folder of the dataset, and the manifest's
            entries of its shards in this format.
        datasets_files: matches the files of a shard that `datasets.load_dataset` reads, such as `*.parquet`. The card
            lists them for each split. None if `datasets` does not read the format.
    """

    folder: str
    writer: Callable[[CreateFile], TableWriter]
    loading_code: Callable[[str, Sequence[ShardEntry]], str]
    datasets_files: str | None = None


def output_format(name: str) -> OutputFormat:
    """Import the format of a name, one of OUTPUT_FORMATS."""
    return importlib.import_module(f"{__name__}.{name.replace('.', '_')}").FORMAT


def shard_stem(path: str) -> str:
    """Return what the paths of a shard have in common in all formats, such as `train-<increment>-000000-000`."""
    return path.partition("/")[2].partition(".")[0]


def increment_stem(path: str) -> str:
    """Return what the paths of all shards of an increment in a split begin with, such as `data/train-<increment>`."""
    return path.rsplit("-", 2)[0]


def output_folders() -> tuple[str, ...]:
    """Return the folders in which a dataset may have shards, relative to that of the dataset."""
    return tuple(dict.fromkeys(output_format(name).folder for name in OUTPUT_FORMATS))


def loading_code(folder: str, shards: Sequence[ShardEntry]) -> str:
    """Return the Python code that loads a dataset of some shards: in a format that `datasets` reads, if it has one."""
    name = most_readable(shard["format"] for shard in shards)
    return output_format(name).loading_code(folder, [shard for shard in shards if shard["format"] == name])


def datasets_files(shards: Sequence[ShardEntry]) -> dict[str, list[str]]:
    """Return the globs of the files that `datasets` reads, by the name of their split: one for each increment, in the
    order of the shards, relative to the dataset's folder; none if it reads no format of the dataset.
    """
    name = most_readable(shard["format"] for shard in shards)
    format = output_format(name)
    if format.datasets_files is None:
        return {}
    globs: dict[str, dict[str, None]] = {}
    for shard in shards:
        if shard["format"] == name:
            split_globs = globs.setdefault(shard["split"], {})
            split_globs[f"{increment_stem(shard['path'])}-{format.datasets_files}"] = None
    return {split: [*globs[split]] for split in sorted(globs)}


def most_readable(formats: Iterable[str]) -> str:
    """Return the format of several in which a dataset is loaded: one that `datasets` reads, if there is one."""
    return min({*formats}, key=lambda name: (not output_format(name).datasets_files, name))
