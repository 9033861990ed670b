"""Read a finished dataset: its manifest, rows and exceptions, lazily and by shard, at any url."""

from __future__ import annotations

import functools
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import SEEK_END
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from transforms.base.errors import InputError, StoreError, UserError
from transforms.base.options import check_choice
from transforms.dataset.description import Description, read_job
from transforms.dataset.layout import FORMAT, SPLITS, Folder, check_format
from transforms.dataset.versions import Version, check_not_lost, newest, numbers, read_version
from transforms.model.counts import Totals
from transforms.model.receipts import File
from transforms.outputs import OUTPUT_FORMATS, ShardEntry, most_readable
from transforms.outputs.parquet import ParquetReader
from transforms.rows.columns import PROVENANCE_COLUMNS
from transforms.rows.layout import RowLayout
from transforms.storage.files import exists, full_url, join, map_file, open_file, read_bytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The format of the shards that are read.
READ_FORMAT = "parquet"
_VERSION = re.compile(r"(.+)@(\d+)", re.DOTALL)
# The files of exceptions of an increment that failed, or what their names begin with.
_REJECTS = re.compile(r"(.+)/records/records-([0-9a-f]{16})(-.*)?")


class NoDataset(UserError):
    """There is no finished dataset."""


class Unfinished(NoDataset):
    """A dataset that has no version, and no manifest.json."""


