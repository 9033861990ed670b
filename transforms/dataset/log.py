"""The log of a dataset that grows: each commit is one file, which no store creates twice; their fold is a snapshot.

Whoever reads a dataset reads the files of one snapshot. Old versions expire: what is left of the log then begins with
the entry of a version and the checkpoint of the same version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from transforms.dataset.layout import Folder, is_increment, is_published
from transforms.dataset.snapshot import Entry, Increment, Snapshot
from transforms.errors import InputError, UserError
from transforms.inputs.listing import InputFile
from transforms.inputs.plan import decode_plan
from transforms.storage.files import exists, join, names_in, read_bytes
from transforms.storage.retries import disk_errors
from transforms.storage.writing import create, creates_exclusively, remove, write_atomically

_COMMITS_IN_CHECKPOINT = 100
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


class Conflict(Exception):
    """A commit that contradicts one which was made meanwhile. What it is to add must be planned again."""


class _Kept(NamedTuple):
    """What the log holds: the versions of its entries and of its checkpoints, ascending.

    is_plain: there is no log, and a finished dataset, which is read as version 1.
    """

    entries: tuple[int, ...]
    checkpoints: tuple[int, ...]
    is_plain: bool = False

    def base(self, version: int) -> int:
        """The version of the newest checkpoint up to a version; 0 if there is none."""
        return max((each for each in self.checkpoints if each <= version), default=0)

    def versions(self) -> list[int]:
        """The versions whose fold can be made. After old ones have expired, a checkpoint is the first one."""
        first = min(self.entries, default=1)
        return [version for version in self.entries if self.base(version) >= first - 1]

    def missing(self, derived: int) -> str | None:
        """What is missing of the log, for an error; None if it is complete.

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


