"""The lock of a dataset, where the disk is odd. That a second build is refused or waits is in tests/integration."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from support.datasets import read_manifest, write_jsonl
from support.paths import TOKENIZER


@pytest.fixture
def command(tmp_path: Path) -> list[Any]:
    corpus = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
    return ["--input", corpus, "--tokenizer", TOKENIZER, "--output", tmp_path / "out", "--direct_num_workers=1"]


@pytest.mark.parametrize("number", [errno.ENOLCK])
def test_a_disk_that_has_no_locks_goes_on_without(build, command, tmp_path, monkeypatch, number):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert build(*command).code == 0 and read_manifest(tmp_path / "out")["rows"] == 1


def test_nothing_is_written_through_a_link_of_that_name(build, command, tmp_path):
    (tmp_path / "out" / "_chatmill").mkdir(parents=True)
    (tmp_path / "precious").write_text("of somebody else")
    (tmp_path / "out" / "_chatmill" / "lock").symlink_to(tmp_path / "precious")
    ended = build(*command)
    assert ended.code == 2 and "it cannot be written" in ended.err and ended.err.count("\n") == 1
    assert (tmp_path / "precious").read_text() == "of somebody else"
