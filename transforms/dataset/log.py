"""The log of a dataset that grows: each commit is one file, which no store creates twice; their fold is a snapshot.

Whoever reads a dataset reads the files of one snapshot. Old versions expire: what is left of the log then begins with
the entry of a version and the checkpoint of the same version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Literal, TypeVar

import msgspec

from transforms.dataset.layout import Folder
from transforms.dataset.log_files import Kept, LogFiles, damaged
from transforms.dataset.snapshot import Entry, Increment, Snapshot
from transforms.errors import InputError, UserError
from transforms.storage.writing import create, creates_exclusively, remove, write_atomically

_COMMITS_IN_CHECKPOINT = 100

_T = TypeVar("_T")


class Conflict(Exception):
    """A commit that contradicts one which was made meanwhile. What it is to add must be planned again."""


class Log:
    """The log of a dataset.

    Args:
        folder: of the dataset, or of an increment of it.
    """

    def __init__(self, folder: Folder):
        self._folder = Folder(folder.output)  # which may be that of an increment
        self._files = LogFiles(self._folder)

    def exists(self) -> bool:
        """Return whether there is a log. A finished dataset without one did not grow, or was copied without it.

        Raises:
            InputError, StoreError: as for `newest`.
        """
        kept = self._files.kept()
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

        def read(kept: Kept) -> Snapshot:
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
        return self._looking(lambda kept: self._files.entries(kept, kept.versions()))

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
            if self._files.kept().is_plain:
                create(self._files.url(1), msgspec.json.encode(self._files.first_entry(_now())))
            before = self.newest() or Snapshot(0)
            if _is_in(before, add, remove):
                self._write_checkpoint(before)
                return before
            entry = Entry(before.version + 1, before.version, kind, add, tuple(remove), _now())
            if create(self._files.url(entry.version), msgspec.json.encode(entry)):
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
        kept = self._files.kept()
        old = [self._files.url(each) for each in kept.entries if each < version]
        old += [self._files.url(each, ".checkpoint") for each in kept.checkpoints if each < version]
        if old and version not in kept.checkpoints:
            write_atomically(self._files.url(version, ".checkpoint"), msgspec.json.encode(self.snapshot(version)))
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
        if self._looking(lambda kept: kept.is_plain and not self._files.has_first_inputs()):
            raise InputError(
                f"{self._folder.plan}: it is missing or damaged, so that it is not known which inputs the dataset has. "
                "Copy it again."
            )

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

    def _fold(self, kept: Kept, versions: Sequence[int]) -> list[Snapshot]:
        """The snapshots of versions, which follow each other."""
        if not versions:
            return []
        base = kept.base(versions[0])
        snapshot = self._files.checkpoint(base) if base else Snapshot(0)
        found = [snapshot] if base == versions[0] else []
        for entry in self._files.entries(kept, range(base + 1, versions[-1] + 1)):
            if snapshot.has(entry.add.id) or not all(map(snapshot.has, entry.remove)):
                problem = f"its increments are not those that follow version {snapshot.version}"
                raise damaged(self._files.url(entry.version), problem)
            snapshot = snapshot.after(entry)
            if entry.version >= versions[0]:
                found.append(snapshot)
        return found

    def _write_checkpoint(self, snapshot: Snapshot) -> None:
        """Write the fold, unless one of the last hundred commits did. One that was killed here is made up for."""
        if snapshot.version - self._files.kept().base(snapshot.version) >= _COMMITS_IN_CHECKPOINT:
            write_atomically(self._files.url(snapshot.version, ".checkpoint"), msgspec.json.encode(snapshot))


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


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
