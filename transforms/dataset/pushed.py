"""What of a dataset is pushed to a repository: its files, what is derived from its version, and what it may replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from transforms.base.errors import UserError
from transforms.dataset.derived import NAMED_VERSIONS, encode_manifest
from transforms.dataset.reader import Dataset, reading
from transforms.dataset.versions import named_versions, read_version
from transforms.outputs import datasets_files
from transforms.push import CARD, MANIFEST, OTHER_FILES, REPORT, DataFile, Pushed, push
from transforms.report.card import dataset_card
from transforms.report.page import report_of
from transforms.storage.files import exists, join, read_bytes


class _Shard(msgspec.Struct, frozen=True):
    path: str
    sha256: str


class _Manifest(msgspec.Struct):
    """What says which dataset a repository has, in the manifests of all versions of Chatmill since 0.3."""

    rows: int
    version: int
    shards: list[_Shard]


_decode_manifest = msgspec.json.Decoder(_Manifest).decode


def push_dataset(
    dataset: Dataset,
    name: str,
    branch: str | None,
    private: bool,
    with_rejects: bool,
    overwrite: bool,
    progress: Callable[[str], None],
) -> Pushed:
    """Push a version of a dataset. with_rejects: whether to push its exceptions, too. All else is as for `push`."""
    manifest = dataset.manifest
    entries = [*manifest["shards"], *(manifest["exceptions"] if with_rejects else ())]
    return push(
        name,
        [DataFile(each["path"], join(dataset.url, each["path"]), each["bytes"], each["sha256"]) for each in entries],
        _texts(dataset, name),
        lambda found: _problem_with(found, dataset),
        f"Push version {dataset.version}",
        branch=branch,
        private=private,
        overwrite=overwrite,
        progress=progress,
    )


def _texts(dataset: Dataset, name: str) -> dict[str, bytes]:
    """What is derived from the version of a dataset, by path. name: of the repository that the card loads."""
    manifest, folder, version = dataset.manifest, dataset.folder, dataset.stored_version
    texts = {MANIFEST: encode_manifest(manifest)}
    if exists(folder.report):
        with reading(folder.report):
            texts[REPORT] = report_of(folder, manifest) if version else read_bytes(folder.report)
    shards = _shards_in(manifest["shards"])
    named = named_versions(folder, version, NAMED_VERSIONS) if version and version.number > 1 else ()
    # The card names the versions of which all shards are pushed, since this version has them, too.
    loadable = ((number, entries) for number, entries in named if _shards_in(entries) <= shards)
    is_loaded_by_name = manifest["shards"] and datasets_files(manifest["shards"])
    where = {"folder": name} if is_loaded_by_name else {}
    return texts | {CARD: dataset_card(manifest, loadable, **where).encode()}


def _problem_with(content: str, dataset: Dataset) -> str | None:
    """Why a manifest.json must not be replaced by that of a dataset; None if it is that of an earlier version of it."""
    try:
        found = _decode_manifest(content)
    except msgspec.MsgspecError:
        return OTHER_FILES.format(MANIFEST)
    theirs = {*found.shards}
    if theirs <= _shards_in(dataset.manifest["shards"]):
        return None
    with suppress(UserError):  # it has expired, or there is none
        if theirs == _shards_in(read_version(dataset.folder, found.version).shards()):
            if found.version < dataset.version:
                return None
            return (
                f"it has version {found.version} of this dataset, which is newer than version {dataset.version}. Push "
                "to another branch."
            )
    return (
        f"it has another dataset, or a version that this one no longer has (version {found.version}, "
        f"{found.rows:,} rows). Push to another repository."
    )


def _shards_in(entries: Sequence[Any]) -> set[_Shard]:
    """What makes a version the one that it is."""
    return {*msgspec.convert(entries, list[_Shard])}
