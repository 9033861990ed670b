"""The versions of a dataset: each is one file, which no store creates twice, and which has all of the version.

Who creates the file has committed. Who comes second finds it there: with the same increment it is done, with another
one it fails. So the versions decide, not the lock of the folder, which not each store has. To open a dataset is one
listing and one read. Each version has the sha256 of the one before, so that no other history fits. All that reads a
version raises what `newest` raises.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

import msgspec

from transforms.base.errors import CommittedMeanwhile, InputError, StoreError, UserError
from transforms.dataset import Budgets
from transforms.dataset.description import Description
from transforms.dataset.layout import FORMAT, SPLITS, Folder, check_format, find_increment_id, is_increment
from transforms.files.listing import InputFile
from transforms.model.counts import Sums, Totals
from transforms.model.receipts import File
from transforms.outputs import OUTPUT_FORMATS, shard_stem
from transforms.rows.layout import RowLayout
from transforms.storage.files import join, open_file, read_bytes
from transforms.storage.walking import names_in
from transforms.storage.writing import create, remove

# What made a version: a build, in the place of all that was there; or an append.
Kind = Literal["build", "append"]
_NAME = re.compile(r"(\d{8,})\.json")
_MANIFEST_START = re.compile(rb'{\s*"format": \d+,\s*"version": (\d+),')


@dataclass(frozen=True)
class Change:
    """What a commit does to a dataset.

    Args:
        base: the version that it was planned on; 0 if there was none.
        kind: `build` takes the place of all that is there, and is the first commit in any case.
    """

    base: int = 0
    kind: Kind = "build"


class Increment(msgspec.Struct, frozen=True):
    """What one commit adds.

    Attributes:
        id: a hash of what it was made from.
        version: that it was added by.
        inputs: whose records are in it.
        files: of rows and of exceptions.
        counts: of the records and the rows.
    """

    id: str
    version: int
    inputs: list[InputFile]
    files: list[File]
    counts: Totals


class Version(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dataset as it is after a commit.

    Attributes:
        format: of the file.
        number: from 1.
        previous: the sha256 of the file of the version before; empty for the first one.
        kind: what made it.
        time: of the commit, for people and for `expire`.
        job: the content of the job.json of the build that it began with.
        increments: in the order of their commits. The last one is that which the version added.
        total: the sums of the increments.
        sha256: of its file, which does not have it.
    """

    format: int
    number: int
    previous: str
    kind: Kind
    time: str
    job: dict[str, Any]
    increments: list[Increment]
    total: Sums
    sha256: str = ""

    @property
    def added(self) -> Increment:
        """The increment that the version added."""
        return self.increments[-1]

    def has(self, id: str) -> bool:
        """Return whether an increment is in it."""
        return any(each.id == id for each in self.increments)

    def taken(self) -> Mapping[tuple[int, str], set[str]]:
        """Return the versions of each input, by its source and url, of which the records are here."""
        versions: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
        for increment in self.increments:
            for file in increment.inputs:
                versions[file.key].add(file.version)
        return versions

    def files(self, folder: str = "") -> list[File]:
        """Return its files, in the order of the increments. folder: those in this folder alone, if it is given."""
        return [file for each in self.increments for file in each.files if file.path.startswith(folder)]

    def shards(self, until: int | None = None) -> list[dict[str, Any]]:
        """Return the shards, as the manifest has them. until: only those of increments up to this version."""
        increments = [each for each in self.increments if until is None or each.version <= until]
        return [msgspec.structs.asdict(file) for each in increments for file in each.files if file.format]

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        layout, shards = RowLayout.of(self.job["options"]), self.shards()
        shards_by_stem: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for shard in shards:
            if shard["format"] == layout.formats[0]:
                shards_by_stem[_without_kind(shard["path"])].setdefault(shard["split"], shard["path"])
        return {
            "format": self.format,
            "version": self.number,
            "increments": len(self.increments),
            **self.total.as_json([source["name"] for source in self.job.get("sources", [{"name": "input"}])]),
            "layout": layout.described(),
            "shards": shards,
            "exceptions": [
                {"path": file.path, "rows": file.rows, "bytes": file.bytes, "sha256": file.sha256}
                | {"shards": shards_by_stem[_without_kind(file.path)]}
                for file in self.files("records/")
            ],
            "job": self._job_with_budget(),
        }

    def _job_with_budget(self) -> dict[str, Any]:
        """The job, whose recipe allows as many rejects as there are.

        Of the first build, whose inputs it names; and of all, since these may be a folder that grew.
        """
        records = [counts.records for counts in (self.increments[0].counts, self.total.totals())]
        counts = [(each.read, sum(each.rejected.values())) for each in records]
        needed = [
            -(-1000 * rejected // read) / 1000
            for read, rejected in counts
            if rejected > Budgets.max_reject_fraction * read
        ]
        recipe = self.job.get("recipe")
        return self.job | {"recipe": recipe | {"max_reject_fraction": max(needed)}} if recipe and needed else self.job


def _without_kind(path: str) -> str:
    """What the names of all files of a shard of a task have in common."""
    return shard_stem(path).partition("-")[2]


_decode = msgspec.json.Decoder(Version).decode


def numbers(folder: Folder) -> list[int]:
    """Return the numbers of the versions that are there, ascending. Raises StoreError if the store fails."""
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names_in(folder.versions)) if match)


