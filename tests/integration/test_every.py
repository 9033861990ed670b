"""Append again and again: files that arrive are in the dataset once, whatever happens to the process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from support.command_line import chatmill
from support.datasets import build_in_process, read_manifest, read_rows, work_in
from support.drawn import AT_LENGTH
from support.forks import kill_before_the_commit
from support.paths import TOKENIZER
from support.processes import end, running_command, wait_until
from transforms import Dataset, UserError

FILES, SECONDS, KILLS = (1_000, 600, 12) if AT_LENGTH else (20, 12, 2)


def lines(name: str, count: int) -> bytes:
    texts = (f"{name}, record {number}" for number in range(count))
    return b"".join(json.dumps({"prompt": text, "completion": text}).encode() + b"\n" for text in texts)


class Dropper:
    """Writes files into a folder at random times within some seconds, each in one of several ways."""

    def __init__(self, folder: Path, files: int, seconds: float, seed: int):
        moments = random.Random(seed)
        self._folder = folder
        self._threads = [
            threading.Timer(moments.uniform(0, seconds), self._drop, (f"{number:04d}.jsonl", number))
            for number in range(files)
        ]

    def __enter__(self) -> Dropper:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def _drop(self, name: str, number: int) -> None:
        path, content = self._folder / name, lines(name, 1 + number % 7)
        if number % 3 == 1:  # slowly, with a pause within a record, and longer than it takes to look
            with path.open("wb") as file:
                for start in range(0, len(content), 40):
                    file.write(content[start : start + 40])
                    file.flush()
                    time.sleep(0.4)
        elif number % 3 == 2:  # late: others that came before it are newer
            path.with_suffix(".part").write_bytes(content)
            os.utime(path.with_suffix(".part"), (1_000_000_000, 1_000_000_000))
            path.with_suffix(".part").rename(path)
        else:
            path.write_bytes(content)


def make_options(folder: Path, output: Path) -> list[str]:
    return [f"--input={folder}/*.jsonl", f"--tokenizer={TOKENIZER}", f"--output={output}"]


def every_second(folder: Path, output: Path, *more: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that appends each second. `log` next to the output has what it prints."""
    command = ["build", "--append", "--every=1", *make_options(folder, output), *more]
    return running_command(*command, log=output.with_name("log"))


def taken_of(output: Path) -> Counter[str]:
    """The names of the files that a dataset has, each as often as it was added; none as long as it is not there."""
    with suppress(UserError):
        increments = Dataset(str(output)).stored_version.increments
        return Counter(Path(file.url).name for each in increments for file in each.inputs)
    return Counter()


def list_increments(output: Path) -> list[str]:
    """The letters of the files of each increment."""
    increments = Dataset(str(output)).stored_version.increments
    return ["".join(Path(file.url).stem for file in each.inputs) for each in increments]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.slow
def test_files_that_arrive_and_are_still_being_written_are_there_once_although_it_is_killed(folder, output, tmp_path):
    moments = random.Random(FILES)
    names = Counter(f"{number:04d}.jsonl" for number in range(FILES))
    with Dropper(folder, FILES, SECONDS, seed=FILES):
        for _ in range(KILLS):
            with every_second(folder, output):
                time.sleep(moments.uniform(0.5, 1.5) * (SECONDS / KILLS))
    last = f"{FILES:04d}.jsonl"
    (folder / last).write_bytes(lines(last, 1 + FILES % 7))  # which this process takes, so that it listens to signals
    with every_second(folder, output, "--json") as process:
        wait_until(lambda: taken_of(output) == names | Counter([last]), process)
        end(process)
    *shown, summary = (tmp_path / "log").read_text().splitlines()
    assert "chatmill: stopping after the current increment" in shown
    assert json.loads(summary)["records"]["read"] == sum(1 + number % 7 for number in range(FILES + 1))

    batch = build_in_process(*make_options(folder, tmp_path / "batch"))
    assert batch.returncode == 0, batch.stderr
    rows = [Counter(json.dumps(row) for row in read_rows(dataset)) for dataset in (output, tmp_path / "batch")]
    assert rows[0] == rows[1] and rows[0].total() == sum(1 + number % 7 for number in range(FILES + 1))


def test_sigterm_ends_it_after_the_increment_that_is_being_built(folder, output):
    with every_second(folder, output) as process:
        (folder / "a.jsonl").write_bytes(lines("a", 20_000))
        wait_until(lambda: [*output.glob("_chatmill/building/*/job.json")], process)
        (folder / "b.jsonl").write_bytes(lines("b", 1))
        end(process)
    assert list_increments(output) == ["a"]
    assert read_manifest(output)["records"]["kept"] == 20_000


def test_an_increment_that_was_begun_is_finished_first_with_its_own_files(folder, output):
    (folder / "b.jsonl").write_bytes(lines("b", 3))
    (folder / "c.jsonl").write_bytes(lines("c", 3))
    kill_before_the_commit("--append", *make_options(folder, output))
    begun = work_in(output).name
    (folder / "a.jsonl").write_bytes(lines("a", 3))
    with every_second(folder, output) as process:
        wait_until(lambda: len(taken_of(output)) == 3, process)
        end(process)
    shown = output.with_name("log").read_text()
    assert "Version 1: 2 files with 6 records were added: 6 rows, " in shown
    assert "Version 2: 1 file with 3 records was added: 3 rows, " in shown
    assert list_increments(output) == ["bc", "a"]
    assert Dataset(str(output)).stored_version.increments[0].id == begun
    assert not (output / "_chatmill/building").exists()


def test_a_run_that_appended_is_done_although_its_last_look_found_nothing(folder, output):
    (folder / "a.jsonl").write_bytes(lines("a", 3))
    with every_second(folder, output, "--json") as process:
        wait_until(lambda: taken_of(output), process)
        time.sleep(2.5)  # for another look
        end(process)
    result = json.loads(output.with_name("log").read_text().splitlines()[-1])
    assert (result["status"], result["appended"]["increments"]) == ("done", 1)


def test_an_increment_that_was_begun_is_not_finished_if_a_file_of_it_changed(folder, output):
    for name in "ab":
        (folder / f"{name}.jsonl").write_bytes(lines(name, 3))
    kill_before_the_commit("--append", *make_options(folder, output))
    (folder / "a.jsonl").write_bytes(lines("changed", 4))
    assert chatmill("build", "--append", *make_options(folder, output)) == 0
    assert taken_of(output).total() == 2 and read_manifest(output)["records"]["kept"] == 7 == len(read_rows(output))


def test_an_append_that_fails_ends_it_with_its_line_and_what_was_committed_stays(folder, output):
    (folder / "a.jsonl").write_bytes(lines("a", 3))
    with every_second(folder, output) as process:
        wait_until(lambda: taken_of(output), process)
        (folder / "b.jsonl").write_bytes(b'{"neither": "a conversation"}\n')
        assert process.wait(60) == 1
    shown = output.with_name("log").read_text()
    assert "\nchatmill: 1 of 1 records were rejected, more than max_reject_fraction 0.01." in shown
    assert f"unknown_schema (1): {folder}/b.jsonl, byte 0: " in shown
    assert list_increments(output) == ["a"]


def test_the_input_may_be_empty_or_not_there_yet(tmp_path, output):
    with every_second(tmp_path / "later", output) as process:
        time.sleep(3)
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "empty.jsonl").touch()
        (tmp_path / "later" / "a.jsonl").write_bytes(lines("a", 1))
        wait_until(lambda: taken_of(output), process)
    assert taken_of(output) == {"a.jsonl": 1}
