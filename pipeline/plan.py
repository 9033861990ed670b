"""Plan: from urls and globs to the list of input files, and from that to splits.

The plan holds a line for each file, from which its splits follow, so that it stays small whatever the size of the
corpus. It depends on the inputs and the options alone, never on the machine or the runner.
"""

from __future__ import annotations

import os
import posixpath
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import msgspec

from transforms.errors import StoreError, UserError
from transforms.model.batches import Split
from transforms.storage.compression import COMPRESSION_OF_SUFFIX
from transforms.storage.files import file_system, full_url, open_input, read_bytes, with_retries

_FORMAT_OF_SUFFIX = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet", ".arrow": "arrow",
}  # fmt: skip
# What `datasets` puts beside files of records.
_NOT_RECORDS = {"dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json"}
_SHOWN = 3
_MEBIBYTE = 1 << 20
# About how much larger conversations are than they are compressed.
_TIMES_LARGER = 5


class InputFile(msgspec.Struct, frozen=True):
    """A line of the plan. version: what tells that the file has changed, as far as its store can say."""

    url: str
    format: str
    compression: str | None
    bytes: int
    version: str


def list_inputs(inputs: Sequence[str], input_format: str) -> list[InputFile]:
    """The files that the inputs name, each once, in the order named; those of a folder or glob by name.

    Raises UserError where an input names nothing.
    """
    files: dict[str, InputFile] = {}
    for name in inputs:
        for url, entry in _entries(name):
            if url not in files and entry["size"] != 0:
                files[url] = _input_file(url, entry, input_format)
    if not files:
        raise UserError(f"--input {','.join(inputs)}: all files are empty.")
    return list(files.values())


