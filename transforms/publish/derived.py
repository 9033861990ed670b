"""Derive what is not in the log, from its newest snapshot: README.md, recipe.yaml, report.html and others.

All of it can be written again at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from transforms.base.errors import InputError
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.manifest import encode_manifest
from transforms.catalog.snapshot import Snapshot
from transforms.publish.card import dataset_card
from transforms.publish.rebuilding import stored_recipe
from transforms.publish.report_page import write_report
from transforms.storage.files import exists, read_bytes
from transforms.storage.writing import remove, remove_if_empty, write_atomically

_LOGGER = logging.getLogger(__name__)
# The newest versions that can be loaded by name; `transforms.shards` loads the others.
_VERSIONS = 100


def derive(folder: Folder, snapshot: Snapshot, report: str) -> None:
    """Write what is derived from the newest snapshot. It can be repeated, also while others do it.

    The report shows rows of any increment. If they cannot be read, there is none, which is logged: the version that is
    committed is complete all the same.

    Args:
        folder: of the dataset, or of an increment of it.
        snapshot: the newest one. If another commit comes meanwhile, what is derived from that one is written, too.
        report: one of REPORTS.
    """
    folder = Folder(folder.output)
    newest: Snapshot | None = snapshot
    while newest:
        snapshot = newest
        manifest, card = derived_from(folder, snapshot)
        write_atomically(folder.card, card)
        if recipe := stored_recipe(manifest):
            write_atomically(folder.recipe, recipe)
        else:
            remove(folder.recipe)
        try:
            write_report(folder, manifest, report)
        except InputError as error:
            remove(folder.report)  # it is of an earlier version
            _LOGGER.warning("version %d is complete, and has no report: %s", snapshot.version, error)
        write_atomically(folder.checksums, checksums_of(snapshot))
        write_atomically(folder.manifest, encode_manifest(manifest))
        write_atomically(folder.success, b"")
        newest = Log(folder, snapshot).newest()
        if newest and newest.version == snapshot.version:
            return


def is_stale(folder: Folder, snapshot: Snapshot) -> bool:
    """Return whether what is there is not derived from the newest snapshot: a process was killed before it was."""
    return snapshot.version > 0 and any(True for _ in outdated(folder, snapshot))


def outdated(folder: Folder, snapshot: Snapshot) -> Iterator[tuple[str, bool]]:
    """Yield the url of each file that is not derived from the newest snapshot, and whether it is missing."""
    folder = Folder(folder.output)
    manifest, card = derived_from(folder, snapshot)
    for url, content in (
        (folder.card, card),
        (folder.recipe, stored_recipe(manifest)),
        (folder.checksums, checksums_of(snapshot)),
        (folder.manifest, encode_manifest(manifest)),
        (folder.success, b""),
    ):
        if content is None:
            continue
        if not exists(url):
            yield url, True
        elif read_bytes(url) != content:
            yield url, False


def checksums_of(snapshot: Snapshot) -> bytes:
    """Return the content of SHA256SUMS: a line for each file of a version, as `sha256sum -c` reads it in the folder."""
    return "".join(f"{file['sha256']}  {file['path']}\n" for file in snapshot.data_files()).encode()


def repair(folder: Folder, snapshot: Snapshot, report: str | None = None) -> None:
    """Do what a process that was killed after its commit did not do.

    What is derived from the newest snapshot of the log is written, and the work folders of increments that were
    committed are removed.

    Args:
        folder: of the dataset.
        snapshot: the newest one.
        report: one of REPORTS; None for a report if there is one.
    """
    if is_stale(folder, snapshot):
        derive(folder, snapshot, report or ("html" if exists(folder.report) else "none"))
    for id in filter(snapshot.has, folder.begun()):
        remove(Folder(folder.output, id).work)
    remove_if_empty(folder.increments)


def derived_from(folder: Folder, snapshot: Snapshot) -> tuple[dict[str, Any], bytes]:
    """Return the manifest, and the content of the card.

    Args:
        folder: of the dataset.
        snapshot: that they are of.
    """
    manifest = snapshot.manifest()
    return manifest, dataset_card(manifest, named_versions(folder, snapshot)).encode()


def named_versions(folder: Folder, snapshot: Snapshot) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the versions that have a name, and their shards, the newest first. The log is read when they are asked for.

    Args:
        folder: of the dataset.
        snapshot: the newest of them.
    """
    if snapshot.version > 1:  # the first one needs no name; a later one keeps its own when the others expire
        for each in reversed(Log(folder).snapshots(_VERSIONS)):
            if each.version <= snapshot.version:
                yield each.version, each.shards()
