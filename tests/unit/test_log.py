"""The log of a dataset: what is missing in it, or does not follow, is named; it is read quickly however long it is."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import forks
from support.command_line import chatmill
from support.datasets import write_jsonl
from support.paths import TOKENIZER
from transforms import Dataset, InputError, StoreError, UserError


def append(folder: Path, name: str) -> list[str]:
    write_jsonl(folder / f"{name}.jsonl", [{"text": f"text {number} of {name}"} for number in range(3)])
    return ["build", "--append", f"--input={folder}/*.jsonl", f"--output={folder}/out", f"--tokenizer={TOKENIZER}",
            "--direct_num_workers=1", "--report=none"]  # fmt: skip


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grown")
    for name in "abcd":
        assert chatmill(*append(folder, name)) == 0
    return folder


@pytest.fixture
def folder(grown: Path, tmp_path: Path) -> Path:
    """A folder with inputs, and `out`, which has four versions."""
    return Path(shutil.copytree(grown, tmp_path / "grown", copy_function=shutil.copy2))


def entry(folder: Path, version: int, suffix: str = "") -> Path:
    return folder / "out" / "_chatmill" / "log" / f"{version:08d}{suffix}.json"


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


def edited(version: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: edit(entry(folder, version), change)


def add_space(folder: Path) -> None:
    """Change nothing that is read."""
    entry(folder, 1).write_bytes(entry(folder, 1).read_bytes() + b"\n")


def exchange(folder: Path) -> None:
    second, third = entry(folder, 2).read_bytes(), entry(folder, 3).read_bytes()
    for version, content in ((2, third), (3, second)):
        entry(folder, version).write_bytes(content)
        edit(entry(folder, version), lambda found, version=version: found.update(version=version))
        edit(entry(folder, version), lambda found, version=version: found["add"].update(version=version))


def plant(folder: Path) -> None:
    """Put an entry there of another dataset, of which the first versions have the same files."""
    other = folder / "other"
    other.mkdir()
    for name in "abcx":
        assert chatmill(*append(other, name)) == 0
    shutil.copy(entry(other, 4), entry(folder, 4))


def expired(folder: Path) -> None:
    assert chatmill("expire", folder / "out", "--older_than=0s", "--keep=2") == 0


def checkpoint(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        expired(folder)
        edit(entry(folder, 3, ".checkpoint"), change)

    return changed


def first_id(folder: Path) -> str:
    found: str = json.loads(entry(folder, 1).read_bytes())["add"]["id"]
    return found


HARMS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an entry says other sums": (edited(2, lambda of: of["add"]["sums"].update(rows=1)),
                                 "00000003.json: it is damaged (it does not follow the version 2)"),
    "a byte more": (add_space, "00000002.json: it is damaged (it does not follow the version 1)"),
    "two are exchanged": (exchange, "00000002.json: it is damaged (it does not follow the version 1)"),
    "one is there twice": (lambda folder: shutil.copy(entry(folder, 3), entry(folder, 2)),
                           "00000002.json: it is damaged (it is version 3; expected 2)"),
    "of another history": (edited(4, lambda of: of.update(previous="0" * 64)),
                           "00000004.json: it is damaged (it does not follow the version 3)"),
    "a beginning after another": (edited(1, lambda of: of.update(previous="0" * 64)),
                                  "00000001.json: it is damaged (it does not follow the version 0)"),
    "it removes what was not there": (edited(4, lambda of: of.update(remove=["0" * 16])),
                                      "00000004.json: it is damaged (its increments are not those that follow"),
    "it adds what was there": (lambda folder: edit(entry(folder, 4), lambda of: of["add"].update(id=first_id(folder))),
                               "00000004.json: it is damaged (its increments are not those that follow"),
    "an entry is planted": (plant, "00000004.json: it is damaged (it does not follow the version 3)"),
    "an entry is cut": (lambda folder: os.truncate(entry(folder, 2), 100), "00000002.json: it is damaged"),
    "an entry is lost": (lambda folder: entry(folder, 2).unlink(),
                         "log: 00000002.json is missing, and later versions are there"),
    "its beginning is lost": (lambda folder: entry(folder, 1).unlink(), "log: 00000001.json is missing"),
    "its end is lost": (lambda folder: entry(folder, 4).unlink(),
                        "log: 00000004.json is missing: manifest.json is of version 4"),
    "a checkpoint is lost": (lambda folder: (expired(folder), entry(folder, 3, ".checkpoint").unlink()),
                             "log: 00000002.json is missing, or the checkpoint of 00000003"),
    "a checkpoint is empty": (checkpoint(lambda of: of.update(increments=[])),
                              "00000003.checkpoint.json: it is damaged (expected the increments"),
    "a checkpoint of another version": (checkpoint(lambda of: of.update(entry="0" * 64)),
                                        "00000004.json: it is damaged (it does not follow the version 3"),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_log_that_is_not_whole_is_named_by_readers_and_writers_and_nothing_is_changed(folder, capfd, harm):
    change, problem = HARMS[harm]
    change(folder)
    files = {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()}
    with pytest.raises(InputError) as raised:
        Dataset(str(folder / "out"))
    assert problem in str(raised.value)
    capfd.readouterr()
    assert chatmill(*append(folder, "e")) in (1, 2)
    err = capfd.readouterr().err
    assert problem in err and err.count("\n") == 1
    assert {path: path.read_bytes() for path in (folder / "out").rglob("*") if path.is_file()} == files


def test_log_that_a_disk_does_not_list_or_read_is_not_an_empty_one(folder, monkeypatch, capfd):
    log, scandir = entry(folder, 1).parent, os.scandir
    content = entry(folder, 4).read_bytes()
    entry(folder, 4).unlink()
    entry(folder, 4).symlink_to("/proc/self/mem")  # whose first byte gives EIO
    with pytest.raises(StoreError, match=r"00000004\.json: it cannot be read \(Input/output error\)"):
        Dataset(str(folder / "out"))
    entry(folder, 4).unlink()
    entry(folder, 4).write_bytes(content)

    def fail(path: Any) -> Any:
        if str(path) == str(log):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(StoreError, match=r"log: it cannot be listed \(Input/output error\)"):
        Dataset(str(folder / "out"))
    build, kind, *options = append(folder, "e")
    for command in ([build, kind, *options], [build, "--overwrite", *options]):
        capfd.readouterr()
        assert chatmill(*command) in (1, 2)
        assert "log: it cannot be listed (Input/output error)" in capfd.readouterr().err


def lengthen(folder: Path, last: int) -> None:
    """Add versions up to one by hand: each adds what the last one added, with an id and an input of its own."""
    out, version = folder / "out", max(int(path.name[:8]) for path in entry(folder, 1).parent.iterdir())
    before = entry(folder, version).read_bytes()
    id = json.loads(before)["add"]["id"]
    while version < last:
        version += 1
        new = f"{version:016x}"
        for path in [*out.glob(f"data/*-{id}-*")]:
            os.link(path, str(path).replace(id, new))
        content = json.loads(before.replace(id.encode(), new.encode()))
        content |= {"version": version, "previous": hashlib.sha256(before).hexdigest()}
        content["add"]["version"] = version
        content["add"]["inputs"][0]["url"] = f"{version}.jsonl"
        before, id = json.dumps(content).encode(), new
        entry(folder, version).write_bytes(before)


def test_each_hundredth_commit_writes_a_checkpoint_from_which_the_later_ones_are_read(folder):
    def commit(name: str) -> None:
        [ended] = forks.race(append(folder, name))  # the laws do not hold of what is made by hand
        assert ended.code == 0, ended.printed

    def checkpoints() -> list[int]:
        return sorted(int(path.name[:8]) for path in entry(folder, 1).parent.glob("*.checkpoint.json"))

    def increments(version: int) -> int:
        found: int = Dataset(f"{folder}/out@{version}").manifest["snapshot"]["increments"]
        return found

    lengthen(folder, 102)
    commit("e")
    assert checkpoints() == [103]
    lengthen(folder, 202)
    commit("f")
    assert checkpoints() == [103, 203] and increments(203) == 203
    os.truncate(entry(folder, 203, ".checkpoint"), 100)
    with pytest.raises(InputError, match=r"00000203\.checkpoint\.json: it is damaged"):
        Dataset(f"{folder}/out")
    entry(folder, 203, ".checkpoint").unlink()  # as by a kill before it was written
    assert [increments(version) for version in (1, 103, 150, 203)] == [1, 103, 150, 203]
    commit("g")
    assert checkpoints() == [103, 204]
    assert chatmill("expire", folder / "out", "--older_than=0s", "--keep=55") == 0
    assert checkpoints() == [150, 204] and [increments(version) for version in (150, 203, 204)] == [150, 203, 204]
    with pytest.raises(UserError, match="there is no version 149; it has the versions 150 to 204"):
        Dataset(f"{folder}/out@149")
    lengthen(folder, 303)
    commit("h")
    assert checkpoints() == [150, 204, 304]
    lengthen(folder, 403)
    commit("i")
    assert checkpoints() == [150, 204, 304, 404]
    lengthen(folder, 503)
    commit("j")
    assert checkpoints() == [150, 304, 404, 504] and increments(250) == 250  # from the first one
