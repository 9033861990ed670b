"""Replace a dataset: what was written of the one before is removed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from posixpath import dirname

from transforms.dataset.layout import PUBLISHED, Folder, is_published
from transforms.storage.files import join
from transforms.storage.walking import names_below
from transforms.storage.writing import remove, remove_if_empty

_AT_ONCE = 16


def remove_dataset(folder: Folder) -> list[str]:
    """Remove a dataset, except the claims. It can be repeated.

    All of `_chatmill` is Chatmill's own, but somebody may have put files next to the shards.

    Args:
        folder: of the dataset, no folder of which is a link.

    Returns:
        The paths of files that no job publishes, relative to the folder: they stay.

    Raises:
        StoreError: if the store fails.
    """
    for url in (folder.success, folder.manifest, folder.report, folder.card):
        remove(url)
    others = remove_published(folder, [join(folder.output, part) for part in PUBLISHED])
    for url in folder.work_parts():
        remove(url)
    return others


def remove_published(folder: Folder, parts: Iterable[str]) -> list[str]:
    """Remove the files that jobs published in folders of a dataset.

    Args:
        folder: of the dataset, or of an increment.
        parts: the urls of folders in it.

    Returns:
        As remove_dataset does.

    Raises:
        StoreError: if the store fails.
    """
    others = []
    for part in parts:
        urls = [join(part, name) for name in names_below(part)]
        paths = {url: url.removeprefix(join(folder.output, "")) for url in urls}
        others_here = [path for path in paths.values() if not is_published(path)]
        if not others_here:
            remove(part)  # a store removes many files at once
            continue
        published = [url for url in urls if is_published(paths[url])]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(remove, published))
        for inner in {dirname(url) for url in published} - {part}:
            remove_if_empty(inner)
        others += others_here
    return others
