"""Verify a dataset: each file of the version has its size and its sha256, none is missing, and none is more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from transforms.base.cores import cores
from transforms.base.errors import InputError, ParameterError
from transforms.dataset.derived import outdated
from transforms.dataset.layout import PARTS, Folder, find_increment_id
from transforms.dataset.reader import Dataset, Unfinished, url_and_version
from transforms.dataset.versions import Version, history, newest
from transforms.model.receipts import File
from transforms.outputs import increment_stem
from transforms.storage.files import join, read_bytes, size_and_sha256
from transforms.storage.walking import names_below
from transforms.tokens.tokenizer_files import fingerprint, read_tokenizer_folder


class Fault(NamedTuple):
    """What is wrong with a file. path: of the file, relative to the dataset's folder."""

    path: str
    problem: str


@dataclass
class Verification:
    """What was found in a dataset.

    Attributes:
        url: of its folder.
        files, bytes: how many files of the version were read, and how large they are.
        faults: what is wrong; none if it is sound.
        notes: what was not checked, and why.
    """

    url: str
    files: int = 0
    bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(url: str) -> Verification:
    """Read all files of a version of a dataset, and compare them with what was written.

    Args:
        url: of its folder, or of a version, as OUT@6.

    Raises:
        UserError: if there is no dataset, or another version of Chatmill wrote it.
        StoreError: if its store fails.
    """
    result = Verification(url)
    try:
        dataset = Dataset(url)
    except Unfinished:
        problem = "it is missing: the dataset is not finished, or was not copied completely"
        result.faults.append(Fault("manifest.json", problem))
        return result
    except InputError as error:
        result.faults.append(_describe_error(url_and_version(url)[0], error))
        return result
    version, names = dataset.stored_version, names_below(dataset.url)
    named = msgspec.convert([*dataset.manifest["shards"], *dataset.manifest["exceptions"]], list[File])
    files = named
    if not version and not any(name.startswith("records/") for name in names):
        if dataset.manifest["exceptions"]:
            result.notes.append("records/ is not in this copy")
        files = [file for file in files if not file.path.startswith("records/")]
    result.notes += [f"{name} is not a part of the dataset" for name in names if _is_foreign(name)]
    result.faults += _additional(dataset, named, names)
    if version:
        result.faults += [*_versions(dataset, version, url != dataset.url), *_stored_files(dataset.folder, version)]
    elif any(name.startswith("_chatmill/") for name in names):
        result.faults.append(Fault("_chatmill/versions", "it is missing, and other files of _chatmill/ are there"))
    else:
        result.notes.append("_chatmill/ is not in this copy: the tokenizer and the versions were not checked")
    present = {*names}
    result.faults += [Fault(file.path, "the file is missing") for file in files if file.path not in present]
    there = [file for file in files if file.path in present]
    with ThreadPoolExecutor(cores()) as threads:
        read = threads.map(lambda file: _read(join(dataset.url, file.path)), there)
        for file, (size, sha256) in zip(there, read, strict=True):
            result.files += 1
            result.bytes += size
            if size != file.bytes:
                result.faults.append(Fault(file.path, f"it has {size:,} bytes; {file.bytes:,} were written"))
            elif sha256 != file.sha256:
                problem = f"it was changed or damaged: its sha256 is {sha256}; {file.sha256} was written"
                result.faults.append(Fault(file.path, problem))
    return result


def _read(url: str) -> tuple[int, str]:
    """The bytes and the sha256 of a file; of one that is gone since it was listed those of an empty one."""
    try:
        return size_and_sha256(url)
    except FileNotFoundError:  # or a link that leads to nothing
        return 0, hashlib.sha256().hexdigest()


def _is_foreign(name: str) -> bool:
    part = name.partition("/")[0]
    return part not in PARTS and not part.startswith(".")


def _additional(dataset: Dataset, files: Sequence[File], names: Sequence[str]) -> Iterator[Fault]:
    """Yield files that nothing names, and that readers of the folder would read. files: of the version."""
    named = {file.path for file in files}
    read = {increment_stem(path) for path in named}
    for name in names:
        part, _, rest = name.partition("/")
        # Of an increment that this version does not have: nobody who reads this one reads it.
        has_other_increment = find_increment_id(name) and increment_stem(name) not in read
        if rest and part in PARTS and part != "_chatmill" and name not in named and not has_other_increment:
            yield Fault(name, "the manifest does not name this file, and readers of the folder would read it")


def _versions(dataset: Dataset, version: Version, is_asked_for: bool) -> Iterator[Fault]:
    """Yield what is wrong with the versions, each of which follows the one before it, or with what is derived from the
    newest one, if it is this version. is_asked_for: whether the url names the version.
    """
    folder = dataset.folder
    try:
        last = newest(folder) if is_asked_for else version
        for _ in history(folder, last):
            pass
        if last and last.number == version.number:
            for url, is_missing in outdated(folder, last):
                problem = "it is missing" if is_missing else f"it is not that of version {last.number}"
                yield _fault(folder.output, url, f"{problem}; the next build or append writes it again")
    except InputError as error:
        yield _describe_error(folder.output, error)


def _stored_files(folder: Folder, version: Version) -> Iterator[Fault]:
    """Yield which files next to a dataset are not those of its job: tokenizer, formatters and evaluation sets."""
    (tokenizer, expected), *files = folder.stored(version.job).items()
    try:
        digest = fingerprint(read_tokenizer_folder(tokenizer))
    except ParameterError as error:
        yield _fault(folder.output, tokenizer, error.problem)
    else:
        if digest != expected:
            problem = f"its files have the fingerprint {digest}; the job was run with {expected}"
            yield _fault(folder.output, tokenizer, problem)
    for url, sha256 in files:
        try:
            digest = hashlib.sha256(read_bytes(url)).hexdigest()
        except FileNotFoundError:
            digest = "missing"
        if digest != sha256:
            yield _fault(folder.output, url, f"its sha256 is {digest}; the job was run with {sha256}")


def _describe_error(output: str, error: InputError) -> Fault:
    """What an error says of a file of a dataset."""
    path, _, problem = str(error).partition(": ")
    return _fault(output, path, problem)


def _fault(output: str, url: str, problem: str) -> Fault:
    return Fault(url.removeprefix(join(output, "")), problem)