def newest(folder: Folder) -> Version | None:
    """Return the newest version.

    Args:
        folder: of the dataset, or of an increment of it.

    Returns:
        The version; None if there is none.

    Raises:
        UserError: if a later version of Chatmill wrote it.
        InputError: if its file is damaged.
        StoreError: if the store fails.
    """
    present = numbers(folder)
    while present:
        if version := _read(folder, present[-1]):
            return version
        before, present = present, numbers(folder)  # it has expired since, or is a link to nothing
        if before == present:
            raise _damaged(folder, present[-1], "it cannot be read")
    return None


def read_version(folder: Folder, number: int) -> Version:
    """Return a version. Raises UserError if it is not there, or another version of Chatmill wrote it."""
    if version := _read(folder, number):
        return version
    if not (there := numbers(folder)):
        check_format(folder)
    if number in there:
        raise _damaged(folder, number, "it cannot be read")
    has = f"the versions {there[0]} to {there[-1]}" if there[1:] else f"version {there[0]}" if there else "none"
    raise UserError(f"{folder.output}: there is no version {number}; it has {has}.")


def check_not_lost(folder: Folder, version: Version) -> None:
    """Check that manifest.json, which is written after each commit, is of no later version than the newest one.

    Raises:
        InputError: if it is: the file of that version was lost.
    """
    try:
        with open_file(folder.manifest) as file:
            match = _MANIFEST_START.match(file.raw.read(64) or b"")
    except (FileNotFoundError, StoreError):  # all works without it, and it may be written again at any moment
        return
    # Another one may have been committed since.
    if match and (lost := int(match[1])) > version.number and lost > max(numbers(folder), default=0):
        problem = "it is missing, and manifest.json is of this version. Copy it again."
        raise InputError(f"{_url(folder, lost)}: {problem}")


def history(folder: Folder, version: Version | None) -> Iterator[Version]:
    """Yield the versions that are there, each of which follows the next one. version: the newest one.

    Raises:
        InputError: if one of them is damaged, was changed, or is missing.
    """
    if version:
        check_not_lost(folder, version)
    while version:
        yield version
        before = _read(folder, version.number - 1)
        if before is None and any(number < version.number for number in numbers(folder)):
            raise _damaged(folder, version.number - 1, "it is missing, and earlier versions are there")
        if before and before.sha256 != version.previous:
            problem = f"it is not what version {version.number} follows, which has another sha256 of it"
            raise _damaged(folder, before.number, problem)
        version = before


