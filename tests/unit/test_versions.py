"""Inputs that change after the job is planned: each read is held to the planned version, or names the file."""

from __future__ import annotations

import gzip
import json
import math
import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from support.paths import TOKENIZER
from transforms import UserError
from transforms.files.listing import list_inputs
from transforms.files.tasks import make_tasks
from transforms.steps.read import read_task
from transforms.storage.versions import check_version, file_version, modification_time


def content(word: str, records: int = 900) -> bytes:
    return b"".join(json.dumps({"text": f"{word} {number:03d}"}).encode() + b"\n" for number in range(records))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def edit(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(file.read(1))


def append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b'{"text": "new"}\n')


CHANGES = (truncate, replace, edit, append)


@pytest.fixture(params=["corpus.jsonl", "corpus.jsonl.gz"])
def corpus(request, tmp_path) -> Path:
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(content("word")) if path.suffix == ".gz" else content("word"))
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_each_task_of_a_file_that_changed_after_planning_fails_and_names_it(change, corpus):
    tasks = [*make_tasks(list_inputs(str(corpus)), 8000)]
    assert len(tasks) > 1
    change(corpus)
    for task in tasks:
        with pytest.raises(UserError, match=f"^{corpus}: the file has changed since the job was planned"):
            next(read_task(task, 1 << 20))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_a_file_is_read_fails_after_its_last_byte(change, corpus):
    chunks = read_task(next(make_tasks(list_inputs(str(corpus)), 1 << 20)), 5000)
    next(chunks)
    change(corpus)
    if change is replace:  # the file that was opened is still there, as it was
        assert [*chunks][-1].last
        return
    with pytest.raises(UserError, match=f"^{corpus}: the file has changed since the job was planned"):
        list(chunks)


def test_a_file_that_is_touched_as_it_was_is_read(corpus):
    [task] = make_tasks(list_inputs(str(corpus)), 1 << 20)
    times = corpus.stat().st_atime_ns, corpus.stat().st_mtime_ns
    truncate(corpus)
    corpus.write_bytes(gzip.compress(content("word")) if corpus.suffix == ".gz" else content("word"))
    os.utime(corpus, ns=times)
    assert sum(len(chunk.records) for chunk in read_task(task, 5000)) == 900


def test_only_what_the_store_said_at_planning_is_compared():
    planned = file_version({"size": 3, "LastModified": "today", "ETag": '"a"'})
    check_version("s3://b/k", planned, {"size": 3, "ETag": '"a"', "generation": 7})
    check_version("s3://b/k", planned, {"size": 3})
    with pytest.raises(UserError, match='its ETag was "a" and is "b"'):
        check_version("s3://b/k", planned, {"size": 3, "ETag": '"b"', "LastModified": "today"})
    with pytest.raises(UserError, match="it had 3 bytes and has 4"):
        check_version("s3://b/k", planned, {"size": 4})


FORMATTER = """
import glob
def change(record):
    if glob.glob({plan!r}):  # not while the job is planned
        with open({corpus!r}, "r+b") as file:
            file.write(b'{{"text": "edited"}}')
    return record
"""


def test_a_build_of_a_file_that_changes_ends_with_one_line_and_is_not_resumed(build, tmp_path):
    corpus, output, formatter = tmp_path / "corpus.jsonl", tmp_path / "out", tmp_path / "formatter.py"
    corpus.write_bytes(content("word"))
    formatter.write_text(
        FORMATTER.format(plan=str(output / "_chatmill" / "building" / "*" / "job.json"), corpus=str(corpus))
    )
    options = [f"--input={corpus}", f"--output={output}", f"--formatter={formatter}:change"]
    options += [f"--tokenizer={TOKENIZER}", "--packing=bfd", "--max_length=64", "--split_bytes=5000"]
    for message in (f"{corpus}: the file has changed since the job was planned", f"{corpus} was changed"):
        ended = build(*options)
        assert ended.code == 2 and message in ended.err
        assert ended.err.splitlines()[-1].startswith("chatmill: ") and "Traceback" not in ended.err


def test_a_file_was_written_when_its_store_says_and_never_if_it_does_not():
    moment = datetime(2026, 11, 22, tzinfo=timezone.utc)
    for entry in (
        {"mtime": moment.timestamp()},  # a disk
        {"LastModified": moment},  # S3
        {"updated": "2026-11-22T00:00:00.000Z"},  # Google
        {"created": moment},  # in memory
    ):
        assert modification_time({"size": 3, **entry}) == moment.timestamp()
    assert modification_time({"size": 3}) == math.inf