class Dataset:
    """A dataset, as it was after a commit.

    Args:
        url: of its folder: on this machine, or of a store (gs://, s3://). `OUT@6` is its version 6; without a
            version it is the newest one.

    Attributes:
        url: of its folder, without the version.
        folder: the urls of its parts.
        manifest: the content of manifest.json (docs/output.md) of the version.
        stored_version: its file in _chatmill, with its increments; None in a copy without that folder.

    Raises:
        UserError: if there is no finished dataset, or no such version; or if another version of Chatmill wrote it.
        InputError: if its version or its manifest is damaged, or its newest version was lost.
        StoreError: if its store fails.
    """

    def __init__(self, url: str):
        self.url, number = url_and_version(url)
        self.folder = Folder(self.url)
        self.stored_version: Version | None = None
        if number is None:
            self.stored_version = newest(self.folder)
            if self.stored_version:
                check_not_lost(self.folder, self.stored_version)
        elif numbers(self.folder):
            self.stored_version = read_version(self.folder, number)
        self.manifest = self.stored_version.manifest() if self.stored_version else _read_manifest(self.folder)
        if number not in (None, self.version):
            raise UserError(f"{self.url}: there is no version {number}; it has version {self.version}.")
        self._asks_for_version = number is not None

    @property
    def version(self) -> int:
        """The version of the dataset: how many commits made it."""
        version: int = self.manifest["version"]
        return version

    @property
    def name(self) -> str:
        """Its url, and its version if it was asked for, or is not the first one, as OUT@6."""
        return f"{self.url}@{self.version}" if self._asks_for_version or self.version > 1 else self.url

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the job that decide its rows, by name."""
        return self.manifest["job"]["options"]

    @functools.cached_property
    def layout(self) -> RowLayout:
        """How the rows are laid out: columns, formats, packing."""
        return RowLayout.of(self.options)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the job, from the files that are stored with the dataset; loaded when it is first used.

        Raises:
            UserError: if the dataset was copied without its folder `_chatmill`.
        """
        from transforms.tokens.backend import load_backend

        try:
            return load_backend(self.tokenizer_folder)
        except UserError:
            raise UserError(
                f"{self.tokenizer_folder}: there is no tokenizer. Copy the folder _chatmill of the dataset, too."
            ) from None

    @property
    def tokenizer_folder(self) -> str:
        """The url of the files of the tokenizer that are stored with the dataset."""
        return self.folder.tokenizer(self.manifest["job"]["tokenizer"])

    def shards(self, split: str | None = None, format: str | None = None) -> list[ShardEntry]:
        """Return the shards of the manifest, in order.

        Args:
            split: train or validation; None for both.
            format: such as parquet; None for all.

        Raises:
            ParameterError: if one of them is something else.
        """
        check_choice("split", split or SPLITS[0], SPLITS)
        check_choice("format", format or OUTPUT_FORMATS[0], OUTPUT_FORMATS)
        return [
            shard
            for shard in self.manifest["shards"]
            if split in (None, shard["split"]) and format in (None, shard["format"])
        ]

    def rows(
        self, split: str = "train", columns: Sequence[str] | None = None
    ) -> Iterator[tuple[ShardEntry, int, pa.RecordBatch]]:
        """Read rows, by row group.

        Args:
            split: train or validation.
            columns: the columns to read; None for all.

        Yields:
            The shard of some rows, the number of the first of them in the split, and the rows.

        Raises:
            ParameterError: if there is no such split, or no such column.
            UserError: as for `readable`.
            InputError: if a shard is missing or damaged.
            StoreError: if the store fails.
        """
        for name in columns or ():
            check_choice("columns", name, self.layout.columns)
        first = 0
        for shard in self.readable(split):
            for batch in self.read_shard(shard, columns):
                yield shard, first, batch
                first += len(batch)

    def row(self, number: int, split: str = "train") -> dict[str, Any]:
        """Read one row, and of its shard only the row group that it is in.

        Args:
            number: of the row in the split, from 0.
            split: train or validation.

        Returns:
            The values of the row, by column.

        Raises:
            UserError: if there is no such row, or as for `readable`.
            InputError, StoreError: as for `rows`.
        """
        shard, row = self.locate(number, split)
        return self.read_row(shard, row)

    def locate(self, number: int, split: str = "train") -> tuple[ShardEntry, int]:
        """Return the shard that a row is in, and its number there. Raises UserError if there is no such row."""
        left = number
        for shard in self.readable(split):
            if 0 <= left < shard["rows"]:
                return shard, left
            left -= shard["rows"]
        rows = self.row_count(split)
        raise UserError(f"{self.url}: there is no row {number:,} in {split}, which has {rows:,}, numbered from 0.")

    def read_row(self, shard: ShardEntry, row: int) -> dict[str, Any]:
        """Read one row of a shard. row: its number in the shard. Raises as `row` does."""
        with open_shard(self.url, shard) as reader:
            values = reader.row(row)
        if values is None:
            url, rows = join(self.url, shard["path"]), shard["rows"]
            raise InputError(f"{url}: the file has no row {row:,}, and the manifest says that it has {rows:,} rows.")
        return values

    def read_shard(self, shard: ShardEntry, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows of a shard, by row group.

        Args:
            shard: of the manifest.
            columns: the columns to read; None for all.

        Raises:
            InputError, StoreError: as for `rows`.
        """
        with open_shard(self.url, shard, columns) as reader:
            yield from reader.batches()

    def read_exceptions(self, file: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Read a file of exceptions (docs/output.md). file: its entry in the manifest. Raises as `rows` does."""
        return _exceptions_in(join(self.url, file["path"]), file["sha256"])

    def rejects(self) -> Iterator[pa.RecordBatch]:
        """Read the rejected records: origin_file, origin_position, reason, detail, record. Raises as `rows` does."""
        for file in self.manifest["exceptions"]:
            for batch in self.read_exceptions(file):
                rejected = batch.filter(pc.equal(batch.column("outcome"), "rejected"))
                if len(rejected):
                    yield rejected.select([*PROVENANCE_COLUMNS, "reason", "detail", "record"])

    def readable(self, split: str | None = None) -> list[ShardEntry]:
        """Return the shards that are read, so that each row is there once: those in Parquet.

        Args:
            split: train or validation; None for both.

        Raises:
            UserError: if there are others alone.
        """
        shards = self.shards(split, READ_FORMAT)
        if not shards and (others := self.shards(split)):
            raise _not_read(self.url, others[0]["format"])
        return shards

    def row_count(self, split: str) -> int:
        """Return the number of rows of a split. split: train or validation."""
        return sum(shard["rows"] for shard in self.readable(split))


def shards(output: str, version: int | None = None, split: str | None = None) -> list[str]:
    """Return the urls of the shards of a version, in order: those in Parquet, if there are any.

        datasets.load_dataset("parquet", data_files={"train": shards("s3://shards/chats", split="train")})

    Args:
        output: the folder of the dataset.
        version: of the dataset; None for the newest one.
        split: train or validation; None for both.

    Raises:
        UserError: if there is no dataset, or no such version.
        InputError: if it is damaged.
        StoreError: if its store fails.
    """
    dataset = Dataset(output if version is None else f"{output}@{version}")
    folder = full_url(dataset.url)
    entries = dataset.shards(split)
    format = most_readable(shard["format"] for shard in entries) if entries else None
    return [join(folder, shard["path"]) for shard in entries if shard["format"] == format]


def url_and_version(url: str) -> tuple[str, int | None]:
    """Return the url of the folder of a dataset, and the version that it names after an @, None for the newest one.

    A folder whose own name ends so is meant itself.

    Raises:
        StoreError: if its store fails.
    """
    match = _VERSION.fullmatch(url)
    return (match[1], int(match[2])) if match and not exists(url) else (url, None)


def dataset_url(url: str) -> str:
    """Return the url of the folder of a dataset, of which not one version is meant.

    Raises:
        UserError: if it names one.
        StoreError: if its store fails.
    """
    folder, version = url_and_version(url)
    if version is not None:
        raise UserError(f"{url}: this needs the dataset, not a version. Give the folder: {folder}.")
    return folder


class FailedBuild:
    """The rejects of a build that failed because there were too many.

    Args:
        url: of its folder; of an append that failed, OUT/records/records-INCREMENT, which its error names.

    Attributes:
        folder: the urls of its parts.
        manifest: what it has of one: the paths of its files of exceptions.

    Raises:
        UserError: if there are no rejects.
        StoreError: if its store fails.
    """

    def __init__(self, url: str):
        self.folder = Folder(url)
        if named := _REJECTS.fullmatch(url):
            self.folder = Folder(named[1], named[2])
        elif len(begun := self.folder.begun()) == 1:
            self.folder = Folder(url, begun[0])
        self.manifest: dict[str, Any] = {"exceptions": [{"path": path} for path in self.folder.files("records")]}
        if not self.manifest["exceptions"]:
            raise UserError(f"{url}: no finished dataset and no rejects are here.")

    @property
    def tokenizer_folder(self) -> str:
        """The url of the files of the tokenizer that are stored with it."""
        with reading(self.folder.job):
            return self.folder.tokenizer(read_job(self.folder.job)["tokenizer"])

    def read_exceptions(self, file: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Read a file of exceptions, as Dataset.read_exceptions does."""
        return _exceptions_in(join(self.folder.output, file["path"]))


def open_rejects(url: str) -> Dataset | FailedBuild:
    """Return the dataset that has some rejects, or the build that failed because of them.

    Args:
        url: as Dataset or FailedBuild takes it.

    Raises:
        UserError: if there are neither; otherwise as these two.
    """
    if not _REJECTS.fullmatch(url):
        with suppress(NoDataset):
            return Dataset(url)
    return FailedBuild(url)


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Inside, what Arrow raises for a file becomes an InputError that names it."""
    try:
        yield
    except StoreError:
        raise
    except FileNotFoundError:
        raise InputError(f"{url}: the file is missing. Copy it again, or build the dataset again.") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:  # those of Arrow are ValueErrors or OSErrors
        reason = " ".join(str(error).split())
        raise InputError(f"{url}: the file is damaged ({reason}). Copy it again, or build the dataset again.") from None


@contextmanager
def open_shard(output: str, shard: ShardEntry, columns: Sequence[str] | None = None) -> Iterator[ParquetReader]:
    """Open a shard in Parquet. Inside, errors are those of `reading`.

    Args:
        output: the url of the dataset's folder.
        shard: of the manifest.
        columns: those to read, of those that it has; None for all.

    Raises:
        UserError: if it is in another format.
        InputError: if its size is not that of the manifest: it was cut, or exchanged with another file.
    """
    if shard["format"] != READ_FORMAT:
        raise _not_read(output, shard["format"])
    url = join(output, shard["path"])
    with reading(url), open_file(url) as file:
        if (size := file.seek(0, SEEK_END)) != shard["bytes"]:
            raise ValueError(f"it has {size:,} bytes, and the manifest says {shard['bytes']:,}")
        file.seek(0)
        yield ParquetReader(file, columns)


def _not_read(output: str, format: str) -> UserError:
    return UserError(
        f"{output}: its rows are in {format} alone, which is written and not read. Build it again with parquet in "
        "output_format, too."
    )


def _exceptions_in(url: str, sha256: str | None = None) -> Iterator[pa.RecordBatch]:
    """The lines of a file of exceptions. sha256: that it must have, if it is known."""
    with reading(url), open_file(url) as file:
        content = map_file(file) or file.read()
        if sha256 not in (None, hashlib.sha256(content).hexdigest()):
            raise ValueError("its sha256 is not that of the manifest")
        yield from ParquetReader(pa.BufferReader(pa.py_buffer(content))).batches()


class _Manifest(Totals, frozen=True, kw_only=True):
    """What a manifest must have, of the types on which commands rely."""

    format: int
    notes: dict[str, int]
    layout: dict[str, Any]
    sources: list[Totals]
    shards: list[File]
    exceptions: list[File]
    job: Description
    version: int
    increments: int


_decode_manifest = msgspec.json.Decoder(_Manifest).decode


def _read_manifest(folder: Folder) -> dict[str, Any]:
    """The manifest of a copy without the folder _chatmill. Raises as Dataset does."""
    problem = "there is no dataset. Give the folder that a build wrote, with its manifest.json."
    error: Exception = NoDataset(f"{folder.output}: {problem}")
    try:
        content = read_bytes(folder.manifest)
        if _decode_manifest(content).format == FORMAT:
            return msgspec.json.decode(content, type=dict[str, Any])
    except FileNotFoundError:
        if exists(folder.state):
            problem = (
                "the dataset has no manifest.json, so it is not finished. Finish it with the command that began it"
            )
            error = Unfinished(f"{folder.output}: {problem}, or copy all of its files.")
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        error = InputError(f"{folder.manifest}: it is not the manifest of a dataset ({fault}). Copy it again.")
    check_format(folder)  # another version of Chatmill may have written it
    raise error
