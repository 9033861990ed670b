"""What a push has to do: the dataset compared with what the repository has, and whether it may replace that."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from transforms.base.errors import UserError
from transforms.dataset.layout import increment_of
from transforms.pushing.card_header import split_card
from transforms.pushing.contents import CARD, REPORT, Contents, DataFile
from transforms.storage.files import read_bytes

# Of a first push that needs several commits: until the last one, `datasets` finds no files, and not a part of them.
UNFINISHED = """---
configs:
- config_name: default
  data_files: chatmill-push-is-not-finished/*
---

A push of this dataset has not ended. `chatmill push` with the same arguments finishes it.
"""
_OF_THE_HUB = ".gitattributes"


class _Shard(msgspec.Struct):
    path: str
    sha256: str


class _Manifest(msgspec.Struct):
    """What says which dataset a repository has, in the manifests of all versions of Chatmill since 0.3."""

    rows: int
    version: int
    shards: list[_Shard]


_decode_manifest = msgspec.json.Decoder(_Manifest).decode


class NotReplaceable(UserError):
    """A repository has something else than an earlier version of the dataset. A push may overwrite it all the same."""


@dataclass(frozen=True)
class Stored:
    """A file of a repository.

    Attributes:
        size: in bytes.
        sha256: of its content, if it is in large file storage; otherwise None.
        blob_id: of Git: of its content, if that is in Git itself.
    """

    size: int
    sha256: str | None
    blob_id: str

    def has(self, content: bytes) -> bool:
        """Return whether it has this content."""
        if self.sha256 is not None:
            return self.sha256 == hashlib.sha256(content).hexdigest()
        return self.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Held:
    """What a repository has at a commit.

    Attributes:
        commit: its id.
        files: by path.
        manifest: the content of manifest.json; None if there is none.
        card: the text of README.md; empty if there is none.
        pushed_card: the same at the commit that wrote manifest.json; empty if there is none.
    """

    commit: str
    files: Mapping[str, Stored]
    manifest: bytes | None = None
    card: str = ""
    pushed_card: str = ""


@dataclass(frozen=True)
class Plan:
    """What a push has to do.

    Attributes:
        data: the files to upload.
        derived: the files that are made from the version, to upload: content by path.
        deleted: the paths to delete.
        there: how many files the repository has already.
    """

    data: Sequence[DataFile]
    derived: Mapping[str, bytes]
    deleted: Sequence[str]
    there: int


def plan(contents: Contents, card: str, held: Held) -> Plan:
    """Return what a push has to do.

    Args:
        contents: of the dataset.
        card: the text of README.md.
        held: what the repository has.
    """
    all_derived = {CARD: card.encode(), **contents.derived}
    data = [file for file in contents.data if not _is_there(file, held.files.get(file.path))]
    derived = {
        path: content
        for path, content in all_derived.items()
        if path not in held.files or not held.files[path].has(content)
    }
    wanted = {*all_derived, *(file.path for file in contents.data)}
    deleted = [path for path in held.files if path not in wanted and (increment_of(path) or path == REPORT)]
    return Plan(data, derived, deleted, len(wanted) - len(data) - len(derived))


def _is_there(file: DataFile, stored: Stored | None) -> bool:
    if stored is None or file.size != stored.size:
        return False
    return stored.has(read_bytes(file.url)) if stored.sha256 is None else stored.sha256 == file.sha256


def check_replaceable(
    held: Held, contents: Contents, version: int, shards_of_version: Callable[[int], frozenset[tuple[str, str]] | None]
) -> None:
    """Check that a push takes the place of nothing but an earlier version of the same dataset.

    Args:
        held: what the repository has.
        contents: what is to be pushed.
        version: of the dataset that is pushed.
        shards_of_version: the shards of another version of the same dataset; None if it has no such version any more.

    Raises:
        NotReplaceable: if the repository has something else.
    """
    manifest = _manifest_in(held)
    if manifest is not None:
        _check_version(manifest, contents, version, shards_of_version)
    elif others := _others(held, contents):
        raise NotReplaceable(
            f"it has files that are not those of a dataset of Chatmill, such as {others[0]}. Push to a new or an empty "
            "repository."
        )
    own = (split_card(held.pushed_card)[1] if manifest else "", split_card(UNFINISHED)[1])
    if split_card(held.card)[1].strip() not in map(str.strip, own):
        raise NotReplaceable(
            f"the text of its {CARD} was written or edited there, and a push replaces it. Save it elsewhere. What the "
            "header of it has in addition, such as a license, is kept."
        )


def _check_version(
    manifest: _Manifest,
    contents: Contents,
    version: int,
    shards_of_version: Callable[[int], frozenset[tuple[str, str]] | None],
) -> None:
    """Raise NotReplaceable if the dataset there is neither contained in this one nor an earlier version of it."""
    theirs, found = {(shard.path, shard.sha256) for shard in manifest.shards}, manifest.version
    if theirs <= contents.shards:
        return
    if theirs != shards_of_version(found):
        raise NotReplaceable(
            f"it has another dataset, or a version that this one no longer has (version {found}, "
            f"{manifest.rows:,} rows). Push to another repository."
        )
    if found > version:
        raise NotReplaceable(
            f"it has version {found} of this dataset, which is newer than version {version}. Push to another branch."
        )


def _manifest_in(held: Held) -> _Manifest | None:
    """The manifest of the dataset in a repository; None if there is none of a dataset of Chatmill."""
    try:
        return _decode_manifest(held.manifest) if held.manifest is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _others(held: Held, contents: Contents) -> list[str]:
    """The files of a repository without a dataset that a push did not leave there."""
    is_unfinished = split_card(held.card)[1] == split_card(UNFINISHED)[1]
    wanted = {file.path: file for file in contents.data}
    left = {
        path
        for path, stored in held.files.items()
        if increment_of(path) and (is_unfinished or (path in wanted and _is_there(wanted[path], stored)))
    }
    return [path for path in held.files if path not in {_OF_THE_HUB, CARD, *left}]