class Log:
    """The log of a dataset.

    Args:
        folder: of the dataset, or of an increment of it.
    """

    def __init__(self, folder: Folder):
        self._folder = Folder(folder.output)  # which may be that of an increment

    def exists(self) -> bool:
        """Return whether there is a log. A finished dataset without one did not grow, or was copied without it.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        kept = self._kept()
        return bool(kept.entries) and not kept.is_plain

    def newest(self) -> Snapshot | None:
        """Return the newest snapshot.

        Returns:
            The fold of the log; a finished dataset without a log as version 1; None if there is neither.

        Raises:
            InputError: if the log is damaged, or a file of it is missing.
            StoreError: if the store fails.
        """
        return next(iter(self.snapshots(1)), None)

    def snapshots(self, most: int) -> list[Snapshot]:
        """Return the newest snapshots that are kept, the oldest of them first.

        Args:
            most: how many, at most.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        return self._looking(lambda kept: self._fold(kept, kept.versions()[-most:]))

    def snapshot(self, version: int) -> Snapshot:
        """Return the snapshot of a version.

        Raises:
            UserError: if it is not kept.
            InputError, StoreError: as for `newest`.
        """

        def read(kept: _Kept) -> Snapshot:
            if version not in (versions := kept.versions()):
                has = f"it has the versions {versions[0]} to {versions[-1]}" if versions else "it has none"
                raise UserError(f"{self._folder.output}: there is no version {version}; {has}.")
            return self._fold(kept, [version])[0]

        return self._looking(read)

    def versions(self) -> list[Entry]:
        """Return the commits of the versions that are kept, the oldest first.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        return self._looking(lambda kept: self._entries(kept, kept.versions()))

    def commit(self, kind: Literal["append", "compact"], add: Increment, remove: Sequence[str] = ()) -> Snapshot:
        """Add an increment. Of several processes that commit at once, one has the next version, and others a later one.

        Args:
            kind: what made the increment.
            add: the increment, whose files have their final names.
            remove: the ids of the increments that it takes the place of.

        Returns:
            The newest snapshot, which has the increment, or all of its inputs: a second commit of the same increment
            changes nothing.

        Raises:
            Conflict: if an increment in `remove` is gone, or some of the inputs were taken by another increment.
            UserError, InputError, StoreError: as for `check_growable`.
        """
        self.check_growable()
        while True:
            if self._kept().is_plain:
                create(self._url(1), msgspec.json.encode(self._first_entry(_now())))
            before = self.newest() or Snapshot(0)
            if _is_in(before, add, remove):
                self._write_checkpoint(before)
                return before
            entry = Entry(before.version + 1, before.version, kind, add, tuple(remove), _now())
            if create(self._url(entry.version), msgspec.json.encode(entry)):
                snapshot = before.after(entry)
                self._write_checkpoint(snapshot)
                return snapshot

    def drop_before(self, version: int) -> None:
        """Drop the versions before one. It can be repeated.

        Args:
            version: of a snapshot that is kept. Its checkpoint takes the place of the entries before it.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        kept = self._kept()
        old = [self._url(each) for each in kept.entries if each < version]
        old += [self._url(each, ".checkpoint") for each in kept.checkpoints if each < version]
        if old and version not in kept.checkpoints:
            write_atomically(self._url(version, ".checkpoint"), msgspec.json.encode(self.snapshot(version)))
        for url in old:
            remove(url)

    def check_growable(self) -> None:
        """Check that something can be committed, before it is built.

        Raises:
            UserError: if the store cannot create a file only if there is none.
            InputError: if the list of the inputs of a finished dataset without a log is lost; otherwise as for
                `newest`.
            StoreError: as for `newest`.
        """
        if not creates_exclusively(self._folder.log):
            raise UserError(
                f"{self._folder.output}: its store cannot create a file only if there is none, so that two commits "
                "might overwrite each other. Write the dataset to a disk, s3:// or gs://."
            )
        if self._looking(lambda kept: kept.is_plain and self._first_inputs(self._first_manifest()) is None):
            raise InputError(
                f"{self._folder.plan}: it is missing or damaged, so that it is not known which inputs the dataset has. "
                "Copy it again."
            )

    def _url(self, version: int, suffix: str = "") -> str:
        return join(self._folder.log, f"{version:08d}{suffix}.json")

    def _kept(self) -> _Kept:
        """What the log holds. Files come and go while it is listed: what is missing must be missing twice."""
        before = None
        while True:
            derived = self._derived()
            found = [match for name in names_in(self._folder.log) if (match := _NAME.fullmatch(name))]
            if not found and (derived or exists(self._folder.success)):
                return _Kept((1,), (), is_plain=True)
            of_kinds = ([int(each[1]) for each in found if bool(each[2]) == is_it] for is_it in (False, True))
            entries, checkpoints = (tuple(sorted(of_kind)) for of_kind in of_kinds)
            kept = _Kept(entries, checkpoints)
            if not (missing := kept.missing(derived)):
                return kept
            if kept == before:
                raise InputError(f"{self._folder.log}: {missing}. Copy it again.")
            before = kept

    def _derived(self) -> int:
        """The version of which manifest.json is; 0 if it is not there, or damaged, since it is written again."""
        try:
            with disk_errors(self._folder.manifest, "read"):
                derived = _DERIVED.decode(read_bytes(self._folder.manifest))
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return 0
        return derived.snapshot.version if derived.snapshot else 0

    def _looking(self, read: Callable[[_Kept], _T]) -> _T:
        """Call a function with what the log holds, again if some of it expired while it was read."""
        kept = self._kept()
        while True:
            try:
                return read(kept)
            except FileNotFoundError as error:
                before, kept = kept, self._kept()
                if kept == before:
                    raise InputError(f"{self._folder.log}: it is damaged ({error}). Copy it again.") from None

    def _fold(self, kept: _Kept, versions: Sequence[int]) -> list[Snapshot]:
        """The snapshots of versions, which follow each other."""
        if not versions:
            return []
        base = kept.base(versions[0])
        snapshot = self._checkpoint(base) if base else Snapshot(0)
        found = [snapshot] if base == versions[0] else []
        for entry in self._entries(kept, range(base + 1, versions[-1] + 1)):
            if snapshot.has(entry.add.id) or not all(map(snapshot.has, entry.remove)):
                problem = f"its increments are not those that follow version {snapshot.version}"
                raise _damaged(self._url(entry.version), problem)
            snapshot = snapshot.after(entry)
            if entry.version >= versions[0]:
                found.append(snapshot)
        return found

    def _entries(self, kept: _Kept, versions: Iterable[int]) -> list[Entry]:
        if kept.is_plain:
            return [self._first_entry("")]
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            return [*pool.map(self._entry, versions)]

    def _entry(self, version: int) -> Entry:
        entry = _decoded(self._url(version), _ENTRY)
        if (entry.version, entry.parent) != (version, version - 1):
            problem = f"it is version {entry.version} after {entry.parent}; expected {version} after {version - 1}"
            raise _damaged(self._url(version), problem)
        _check_increments(self._url(version), [entry.add])
        return entry

    def _checkpoint(self, version: int) -> Snapshot:
        url = self._url(version, ".checkpoint")
        snapshot = _decoded(url, _SNAPSHOT)
        if snapshot.version != version or not snapshot.increments:
            raise _damaged(url, f"expected the increments of version {version}")
        _check_increments(url, snapshot.increments)
        return snapshot

    def _first_entry(self, time: str) -> Entry:
        """The entry of a finished dataset without a log. If the list of its inputs is lost, it can still be read."""
        manifest = self._first_manifest()
        return Entry(1, 0, "append", Increment.of("", manifest, self._first_inputs(manifest) or ()), (), time)

    def _first_inputs(self, manifest: dict[str, Any]) -> list[InputFile] | None:
        """The inputs of a finished dataset without a log; None if their list is not the one of its job."""
        plan = read_bytes(self._folder.plan) if exists(self._folder.plan) else b""
        if hashlib.sha256(plan).hexdigest() == manifest["job"]["inputs"]:
            return decode_plan(plan)
        return [] if "steps" in manifest["job"] else None  # a pipeline of one's own has its inputs in its graph

    def _first_manifest(self) -> dict[str, Any]:
        """The manifest of a finished dataset without a log."""
        manifest = _decoded(self._folder.manifest, _MANIFEST)
        if "snapshot" in manifest:
            raise InputError(
                f"{self._folder.log}: the log is missing, and manifest.json is of version "
                f"{manifest['snapshot']['version']} of a dataset that grows. Copy it again."
            )
        return manifest

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        """Write the fold, unless one of the last hundred commits did. One that was killed here is made up for."""
        if snapshot.version - self._kept().base(snapshot.version) >= _COMMITS_IN_CHECKPOINT:
            write_atomically(self._url(snapshot.version, ".checkpoint"), msgspec.json.encode(snapshot))


