"""The log: commits are one after the other, whoever makes them, and their fold is the dataset."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from support.increments import commit_numbers, increment_by_hand, job_by_hand
from transforms import InputError, StoreError, UserError
from transforms.catalog.layout import Folder
from transforms.catalog.log import Conflict, Log
from transforms.catalog.log_files import LogFiles
from transforms.catalog.snapshot import Increment, Kind, Snapshot
from transforms.catalog.sums import add_sums
from transforms.inputs.listing import InputFile
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


def increment(name: str, *urls: str, version: str = "1") -> Increment:
    id = id_of(name)
    shard = {"path": f"data/train-{id}-000000-000.parquet", "split": "train", "format": "parquet", "rows": 3}
    shard |= {"tokens": 630, "trained_tokens": 120, "bytes": 2048, "sha256": "0" * 64}
    rejects = {"path": f"rejects/rejects-{id}-000000-000.parquet", "sha256": "0" * 64}
    return increment_by_hand(id, [InputFile(url, "jsonl", None, 10, version) for url in urls], [shard], [rejects])


def commit(
    log: Log, name: str, *urls: str, base: int | None = None, kind: Kind = "append", remove: str = "", **of: Any
) -> Snapshot:
    """Commit an increment, planned on the newest version or on another one. remove: the names of those it replaces."""
    base = (log.newest() or Snapshot()).version if base is None else base
    kind, job = (kind, None) if base and kind != "build" else ("build", job_by_hand())
    return log.commit(kind, increment(name, *urls, **of), base, [id_of(each) for each in remove], job)


def ids(snapshot: Snapshot | None) -> list[str]:
    assert snapshot
    return [name_of(each.id) for each in snapshot.increments]


def sha256(folder: Folder, version: int) -> str:
    return hashlib.sha256(Path(folder.log, f"{version:08d}.json").read_bytes()).hexdigest()


def test_commits_follow_each_other_and_each_version_can_be_read(folder):
    log = Log(folder)
    assert log.newest() is None and log.versions() == [] and not log.exists()
    for number, id in enumerate("abc", 1):
        snapshot = commit(log, id, f"{id}.jsonl")
        assert snapshot.version == number
        assert snapshot == Log(folder).newest()
    assert [ids(log.snapshot(version)) for version in (1, 2, 3)] == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert [ids(snapshot) for snapshot in log.snapshots(2)] == [["a", "b"], ["a", "b", "c"]]
    entries = log.versions()
    assert [(entry.version, entry.kind, name_of(entry.add.id)) for entry in entries] == [
        (1, "build", "a"), (2, "append", "b"), (3, "append", "c")
    ]  # fmt: skip
    assert [entry.previous for entry in entries] == ["", log.snapshot(1).entry, log.snapshot(2).entry]
    assert [entry.job for entry in entries] == [job_by_hand(), None, None]
    assert snapshot.job == job_by_hand()
    with pytest.raises(UserError, match="there is no version 4; it has the versions 1 to 3"):
        log.snapshot(4)


def test_increment_that_replaces_others_stands_where_the_first_of_them_stood(folder):
    log = Log(folder)
    for id in "abcd":
        commit(log, id, f"{id}.jsonl")
    snapshot = commit(log, "bc", "b.jsonl", "c.jsonl", remove="bc")
    assert ids(snapshot) == ids(log.newest()) == ["a", "bc", "d"]
    assert ids(log.snapshot(4)) == ["a", "b", "c", "d"]
    assert snapshot.taken() == {(0, f"{id}.jsonl"): {"1"} for id in "abcd"}


def test_build_takes_the_place_of_all_that_is_there_which_stays_readable_as_the_version_before(folder):
    log = Log(folder)
    for id in "ab":
        commit(log, id, f"{id}.jsonl")
    job = job_by_hand() | {"tokenizer_name": "another"}
    snapshot = log.commit("build", increment("c", "c.jsonl"), 2, job=job)
    assert (snapshot.version, ids(snapshot), snapshot.job) == (3, ["c"], job)
    assert log.versions()[-1].remove == (id_of("a"), id_of("b"))
    assert (ids(log.snapshot(2)), log.snapshot(2).job) == (["a", "b"], job_by_hand())
    assert commit(log, "d", "d.jsonl").job == job


def test_same_increment_is_committed_once_also_after_a_build_took_its_place(folder):
    log = Log(folder)
    commit(log, "a", "a.jsonl")
    commit(log, "b", "b.jsonl")
    assert commit(log, "b", "b.jsonl", base=1).version == 2
    assert commit(log, "a", "a.jsonl", base=0).version == 2
    commit(log, "ab", "a.jsonl", "b.jsonl", kind="build")
    assert ids(commit(log, "b", "b.jsonl", base=1)) == ["ab"]
    assert ids(commit(log, "a", "a.jsonl", base=0)) == ["ab"]
    assert len(log.versions()) == 3


def test_append_that_was_planned_before_another_commit_is_refused(folder):
    log = Log(folder)
    for id in "abc":
        commit(log, id, f"{id}.jsonl")
    commit(log, "abc", "a.jsonl", "b.jsonl", "c.jsonl", kind="build")
    for base in (1, 2, 3):
        with pytest.raises(Conflict, match="version 4 was committed meanwhile"):
            commit(log, "d", "d.jsonl", base=base)
    commit(log, "e", "e.jsonl", kind="build")
    with pytest.raises(Conflict, match="version 5 was committed meanwhile"):
        commit(log, "d", "d.jsonl", base=4)
    with pytest.raises(Conflict, match="version 7 is gone"):  # of a dataset that was removed and built again
        commit(log, "d", "d.jsonl", base=7)
    assert log.newest().version == 5


def test_append_whose_base_has_expired_is_refused(tmp_path):
    """Nothing says any more what was committed since."""
    log = Log(Folder(str(tmp_path)))
    for id in "abcd":
        commit(log, id, f"{id}.jsonl")
    commit(log, "cd", "c.jsonl", "d.jsonl", remove="cd")
    log.drop_before(5)
    with pytest.raises(Conflict, match="version 5 was committed meanwhile"):
        commit(log, "e", "e.jsonl", base=3)
    assert ids(commit(log, "e", "e.jsonl", base=5)) == ["a", "b", "cd", "e"]


def test_commit_that_replaces_what_is_gone_is_refused(folder):
    log = Log(folder)
    commit(log, "a", "a.jsonl")
    with pytest.raises(Conflict, match=f"removed the increment {id_of('b')} meanwhile"):
        commit(log, "c", "c.jsonl", remove="b")
    commit(log, "b", "b.jsonl")
    commit(log, "ab", "a.jsonl", "b.jsonl", remove="ab")
    with pytest.raises(Conflict, match=f"removed the increment {id_of('a')} meanwhile"):
        commit(log, "aa", "a.jsonl", version="2", remove="a")


def test_all_versions_of_an_input_that_changed_count_as_taken_but_those_that_were_replaced(folder):
    log = Log(folder)
    commit(log, "a", "a.jsonl")
    assert commit(log, "b", "a.jsonl", version="2").taken() == {(0, "a.jsonl"): {"1", "2"}}
    assert commit(log, "c", "a.jsonl", version="3", remove="ab").taken() == {(0, "a.jsonl"): {"3"}}


def _commit(folder: Folder, racer: int, start: Any) -> None:
    start.wait()
    log = Log(folder)
    for number in range(5):
        while True:
            with suppress(Conflict):
                commit(log, f"{racer}-{number}", f"{racer}-{number}.jsonl")
                break


def test_of_eight_processes_that_commit_at_once_each_version_has_one_winner_and_none_is_lost(tmp_path):
    """Who gets a conflict plans again, as append does."""
    folder, start = Folder(str(tmp_path)), FORK.Barrier(RACERS)
    commit(Log(folder), "first", "first.jsonl")
    race(_commit, folder, start)
    entries = Log(folder).versions()
    assert [entry.version for entry in entries] == [n + 1 for n in range(5 * RACERS + 1)]
    assert [entry.previous for entry in entries[1:]] == [sha256(folder, entry.version) for entry in entries[:-1]]
    assert ids(Log(folder).newest()) == [name_of(entry.add.id) for entry in entries]
    committed = {name_of(entry.add.id) for entry in entries[1:]}
    assert committed == {f"{racer}-{n}" for racer in range(RACERS) for n in range(5)}
    assert len([*Path(folder.log).iterdir()]) == 5 * RACERS + 1  # no attempt is left


def _build(folder: Folder, racer: int, start: Any, base: int, won: Any) -> None:
    start.wait()
    with suppress(Conflict):
        assert ids(commit(Log(folder), f"build-{racer}", "a.jsonl", kind="build", base=base)) == [f"build-{racer}"]
        won[racer] = 1


@pytest.mark.parametrize("base", [0, 2], ids=["first", "overwrite"])
def test_of_builds_that_end_at_once_one_is_committed_and_the_others_learn_of_it(tmp_path, base):
    folder, start, won = Folder(str(tmp_path)), FORK.Barrier(RACERS), FORK.Array("i", RACERS)
    for id in "ab"[:base]:
        commit(Log(folder), id, f"{id}.jsonl")
    race(_build, folder, start, base, won)
    assert sum(won) == 1
    assert ids(Log(folder).newest()) == [f"build-{[*won].index(1)}"] and Log(folder).newest().version == base + 1


def race(function: Callable[..., None], folder: Any, *arguments: Any) -> None:
    """Call a function in several processes, with the number of each."""
    racers = [FORK.Process(target=function, args=(folder, racer, *arguments)) for racer in range(RACERS)]
    for process in racers:
        process.start()
    for process in racers:
        process.join()
    assert [process.exitcode for process in racers] == [0] * RACERS


def _create_and_read(path: Path, racer: int, start: Any, won: Any) -> None:
    content = str(racer).encode() * 1_000_000
    start.wait()
    if create(str(path), content):
        won[racer] = 1
    assert len(path.read_bytes()) == len(content)  # all of it, also for those who lost


def test_file_that_processes_create_at_once_has_one_winner_and_is_never_seen_in_part(tmp_path):
    start, won = FORK.Barrier(RACERS), FORK.Array("i", RACERS)
    race(_create_and_read, tmp_path / "new" / "file", start, won)
    assert sum(won) == 1
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_every_hundredth_commit_writes_the_fold_from_which_later_ones_are_read(tmp_path):
    folder = Folder(str(tmp_path))
    log = Log(folder)
    for number in range(203):
        commit(log, f"{number:03d}", f"{number}.jsonl")
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
    commit(log, "more", "more.jsonl")
    assert (tmp_path / "_chatmill" / "log" / "00000204.checkpoint.json").exists()


def sums_of(rows: int) -> dict[str, Any]:
    """Sums of which some differ with each increment, also the names of what has an example."""
    first = {"source": f"{rows}.jsonl", "position": "line 1", "detail": "-"}
    changed = {"rows": rows, "first_examples": {"any": first, f"of {rows % 3}": first}, "notes": {"cut": rows}}
    return add_sums([increment("sums").sums | changed], [source["name"] for source in job_by_hand()["sources"]])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("aaareo"), st.randoms(use_true_random=False)), min_size=1, max_size=25))
def test_sums_of_a_snapshot_are_those_of_its_increments_whatever_was_replaced_or_expired(steps):
    """a: append, r: replace, e: expire, o: overwrite. A checkpoint holds a few sums of each."""
    folder = Folder("memory://sums/out")
    MemoryFileSystem.store.clear()
    log, sums = Log(folder), dict[str, dict[str, Any]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transforms.catalog.log._COMMITS_IN_CHECKPOINT", 3)
        for number, (step, random) in enumerate([("a", None), *steps]):
            before = log.newest() or Snapshot()
            if step == "e":
                log.drop_before(random.choice(log.versions()).version)
                continue
            there = [each.id for each in before.increments]
            removed = sorted(random.sample(there, random.randint(1, len(there)))) if step == "r" else []
            add = increment(f"{number}", f"{number}.jsonl")
            add = msgspec.structs.replace(add, sums=sums_of(number))
            sums[add.id] = add.sums
            kind: Kind = "build" if step == "o" or not before.version else "append"
            log.commit(kind, add, before.version, removed, job_by_hand() if kind == "build" else None)
            newest = log.newest()
            names = [source["name"] for source in job_by_hand()["sources"]]
            expected = add_sums([sums[each.id] for each in newest.increments], names)
            found = newest.manifest()
            assert json.dumps({name: found[name] for name in expected}) == json.dumps(expected)
            assert newest == Log(folder).newest() == Log(folder, before).newest()
    assert all({*each.sums} == {"records", "rows", "tokens", "trained_tokens"} for each in newest.increments)


def test_checkpoints_that_nobody_needs_are_removed_and_old_versions_are_read_from_the_first_entry(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("transforms.catalog.log._COMMITS_IN_CHECKPOINT", 5)
    folder = Folder(str(tmp_path))
    log = Log(folder)
    for number in range(33):
        commit(log, f"{number:03d}", f"{number}.jsonl")
    assert len([*Path(folder.log).glob("*.checkpoint.json")]) == 3
    assert [len(log.snapshot(version).increments) for version in (1, 12, 25, 33)] == [1, 12, 25, 33]
    log.drop_before(12)
    for number in range(33, 60):
        commit(log, f"{number:03d}", f"{number}.jsonl")
    checkpoints = [path.name for path in sorted(Path(folder.log).glob("*.checkpoint.json"))]
    assert len(checkpoints) == 4 and checkpoints[0] == "00000012.checkpoint.json"
    assert [len(log.snapshot(version).increments) for version in (12, 25, 60)] == [12, 25, 60]
    assert [len(kept) for kept in ([*Path(folder.log).glob("*.sums.json")], log.versions())] == [11, 49]


def test_who_has_read_a_snapshot_reads_only_what_came_after_it_unless_it_is_of_another_log(tmp_path, monkeypatch):
    folder, other = Folder(str(tmp_path / "out")), Folder(str(tmp_path / "other"))
    for number in range(6):
        commit(Log(folder), f"a{number}", f"{number}.jsonl")
        commit(Log(other), f"b{number}", f"{number}.jsonl")
    known = Log(folder).snapshot(4)
    read = list[int]()
    of_version = LogFiles._entry
    monkeypatch.setattr(LogFiles, "_entry", lambda files, version: read.append(version) or of_version(files, version))
    log = Log(folder, known)
    assert log.newest() == log.newest() and read == [4, 5, 6, 6]
    assert log.newest() == Log(folder).newest()
    assert ids(Log(other, known).newest()) == [f"b{number}" for number in range(6)]


def test_log_that_lost_an_entry_is_not_read_as_if_it_had_it(tmp_path):
    log = Log(Folder(str(tmp_path)))
    for id in "abc":
        commit(log, id, f"{id}.jsonl")
    entry = tmp_path / "_chatmill" / "log" / "00000002.json"
    content = entry.read_bytes()
    entry.write_bytes(content[:100])
    with pytest.raises(InputError, match=r"00000002\.json: it is damaged"):
        Log(Folder(str(tmp_path))).newest()
    entry.unlink()
    with pytest.raises(InputError, match=r"log: 00000002\.json is missing, and later versions are there"):
        log.newest()


def test_log_that_lost_its_beginning_or_its_end_is_not_read_as_if_it_had_it(tmp_path):
    folder = Folder(str(tmp_path))
    for number in range(3):
        commit_numbers(str(tmp_path), "append" if number else "build", number, number)
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
    without = lose(*(f"0000000{number}.json" for number in (1, 2, 3)))
    assert without.newest() is None and not without.exists()  # a copy without it can be read
    with pytest.raises(Conflict, match="version 3 is gone"):
        commit(without, "d", "d.jsonl", base=3)

    lose().drop_before(2)
    shutil.rmtree(kept)
    shutil.copytree(folder.log, kept)
    with pytest.raises(InputError, match=r"log: 00000001\.json is missing, or the checkpoint of 00000002"):
        lose("00000002.checkpoint.json").versions()
    with pytest.raises(InputError, match=r"log: 00000002\.json is missing, and later versions are there"):
        lose("00000002.json").versions()


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


def test_history_that_was_changed_is_refused_since_each_entry_has_the_hash_of_the_one_before(tmp_path):
    folder = Folder(str(tmp_path / "out"))
    for id in "abcd":
        commit(Log(folder), id, f"{id}.jsonl")
    entries = {number: Path(folder.log, f"{number:08d}.json") for number in range(1, 5)}
    kept = {path: path.read_bytes() for path in entries.values()}

    def refused(by: int, problem: str) -> None:
        with pytest.raises(InputError, match=rf"{by:08d}\.json: it is damaged \({problem}"):
            Log(folder).newest()
        with pytest.raises(InputError, match=rf"{by:08d}\.json: it is damaged"):
            commit(Log(folder), "e", "e.jsonl", base=4)
        for path, content in kept.items():
            path.write_bytes(content)
        assert ids(Log(folder).newest()) == ["a", "b", "c", "d"]

    edit(entries[2], lambda entry: entry["add"]["sums"].update(rows=1))
    refused(3, "it does not follow the version 2")
    entries[1].write_bytes(kept[entries[1]] + b"\n")  # which changes nothing that is read
    refused(2, "it does not follow the version 1")
    for number, other in ((2, 3), (3, 2)):  # exchanged
        entries[number].write_bytes(kept[entries[other]])
        edit(entries[number], lambda entry, number=number: entry.update(version=number))
        edit(entries[number], lambda entry, number=number: entry["add"].update(version=number))
    refused(2, "it does not follow the version 1")
    entries[2].write_bytes(kept[entries[3]])
    refused(2, "it is version 3; expected 2")
    edit(entries[4], lambda entry: entry.update(previous="0" * 64))
    refused(4, "it does not follow the version 3")
    edit(entries[1], lambda entry: entry.update(previous="0" * 64))
    refused(1, "it does not follow the version 0")
    edit(entries[4], lambda entry: entry.update(remove=[id_of("x")]))
    refused(4, "its increments are not those that follow version 3")
    edit(entries[4], lambda entry: entry["add"].update(id=id_of("a")))
    refused(4, "its increments are not those that follow version 3")


def test_entry_of_another_dataset_that_is_planted_is_refused(tmp_path):
    folder, other = Folder(str(tmp_path / "out")), Folder(str(tmp_path / "other"))
    for id in "ab":
        commit(Log(folder), id, f"{id}.jsonl")
    for id in "axy":
        commit(Log(other), id, f"{id}.jsonl")
    shutil.copy(Path(other.log, "00000003.json"), folder.log)
    with pytest.raises(InputError, match=r"00000003\.json: it is damaged \(it does not follow the version 2"):
        Log(folder).newest()


def test_checkpoint_that_is_empty_or_another_one_is_refused(tmp_path):
    folder = Folder(str(tmp_path))
    for id in "abcd":
        commit(Log(folder), id, f"{id}.jsonl")
    planted = Path(folder.log, "00000003.checkpoint.json")
    planted.write_bytes(msgspec.json.encode(Snapshot(3, job=job_by_hand(), total=increment("a").sums)))
    with pytest.raises(InputError, match=r"00000003\.checkpoint\.json: it is damaged \(expected the increments"):
        Log(folder).newest()
    planted.write_bytes(msgspec.json.encode(msgspec.structs.replace(Log(folder).snapshot(2), version=3)))
    with pytest.raises(InputError, match=r"00000004\.json: it is damaged \(it does not follow the version 3"):
        Log(folder).newest()
    planted.unlink()
    Log(folder).drop_before(3)
    assert ids(Log(folder).newest()) == ["a", "b", "c", "d"]


def test_log_that_a_disk_does_not_list_or_read_is_not_an_empty_one(tmp_path, monkeypatch):
    log = Log(Folder(str(tmp_path)))
    commit(log, "a", "a.jsonl")
    folder, scandir = Path(log._folder.log), os.scandir
    (folder / "00000002.json").symlink_to("/proc/self/mem")  # whose first byte gives EIO
    with pytest.raises(StoreError, match=r"00000002\.json: it cannot be read \(Input/output error\)"):
        log.newest()

    def fail(path: str) -> Any:
        if str(path) == str(folder):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    for read in (log.newest, log.versions, log.exists, lambda: commit(log, "b", "b.jsonl")):
        with pytest.raises(StoreError, match=r"log: it cannot be listed \(Input/output error\)"):
            read()
