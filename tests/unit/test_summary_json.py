"""The file of --summary_json: it is new, or one that a build wrote, or it is not touched."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from pipeline.cli.summary_json import check_summary_json, write_summary_json
from transforms.base.errors import UserError


@pytest.mark.parametrize("content", ['{"status": "done"}', '{"written_by": "me", "status": "done"}', "text", "[]"])
def test_file_of_something_else_is_not_replaced(tmp_path, content):
    path = tmp_path / "own.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"own\.json: this file exists and is not a summary"):
        check_summary_json({"status": "running"}, str(path), None)
    assert path.read_text() == content


def test_new_file_and_one_of_an_earlier_run_are_written(tmp_path):
    path = tmp_path / "new.json"
    check_summary_json({"status": "running"}, str(path), None)
    write_summary_json({"status": "done"}, str(path))
    assert json.loads(path.read_text()) == {"written_by": "chatmill build", "status": "done"}
    check_summary_json({"status": "running"}, str(path), None)
    assert json.loads(path.read_text())["status"] == "running"


def test_pipe_and_device_are_not_replaced(tmp_path: Path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    for path in (pipe, link, Path("/dev/null")):
        with pytest.raises(UserError, match="is not a regular file"):
            check_summary_json({"status": "running"}, str(path), None)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