def _is_in(snapshot: Snapshot, add: Increment, remove: Sequence[str]) -> bool:
    """Whether an increment was committed, also if a compaction has joined it with others since. Raises Conflict."""
    if snapshot.has(add.id):
        return True
    taken = snapshot.taken(without=remove)
    again = [file for file in add.inputs if file.version in taken.get(file.key, ())]
    if again and len(again) == len(add.inputs):
        return True
    if again:
        raise Conflict(f"{again[0].url}: another commit took it meanwhile")
    if gone := [id for id in remove if not snapshot.has(id)]:
        raise Conflict(f"another commit removed the increment {gone[0] or 'of the first build'} meanwhile")
    return False


def _check_increments(url: str, increments: Iterable[Increment]) -> None:
    """Raise InputError if an id or a path in a file of the log is not one that a job makes."""
    for each in increments:
        try:
            paths = [*each.files.paths(), *(path for file in each.files.ledger for path in file["shards"].values())]
            wrong = [path for path in paths if not is_published(path)]
        except (AttributeError, KeyError, TypeError):
            raise _damaged(url, "its files are not those of an increment") from None
        if wrong:
            raise _damaged(url, f"{wrong[0]!r} is not a file of a dataset")
        if each.id and not is_increment(each.id):
            raise _damaged(url, f"{each.id!r} is not the id of an increment")


def _decoded(url: str, decoder: msgspec.json.Decoder[_T]) -> _T:
    """The content of a file of the log, or the manifest. Raises InputError if it is damaged."""
    try:
        with disk_errors(url, "read"):
            return decoder.decode(read_bytes(url))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(url, str(error)) from None


def _damaged(url: str, problem: str) -> InputError:
    return InputError(f"{url}: it is damaged ({problem}). Copy it again.")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