def default_split_bytes(total: int) -> int:
    """Some 200 splits, of 4 MiB (of which few are lost on what each costs) to 64 MiB (10 TB are 160,000 shards)."""
    return min(max(total // 200, 4 * _MEBIBYTE), 64 * _MEBIBYTE)


def splits_of(files: Sequence[InputFile], split_bytes: int) -> Iterator[Split]:
    """The splits of the files, numbered in their order: equal slices of no more than split_bytes.

    What cannot be cut, since its records are found only by reading from the start, is one split.
    """
    number = 0
    for file in files:
        whole = file.compression or file.format in ("json", "arrow")
        slices = 1 if whole else -(-file.bytes // split_bytes)
        for i in range(slices):
            start, stop = file.bytes * i // slices, file.bytes * (i + 1) // slices
            yield Split(number, file.url, file.format, file.compression, start, stop)
            number += 1


def encode_plan(files: Sequence[InputFile]) -> bytes:
    return b"".join(msgspec.json.encode(file) + b"\n" for file in files)


def decode_plan(content: bytes) -> list[InputFile]:
    return [msgspec.json.decode(line, type=InputFile) for line in content.splitlines()]


class ReadPlan(beam.PTransform):
    """Pipeline -> PCollection[Split], from the plan beside the output, so that the job graph does not hold it."""

    def __init__(self, plan: str, split_bytes: int):
        super().__init__()
        self._plan = plan
        self._split_bytes = split_bytes

    def expand(self, pipeline):
        return (
            pipeline
            | beam.Create([self._plan])
            | beam.FlatMap(_planned_splits, self._split_bytes).with_output_types(Split)
            | beam.Reshuffle()
        )


def largest_first(splits: Iterable[Split]) -> list[Split]:
    """The splits in the order in which workers should get them, so that in the end none is idle while another is busy.

    That holds where a worker takes the next one when it is free (Graham 1969, longest processing time first), and where
    they are dealt out in turn, as Beam's local runner does. Their numbers stay.
    """
    return sorted(splits, key=lambda split: (split.start - split.stop) * (_TIMES_LARGER if split.compression else 1))


def _planned_splits(plan: str, split_bytes: int) -> list[Split]:
    return largest_first(splits_of(decode_plan(read_bytes(plan)), split_bytes))


def _entries(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The url and the store's description of each file that an input names."""
    try:
        found = _found(name)
    except FileNotFoundError:
        raise UserError(f"--input {name}: there is no such file or folder.") from None
    except StoreError as error:
        raise error.before_work(f"--input {error}") from None
    except OSError as error:
        raise UserError(f"--input {name}: {error}.") from None
    if not found:
        raise UserError(
            f"--input {name}: it holds no file of records ({', '.join(_FORMAT_OF_SUFFIX)}, compressed or not)."
        )
    system, _ = file_system(name)
    if strange := next((path for path, entry in found.items() if entry["type"] != "file"), None):
        raise UserError(f"--input {strange}: it is no file (a link to nothing, a pipe or a device).")
    unknown = next((path for path, entry in found.items() if entry.get("size") is None), None)
    if unknown:
        raise UserError(f"--input {unknown}: its server does not tell its size. Copy it to a disk or a bucket first.")
    if "http" in system.protocol:
        _check_parts(found)
    return [(full_url(system.unstrip_protocol(path)), found[path]) for path in sorted(found)]


@with_retries("listed")
def _found(name: str) -> dict[str, dict[str, Any]]:
    """The store's description of each file that an input names, by its path."""
    system, path = file_system(name)
    is_here = "://" not in name and os.path.exists(path)
    if not is_here and any(sign in path for sign in "*?["):
        return _matching(system, path)
    entry = system.info(path)
    return _records_below(system, path) if entry["type"] == "directory" else {path: entry}


def _check_parts(urls: Iterable[str]) -> None:
    """Raise UserError where a server gives files only as a whole, which shows when it is asked for a part."""
    for url in urls:
        try:
            with open_input(url, None) as file:
                file.seek(1)
                file.read(1)
        except StoreError as error:
            if error.is_transient:
                raise
            raise UserError(
                f"--input {url}: its server does not give parts of it ({error.reason}). "
                "Copy it to a disk or a bucket first."
            ) from None


def _matching(system: Any, pattern: str) -> dict[str, dict[str, Any]]:
    """The files that match a glob; as in a shell, hidden ones only where it asks for them."""
    hidden = posixpath.basename(pattern).startswith(".")
    return {
        path: entry
        for path, entry in system.glob(pattern, detail=True).items()
        if entry["type"] != "directory" and (hidden or not posixpath.basename(path).startswith("."))
    }


def _records_below(system: Any, folder: str) -> dict[str, dict[str, Any]]:
    """The files of records in a folder and those below it; without hidden ones and what begins with _.

    Tells standard error what else is there.
    """
    chosen, others = {}, []
    for path, entry in system.find(folder, detail=True).items():
        below = path.removeprefix(folder).strip("/")
        parts = below.split("/")
        if parts[-1] in _NOT_RECORDS or any(part.startswith((".", "_")) for part in parts):
            continue
        if _suffixes(path)[0] in _FORMAT_OF_SUFFIX:
            chosen[path] = entry
        else:
            others.append(below)
    if others:
        shown = ", ".join(sorted(others)[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
        print(
            f"chatmill: {folder}: left out what is no file of records by its name ({len(others):,}): {shown}. "
            "To read such a file, give it as an --input of its own.",
            file=sys.stderr,
        )
    return chosen


def _suffixes(path: str) -> tuple[str, str]:
    """The suffix that tells the format, and that which tells the compression."""
    stem, last = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1], last) if last in COMPRESSION_OF_SUFFIX else (last, "")


def _input_file(url: str, entry: dict[str, Any], input_format: str) -> InputFile:
    suffix, compressed = _suffixes(url)
    compression = COMPRESSION_OF_SUFFIX.get(compressed)
    format = _FORMAT_OF_SUFFIX.get(suffix) if input_format == "auto" else input_format
    if format in (None, "json"):
        format = _sniffed(url, compression)
    if compression and format in ("parquet", "arrow"):
        raise UserError(f"--input {url}: {format} that is compressed as a whole cannot be read. Decompress it.")
    version = next((str(entry[key]) for key in ("etag", "ETag", "md5Hash", "mtime") if entry.get(key)), "")
    return InputFile(url, format, compression, entry["size"], version)


def _sniffed(url: str, compression: str | None) -> str:
    """The format that the first bytes tell; .json may be an array or lines."""
    with open_input(url, compression) as file:
        start = file.read(64)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    return "json" if start.removeprefix(BOM_UTF8).lstrip().startswith(b"[") else "jsonl"
