"""A folder that cannot be listed ends the run, with its name: it never counts as empty."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from transforms import ParameterError, StoreError
from transforms.inputs.listing import find_files, list_inputs
from transforms.storage.files import exists
from transforms.storage.walking import modified_below, names_below, versions_below
from transforms.storage.writing import write_atomically

RECORD = b'{"text": "a"}\n'
DENIED, BROKEN = OSError(errno.EACCES, "Permission denied"), OSError(errno.EIO, "Input/output error")


class _Entries:
    """What os.scandir returns for a folder of a disk that fails after the first entry."""

    def __init__(self, entries: Iterator[os.DirEntry], error: OSError):
        self._entries, self._error = entries, error

    def __enter__(self) -> Iterator[os.DirEntry]:
        def failing() -> Iterator[os.DirEntry]:
            yield next(self._entries)
            raise self._error

        return failing()

    def __exit__(self, *_: object) -> None:
        self._entries.close()


@pytest.fixture
def fail(monkeypatch) -> Callable[..., None]:
    """Let the disk fail to list a folder: at once, or after its first entry."""

    def install(folder: object, error: OSError, midway: bool = False) -> None:
        scandir = os.scandir

        def listed(path: object = ".") -> object:
            if os.path.realpath(str(path)) != str(folder):
                return scandir(path)
            if midway:
                return _Entries(scandir(path), error)
            raise OSError(error.errno, error.strerror, path)

        monkeypatch.setattr(os, "scandir", listed)

    return install


@pytest.fixture
def corpus(tmp_path):
    for name in ("in/a/one.jsonl", "in/b/two.jsonl", "in/b/deep/three.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(RECORD)
    return tmp_path


@pytest.mark.parametrize("midway", [False, True], ids=["at once", "midway"])
@pytest.mark.parametrize("error", [DENIED, BROKEN], ids=["denied", "broken"])
@pytest.mark.parametrize("pattern", ["in", "in/**/*.jsonl", "in/*/*.jsonl", "in/**", "in/b/*.jsonl", "in/[ab]/t*"])
def test_a_folder_of_inputs_that_cannot_be_listed_is_named(corpus, fail, pattern, error, midway):
    fail(corpus / "in/b", error, midway)
    message = f"input='{corpus}/in/b': it cannot be listed ({error.strerror})."
    for arriving in (False, True):
        with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
            find_files([f"{corpus}/{pattern}"], "input", arriving=arriving)


@pytest.mark.parametrize("pattern", ["in/**/t*", "in/*/t*"])
def test_a_folder_behind_a_link_is_named_as_well(corpus, fail, pattern):
    (corpus / "elsewhere").mkdir()
    (corpus / "in/b/linked").symlink_to(corpus / "elsewhere")
    (corpus / "in/linked").symlink_to(corpus / "elsewhere")
    fail(corpus / "elsewhere", DENIED)
    with pytest.raises(ParameterError, match=r"in/linked': it cannot be listed \(Permission denied\)"):
        find_files([f"{corpus}/{pattern}"], "input")


@pytest.mark.parametrize("pattern", ["in/a*/*.jsonl", "in/a/*.jsonl", "in/*/one.jsonl", "i*/a/*"])
def test_a_folder_that_a_glob_does_not_lead_through_is_not_listed(corpus, fail, pattern):
    fail(corpus / "in/b/deep", DENIED)
    if "/a" in pattern:
        fail(corpus / "in/b", DENIED)
    assert [file.url for file in list_inputs(f"{corpus}/{pattern}")] == [f"{corpus}/in/a/one.jsonl"]


def test_a_link_to_a_folder_above_it_is_no_endless_path(corpus):
    (corpus / "in/a/up").symlink_to(corpus / "in")
    assert len(list_inputs(f"{corpus}/in/**/*.jsonl")) == 3


@pytest.mark.parametrize("listed", [names_below, modified_below, versions_below])
def test_a_folder_of_a_dataset_that_cannot_be_listed_is_named(corpus, fail, listed):
    fail(corpus / "in/b", BROKEN)
    with pytest.raises(StoreError, match=f"^{corpus}/in/b: it cannot be listed \\(Input/output error\\)"):
        listed(f"{corpus}/in")


def test_a_folder_that_does_not_exist_has_no_files(tmp_path):
    (tmp_path / "file").touch()
    for name in ("none", "file/below", "none/below"):
        assert names_below(f"{tmp_path}/{name}") == []
        assert not exists(f"{tmp_path}/{name}")


def test_a_file_that_the_disk_cannot_look_up_is_not_taken_for_missing(tmp_path, monkeypatch):
    def failing(path: object, **_: object) -> object:
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(OSError, match="Input/output error"):
        exists(f"{tmp_path}/job.json")


class _Denying(MemoryFileSystem):
    """A store whose client leaves `find` and `glob` to fsspec, and that refuses to list one folder."""

    protocol = "denying"
    find = AbstractFileSystem.find

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.removeprefix("denying:/"))

    def ls(self, path: str, detail: bool = True, **options: object) -> object:
        if path.rstrip("/").endswith("/secret"):
            raise PermissionError(errno.EACCES, "Access Denied")
        return super().ls(path, detail, **options)


@pytest.mark.parametrize("pattern", ["unlistable", "unlistable/**/*.jsonl", "unlistable/*/*.jsonl"])
def test_a_folder_of_a_store_that_is_refused_is_named(pattern):
    for name in ("a/one.jsonl", "secret/two.jsonl"):
        write_atomically(f"memory://unlistable/{name}", RECORD)
    fsspec.register_implementation("denying", _Denying, clobber=True)
    with pytest.raises(ParameterError, match=r"denying:///unlistable/secret': it cannot be listed \(Access Denied\)"):
        find_files([f"denying://{pattern}"], "input")
    assert [*find_files(["denying://unlistable/a*/*"])] == ["denying:///unlistable/a/one.jsonl"]
