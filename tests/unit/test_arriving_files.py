"""Files that are still to come: none of them, and nothing about one of them, ends a watch."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from pipeline.cli.options import Options
from pipeline.cli.sources import Source
from pipeline.watching.new_files import find_arriving, input_of
from transforms.base.errors import UserError
from transforms.inputs.listing import list_inputs

RECORD = b'{"messages": []}\n'


def source(*patterns: object, may_repeat: bool = False) -> Source:
    return Source("input", Options(input=tuple(map(str, patterns))), may_repeat=may_repeat, place="a source")


def urls(*sources: Source) -> list[tuple[int, str]]:
    return [(number, Path(url).name) for number, url in find_arriving(sources)]


def test_a_folder_may_be_empty_or_not_there_yet(tmp_path):
    assert urls(source(tmp_path)) == urls(source(tmp_path / "*.jsonl")) == urls(source(tmp_path / "later")) == []


def test_what_is_found_has_the_version_that_a_build_would_store(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(RECORD)
    (tmp_path / "empty.jsonl").touch()
    (found,) = find_arriving([source(tmp_path)]).values()
    assert input_of(found, source(tmp_path)) == (list_inputs(str(tmp_path))[0], None)


def test_a_broken_link_is_left_out(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_bytes(RECORD)
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "gone")
    assert urls(source(tmp_path / "*")) == [(0, "a.jsonl")]
    assert "b.jsonl: it is not a regular file" in caplog.text


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: os.utime(path, ns=(1, 1))])
def test_a_file_that_has_changed_since_is_none(tmp_path, change):
    path = tmp_path / "a.jsonl"
    path.write_bytes(RECORD)
    (found,) = find_arriving([source(path)]).values()
    change(path)
    assert input_of(found, source(path)) == (None, None)


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", b"\0\1\2\3"), ("a.jsonl.gz", gzip.compress(RECORD, mtime=0)[:-9])]
)
def test_a_file_that_cannot_be_read_has_a_problem(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    (found,) = find_arriving([source(path)]).values()
    file, problem = input_of(found, source(path))
    assert (file.url, file.bytes, file.version) == (str(path), len(content), found.version)
    assert str(path) in problem


def test_a_file_of_two_sources_is_refused_unless_it_may_be_read_twice(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(RECORD)
    with pytest.raises(UserError, match=r"a\.jsonl: the source input lists this file, too"):
        urls(source(tmp_path), source(tmp_path))
    assert urls(source(tmp_path), source(tmp_path, may_repeat=True)) == [(0, "a.jsonl"), (1, "a.jsonl")]
