"""A disk that loses its cache: what it has of a folder after each sync, as after a power cut."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch


class Disk:
    """What a disk has of a folder after each sync: of a folder its names, of a file its content when it was synced.

    A file of which only the name was synced is empty, as on ext4 and XFS. The inode of a folder is 0 here.
    """

    def __init__(self, root: Path):
        self._root = str(root)
        self._names: dict[str, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        self._states: list[tuple[dict[str, dict[str, int]], dict[int, bytes]]] = []
        self._fsync = os.fsync

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, what this process syncs is on the disk."""
        with patch.object(os, "fsync", self._sync):
            yield

    def _sync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not path.startswith(self._root):
            return
        if os.path.isdir(path):
            self._names[path] = {entry.name: 0 if entry.is_dir() else entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[os.fstat(descriptor).st_ino] = Path(path).read_bytes()
        self._states.append((dict(self._names), dict(self._contents)))

    def states(self) -> list[dict[str, bytes]]:
        """The files that are left if the power is cut after each sync, by their path in the folder."""
        return [self._left(*state) for state in self._states]

    def _left(self, names: dict[str, dict[str, int]], contents: dict[int, bytes]) -> dict[str, bytes]:
        folders, files = [self._root], dict[str, bytes]()
        while folders:
            folder = folders.pop()
            for name, inode in names.get(folder, {}).items():
                path = f"{folder}/{name}"
                if path in names:
                    folders.append(path)
                elif inode:  # not a folder of which nothing was synced
                    files[path.removeprefix(f"{self._root}/")] = contents.get(inode, b"")
        return files

    def cut(self, files: dict[str, bytes]) -> None:
        """Let the folder have the files of a state, and no others."""
        shutil.rmtree(self._root)
        for name, content in files.items():
            path = Path(self._root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@functools.cache  # the states share the contents of files
def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def lost_shards(files: dict[str, bytes]) -> list[str]:
    """The files that a receipt, a version or the manifest names, and that are not there as written."""
    named = []
    for name, content in files.items():
        if "/receipts/" in name and name.endswith(".json"):
            named += json.loads(content)["files"]
        elif "/versions/" in name and name.endswith(".json"):
            named += [file for increment in json.loads(content)["increments"] for file in increment["files"]]
        elif name == "out/manifest.json":
            named += json.loads(content)["shards"]
    return [of["path"] for of in named if sha256(files.get(f"out/{of['path']}", b"")) != of["sha256"]]
