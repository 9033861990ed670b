"""Expiry: what it leaves. That no version loses a file that is kept, tests/integration/test_growth.py shows."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from support.command_line import chatmill
from support.datasets import age_work, write_jsonl
from support.paths import TOKENIZER
from support.tokenizers import save_tokenizer
from transforms import Dataset

DAY = 86_400.0
OPTIONS = [f"--tokenizer={TOKENIZER}", "--direct_num_workers=1", "--max_reject_fraction=0.5"]
FOLDERS = ("data", "records")


def read_files(output: Path) -> set[str]:
    """The files that a version could name."""
    return {str(path.relative_to(output)) for part in FOLDERS for path in (output / part).rglob("*") if path.is_file()}


def expire(output: Path, older_than: str) -> None:
    assert chatmill("expire", output, f"--older_than={older_than}") == 0


def age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * DAY,) * 2)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    corpus = write_jsonl(folder / "corpus.jsonl", [*({"text": f"text {number}"} for number in range(5)), {"text": 5}])
    assert chatmill("build", *OPTIONS, f"--input={corpus}", f"--output={folder}/out") == 0
    return folder / "out"


@pytest.fixture
def output(built: Path, tmp_path: Path) -> Path:
    """A dataset, and a build that was begun, whose files are twenty days old."""
    output = Path(shutil.copytree(built, tmp_path / "out"))
    (output / "_chatmill" / "building" / ("f" * 16)).mkdir(parents=True)
    (output / "_chatmill" / "building" / ("f" * 16) / "job.json").write_bytes(b"{}")
    for path in output.rglob("*"):
        age(path, 20)
    return output


def test_file_of_a_job_that_no_version_names_goes_if_it_is_old_and_of_no_increment_that_is_being_built(output):
    age(output / "_chatmill" / "building" / ("f" * 16) / "job.json", 0.5)
    named = read_files(output)
    new, in_work = (output / "data" / f"train-{id * 16}-000000-000.parquet" for id in "ef")
    # Of an append that failed, and was never finished.
    names = dict(zip(FOLDERS, ("train", "records"), strict=True))
    old = [output / part / f"{name}-{'d' * 16}-000000-000.parquet" for part, name in names.items()]
    # Of an attempt of an increment that is there.
    shard = next((output / "data").glob("train-*"))
    stray = shard.with_name(shard.name.replace("000000-000", "000007-000"))
    own = output / "data" / "notes.txt"
    for path in (*old, new, in_work, stray, own):
        path.write_bytes(b"x")
        if path != new:
            age(path, 2)

    expire(output, "1d")

    assert read_files(output) == named | {str(path.relative_to(output)) for path in (new, in_work, own)}


def test_work_of_a_build_goes_when_its_newest_file_is_a_day_old(output):
    work = output / "_chatmill" / "building" / ("f" * 16)
    receipt = work / "receipts" / "0000000-00000.json"
    shard = output / "data" / f"train-{'f' * 16}-000000-000.parquet"
    receipt.parent.mkdir()
    for path, days in ((receipt, 0.9), (shard, 20)):
        path.write_bytes(b"{}")
        age(path, days)
    for older_than in ("0s", "12h"):
        expire(output, older_than)
        assert work.exists() and shard.exists()
    age(receipt, 1.1)
    expire(output, "2d")
    assert work.exists() and shard.exists()
    expire(output, "1d")
    assert not work.exists() and not shard.exists()


def test_tokenizers_and_formatters_go_that_no_kept_version_and_no_increment_in_work_has(tmp_path):
    output, corpus = tmp_path / "out", write_jsonl(tmp_path / "corpus.jsonl", [{"text": "one"}, {"text": 2}])
    state = output / "_chatmill"

    def command(number: int, *more: str) -> list[str]:
        formatter = tmp_path / f"formatter_{number}.py"
        formatter.write_text(f"def same(record):\n    return record  # {number}\n")
        tokenizer = save_tokenizer(tmp_path / f"tokenizer-{number}", words=["word"] * number)
        options = [f"--tokenizer={tokenizer}", f"--formatter={formatter}:same", f"--input={corpus}", *more]
        return ["build", *options, f"--output={output}", "--direct_num_workers=1"]

    def stored() -> set[str]:
        return {path.name for part in ("tokenizers", "formatters") for path in (state / part).iterdir()}

    of: list[set[str]] = []
    for number in (1, 2, 3):
        before = stored() if number > 1 else set()
        budget = f"--max_reject_fraction={0 if number == 3 else 0.5}"
        assert chatmill(*command(number, "--overwrite", budget)) == (number == 3)
        of.append(stored() - before)
    assert [len(each) for each in of] == [2, 2, 2]
    own = [state / "tokenizers" / "notes.txt", state / "formatters" / "mine.py"]
    for path in own:
        path.write_bytes(b"")

    expire(output, "1d")
    assert stored() == of[0] | of[1] | of[2] | {path.name for path in own}
    expire(output, "0s")
    assert Dataset(str(output)).version == 2
    assert stored() == of[1] | of[2] | {path.name for path in own}
    assert chatmill(*command(3, "--max_reject_fraction=0.5")) == 0  # goes on with it
    expire(output, "0s")
    assert stored() == of[2] | {path.name for path in own} and chatmill("verify", output) == 0


def test_tokenizer_of_an_earlier_version_that_is_kept_stays(tmp_path):
    output, corpus = tmp_path / "out", write_jsonl(tmp_path / "corpus.jsonl", [{"text": "one"}])
    for number in (1, 2, 3):
        tokenizer = save_tokenizer(tmp_path / f"tokenizer-{number}", words=["word"] * number)
        options = [f"--tokenizer={tokenizer}", f"--input={corpus}", f"--output={output}", "--direct_num_workers=1"]
        assert chatmill("build", *options, "--overwrite", "--report=none") == 0
    assert chatmill("expire", output, "--older_than=0s", "--keep=2") == 0
    assert len([*(output / "_chatmill" / "tokenizers").iterdir()]) == 2
    assert [chatmill("verify", f"{output}@{version}") for version in (2, 3)] == [0, 0]
    assert not (output / "report.html").exists()  # nor is one written


def test_no_tokenizer_goes_while_it_is_not_known_what_an_increment_in_work_has(output):
    (tokenizer,) = (output / "_chatmill" / "tokenizers").iterdir()
    other = Path(shutil.copytree(tokenizer, tokenizer.with_name("0" * 16)))
    for path in other.iterdir():
        age(path, 20)
    job = output / "_chatmill" / "building" / ("f" * 16) / "job.json"
    age(job, 0.5)
    expire(output, "1d")
    assert other.exists()
    age_work(output)
    expire(output, "1d")
    assert not other.exists() and tokenizer.exists()
