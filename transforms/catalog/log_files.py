"""The files of the log of a dataset: none is missing, and each is what its name says, or reading them is an error."""

from __future__ import annotations

import gc
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec

from transforms.base.errors import InputError, UserError
from transforms.catalog.checked import CheckedEntry, CheckedSnapshot
from transforms.catalog.layout import Folder, increment_of, is_increment
from transforms.catalog.manifest import FORMAT
from transforms.catalog.snapshot import Entry, Increment, Snapshot
from transforms.storage.files import join, read_bytes, read_in_one_request
from transforms.storage.retries import disk_errors
from transforms.storage.walking import names_in
from transforms.storage.writing import create

_READ_AT_ONCE = 16
_NAME = re.compile(r"(\d{8,})(\.checkpoint)?\.json")

_T = TypeVar("_T")


class _Version(msgspec.Struct):
    version: int


class _Derived(msgspec.Struct):
    """What manifest.json says of the log. Before version 0.3 of Chatmill, only some datasets had one."""

    format: int
    snapshot: _Version | None = None


_decode_derived = msgspec.json.Decoder(_Derived).decode
# Each file is decoded twice: to find out whether all of it has the types that commands rely on, and as it is used.
_DECODERS: dict[Any, tuple[Callable[[bytes], Any], Callable[[bytes], Any]]] = {
    kind: (msgspec.json.Decoder(kind).decode, msgspec.json.Decoder(checked).decode)
    for kind, checked in ((Entry, CheckedEntry), (Snapshot, CheckedSnapshot))
}


class Kept(NamedTuple):
    """What the log holds, ascending: the versions of its entries, and of its checkpoints."""

    entries: tuple[int, ...]
    checkpoints: tuple[int, ...]

    def base(self, version: int) -> int:
        """Return the version of the newest checkpoint up to a version; 0 if there is none."""
        return max((each for each in self.checkpoints if each <= version), default=0)

    def versions(self) -> list[int]:
        """Return the versions whose fold can be made. After old ones have expired, a checkpoint is the first one."""
        first = min(self.entries, default=1)
        begin = 1 if first == 1 else min((each for each in self.checkpoints if each >= first - 1), default=None)
        return [version for version in self.entries if begin is not None and version >= begin]

    def superseded(self) -> list[int]:
        """Return the versions of the checkpoints that nobody needs: an old version is found from the first one."""
        begin = 0 if 1 in self.entries else 1
        return [*self.checkpoints[begin:-2]]

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
            return f"{first - 1:08d}.json is missing, or the checkpoint of {first:08d}: what was before it is unknown"
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
        """Return the url of the entry of a version; with the suffix `.checkpoint` of that."""
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
            found: dict[str | None, list[int]] = {None: [], ".checkpoint": []}
            for name in names_in(self._folder.log):
                if match := _NAME.fullmatch(name):
                    found[match[2]].append(int(match[1]))
            kept = Kept(*(tuple(sorted(of_kind)) for of_kind in found.values()))
            if not (missing := kept.missing(derived)):
                return kept
            if kept == before:
                raise InputError(f"{self._folder.log}: {missing}. Copy it again.")
            before = kept

    def entries(self, versions: Iterable[int]) -> list[tuple[Entry, str]]:
        """Read the entries of versions, each with its sha256.

        Raises:
            FileNotFoundError: if one has expired since the log was listed.
            InputError: if one is damaged, or does not follow the one before it.
            StoreError: if the store fails.
        """
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            read = [*pool.map(self._entry, versions)]
        for (before, sha256), (entry, _) in pairwise(read):
            if entry.version == before.version + 1 and entry.previous != sha256:
                raise damaged(self.url(entry.version), f"it does not follow the version {before.version}")
        return read

    def create(self, entry: Entry) -> tuple[Entry, str] | None:
        """Write an entry, unless there is one of its version.

        Returns:
            The entry as it is read from now on, and its sha256; None if there is one.

        Raises:
            StoreError: if the store fails.
        """
        content = msgspec.json.encode(entry)
        if not create(self.url(entry.version), content):
            return None
        return _DECODERS[Entry][0](content), hashlib.sha256(content).hexdigest()

    def _entry(self, version: int) -> tuple[Entry, str]:
        url = self.url(version)
        entry, sha256 = _decoded(url, Entry)
        for found in (entry.version, entry.add.version):
            if found != version:
                raise damaged(url, f"it is version {found}; expected {version}")
        if entry.kind == "build" and entry.job is None:
            raise damaged(url, "it is a build without its job")
        _check_names(url, entry.add)
        return entry, sha256

    def checkpoint(self, version: int) -> Snapshot:
        """Read the checkpoint of a version. Raises as entries does."""
        url = self.url(version, ".checkpoint")
        with _without_collector():
            snapshot, _ = _decoded(url, Snapshot)
        if snapshot.version != version or not snapshot.increments:
            raise damaged(url, f"expected the increments of version {version}")
        for increment in snapshot.increments:
            _check_names(url, increment)
        return snapshot

    def _derived(self) -> int:
        """The version of which manifest.json is; 0 if it is not there, or damaged, since it is written again."""
        try:
            with disk_errors(self._folder.manifest, "read"):
                derived = _decode_derived(read_in_one_request(self._folder.manifest))
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


def _check_names(url: str, increment: Increment) -> None:
    """Raise InputError if an increment in a file of the log names what is not a file of a dataset, or has no id."""
    in_ledger = (path for file in increment.files.ledger for path in file["shards"].values())
    if wrong := next((path for path in (*increment.files.paths(), *in_ledger) if not increment_of(path)), None):
        raise damaged(url, f"{wrong!r} is not a file of a dataset")
    if not is_increment(increment.id):
        raise damaged(url, f"{increment.id!r} is not the id of an increment")


@contextmanager
def _without_collector() -> Iterator[None]:
    """Among many objects that are made at once nothing is garbage, and looking for it takes most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decoded(url: str, kind: type[_T]) -> tuple[_T, str]:
    """The content of a file of the log, and its sha256. Raises InputError if it is damaged."""
    decode, check = _DECODERS[kind]
    try:
        with disk_errors(url, "read"):
            content = read_bytes(url)
        check(content)
        return decode(content), hashlib.sha256(content).hexdigest()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged(url, str(error)) from None
