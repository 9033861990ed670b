"""The log of a dataset: each commit is one file, which no store creates twice; their fold is a snapshot.

The log alone decides which commit is the next one, not the lock of the folder, which not each store has: who comes
second finds that the version that it was to make is taken. Readers of a dataset read the files of
one snapshot. Each entry has the sha256 of the one before, so that no other history fits. Old
versions expire: what is left of the log then begins with the entry of a version and the checkpoint of the same version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

import msgspec

from transforms.base.errors import InputError, UserError
from transforms.catalog.layout import Folder
from transforms.catalog.log_files import Kept, LogFiles, damaged
from transforms.catalog.snapshot import Entry, Increment, Kind, Snapshot
from transforms.catalog.sums import add_sums
from transforms.storage.writing import remove, write_atomically

_COMMITS_IN_CHECKPOINT = 100
_NONE = Snapshot()

_T = TypeVar("_T")


class Conflict(Exception):
    """A commit that does not follow what was committed meanwhile. What it is to add must be planned again."""


class Log:
    """The log of a dataset.

    Args:
        folder: of the dataset, or of an increment of it.
        known: a snapshot that was read before. Of what one object has read, only the later entries are read again.
    """

    def __init__(self, folder: Folder, known: Snapshot | None = None):
        self._folder = Folder(folder.output)  # which may be that of an increment
        self._files = LogFiles(self._folder)
        self._known = known or _NONE

    def exists(self) -> bool:
        """Return whether there is a log. A finished dataset without one was copied without it.

        Raises:
            UserError, InputError, StoreError: as for `newest`.
        """
        return bool(self._files.kept().entries)

    def newest(self) -> Snapshot | None:
        """Return the newest snapshot.

        Returns:
            The fold of the log; None if there is none.

        Raises:
            UserError: if another version of Chatmill wrote the dataset.
            InputError: if the log is damaged, or a file of it is missing.
            StoreError: if the store fails.
        """
        found = self._looking(lambda kept: self._fold(kept, kept.versions()[-1:], self._known))
        self._known = found[0] if found else _NONE
        return found[0] if found else None

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

        def read(kept: Kept) -> Snapshot:
            if version not in (versions := kept.versions()):
                has = "it has " + (_named(versions) if versions else "none")
                raise UserError(f"{self._folder.output}: there is no version {version}; {has}.")
            return self._fold(kept, [version])[0]

        return self._looking(read)

    def versions(self) -> list[Entry]:
        """Return the commits of the versions that are kept, the oldest first.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        return self._looking(lambda kept: [entry for entry, _ in self._files.entries(kept.versions())])

    def increments(self) -> Iterator[Increment]:
        """Yield the increments of all versions that are kept, those of several versions more than once.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        if entries := self.versions():
            yield from self.snapshot(entries[0].version).increments
            yield from (entry.add for entry in entries)

    def commit(
        self,
        kind: Kind,
        add: Increment,
        base: int,
        job: dict[str, Any] | None = None,
    ) -> Snapshot:
        """Add an increment. Of several processes that commit at once, one has the next version.

        Args:
            kind: what made the increment. A build takes the place of all that is there.
            add: the increment, whose files are complete.
            base: the version that it was planned on.
            job: of a build: the content of its job.json.

        Returns:
            The newest snapshot, which has the increment, or all of its inputs: a second commit of the same increment
            changes nothing.

        Raises:
            Conflict: if another commit was made meanwhile.
            UserError, InputError, StoreError: as for `newest`.
        """
        while True:
            before = self.newest() or _NONE
            if self._has_committed(add.id, base, before):
                self._write_checkpoint(before)
                return before
            removed = tuple(each.id for each in before.increments) if kind == "build" else ()
            total = None
            if before.increments and not removed:
                total = add_sums([before.total, add.sums], [source["name"] for source in add.sums["sources"]])
            add = msgspec.structs.replace(add, version=before.version + 1)
            entry = Entry(add.version, before.entry, kind, add, removed, _now(), job, total)
            if written := self._files.create(entry):
                self._known = snapshot = before.after(*written)
                self._write_checkpoint(snapshot)
                return snapshot

    def _has_committed(self, id: str, base: int, before: Snapshot) -> bool:
        """Whether an increment was committed, also if another one has taken its place since. Raises Conflict."""
        if before.has(id):
            return True
        if before.version < base:
            raise Conflict(f"version {base} is gone")
        later = range(base + 1, before.version + 1)
        since = [
            entry for entry, _ in self._looking(lambda kept: self._files.entries(sorted({*later} & {*kept.entries})))
        ]
        if any(entry.add.id == id for entry in since):
            return True
        if before.version > base:
            raise Conflict(f"version {before.version} was committed meanwhile")
        return False

    def drop_before(self, version: int) -> None:
        """Drop the versions before one. It can be repeated.

        Args:
            version: of a snapshot that is kept. Its checkpoint takes the place of the entries before it.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        kept = self._files.kept()
        old = [self._files.url(each) for each in kept.entries if each < version]
        old += [self._files.url(each, ".checkpoint") for each in kept.checkpoints if each < version]
        if not old:
            return
        snapshot = self.snapshot(version)
        if version not in kept.checkpoints:
            write_atomically(self._files.url(version, ".checkpoint"), msgspec.json.encode(snapshot))
        for url in old:
            remove(url)

    def _looking(self, read: Callable[[Kept], _T]) -> _T:
        """Call a function with what the log holds, again if some of it expired while it was read."""
        kept = self._files.kept()
        while True:
            try:
                return read(kept)
            except FileNotFoundError as error:
                before, kept = kept, self._files.kept()
                if kept == before:
                    raise InputError(f"{self._folder.log}: it is damaged ({error}). Copy it again.") from None

    def _fold(self, kept: Kept, versions: Sequence[int], known: Snapshot = _NONE) -> list[Snapshot]:
        """The snapshots of versions, which follow each other. known: one that was read before."""
        if not versions:
            return []
        snapshot = self._beginning(kept, versions[0], known)
        found = [snapshot] if snapshot.version == versions[0] else []
        ids = {each.id for each in snapshot.increments}
        for entry, sha256 in self._files.entries(range(snapshot.version + 1, versions[-1] + 1)):
            if entry.previous != snapshot.entry:
                raise damaged(self._files.url(entry.version), f"it does not follow the version {snapshot.version}")
            is_build = entry.kind == "build"
            if entry.add.id in ids or {*entry.remove} != (ids if is_build else set()):
                problem = f"its increments are not those that follow version {snapshot.version}"
                raise damaged(self._files.url(entry.version), problem)
            ids = set() if is_build else ids
            ids.add(entry.add.id)
            snapshot = snapshot.after(entry, sha256)
            if entry.version >= versions[0]:
                found.append(snapshot)
        return found

    def _beginning(self, kept: Kept, version: int, known: Snapshot) -> Snapshot:
        """A snapshot up to a version from which it is folded: one that is known and still there, or a checkpoint."""
        if known.version <= version and known.version in kept.entries:
            ((_, sha256),) = self._files.entries([known.version])
            if sha256 == known.entry:
                return known
        base = kept.base(version)
        return self._files.checkpoint(base) if base else _NONE

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        """Write the fold, unless one of the last hundred commits did. One that was killed here is made up for."""
        kept = self._files.kept()
        if snapshot.version - kept.base(snapshot.version) >= _COMMITS_IN_CHECKPOINT:
            write_atomically(self._files.url(snapshot.version, ".checkpoint"), msgspec.json.encode(snapshot))
            for version in kept.superseded():
                remove(self._files.url(version, ".checkpoint"))


def _named(versions: Sequence[int]) -> str:
    return f"the versions {versions[0]} to {versions[-1]}" if len(versions) > 1 else f"version {versions[0]}"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
