"""The files of the log of a dataset: none is missing, and each is what its name says, or reading them is an error."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec

from transforms.dataset.checked import CheckedFiles, CheckedSums
from transforms.dataset.description import Description
from transforms.dataset.layout import Folder, is_increment, is_published
from transforms.dataset.manifest import FORMAT
from transforms.dataset.snapshot import Entry, Increment, Snapshot
from transforms.errors import InputError, UserError
from transforms.storage.files import join, read_bytes, read_in_one_request
from transforms.storage.retries import disk_errors
from transforms.storage.walking import names_in

_READ_AT_ONCE = 16
_NAME = re.compile(r"(\d{8,})(\.checkpoint)?\.json")

_T = TypeVar("_T")


class _Version(msgspec.Struct):
    version: int


class _Derived(msgspec.Struct):
    """What manifest.json says of the log. Before version 0.3 of Chatmill, only some datasets had one."""

    format: int
    snapshot: _Version | None = None


_ENTRY, _SNAPSHOT, _DERIVED = map(msgspec.json.Decoder, (Entry, Snapshot, _Derived))


class Kept(NamedTuple):
    """What the log holds: the versions of its entries and of its checkpoints, ascending."""

    entries: tuple[int, ...]
    checkpoints: tuple[int, ...]

    def base(self, version: int) -> int:
        """Return the version of the newest checkpoint up to a version; 0 if there is none."""
        return max((each for each in self.checkpoints if each <= version), default=0)

    def versions(self) -> list[int]:
        """Return the versions whose fold can be made. After old ones have expired, a checkpoint is the first one."""
        first = min(self.entries, default=1)
        return [version for version in self.entries if self.base(version) >= first - 1]

    def missing(self, derived: int) -> str | None:
        """Return what is missing of the log, for an error; None if it is complete.

        Args:
            derived: the version of which manifest.json is, which was read before the log was listed.
        """
        # A checkpoint has the entry of its version beside it, but older ones that `drop_before` has not removed yet.
        there = {*self.entries, *self.checkpoints[-1:]}
        first, last = min(there, default=1), max(there, default=0)
        if gone := sorted({*range(first, last + 1)} - {*self.entries}):
            return f"{gone[0]:08d}.json is missing, and later versions are there"
        if there and not self.versions():
            return f"{first - 1:08d}.json is missing, or the checkpoint of {first:08d}: nothing says what was before it"
        if there and derived > last:
            return f"{last + 1:08d}.json is missing: manifest.json is of version {derived}"
        return None


class LogFiles:
    """The files of the log of a dataset.

    Args:
        folder: of the dataset.
    """

    def __init__(self, folder: Folder):
        self._folder = folder

    def url(self, version: int, suffix: str = "") -> str:
        """Return the url of the entry of a version; of its checkpoint with the suffix `.checkpoint`."""
        return join(self._folder.log, f"{version:08d}{suffix}.json")

    def kept(self) -> Kept:
        """Return what the log holds. Files come and go while it is listed: what is missing must be missing twice.

        Raises:
            UserError: if another version of Chatmill wrote the dataset.
            InputError: if a file is missing.
            StoreError: if the store fails.
        """
        before = None
        while True:
            derived = self._derived()
            found = [match for name in names_in(self._folder.log) if (match := _NAME.fullmatch(name))]
            of_kinds = ([int(each[1]) for each in found if bool(each[2]) == is_it] for is_it in (False, True))
            entries, checkpoints = (tuple(sorted(of_kind)) for of_kind in of_kinds)
            kept = Kept(entries, checkpoints)
            if not (missing := kept.missing(derived)):
                return kept
            if kept == before:
                raise InputError(f"{self._folder.log}: {missing}. Copy it again.")
            before = kept

    def entries(self, versions: Iterable[int]) -> list[tuple[Entry, str]]:
        """Read the entries of versions, each with its sha256.

        Raises:
            FileNotFoundError: if one has expired since the log was listed.
            InputError: if one is damaged.
            StoreError: if the store fails.
        """
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            return [*pool.map(self._entry, versions)]

    def _entry(self, version: int) -> tuple[Entry, str]:
        entry, sha256 = _decoded(self.url(version), _ENTRY)
        if entry.version != version:
            raise damaged(self.url(version), f"it is version {entry.version}; expected {version}")
        if entry.kind == "build" or entry.job is not None:
            _check_job(self.url(version), entry.job)
        _check_increments(self.url(version), [entry.add])
        return entry, sha256

    def checkpoint(self, version: int) -> Snapshot:
        """Read the checkpoint of a version. Raises as entries does."""
        url = self.url(version, ".checkpoint")
        snapshot, _ = _decoded(url, _SNAPSHOT)
        if snapshot.version != version or not snapshot.increments:
            raise damaged(url, f"expected the increments of version {version}")
        _check_job(url, snapshot.job)
        _check_increments(url, snapshot.increments)
        return snapshot

    def _derived(self) -> int:
        """The version of which manifest.json is; 0 if it is not there, or damaged, since it is written again."""
        try:
            with disk_errors(self._folder.manifest, "read"):
                derived = _DERIVED.decode(read_in_one_request(self._folder.manifest))
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return 0
        if derived.format != FORMAT:
            raise other_format(self._folder.manifest, derived.format)
        return derived.snapshot.version if derived.snapshot else 0


def other_format(manifest: str, format: int) -> UserError:
    """Return the error of a dataset of another version of Chatmill. manifest: its url. format: that it has."""
    return UserError(
        f"{manifest}: it has the format {format}, and this version of Chatmill has {FORMAT}. The rows can be read, "
        "also as --input; for the rest take the version of Chatmill that wrote it."
    )


def damaged(url: str, problem: str) -> InputError:
    """Return the error of a file of the log that is damaged."""
    return InputError(f"{url}: it is damaged ({problem}). Copy it again.")


def _check_job(url: str, job: Any) -> None:
    """Raise InputError if what a file of the log has as job is not one."""
    try:
        msgspec.convert(job, Description)
    except msgspec.ValidationError as error:
        raise damaged(url, f"its job: {error}") from None


def _check_increments(url: str, increments: Iterable[Increment]) -> None:
    """Raise InputError if an increment in a file of the log has not what a job makes, such as its id or a path."""
    for each in increments:
        try:
            msgspec.convert(each.sums, CheckedSums)
            paths = msgspec.convert(msgspec.to_builtins(each.files), CheckedFiles).paths()
        except msgspec.ValidationError as error:
            raise damaged(url, str(error)) from None
        if wrong := next((path for path in paths if not is_published(path)), None):
            raise damaged(url, f"{wrong!r} is not a file of a dataset")
        if not is_increment(each.id):
            raise damaged(url, f"{each.id!r} is not the id of an increment")


def _decoded(url: str, decoder: msgspec.json.Decoder[_T]) -> tuple[_T, str]:
    """The content of a file of the log, and its sha256. Raises InputError if it is damaged."""
    try:
        with disk_errors(url, "read"):
            content = read_bytes(url)
            return decoder.decode(content), hashlib.sha256(content).hexdigest()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(url, str(error)) from None
