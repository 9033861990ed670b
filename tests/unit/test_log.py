"""The log: commits are one after the other, whoever makes them, and their fold is the dataset."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from support.increments import begin, commit_numbers
from support.manifests import manifest_by_hand
from transforms.dataset.layout import Folder
from transforms.dataset.log import Conflict, Log
from transforms.dataset.snapshot import Increment, Snapshot
from transforms.errors import InputError, StoreError, UserError
from transforms.inputs.listing import InputFile
from transforms.inputs.plan import encode_plan
from transforms.storage.writing import create

FORK: Any = multiprocessing.get_context("fork")
RACERS = 8


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    yield Folder(f"{tmp_path}/out" if request.param == "disk" else "memory://log/out")
    MemoryFileSystem.store.clear()


def id_of(name: str) -> str:
    """The id of an increment, from a name of at most eight characters."""
    return name.encode().hex().rjust(16, "0")


def name_of(id: str) -> str:
    return bytes.fromhex(id).lstrip(b"\0").decode()


def increment(name: str, *urls: str, version: str = "1", error: str | None = None) -> Increment:
    id = id_of(name)
    shard = {"path": f"data/{id}/train-00000-of-00001.parquet", "split": "train", "format": "parquet", "rows": 3}
    manifest = manifest_by_hand(shards=[shard], rejects=[f"rejects/{id}/rejects-00000-of-00001.parquet"])
    return Increment.of(id, manifest, [InputFile(url, "jsonl", None, 10, version) for url in urls], error)


def ids(snapshot: Snapshot | None) -> list[str]:
    assert snapshot
    return [name_of(each.id) for each in snapshot.increments]


def finish(output: Path, *urls: str, **job: Any) -> Path:
    """Leave what a finished build leaves, as far as the log reads it. Returns the plan."""
    (output / "_chatmill").mkdir(parents=True)
    (output / "_SUCCESS").touch()
    plan = output / "_chatmill" / "plan.jsonl"
    plan.write_bytes(encode_plan([InputFile(url, "jsonl", None, 10, "1") for url in urls]))
    inputs = hashlib.sha256(plan.read_bytes()).hexdigest()
    manifest = manifest_by_hand(job=manifest_by_hand()["job"] | {"inputs": inputs} | job)
    (output / "manifest.json").write_text(json.dumps(manifest))
    return plan


def test_commits_follow_each_other_and_each_version_can_be_read(folder):
    log = Log(folder)
    assert log.newest() is None and log.versions() == []
    for number, id in enumerate("abc", 1):
        snapshot = log.commit("append", increment(id, f"{id}.jsonl"))
        assert snapshot.version == number
        assert snapshot == Log(folder).newest()
    assert [ids(log.snapshot(version)) for version in (1, 2, 3)] == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert [ids(snapshot) for snapshot in log.snapshots(2)] == [["a", "b"], ["a", "b", "c"]]
    assert [(entry.version, entry.parent, entry.kind, name_of(entry.add.id)) for entry in log.versions()] == [
        (1, 0, "append", "a"), (2, 1, "append", "b"), (3, 2, "append", "c")
    ]  # fmt: skip
    with pytest.raises(UserError, match="there is no version 4; it has the versions 1 to 3"):
        log.snapshot(4)


def test_increment_that_replaces_others_stands_where_the_first_of_them_stood(folder):
    log = Log(folder)
    for id in "abcd":
        log.commit("append", increment(id, f"{id}.jsonl"))
    snapshot = log.commit("compact", increment("bc", "b.jsonl", "c.jsonl"), remove=(id_of("b"), id_of("c")))
    assert ids(snapshot) == ids(log.newest()) == ["a", "bc", "d"]
    assert ids(log.snapshot(4)) == ["a", "b", "c", "d"]
    assert snapshot.taken() == {(0, f"{id}.jsonl"): {"1"} for id in "abcd"}


def test_same_increment_is_committed_once_also_after_a_compaction_joined_it_with_another(folder):
    log = Log(folder)
    log.commit("append", increment("a", "a.jsonl"))
    log.commit("append", increment("b", "b.jsonl"))
    assert log.commit("append", increment("a", "a.jsonl")).version == 2
    log.commit("compact", increment("ab", "a.jsonl", "b.jsonl"), remove=(id_of("a"), id_of("b")))
    assert ids(log.commit("append", increment("b", "b.jsonl"))) == ["ab"]
    assert len(log.versions()) == 3


def test_increment_that_has_what_another_took_or_replaces_what_is_gone_is_refused(folder):
    log = Log(folder)
    log.commit("append", increment("a", "a.jsonl"))
    with pytest.raises(Conflict, match=r"a\.jsonl: another commit took it meanwhile"):
        log.commit("append", increment("ab", "a.jsonl", "b.jsonl"))
    with pytest.raises(Conflict, match=f"removed the increment {id_of('b')} meanwhile"):
        log.commit("append", increment("c", "c.jsonl"), remove=(id_of("b"),))
    rewritten = increment("a2", "a.jsonl", version="2")
    assert log.commit("append", rewritten).taken() == {(0, "a.jsonl"): {"1", "2"}}
    replaced = log.commit("append", increment("a3", "a.jsonl", version="3"), remove=(id_of("a"), id_of("a2")))
    assert replaced.taken() == {(0, "a.jsonl"): {"3"}}


def _commit(folder: Folder, racer: int, start: Any) -> None:
    start.wait()
    for number in range(5):
        Log(folder).commit("append", increment(f"{racer}-{number}", f"{racer}-{number}.jsonl"))


def test_of_eight_processes_that_commit_at_once_each_version_has_one_winner_and_none_is_lost(tmp_path):
    folder, start = Folder(str(tmp_path)), FORK.Barrier(RACERS)
    racers = [FORK.Process(target=_commit, args=(folder, racer, start)) for racer in range(RACERS)]
    for process in racers:
        process.start()
    for process in racers:
        process.join()
    assert [process.exitcode for process in racers] == [0] * RACERS
    entries = Log(folder).versions()
    assert [(entry.version, entry.parent) for entry in entries] == [(n + 1, n) for n in range(5 * RACERS)]
    assert ids(Log(folder).newest()) == [name_of(entry.add.id) for entry in entries]
    assert {name_of(entry.add.id) for entry in entries} == {f"{racer}-{n}" for racer in range(RACERS) for n in range(5)}
    assert len([*Path(folder.log).iterdir()]) == 5 * RACERS  # no attempt is left


def _create_and_read(path: Path, racer: int, start: Any, won: Any) -> None:
    content = str(racer).encode() * 1_000_000
    start.wait()
    if create(str(path), content):
        won[racer] = 1
    assert len(path.read_bytes()) == len(content)  # all of it, also for those who lost


def test_file_that_processes_create_at_once_has_one_winner_and_is_never_seen_in_part(tmp_path):
    start, won = FORK.Barrier(RACERS), FORK.Array("i", RACERS)
    racers = [
        FORK.Process(target=_create_and_read, args=(tmp_path / "new" / "file", racer, start, won))
        for racer in range(RACERS)
    ]
    for process in racers:
        process.start()
    for process in racers:
        process.join()
    assert [process.exitcode for process in racers] == [0] * RACERS
    assert sum(won) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_every_hundredth_commit_writes_the_fold_from_which_later_ones_are_read(tmp_path):
    folder = Folder(str(tmp_path))
    log = Log(folder)
    for number in range(203):
        log.commit("append", increment(f"{number:03d}", f"{number}.jsonl"))
    checkpoints = sorted(Path(folder.log).glob("*.checkpoint.json"))
    assert [path.name for path in checkpoints] == ["00000100.checkpoint.json", "00000200.checkpoint.json"]
    expected = log.newest()
    for path in Path(folder.log).glob("0000000?.json"):  # as expire does
        path.unlink()
    assert log.newest() == expected and len(expected.increments) == 203
    assert [entry.version for entry in log.versions()] == [*range(100, 204)]
    assert ids(log.snapshot(100)) == ids(expected)[:100]
    with pytest.raises(UserError, match="there is no version 99; it has the versions 100 to 203"):
        log.snapshot(99)
    checkpoints[1].unlink()  # of a process that was killed before it wrote it
    assert log.newest() == expected
    log.commit("append", increment("more", "more.jsonl"))
    assert (tmp_path / "_chatmill" / "log" / "00000204.checkpoint.json").exists()


def test_log_that_lost_an_entry_is_not_read_as_if_it_had_it(tmp_path):
    log = Log(Folder(str(tmp_path)))
    for id in "abc":
        log.commit("append", increment(id, f"{id}.jsonl"))
    entry = tmp_path / "_chatmill" / "log" / "00000002.json"
    content = entry.read_bytes()
    entry.write_bytes(content[:100])
    with pytest.raises(InputError, match=r"00000002\.json: it is damaged"):
        log.newest()
    entry.unlink()
    with pytest.raises(InputError, match=r"log: 00000002\.json is missing, and later versions are there"):
        log.newest()


def test_log_that_lost_its_beginning_or_its_end_is_not_read_as_if_it_had_it(tmp_path):
    folder = Folder(str(tmp_path))
    begin(str(tmp_path))
    for number in range(3):
        commit_numbers(str(tmp_path), "append", number, number)
    kept = Path(shutil.copytree(folder.log, tmp_path / "kept"))

    def lose(*names: str) -> Log:
        shutil.rmtree(folder.log)
        shutil.copytree(kept, folder.log)
        for name in names:
            (Path(folder.log) / name).unlink()
        return Log(folder)

    with pytest.raises(InputError, match=r"log: 00000001\.json is missing"):
        lose("00000001.json").newest()
    with pytest.raises(InputError, match=r"log: 00000003\.json is missing: manifest\.json is of version 3"):
        lose("00000003.json").newest()
    with pytest.raises(InputError, match=r"log: the log is missing, and manifest\.json is of version 3"):
        lose(*(f"0000000{number}.json" for number in (1, 2, 3))).newest()
    assert not Log(folder).exists()  # a copy without it can be read

    lose().drop_before(2)
    shutil.rmtree(kept)
    shutil.copytree(folder.log, kept)
    with pytest.raises(InputError, match=r"log: 00000001\.json is missing, or the checkpoint of 00000002"):
        lose("00000002.checkpoint.json").versions()
    with pytest.raises(InputError, match=r"log: 00000002\.json is missing, and later versions are there"):
        lose("00000002.json").versions()


def test_log_that_a_disk_does_not_list_or_read_is_not_an_empty_one(tmp_path, monkeypatch):
    log = Log(Folder(str(tmp_path)))
    log.commit("append", increment("a", "a.jsonl"))
    folder, scandir = Path(log._folder.log), os.scandir
    (folder / "00000002.json").symlink_to("/proc/self/mem")  # whose first byte gives EIO
    with pytest.raises(StoreError, match=r"00000002\.json: it cannot be read \(Input/output error\)"):
        log.newest()

    def fail(path: str) -> Any:
        if str(path) == str(folder):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    for read in (log.newest, log.versions, log.exists, lambda: log.commit("append", increment("b", "b.jsonl"))):
        with pytest.raises(StoreError, match=r"log: it cannot be listed \(Input/output error\)"):
            read()


def test_finished_dataset_is_version_1_and_the_first_commit_writes_that_down(tmp_path):
    finish(tmp_path, "a.jsonl")
    log = Log(Folder(str(tmp_path)))
    plain = log.newest()
    assert plain == log.snapshot(1) and plain.version == 1 and not Path(log._folder.log).exists()
    assert plain.taken() == {(0, "a.jsonl"): {"1"}}
    assert [(entry.version, entry.add.id) for entry in log.versions()] == [(1, "")]
    assert ids(log.commit("append", increment("b", "b.jsonl"))) == ["", "b"]
    assert log.snapshot(1) == plain
    assert [entry.version for entry in log.versions()] == [1, 2]


@pytest.mark.parametrize("damaged", [None, b"", b'{"url": "a.j', "of another dataset"])
def test_finished_dataset_that_lost_the_list_of_its_inputs_is_read_and_does_not_grow(tmp_path, damaged):
    plan = finish(tmp_path / "out", "a.jsonl", "b.jsonl")
    log = Log(Folder(f"{tmp_path}/out"))
    whole = log.newest()
    plan.unlink()
    if damaged == "of another dataset":
        finish(tmp_path / "another", "a.jsonl").rename(plan)
    elif damaged is not None:
        plan.write_bytes(damaged)
    assert log.newest().version == 1 and log.newest().shards() == whole.shards()
    for change in (log.check_growable, lambda: log.commit("append", increment("a", "a.jsonl"))):
        with pytest.raises(InputError, match=rf"^{plan}: it is missing or damaged"):
            change()
    assert not Path(log._folder.log).exists()


def test_finished_dataset_of_a_pipeline_of_ones_own_has_no_list_of_inputs_and_can_be_compacted(tmp_path):
    finish(tmp_path, steps=[], inputs="2" * 64).unlink()
    log = Log(Folder(str(tmp_path)))
    assert ids(log.commit("compact", increment("all"), remove=[""])) == ["all"]


def test_failed_increment_counts_as_taken_and_not_in_the_sums(folder):
    log, job = Log(folder), manifest_by_hand()["job"] | {"sources": [{"name": "chats"}, {"name": "code"}]}
    log.commit("append", increment("a", "a.jsonl"))
    before = log.newest().manifest(job)
    log.commit("append", increment("b", "b.jsonl", error="too many rejects"))
    manifest = log.newest().manifest(job)
    assert manifest.pop("snapshot") == {
        "version": 2, "increments": 2, "failed": 1, "failed_records": before["records"]
    }  # fmt: skip
    del before["snapshot"]
    assert manifest.pop("rejects") == [*before.pop("rejects"), f"rejects/{id_of('b')}/rejects-00000-of-00001.parquet"]
    assert manifest == before
    assert (0, "b.jsonl") in log.newest().taken()


def test_store_that_does_not_create_exclusively_is_refused():
    with pytest.raises(UserError, match="cannot create a file only if there is none"):
        Log(Folder("http://host/out")).check_growable()
