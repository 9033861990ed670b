"""Which files are read: found by name or content, or refused before the work, in one line that says what they are."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import pickle
import random
import re
import sqlite3
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pytest
import zstandard
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from support.contents import COMPRESS, parquet
from support.drawn import examples
from support.paths import ROOT, TOKENIZER
from support.reading import list_paths, list_urls, listed, order_of_tasks
from transforms import InputError, ParameterError

MEGA = 1 << 20
TABLE = pa.table({"text": ["a", "b"] * 50})
LINES = b'{"text": "a"}\n{"text": "b"}\n'
RECORD = b'{"text": "a"}\n'
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def written(write: Callable[..., object], *content: Any) -> bytes:
    """What a function writes into a file."""
    sink = io.BytesIO()
    write(*content, sink)
    return sink.getvalue()


def zipped(name: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(name, LINES)
    return sink.getvalue()


def tarred() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        entry = tarfile.TarInfo("a.jsonl")
        entry.size = len(LINES)
        archive.addfile(entry, io.BytesIO(LINES))
    return sink.getvalue()


def database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(path := Path(folder, "db"))
        connection.execute("create table t (a text)")
        connection.close()
        return path.read_bytes()


PARQUET, FEATHER = parquet(TABLE), written(pyarrow.feather.write_feather, TABLE)
HEADER = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
FILES = {
    "a Git LFS pointer, not the file": POINTER,
    "a zip archive, or an Office document": zipped("a.jsonl"),
    "a tar archive": tarred(),
    "gzip. Let its name end in .gz": gzip.compress(LINES),
    "bz2. Let its name end in .bz2": bz2.compress(LINES),
    "xz. Let its name end in .xz": lzma.compress(LINES),
    "zstd. Let its name end in .zst": zstandard.compress(LINES),
    "an HTML or XML page": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "page, such as an error. Download": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    "text in UTF-16. Convert it to UTF-8": LINES.decode().encode("utf-16"),
    "UTF-16. Convert": LINES.decode().encode("utf-16-be"),
}
BINARY = {
    "zeros": bytes(5000),
    "ORC": written(pyarrow.orc.write_table, TABLE),
    "Avro": b"Obj\x01\x04\x14avro.codec\x08null\0",
    "safetensors": len(HEADER).to_bytes(8, "little") + HEADER + bytes(4),
    "a NumPy array": written(lambda array, sink: np.save(sink, array), np.arange(3)),
    "a Python pickle": pickle.dumps([{"text": "a"}]),
    "an SQLite database": database(),
}


def refused(path: Path, content: bytes, format: str = "auto") -> str:
    path.write_bytes(content)
    with pytest.raises(ParameterError) as raised:
        listed(str(path), input_format=format)
    assert (raised.value.parameter, raised.value.value) == ("patterns", str(path))
    assert "\n" not in raised.value.problem
    return raised.value.problem


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson", "a.parquet", "a.csv", "a"])
def test_a_file_of_another_kind_is_refused_with_its_kind(tmp_path, name):
    binary = "binary data (it begins with b'"
    for kind, content in [*FILES.items(), *((binary, content) for content in BINARY.values())]:
        problem = refused(tmp_path / name, content)
        assert kind in problem
        assert problem.endswith("formats are read: arrow, atif, claude_code, codex, csv, json, jsonl, parquet, tsv.")


# A file by its name, what is compressed in it, and its format or a part of the problem. Texts are of Latin-1.
CASES = [json.loads(line) for line in (ROOT / "tests" / "data" / "formats.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("what", dict.fromkeys(case["what"] for case in CASES))
def test_the_format_of_a_file_is_found_or_it_is_refused(tmp_path, what):
    for case in (case for case in CASES if case["what"] == what):
        content = case["content"].replace("<LONG>", "x" * 100_000).encode("latin-1")
        for path in (tmp_path / name for name in case["names"].split()):
            encoded = COMPRESS[f".{case['compress']}"](content) if "compress" in case else content
            if "problem" in case:
                assert case["problem"] in refused(path, encoded)
            else:
                path.write_bytes(encoded)
                assert [file.format for file in listed(str(path))] == [case["format"]], case


CUT = "it begins like parquet and does not end like it: it is cut short."
REFUSED = [
    *((name, PARQUET[:-20], CUT) for name in ("a.parquet", "a.json", "a")),
    ("a.parquet", FEATHER, "it looks like arrow. Give it"),
    ("a.arrow", PARQUET, "it looks like parquet. Give it"),
    ("a.jsonl.gz", gzip.compress(zipped("a")), "it looks like a zip archive"),
    ("a.txt.gz", gzip.compress(PARQUET), "a parquet file that is compressed as a whole cannot be read"),
]


def test_a_file_that_contradicts_its_name_is_refused(tmp_path):
    for name, content, problem in REFUSED:
        assert problem in refused(tmp_path / name, content)


def test_the_first_file_of_a_folder_that_is_refused_is_named(tmp_path):
    for name, content in {"a": LINES, "b": POINTER, "c": LINES, "d": POINTER}.items():
        (tmp_path / f"{name}.jsonl").write_bytes(content)
    with pytest.raises(ParameterError) as raised:
        listed(str(tmp_path))
    assert raised.value.value == str(tmp_path / "b.jsonl")


def test_a_compressed_file_that_is_damaged_at_its_start_is_an_error_that_names_it(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES)[:20])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: the gzip stream is corrupt or cut short"):
        listed(str(tmp_path / "a.jsonl.gz"))


def test_a_format_that_is_chosen_is_not_doubted(tmp_path):
    for name in ("a.txt", "a.parquet"):
        (tmp_path / name).write_bytes(b"Dear all,\n")
        for format in ("jsonl", "csv", "parquet"):
            assert [file.format for file in listed(str(tmp_path / name), input_format=format)] == [format]
    assert "text without JSON objects" in refused(tmp_path / "a.txt", b"Dear all,\n", "json")


objects = st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.lists(st.integers(), max_size=3), max_size=4)


@examples(50)
@given(st.lists(objects, min_size=1, max_size=5), st.sampled_from(["a", "a.jsonl", "a.json"]), st.booleans())
def test_no_json_is_taken_for_another_kind(tmp_path_factory, records, name, in_array):
    path = tmp_path_factory.mktemp("json") / name
    path.write_text(json.dumps(records) if in_array else "\n".join(map(json.dumps, records)))
    [file] = listed(str(path))
    assert file.format in ("json", "jsonl")


def test_other_files_of_a_folder_are_not_read_and_logged(tmp_path, caplog):
    (tmp_path / "below").mkdir()
    records = ["a.jsonl", "below/b.json.gz"]
    for name in [*records, ".hidden.csv", "_part.csv", "dataset_infos.json", "c.md", "below/d", "e.zip"]:
        (tmp_path / name).write_bytes(gzip.compress(b"[]", mtime=0) if name.endswith(".gz") else b"{}")
    assert list_paths(tmp_path) == records
    assert "are not read (3): below/d, c.md, e.zip. To" in caplog.text
    caplog.clear()
    assert len(list_urls(tmp_path / "a.jsonl")) == 1 and caplog.text == ""


def test_link_to_a_file_is_read_and_one_to_a_folder_is_refused(tmp_path):
    (tmp_path / "blob").write_bytes(RECORD)
    (tmp_path / "in" / "real").mkdir(parents=True)
    (tmp_path / "in" / "real" / "a.jsonl").write_bytes(RECORD)
    (tmp_path / "in" / "b.jsonl").symlink_to("../blob")
    patterns = [str(tmp_path / "in"), str(tmp_path / "in" / "**" / "*.jsonl")]
    for pattern in patterns:
        found = {file.url.removeprefix(f"{tmp_path}/"): file.bytes for file in listed(pattern)}
        assert found == {"in/b.jsonl": 14, "in/real/a.jsonl": 14}
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "in" / "real")
    for pattern in patterns:
        with pytest.raises(ParameterError, match=r"in/linked': it is a link to a folder, which is not followed\. Name"):
            listed(pattern)
    assert len(list_urls(tmp_path / "in" / "linked")) == len(list_urls(tmp_path / "in" / "*.jsonl")) == 1


# Splits


def test_small_files_that_follow_each_other_are_one_task_and_the_largest_come_first(tmp_path):
    sources = {"one": {"a": 3, "b": 7, "c": 1, "d": 25, "e": 2}, "two": {"f": 2, "g": 1}}
    for name, size in [pair for files in sources.values() for pair in files.items()]:
        (tmp_path / f"{name}.jsonl").write_bytes(b"x" * size)
    patterns = {source: [f"{tmp_path}/{name}.jsonl" for name in files] for source, files in sources.items()}
    tasks = order_of_tasks(patterns, input_format="jsonl", split_bytes=10)
    files = [("".join(Path(piece.url).stem for piece in task.slices), task.bytes, task.source) for task in tasks]
    assert sorted(zip([task.number for task in tasks], files, strict=True)) == [
        (0, ("ab", 10, 0)), (1, ("cd", 9, 0)), (2, ("d", 8, 0)), (3, ("d", 9, 0)), (4, ("e", 2, 0)), (5, ("fg", 3, 1)),
    ]  # fmt: skip
    assert [size for _, size, _ in files] == sorted([size for _, size, _ in files], reverse=True)
    assert {task.input_bytes for task in tasks} == {41}


def test_a_file_of_many_that_vanishes_while_they_are_looked_at_is_named(tmp_path, monkeypatch):
    for number in range(101):
        (tmp_path / f"{number:03}.jsonl").write_bytes(RECORD)
    gone, stat = str(tmp_path / "099.jsonl"), os.stat

    def stat_of_a_disk(path: object, **options: object) -> os.stat_result:
        if path == gone:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", stat_of_a_disk)
    with pytest.raises(ParameterError, match=f"patterns='{gone}': it cannot be read"):
        listed(str(tmp_path))


@pytest.mark.parametrize("suffix", [*COMPRESS][1:])
def test_how_large_a_compressed_file_is_without_compression_is_estimated(tmp_path, suffix):
    draw = random.Random(1)
    content = b"".join(b'{"text": "%s"}\n' % draw.randbytes(100).hex().encode() for _ in range(3_000))
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](content))
    [file] = listed(str(path))
    assert file.unpacked_bytes == pytest.approx(len(content), rel=0.2)
    path.write_bytes(COMPRESS[suffix](content[:10_000]))
    [file] = listed(str(path))
    assert file.unpacked_bytes == 5 * path.stat().st_size


@pytest.mark.slow
def test_shards_that_need_much_memory_are_warned_of_with_figures(build, tmp_path):
    texts = [random.Random(number).randbytes(1_000).hex().encode() for number in range(330)]  # 330 MiB
    content = b"".join(b'{"text": "%s"}\n' % text + (b" " * 1023 + b"\n") * (1 << 10) for text in texts)
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(content))
    given = [f"--input={tmp_path}/a.jsonl.zst", f"--tokenizer={TOKENIZER}", "--report=none", "--direct_num_workers=1"]
    for number, (option, better) in enumerate(
        {"--shards=1": "--shards 5", f"--split_bytes={512 * MEGA}": f"--split_bytes {64 * MEGA}"}.items()
    ):
        done = build(*given, "--shuffle=global", option, f"--output={tmp_path}/{number}")
        assert done.code == 0
        figures = rf"Those of [23]\d\d\.\d MB of input may need 1\.\d GB; with {better} they need 268\.4 MB\."
        assert re.search(figures, done.err), done.err


# A folder that cannot be listed ends the run, with its name: it never counts as empty.

DENIED, BROKEN = OSError(errno.EACCES, "Permission denied"), OSError(errno.EIO, "Input/output error")


@contextmanager
def _first_entry(entries: Iterator[os.DirEntry], error: OSError) -> Iterator[Iterator[os.DirEntry]]:
    """What os.scandir returns for a folder of a disk that fails after the first entry."""

    def failing() -> Iterator[os.DirEntry]:
        yield next(entries)
        raise error

    yield failing()
    entries.close()  # type: ignore[attr-defined]


@pytest.fixture
def fail(monkeypatch) -> Callable[..., None]:
    """Let the disk fail to list a folder: at once, or after its first entry."""

    def install(folder: object, error: OSError, midway: bool = False) -> None:
        scandir = os.scandir

        def entries(path: object = ".") -> object:
            if os.path.realpath(str(path)) != str(folder):
                return scandir(path)
            if midway:
                return _first_entry(scandir(path), error)
            raise OSError(error.errno, error.strerror, path)

        monkeypatch.setattr(os, "scandir", entries)

    return install


@pytest.fixture
def corpus(tmp_path) -> Path:
    for name in ("in/a/one.jsonl", "in/b/two.jsonl", "in/b/deep/three.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(RECORD)
    return tmp_path


@pytest.mark.parametrize("midway", [False, True], ids=["at once", "midway"])
@pytest.mark.parametrize("error", [DENIED, BROKEN], ids=["denied", "broken"])
@pytest.mark.parametrize("pattern", ["in", "in/**/*.jsonl", "in/*/*.jsonl", "in/**", "in/b/*.jsonl", "in/[ab]/t*"])
def test_a_folder_of_inputs_that_cannot_be_listed_is_named(corpus, fail, pattern, error, midway):
    fail(corpus / "in/b", error, midway)
    message = f"patterns='{corpus}/in/b': it cannot be listed ({error.strerror})."
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        listed(f"{corpus}/{pattern}")


@pytest.mark.parametrize("pattern", ["in/**/t*", "in/*/t*"])
def test_a_folder_behind_a_link_is_named_as_well(corpus, fail, pattern):
    (corpus / "elsewhere").mkdir()
    (corpus / "in/b/linked").symlink_to(corpus / "elsewhere")
    (corpus / "in/linked").symlink_to(corpus / "elsewhere")
    fail(corpus / "elsewhere", DENIED)
    with pytest.raises(ParameterError, match=r"in/linked': it cannot be listed \(Permission denied\)"):
        listed(f"{corpus}/{pattern}")


@pytest.mark.parametrize("pattern", ["in/a*/*.jsonl", "in/a/*.jsonl", "in/*/one.jsonl", "i*/a/*"])
def test_a_folder_that_a_glob_does_not_lead_through_is_not_listed(corpus, fail, pattern):
    fail(corpus / "in/b/deep", DENIED)
    if "/a" in pattern:
        fail(corpus / "in/b", DENIED)
    assert list_urls(f"{corpus}/{pattern}") == [f"{corpus}/in/a/one.jsonl"]


def test_a_link_to_a_folder_above_it_is_no_endless_path(corpus):
    (corpus / "in/a/up").symlink_to(corpus / "in")
    assert len(list_urls(f"{corpus}/in/**/*.jsonl")) == 3


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
        MemoryFileSystem().pipe_file(f"/unlistable/{name}", RECORD)
    fsspec.register_implementation("denying", _Denying, clobber=True)
    with pytest.raises(ParameterError, match=r"denying:///unlistable/secret': it cannot be listed \(Access Denied\)"):
        listed(f"denying://{pattern}")
    assert list_urls("denying://unlistable/a*/*") == ["denying:///unlistable/a/one.jsonl"]
