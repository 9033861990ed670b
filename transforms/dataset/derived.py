"""What is derived from the newest version: README.md, recipe.yaml, manifest.json and others.

All of it can be written again at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from transforms.base.errors import InputError
from transforms.dataset.layout import FORMAT, Folder, derived_manifest
from transforms.dataset.versions import Version, named_versions, newest
from transforms.report.card import dataset_card
from transforms.report.page import make_report
from transforms.report.rebuilding import stored_recipe
from transforms.storage.files import exists, join, read_bytes
from transforms.storage.writing import remove, remove_if_empty, write_atomically

_LOGGER = logging.getLogger(__name__)
# The newest versions that can be loaded by name; `transforms.shards` loads the others.
NAMED_VERSIONS = 100


def finish_commit(folder: Folder, version: Version, report: str | None = None) -> None:
    """Do what follows a commit, unless it is done. It can be repeated, also while others do it.

    What is derived from the newest version is written, and the work folders of increments that were committed are
    removed.

    Args:
        folder: of the dataset, or of an increment of it.
        version: the newest one. If another commit comes meanwhile, what is derived from that one is written, too.
        report: one of REPORTS; None for a report if there is one.
    """
    folder = Folder(folder.output)
    if is_stale(folder, version):
        _derive(folder, version, report or ("html" if exists(folder.report) else "none"))
    for id in filter(version.has, folder.begun()):
        remove(Folder(folder.output, id).work)
    remove_if_empty(folder.building)


def _derive(folder: Folder, version: Version, report: str) -> None:
    """Write what is derived from the newest version.

    The report shows rows of any increment. If they cannot be read, there is none, which is logged: the version that is
    committed is complete all the same.
    """
    last: Version | None = version
    while last:
        version = last
        (manifest, contents), page = _derived_from(folder, version), None
        try:
            page = make_report(folder, manifest) if report == "html" else None
        except InputError as error:
            _LOGGER.warning("version %d is complete, and has no report: %s", version.number, error)
        for url, content in {folder.report: page, **contents}.items():
            if url == folder.manifest and version.number == 1:
                _remove_earlier(folder)  # which the manifest that is there yet names
            if content is None:
                remove(url)
            else:
                write_atomically(url, content)
        last = newest(folder)
        if last and last.number == version.number:
            return


def _remove_earlier(folder: Folder) -> None:
    """Remove what an earlier version of Chatmill wrote, whose place the first version took."""
    manifest = derived_manifest(folder)
    if manifest and manifest.format < FORMAT:
        for path in (*manifest.paths(), "_SUCCESS", "_chatmill/log"):
            remove(join(folder.output, path))


def is_stale(folder: Folder, version: Version) -> bool:
    """Return whether what is there is not derived from the newest version: a process was killed before it was."""
    return any(True for _ in outdated(folder, version))


def outdated(folder: Folder, version: Version) -> Iterator[tuple[str, bool]]:
    """Yield the url of each file that is not derived from the newest version, and whether it is missing."""
    for url, content in _derived_from(folder, version)[1].items():
        if content is None:
            continue
        if not exists(url):
            yield url, True
        elif read_bytes(url) != content:
            yield url, False


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the content of manifest.json: JSON for people to read."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2)


def _derived_from(folder: Folder, version: Version) -> tuple[dict[str, Any], dict[str, bytes | None]]:
    """Derive what a version does not have, but for the report, which shows rows.

    Returns:
        The manifest; and by the url of each file its content, None if there is to be none, in the order in which they
        are written: who finds the last one finds the others.
    """
    manifest = version.manifest()
    # The first version needs no name; a later one keeps its own when the others expire.
    named = named_versions(folder, version, NAMED_VERSIONS) if version.number > 1 else ()
    return manifest, {
        folder.card: dataset_card(manifest, named).encode(),
        folder.recipe: stored_recipe(manifest),
        # As `sha256sum -c` reads it in the folder.
        folder.checksums: "".join(f"{file.sha256}  {file.path}\n" for file in version.files()).encode(),
        folder.manifest: encode_manifest(manifest),
    }
