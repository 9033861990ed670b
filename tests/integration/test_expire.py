"""Expiry: old versions go, with the files that only they name; nothing goes that another one needs."""

from __future__ import annotations

import os
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path

import datasets
import pytest

from support.command_line import chatmill
from support.datasets import age_work, write_jsonl
from support.increments import grow
from support.killed import changes_of, kill_before
from support.paths import TOKENIZER
from support.tokenizers import save_tokenizer
from transforms import Dataset, UserError
from transforms.catalog import log as log_module
from transforms.catalog.layout import Folder
from transforms.catalog.log import Log
from transforms.upkeep.expiry import Expired, expire

DAY = 86_400.0
OPTIONS = [f"--tokenizer={TOKENIZER}", "--direct_num_workers=1", "--packing=bfd", "--max_length=64"]
FOLDERS = ("data", "rejects", "ledger")


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 is a build, 2 and 3 are appends, 4 is a build of these days, 5 an append: each a day after the last."""
    folder = tmp_path_factory.mktemp("grown")
    built = []
    for day in range(4):
        records = [{"text": f"text {number} of day {day}"} for number in range(5)] + [{"text": 5}]
        write_jsonl(folder / f"day-{day}.jsonl", records)
    for days in ([0], [1], [2], [3], [0, 1, 2]):
        inputs = ",".join(f"{folder}/day-{day}.jsonl" for day in days)
        built.append(folder / f"built-{len(built)}")
        assert (
            chatmill("build", *OPTIONS, "--max_reject_fraction=0.5", f"--input={inputs}", f"--output={built[-1]}") == 0
        )
    output = folder / "out"
    with pytest.MonkeyPatch.context() as patch:
        begun = time.time() - 10 * DAY
        days = iter(range(10))

        def now() -> str:
            return datetime.fromtimestamp(begun + next(days) * DAY, timezone.utc).isoformat(timespec="seconds")

        patch.setattr(log_module, "_now", now)
        grow(output, built[0], "0" * 16)
        grow(output, built[1], "a" * 16)
        grow(output, built[2], "b" * 16)
        assert grow(output, built[4], "d" * 16, replaces=True).version == 4
        grow(output, built[3], "c" * 16)
    return output


@pytest.fixture
def output(grown: Path, tmp_path: Path) -> Path:
    """A copy, whose files are as old as the dataset."""
    output = Path(shutil.copytree(grown, tmp_path / "out"))
    for path in output.rglob("*"):
        os.utime(path, (time.time() - 20 * DAY,) * 2)
    return output


def files_of(output: Path) -> set[str]:
    """The files that a version could name."""
    return {str(path.relative_to(output)) for part in FOLDERS for path in (output / part).rglob("*") if path.is_file()}


def named(output: Path, *versions: int) -> set[str]:
    """The files that versions name."""
    log = Log(Folder(str(output)))
    return {
        path for each in versions for increment in log.snapshot(each).increments for path in increment.files.paths()
    }


def texts(output: Path, version: int) -> list[list[int]]:
    return [ids for *_, batch in Dataset(f"{output}@{version}").rows() for ids in batch["input_ids"].to_pylist()]


# Version 1 is of 10 days ago, version 5 of 6 days ago.
@pytest.mark.parametrize(
    ("days", "keep", "first"),
    [(30, 1, 1), (9.5, 1, 1), (8.5, 1, 2), (7.5, 1, 3), (6.5, 1, 4), (1, 1, 5), (1, 2, 4), (0, 9, 1)],
)
def test_version_is_kept_that_was_the_newest_within_the_time_or_is_among_the_newest(output, days, keep, first):
    rows = {version: texts(output, version) for version in range(1, 6)}
    kept, before = [*range(first, 6)], files_of(output)

    found = expire(str(output), days * DAY, keep)

    assert [entry.version for entry in Log(Folder(str(output))).versions()] == kept
    assert files_of(output) == named(output, *kept) <= before
    assert found == Expired(first - 1, len(before - files_of(output)), first, 5)
    assert {version: texts(output, version) for version in kept} == {version: rows[version] for version in kept}
    for version in kept:
        loaded = datasets.load_dataset(str(output), f"v{version}", split="train", streaming=True)
        assert [row["input_ids"] for row in loaded] == rows[version]
    if first > 1:
        with pytest.raises(UserError, match=f"there is no version {first - 1}"):
            Dataset(f"{output}@{first - 1}")
        assert f"v{first - 1}" not in (output / "README.md").read_text()
        assert expire(str(output), days * DAY, keep) == Expired(0, 0, first, 5)


def test_file_of_a_job_that_no_version_names_goes_if_it_is_old_and_of_no_increment_that_is_being_built(output):
    new, in_work = (output / "data" / f"train-{id * 16}-000000-000.parquet" for id in "ef")
    # Of an append that failed, and was never finished.
    names = dict(zip(FOLDERS, ("train", "rejects", "ledger"), strict=True))
    old = [output / part / f"{name}-{'d' * 16}-000000-000.parquet" for part, name in names.items()]
    # Of an attempt of an increment that is there.
    shard = next((output / "data").glob("train-*"))
    stray = shard.with_name(shard.name.replace("000000-000", "000007-000r"))
    own = output / "data" / "notes.txt"
    for path in (*old, new, in_work, stray, own):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        if path != new:
            os.utime(path, (time.time() - 2 * DAY,) * 2)
    (output / "_chatmill" / "increments" / ("f" * 16)).mkdir(parents=True)
    (output / "_chatmill" / "increments" / ("f" * 16) / "job.json").write_bytes(b"{}")
    named_files = named(output, 5)

    assert expire(str(output), DAY).newest == 5

    assert files_of(output) == named_files | {str(path.relative_to(output)) for path in (new, in_work, own)}


def test_work_of_a_build_goes_when_its_newest_file_is_a_day_old(output):
    work = output / "_chatmill" / "increments" / ("f" * 16)
    (work / "receipts").mkdir(parents=True)
    shard = output / "data" / f"train-{'f' * 16}-000000-000.parquet"
    for path, days in ((work / "job.json", 20), (work / "receipts" / "0000000-00000.json", 0.9), (shard, 20)):
        path.write_bytes(b"{}")
        os.utime(path, (time.time() - days * DAY,) * 2)
    for older_than in (0, 0.5 * DAY):
        expire(str(output), older_than)
        assert work.exists() and shard.exists()
    os.utime(work / "receipts" / "0000000-00000.json", (time.time() - 1.1 * DAY,) * 2)
    expire(str(output), 2 * DAY)
    assert work.exists() and shard.exists()
    expire(str(output), DAY)
    assert not work.exists() and not shard.exists()


def test_dataset_that_did_not_grow_stays_as_it_is(grown):
    built = grown.parent / "built-0"
    before, log = files_of(built), sorted((built / "_chatmill" / "log").iterdir())
    assert expire(str(built), 0) == Expired(0, 0, 1, 1)
    assert files_of(built) == before and sorted((built / "_chatmill" / "log").iterdir()) == log


def test_expire_after_an_overwrite_removes_the_replaced_version_and_attempts_that_were_given_up(tmp_path):
    output, records = tmp_path / "out", [{"text": f"text {number}"} for number in range(5)]

    def build(name: str, *bad: object, **options: object) -> int:
        corpus = write_jsonl(tmp_path / f"{name}.jsonl", [*records, *({"text": each} for each in bad)])
        more = [f"--{option}={value}" for option, value in options.items()]
        return chatmill("build", *OPTIONS, f"--input={corpus}", f"--output={output}", *more)

    assert build("first", 5, max_reject_fraction=0.5) == 0
    assert build("given_up", 5, 6, overwrite="true", max_reject_fraction=0) == 1
    given_up = files_of(output) - named(output, 1)
    assert {name.partition("/")[0] for name in given_up} == {*FOLDERS}
    # It may still be finished.
    assert chatmill("expire", output, "--older_than", "0s") == 0
    assert files_of(output) == named(output, 1) | given_up

    assert build("second", 5, 6, 7, overwrite="true", max_reject_fraction=0.5) == 0

    named_before = named(output, 1)
    assert files_of(output) == named(output, 1, 2) | given_up and not named_before & named(output, 2)
    # It may still be built.
    rows = texts(output, 2)
    assert expire(str(output), 0) == Expired(1, len(named_before), 2, 2)
    assert files_of(output) == named(output, 2) | given_up
    age_work(output)
    assert expire(str(output), 0) == Expired(0, len(given_up), 2, 2)
    assert files_of(output) == named(output, 2)
    assert chatmill("verify", output) == 0 and texts(output, 2) == rows
    with pytest.raises(UserError, match="there is no version 1; it has version 2"):
        Dataset(f"{output}@1")


def test_tokenizers_and_formatters_go_that_no_kept_version_and_no_increment_in_work_has(tmp_path):
    output, corpus = tmp_path / "out", write_jsonl(tmp_path / "corpus.jsonl", [{"text": "one"}, {"text": 2}])
    state = output / "_chatmill"

    def command(number: int, *more: str) -> list[str]:
        formatter = tmp_path / f"formatter_{number}.py"
        formatter.write_text(f"def same(record):\n    return record  # {number}\n")
        tokenizer = save_tokenizer(tmp_path / f"tokenizer-{number}", words=["word"] * number)
        options = [f"--tokenizer={tokenizer}", f"--formatter={formatter}:same", f"--input={corpus}", *more]
        return ["build", *options, f"--output={output}", "--direct_num_workers=1"]

    def stored() -> dict[str, float]:
        """The tokenizers and formatters, and when they were written."""
        return {
            path.name: path.stat().st_mtime
            for part in ("tokenizers", "formatters")
            for path in (state / part).iterdir()
        }

    of: list[set[str]] = []
    for number in (1, 2, 3):
        before = {*stored()} if number > 1 else set()
        budget = f"--max_reject_fraction={0 if number == 3 else 0.5}"
        assert chatmill(*command(number, "--overwrite", budget)) == (number == 3)
        of.append({*stored()} - before)
    assert [len(each) for each in of] == [2, 2, 2]
    own = [state / "tokenizers" / "notes.txt", state / "formatters" / "mine.py"]
    for path in own:
        path.write_bytes(b"")

    assert expire(str(output), DAY) == Expired(0, 0, 1, 2)
    assert {*stored()} == of[0] | of[1] | of[2] | {path.name for path in own}
    removed = expire(str(output), 0)
    assert removed.oldest == removed.newest == 2
    assert {*stored()} == of[1] | of[2] | {path.name for path in own}
    assert chatmill(*command(3, "--max_reject_fraction=0.5")) == 0  # goes on with it
    assert chatmill("expire", output, "--older_than", "0s") == 0
    assert {*stored()} == of[2] | {path.name for path in own} and chatmill("verify", output) == 0


def test_no_tokenizer_goes_while_it_is_not_known_what_an_increment_in_work_has(output):
    (tokenizer,) = (output / "_chatmill" / "tokenizers").iterdir()
    other = Path(shutil.copytree(tokenizer, tokenizer.with_name("0" * 16)))
    for path in other.iterdir():
        os.utime(path, (time.time() - 20 * DAY,) * 2)
    job = output / "_chatmill" / "increments" / ("f" * 16) / "job.json"
    job.parent.mkdir(parents=True)
    job.write_bytes(b"{}")
    expire(str(output), DAY)
    assert other.exists()
    shutil.rmtree(job.parent)
    files = len([*other.iterdir()])
    assert expire(str(output), DAY).files == files and not other.exists() and tokenizer.exists()


@pytest.mark.slow
def test_killed_anywhere_what_it_kept_can_be_read_and_the_same_command_finishes(output, tmp_path):
    command, rows = ("--older_than", "150h", "--keep", "2"), {version: texts(output, version) for version in (4, 5)}
    once = Path(shutil.copytree(output, tmp_path / "once"))
    changes = changes_of("expire", str(once), *command)
    for change in {*range(1, changes, 4), changes}:
        copy = Path(shutil.copytree(output, tmp_path / f"killed-{change}"))
        kill_before(change, "expire", str(copy), *command)
        assert {version: texts(copy, version) for version in rows} == rows
        for entry in Log(Folder(str(copy))).versions()[:-2]:  # none of those is a mixed one
            assert texts(copy, entry.version) == texts(output, entry.version)

        assert chatmill("expire", copy, *command) == 0

        assert files_of(copy) == files_of(once) == named(copy, 4, 5)
        assert {version: texts(copy, version) for version in rows} == rows
        assert [entry.version for entry in Log(Folder(str(copy))).versions()] == [4, 5]
        assert (copy / "README.md").read_bytes() == (once / "README.md").read_bytes()