def builds(folder: Folder, version: Version | None) -> Iterator[Version]:
    """Yield the newest version of each build, with the increments of all appends to it. version: the newest one."""
    while version:
        yield version
        version = _read(folder, version.increments[0].version - 1)


def named_versions(folder: Folder, last: Version, most: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the newest versions, each with its shards. last: the newest of them. most: how many, at most."""
    named = [number for number in numbers(folder) if number <= last.number][-most:]
    for build in builds(folder, last):
        while named and named[-1] >= build.increments[0].version:
            yield named[-1], build.shards(named.pop())
        if not named:
            return


def commit(folder: Folder, change: Change, increment: Increment, sums: Sums, job: Mapping[str, Any]) -> Version:
    """Add an increment. Of several processes that commit at once, one has the next version.

    Args:
        folder: of the dataset.
        change: what it does to the dataset.
        increment: whose files are complete; without its version.
        sums: of the increment.
        job: of the increment: the content of its job.json.

    Returns:
        The newest version, which has the increment, or took its place: a second commit of it changes nothing.

    Raises:
        CommittedMeanwhile: if another commit was made meanwhile. What this one is to add must be planned again.
    """
    base, kind = change.base, change.kind
    while True:
        before = newest(folder)
        number = before.number if before else 0
        if before and any(build.has(increment.id) for build in (builds(folder, before) if number > base else [before])):
            return before
        if number != base:
            what = f"version {number} was committed meanwhile" if number > base else f"version {base} is gone"
            problem = f"{what}. What this run has built stays: run the same command again."
            raise CommittedMeanwhile(f"{folder.output}: {problem}")
        earlier = before.increments if before and kind == "append" else []
        version = Version(
            format=FORMAT,
            number=number + 1,
            previous=before.sha256 if before else "",
            kind=kind,
            time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            job=before.job if before and earlier else dict(job),
            increments=[*earlier, msgspec.structs.replace(increment, version=number + 1)],
            total=Sums.total([before.total, sums]) if before and earlier else sums,
        )
        content = msgspec.json.encode(version)
        if create(_url(folder, number + 1), content):
            return msgspec.structs.replace(version, sha256=hashlib.sha256(content).hexdigest())


def drop_before(folder: Folder, number: int) -> None:
    """Remove the versions before one. It can be repeated. Raises StoreError if the store fails."""
    for earlier in numbers(folder):
        if earlier < number:
            remove(_url(folder, earlier))


def _url(folder: Folder, number: int) -> str:
    return join(folder.versions, f"{number:08d}.json")


def _read(folder: Folder, number: int) -> Version | None:
    """Read a version; None if it is not there."""
    url = _url(folder, number)
    try:
        content = read_bytes(url)
        version = _decode(content)
        msgspec.convert(version.job, Description)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(folder, number, str(error)) from None
    if version.format != FORMAT:
        raise UserError(f"{url}: it has the format {version.format}; this version of Chatmill reads {FORMAT}.")
    if problem := next(_problems(version, number), None):
        raise _damaged(folder, number, problem)
    return msgspec.structs.replace(version, sha256=hashlib.sha256(content).hexdigest())


def _problems(version: Version, number: int) -> Iterator[str]:
    """Yield what no commit writes. Files are read and removed by the names that a version has."""
    if version.number != number:
        yield f"it is version {version.number}; expected {number}"
    if not version.increments or version.added.version != number:
        yield "it adds no increment"
    for increment in version.increments:
        if not is_increment(increment.id):
            yield f"{increment.id!r} is not the id of an increment"
        for file in increment.files:
            if find_increment_id(file.path) != increment.id:
                yield f"{file.path!r} is not a file of the increment {increment.id}"
            if file.format and (file.format not in OUTPUT_FORMATS or file.split not in SPLITS):
                yield f"{file.path!r} has the format {file.format!r}, and the split {file.split!r}"


def _damaged(folder: Folder, number: int, problem: str) -> InputError:
    return InputError(f"{_url(folder, number)}: it is damaged ({problem}). Copy it again.")
