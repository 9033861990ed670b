"""A builder that is stopped in its commit, replaced by another one meanwhile, and goes on: the log decides."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from support.chats import assistant, user
from support.datasets import write_jsonl
from support.laws import broken_laws
from support.paths import TOKENIZER
from transforms import Dataset, Unavailable
from transforms.audit.verification import verify
from transforms.catalog.budgets import Budgets
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.catalog.snapshot import Snapshot
from transforms.model.receipts import numbers_of, read_receipt
from transforms.publish.derived import is_stale
from transforms.publish.increment_commit import Change, commit_increment
from transforms.storage.files import join
from transforms.storage.walking import names_below

# What changes a disk, or looks at it.
_CALLS = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir")
_COMMITTED, _REFUSED, _FAILED = 0, 3, 4
_MOST_CALLS = 400


@pytest.fixture
def begun(tmp_path, build) -> tuple[Path, list[str]]:
    """A folder with two builds of which all shards and receipts are written, and their ids."""
    folder = tmp_path / "begun"
    folder.mkdir()
    corpus = write_jsonl(
        folder / "corpus.jsonl", [{"messages": [user("Hi"), assistant(f"Hello {i}.")]} for i in range(9)] + [{}]
    )
    for name, packing in (("one", "none"), ("two", "bfd")):
        options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", "--max_length=64", "--max_reject_fraction=0"]
        assert build(*options, f"--packing={packing}", f"--output={folder / name}").code == 1
    ids = [Folder(str(folder / name)).begun()[0] for name in ("one", "two")]
    shutil.copytree(folder / "two", folder / "one", dirs_exist_ok=True)
    return folder / "one", ids


def commit(output: Path, id: str, base: int) -> int:
    """Commit an increment that was planned on a version, in this process. Returns an exit code."""
    folder = Folder(str(output), id)
    urls = [join(folder.receipts, name) for name in names_below(folder.receipts) if numbers_of(name)]
    receipts = [read_receipt(url, id) for url in urls]
    try:
        commit_increment(folder, receipts, Budgets(1.0), "none", Change(base, is_build=True))
    except Unavailable:
        return _REFUSED
    return _COMMITTED


def in_a_child(output: Path, id: str, stop_at: int = 0) -> int:
    """Commit in a process that stops itself before its n-th call that concerns the output. Returns its id."""
    base = (Log(Folder(str(output))).newest() or Snapshot()).version
    if child := os.fork():
        return child
    calls = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal calls
        if event in _CALLS and str(output) in str(arguments[:2]):
            calls += 1
            if calls == stop_at:
                os.kill(os.getpid(), signal.SIGSTOP)

    code = _FAILED
    try:
        sys.addaudithook(count)
        code = commit(output, id, base)
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_a_builder_that_was_paused_anywhere_in_its_commit_never_writes_over_its_successor(begun, tmp_path):
    template, (first, second) = begun
    outcomes = set()
    for stop_at in range(1, _MOST_CALLS):
        output = shutil.copytree(template, tmp_path / str(stop_at))
        paused = in_a_child(output, first, stop_at)
        if os.WIFEXITED(os.waitpid(paused, os.WUNTRACED)[1]):
            break  # it has no more calls
        assert ended(in_a_child(output, second)) == _COMMITTED
        at_the_end = Log(Folder(str(output))).newest()
        os.kill(paused, signal.SIGCONT)
        outcome = ended(paused)
        dataset = Dataset(str(output))
        assert outcome in (_COMMITTED, _REFUSED)
        assert dataset.snapshot == at_the_end
        assert [each.id for each in dataset.snapshot.increments] == [second]
        assert dataset.version == (2 if outcome == _COMMITTED else 1)
        assert not is_stale(dataset.folder, dataset.snapshot)
        assert verify(str(output)).faults == broken_laws(output) == []
        outcomes.add(outcome)
        shutil.rmtree(output)
    assert outcomes == {_COMMITTED, _REFUSED} and 20 < stop_at < _MOST_CALLS - 1
