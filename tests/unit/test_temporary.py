"""Temporary files of a run: in one folder, which is removed at its end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipeline.job.temporary import remove_temporary_folder, temporary_folder
from transforms import UserError


@pytest.fixture
def parent(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_files_of_a_run_and_of_its_processes_are_in_one_folder_which_is_removed(parent):
    with pytest.raises(UserError, match="another"), temporary_folder() as folder:
        assert Path(folder).parent == parent
        code = "import tempfile; print(tempfile.mkdtemp())"
        made = subprocess.check_output([sys.executable, "-c", code], text=True).strip()
        assert Path(made).parent == Path(folder) == Path(tempfile.mkdtemp()).parent
        raise UserError("another error")
    assert not list(parent.iterdir())
    assert (os.environ["TMPDIR"], tempfile.gettempdir()) == (str(parent), str(parent))


def test_a_process_that_ends_at_once_removes_its_folder_and_no_other(parent):
    remove_temporary_folder()
    assert parent.is_dir()
    with temporary_folder() as folder:
        remove_temporary_folder()
        assert not Path(folder).exists()
