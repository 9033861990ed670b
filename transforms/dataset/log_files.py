"""The files of the log of a dataset: none is missing, and each is what its name says, or reading them is an error.

A finished dataset that did not grow has no log. Its first entry is made from its manifest and the list of its inputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec

from transforms.dataset.layout import Folder, is_increment, is_published
from transforms.dataset.snapshot import Entry, Increment, Snapshot
from transforms.errors import InputError
from transforms.inputs.listing import InputFile
from transforms.inputs.plan import decode_plan
from transforms.storage.files import exists, join, read_bytes, read_in_one_request
from transforms.storage.retries import disk_errors
from transforms.storage.walking import names_in

_READ_AT_ONCE = 16
_NAME = re.compile(r"(\d{8,})(\.checkpoint)?\.json")

_T = TypeVar("_T")


class _Version(msgspec.Struct):
    version: int


class _Derived(msgspec.Struct):
    """What manifest.json says of the log. A dataset that did not grow has no snapshot."""

    snapshot: _Version | None = None


_ENTRY, _SNAPSHOT = msgspec.json.Decoder(Entry), msgspec.json.Decoder(Snapshot)
_MANIFEST, _DERIVED = msgspec.json.Decoder(dict[str, Any]), msgspec.json.Decoder(_Derived)


class Kept(NamedTuple):
    """What the log holds: the versions of its entries and of its checkpoints, ascending.

    is_plain: there is no log, and a finished dataset, which is read as version 1.
    """

    entries: tuple[int, ...]
    checkpoints: tuple[int, ...]
    is_plain: bool = False

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
            InputError: if a file is missing.
            StoreError: if the store fails.
        """
        before = None
        while True:
            derived = self._derived()
            found = [match for name in names_in(self._folder.log) if (match := _NAME.fullmatch(name))]
            if not found and (derived or exists(self._folder.success)):
                return Kept((1,), (), is_plain=True)
            of_kinds = ([int(each[1]) for each in found if bool(each[2]) == is_it] for is_it in (False, True))
            entries, checkpoints = (tuple(sorted(of_kind)) for of_kind in of_kinds)
            kept = Kept(entries, checkpoints)
            if not (missing := kept.missing(derived)):
                return kept
            if kept == before:
                raise InputError(f"{self._folder.log}: {missing}. Copy it again.")
            before = kept

    def entries(self, kept: Kept, versions: Iterable[int]) -> list[Entry]:
        """Read the entries of versions.

        Raises:
            FileNotFoundError: if one has expired since the log was listed.
            InputError: if one is damaged.
            StoreError: if the store fails.
        """
        if kept.is_plain:
            return [self.first_entry("")]
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            return [*pool.map(self._entry, versions)]

    def _entry(self, version: int) -> Entry:
        entry = _decoded(self.url(version), _ENTRY)
        if (entry.version, entry.parent) != (version, version - 1):
            problem = f"it is version {entry.version} after {entry.parent}; expected {version} after {version - 1}"
            raise damaged(self.url(version), problem)
        _check_increments(self.url(version), [entry.add])
        return entry

    def checkpoint(self, version: int) -> Snapshot:
        """Read the checkpoint of a version. Raises as entries does."""
        url = self.url(version, ".checkpoint")
        snapshot = _decoded(url, _SNAPSHOT)
        if snapshot.version != version or not snapshot.increments:
            raise damaged(url, f"expected the increments of version {version}")
        _check_increments(url, snapshot.increments)
        return snapshot

    def first_entry(self, time: str) -> Entry:
        """Make the entry of a finished dataset without a log. If the list of its inputs is lost, it has none.

        Args:
            time: of the entry.

        Raises:
            FileNotFoundError: if the manifest is missing.
            InputError: if it is damaged, or of a dataset that grows.
            StoreError: if the store fails.
        """
        manifest = self._first_manifest()
        return Entry(1, 0, "append", Increment.of("", manifest, self._first_inputs(manifest) or ()), (), time)

    def has_first_inputs(self) -> bool:
        """Return whether the inputs of a finished dataset without a log are known. Raises as first_entry does."""
        return self._first_inputs(self._first_manifest()) is not None

    def _first_inputs(self, manifest: dict[str, Any]) -> list[InputFile] | None:
        """The inputs of a finished dataset without a log; None if their list is not the one of its job."""
        plan = read_bytes(self._folder.plan) if exists(self._folder.plan) else b""
        if hashlib.sha256(plan).hexdigest() == manifest["job"]["inputs"]:
            return decode_plan(plan)
        return [] if "steps" in manifest["job"] else None  # a pipeline of one's own has its inputs in its graph

    def _first_manifest(self) -> dict[str, Any]:
        manifest = _decoded(self._folder.manifest, _MANIFEST)
        if "snapshot" in manifest:
            raise InputError(
                f"{self._folder.log}: the log is missing, and manifest.json is of version "
                f"{manifest['snapshot']['version']} of a dataset that grows. Copy it again."
            )
        return manifest

    def _derived(self) -> int:
        """The version of which manifest.json is; 0 if it is not there, or damaged, since it is written again."""
        try:
            with disk_errors(self._folder.manifest, "read"):
                derived = _DERIVED.decode(read_in_one_request(self._folder.manifest))
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return 0
        return derived.snapshot.version if derived.snapshot else 0


def damaged(url: str, problem: str) -> InputError:
    """Return the error of a file of the log that is damaged."""
    return InputError(f"{url}: it is damaged ({problem}). Copy it again.")


def _check_increments(url: str, increments: Iterable[Increment]) -> None:
    """Raise InputError if an id or a path in a file of the log is not one that a job makes."""
    for each in increments:
        try:
            paths = [*each.files.paths(), *(path for file in each.files.ledger for path in file["shards"].values())]
            wrong = [path for path in paths if not is_published(path)]
        except (AttributeError, KeyError, TypeError):
            raise damaged(url, "its files are not those of an increment") from None
        if wrong:
            raise damaged(url, f"{wrong[0]!r} is not a file of a dataset")
        if each.id and not is_increment(each.id):
            raise damaged(url, f"{each.id!r} is not the id of an increment")


def _decoded(url: str, decoder: msgspec.json.Decoder[_T]) -> _T:
    """The content of a file of the log, or the manifest. Raises InputError if it is damaged."""
    try:
        with disk_errors(url, "read"):
            return decoder.decode(read_bytes(url))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(url, str(error)) from None
