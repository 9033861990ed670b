"""A power cut: what is not synced is lost. A run that resumes writes the same bytes; _SUCCESS is never too early."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.datasets import digests
from support.paths import CHATS, TOKENIZER

JOB = [f"--input={CHATS}", "--as_chat=true", f"--tokenizer={TOKENIZER}", "--split_bytes=300000"]
JOB += ["--max_reject_fraction=0.5", "--output_format=parquet,tfrecord", "--direct_num_workers=1"]


class Disk:
    """What a disk has of a folder after each sync: of a folder its names, of a file its content when it was synced.

    A file of which only the name was synced is empty, as on ext4 and XFS. The inode of a folder is 0 here.
    """

    def __init__(self, root: Path):
        self._root = str(root)
        self._names: dict[str, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        self.states: list[tuple[dict[str, dict[str, int]], dict[int, bytes]]] = []
        self._fsync = os.fsync

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not path.startswith(self._root):
            return
        if os.path.isdir(path):
            self._names[path] = {entry.name: 0 if entry.is_dir() else entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[os.fstat(descriptor).st_ino] = Path(path).read_bytes()
        self.states.append((dict(self._names), dict(self._contents)))

    def after_cut(self, sync: int) -> dict[str, bytes]:
        """The files that are left if the power is cut after so many syncs, by their path in the folder."""
        names, contents = self.states[sync]
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


@functools.cache  # the states share the contents of files
def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_is_there(files: dict[str, bytes], shards: list[dict[str, Any]]) -> int:
    """Assert that shards are among the files that are left, as they were written. Returns how many there are."""
    for shard in shards:
        assert sha256(files[f"out/{shard['path']}"]) == shard["sha256"]
    return len(shards)


@pytest.mark.slow
def test_after_a_power_cut_at_any_moment_nothing_refers_to_what_is_lost(build, monkeypatch: Any, tmp_path: Path):
    root = tmp_path / "disk"
    root.mkdir()
    disk = Disk(root)
    monkeypatch.setattr(os, "fsync", disk.fsync)
    done = build(*JOB, f"--output={root}/out")
    monkeypatch.undo()
    assert done.code == 0, done.err
    expected = digests(root / "out")
    finished = shards = committed = 0
    for sync in range(len(disk.states)):
        files = disk.after_cut(sync)
        if "out/_SUCCESS" in files:
            finished += 1
            left = {name.removeprefix("out/"): sha256(content) for name, content in files.items()}
            assert {name: digest for name, digest in left.items() if not name.startswith("_chatmill/")} == expected
            continue
        for name, content in files.items():
            if "/receipts/" in name and name.endswith(".json"):
                shards += check_is_there(files, json.loads(content)["shards"])
            if "/log/" in name and name.endswith(".json"):
                committed += check_is_there(files, json.loads(content)["add"]["files"]["shards"])
    assert finished and shards and committed
    count = len(disk.states) if os.environ.get("TEST_SLOW") else 4
    for number in range(count):
        shutil.rmtree(root)
        for name, content in disk.after_cut(number * (len(disk.states) - 1) // (count - 1)).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        done = build(*JOB, f"--output={root}/out")
        assert done.code == 0, done.err
        assert digests(root / "out") == expected
