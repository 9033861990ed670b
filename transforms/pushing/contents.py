"""What a push uploads: the files that one version of a dataset names, and what is derived from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transforms.dataset.derived import NAMED_VERSIONS, encode_manifest
from transforms.dataset.layout import Folder
from transforms.dataset.reader import Dataset, reading
from transforms.dataset.versions import named_versions
from transforms.outputs import datasets_files
from transforms.report.card import dataset_card
from transforms.report.page import report_of
from transforms.storage.files import exists, join, read_bytes

CARD, MANIFEST, REPORT = "README.md", "manifest.json", "report.html"


@dataclass(frozen=True)
class DataFile:
    """A file of rows or of exceptions.

    Attributes:
        path: in the dataset, and in the repository.
        url: where its content is.
        sha256: of its content, in hexadecimal.
        size: in bytes.
    """

    path: str
    url: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Contents:
    """What a push uploads.

    Attributes:
        data: the files that the version names, in its order.
        derived: the contents of manifest.json and report.html, by path.
        card: the text of README.md.
        shards: the path and the sha256 of each shard of the version: what makes it the version that it is.
    """

    data: tuple[DataFile, ...]
    derived: dict[str, bytes]
    card: str
    shards: frozenset[tuple[str, str]]


def contents_of(dataset: Dataset, name: str, with_rejects: bool) -> Contents:
    """Return what a push of a dataset uploads.

    Args:
        dataset: the version to push. What is committed later is not in it.
        name: of the repository, ORG/NAME, with which the card loads the dataset.
        with_rejects: whether the files of exceptions are pushed, too.

    Raises:
        InputError: if a shard is missing or damaged.
        StoreError: if the store fails.
    """
    manifest, folder = dataset.manifest, dataset.folder
    entries = [*manifest["shards"], *(manifest["exceptions"] if with_rejects else ())]
    data = [DataFile(each["path"], join(dataset.url, each["path"]), each["sha256"], each["bytes"]) for each in entries]
    derived = {MANIFEST: encode_manifest(manifest)}
    if exists(folder.report):
        with reading(folder.report):
            derived[REPORT] = report_of(folder, manifest) if dataset.stored_version else read_bytes(folder.report)
    shards = shards_of(manifest["shards"])
    is_read_by_name = manifest["shards"] and datasets_files(manifest["shards"])
    where = {"folder": name} if is_read_by_name else {}
    card = dataset_card(manifest, _loadable(dataset, folder, shards), **where)
    return Contents(tuple(data), derived, card, shards)


def shards_of(entries: list[dict[str, Any]]) -> frozenset[tuple[str, str]]:
    """Return the path and the sha256 of each shard of a manifest."""
    return frozenset((shard["path"], shard["sha256"]) for shard in entries)


def _loadable(
    dataset: Dataset, folder: Folder, shards: frozenset[tuple[str, str]]
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The versions that the card names: those of which all shards are pushed, since this version has them, too."""
    if dataset.stored_version and dataset.version > 1:
        for version, of_version in named_versions(folder, dataset.stored_version, NAMED_VERSIONS):
            if shards_of(of_version) <= shards:
                yield version, of_version
