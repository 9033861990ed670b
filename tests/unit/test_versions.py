"""Inputs that change after the job is planned: each read is held to the planned version, or names the file."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from support.paths import TOKENIZER
from support.reading import File, read

CONTENT = b"".join(json.dumps({"text": f"word {number:03d}"}).encode() + b"\n" for number in range(900))
HAS_CHANGED = "the file has changed since the job was planned"


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
    path.write_bytes(gzip.compress(CONTENT) if path.suffix == ".gz" else CONTENT)
    return path


@pytest.mark.parametrize("change", CHANGES)
def test_each_task_of_a_file_that_changed_after_planning_fails_and_names_it(change, corpus):
    found = read(str(corpus), before=lambda: change(corpus), split_bytes=8000)[corpus.name]
    assert not found.records and len(found.faults) > 1
    assert all(fault.startswith(f"{corpus}: {HAS_CHANGED}") for fault in found.faults)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_a_file_is_read_fails_after_its_last_byte(change, corpus):
    large = CONTENT.replace(b"word", b"word" * 4000)  # it is read in several chunks
    corpus.write_bytes(gzip.compress(large) if corpus.suffix == ".gz" else large)
    found = read(str(corpus), between=lambda: change(corpus), split_bytes=1 << 27)[corpus.name]
    if change is replace:  # the file that was opened is still there, as it was
        assert len(found.records) == 900 and not found.faults
    else:
        assert [fault.startswith(f"{corpus}: {HAS_CHANGED}") for fault in found.faults] == [True]


def test_a_file_that_is_touched_as_it_was_is_read(corpus):
    times = corpus.stat().st_atime_ns, corpus.stat().st_mtime_ns

    def touch() -> None:
        content = corpus.read_bytes()
        truncate(corpus)
        corpus.write_bytes(content)
        os.utime(corpus, ns=times)

    assert len(read(str(corpus), before=touch).pop(corpus.name, File()).records) == 900


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
    corpus.write_bytes(CONTENT)
    formatter.write_text(
        FORMATTER.format(plan=str(output / "_chatmill" / "building" / "*" / "job.json"), corpus=str(corpus))
    )
    options = [f"--input={corpus}", f"--output={output}", f"--formatter={formatter}:change"]
    options += [f"--tokenizer={TOKENIZER}", "--packing=bfd", "--max_length=64", "--split_bytes=5000"]
    for message in (f"{corpus}: {HAS_CHANGED}", f"{corpus} was changed"):
        ended = build(*options)
        assert ended.code == 2 and message in ended.err
        assert ended.err.splitlines()[-1].startswith("chatmill: ") and "Traceback" not in ended.err
