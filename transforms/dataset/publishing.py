"""Publish: files get their final names."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from posixpath import dirname

from transforms.dataset.layout import Folder
from transforms.dataset.manifest import Name
from transforms.storage.files import join
from transforms.storage.writing import publish, sync_folder

_AT_ONCE = 16


def publish_files(folder: Folder, names: Sequence[Name]) -> None:
    """Give files their final names. This can be repeated, also while another worker does it."""

    def publish_one(name: Name) -> None:
        publish(join(folder.shards, name[0]), join(folder.output, name[1]))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(publish_one, names))
    for final in {dirname(name[1]) for name in names}:
        sync_folder(join(folder.output, final))
