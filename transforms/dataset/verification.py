"""Verify a dataset: each file of the version has its size and its sha256, none is missing, and none is more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from transforms.base.cores import cores
from transforms.base.errors import InputError, ParameterError
from transforms.dataset.derived import check_not_lost, outdated
from transforms.dataset.description import evaluations_of, formatters_of
from transforms.dataset.layout import PARTS, increment_of
from transforms.dataset.reader import Dataset, Unfinished, url_and_version
from transforms.dataset.versions import builds, history, newest
from transforms.outputs import increment_stem_of
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
    found = Verification(url)
    try:
        dataset = Dataset(url)
    except Unfinished:
        problem = "it is missing: the dataset is not finished, or was not copied completely"
        found.faults.append(Fault("manifest.json", problem))
        return found
    except InputError as error:
        found.faults.append(_of_error(url_and_version(url)[0], error))
        return found
    names = names_below(dataset.url)
    files = _files_of(dataset)
    if not dataset.stored_version and not any(name.startswith("records/") for name in names):
        if dataset.manifest["exceptions"]:
            found.notes.append("records/ is not in this copy")
        files = [file for file in files if not file["path"].startswith("records/")]
    found.faults += _additional(dataset, names, found.notes)
    if dataset.stored_version:
        found.faults += [*_versions(dataset), *_stored_files(dataset), *_derived(dataset)]
    elif any(name.startswith("_chatmill/") for name in names):
        found.faults.append(Fault("_chatmill/versions", "it is missing, and other files of _chatmill/ are there"))
    else:
        found.notes.append("_chatmill/ is not in this copy: the tokenizer and the versions were not checked")
    present = {*names}
    missing = [file for file in files if file["path"] not in present]
    found.faults += [Fault(file["path"], "the file is missing") for file in missing]
    there = [file for file in files if file["path"] in present]
    with ThreadPoolExecutor(cores()) as threads:
        read = threads.map(lambda file: _read(dataset, file["path"]), there)
        for file, (size, sha256) in zip(there, read, strict=True):
            found.files += 1
            found.bytes += size
            if size != file.get("bytes", size):
                found.faults.append(Fault(file["path"], f"it has {size:,} bytes; {file['bytes']:,} were written"))
            elif sha256 != file["sha256"]:
                problem = f"it was changed or damaged: its sha256 is {sha256}; {file['sha256']} was written"
                found.faults.append(Fault(file["path"], problem))
    return found


def _read(dataset: Dataset, path: str) -> tuple[int, str]:
    """The bytes and the sha256 of a file; of one that is gone since it was listed those of an empty one."""
    try:
        return size_and_sha256(join(dataset.url, path))
    except FileNotFoundError:  # or a link that leads to nothing
        return 0, hashlib.sha256().hexdigest()


def _files_of(dataset: Dataset) -> Sequence[Mapping[str, Any]]:
    """The files of a version, each with its path and sha256, and if they are known its bytes."""
    if dataset.stored_version:
        return [msgspec.structs.asdict(file) for file in dataset.stored_version.files()]
    return [*dataset.manifest["shards"], *dataset.manifest["exceptions"]]


def _additional(dataset: Dataset, names: Sequence[str], notes: list[str]) -> Iterator[Fault]:
    """Yield files that nothing names. Adds to the notes what does not belong there."""
    named = {file["path"] for file in _files_of(dataset)}
    read = {increment_stem_of(path) for path in named}
    if dataset.stored_version:  # other versions may have some files of the same increments
        with suppress(InputError):  # which _versions names
            named |= {file.path for version in builds(dataset.folder) for file in version.files()}
    for name in names:
        part, _, rest = name.partition("/")
        if rest and part in PARTS and part != "_chatmill" and name not in named:
            if increment_of(name) and increment_stem_of(name) not in read:
                continue  # of an increment that this version does not have: nobody who reads this one reads it
            yield Fault(name, "the manifest does not name this file, and readers of the folder would read it")
        elif part not in PARTS and not part.startswith("."):
            notes.append(f"{name} is not a part of the dataset")


def _derived(dataset: Dataset) -> Iterator[Fault]:
    """Yield what is not as the newest version has it, of the files that are derived from it."""
    last = newest(dataset.folder)
    if not last or dataset.version != last.number:
        return
    with suppress(InputError):  # which _versions names
        for url, is_missing in outdated(dataset.folder, last):
            problem = "it is missing" if is_missing else f"it is not that of version {last.number}"
            yield Fault(url.removeprefix(join(dataset.url, "")), f"{problem}; the next build or append writes it again")


def _versions(dataset: Dataset) -> Iterator[Fault]:
    """Yield what is wrong with the versions, each of which follows the one before it."""
    try:
        check_not_lost(dataset.folder)
        for _ in history(dataset.folder):
            pass
    except InputError as error:
        yield _of_error(dataset.url, error)


def _of_error(url: str, error: InputError) -> Fault:
    """What an error says of a file. url: of the dataset."""
    path, _, problem = str(error).partition(": ")
    return Fault(path.removeprefix(join(url, "")), problem)


def _stored_files(dataset: Dataset) -> Iterator[Fault]:
    """Yield which files next to a dataset are not those of its job: tokenizer, formatters and evaluation sets."""
    job = dataset.manifest["job"]
    state = join(dataset.url, "")
    tokenizer = dataset.tokenizer_folder.removeprefix(state)
    try:
        found = fingerprint(read_tokenizer_folder(dataset.tokenizer_folder))
    except ParameterError as error:
        yield Fault(tokenizer, error.problem)
    else:
        if found != job["tokenizer"]:
            yield Fault(tokenizer, f"its files have the fingerprint {found}; the job was run with {job['tokenizer']}")
    stored = {dataset.folder.formatter(sha256): sha256 for sha256 in formatters_of(job)}
    if sha256 := evaluations_of(job):
        stored[dataset.folder.evaluations(sha256)] = sha256
    for url, sha256 in stored.items():
        try:
            found = hashlib.sha256(read_bytes(url)).hexdigest()
        except FileNotFoundError:
            found = "missing"
        if found != sha256:
            yield Fault(url.removeprefix(state), f"its sha256 is {found}; the job was run with {sha256}")
