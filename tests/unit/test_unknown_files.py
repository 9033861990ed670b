"""Files that hold no records are reported before the work, in one line: which file, and what it looks like."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import InputError, ParameterError
from transforms.inputs.listing import list_inputs
from transforms.inputs.unknown import kind_of_text, unknown_kind

TABLE = pa.table({"text": ["a", "b"] * 50})
LINES = b'{"text": "a"}\n{"text": "b"}\n'
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    return sink.getvalue()


def feather() -> bytes:
    sink = io.BytesIO()
    pyarrow.feather.write_feather(TABLE, sink)
    return sink.getvalue()


def orc() -> bytes:
    sink = io.BytesIO()
    pyarrow.orc.write_table(TABLE, sink)
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


def saved_array() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(3))
    return sink.getvalue()


def database(folder: Path) -> bytes:
    with sqlite3.connect(folder / "db") as connection:
        connection.execute("create table t (a text)")
    connection.close()
    return (folder / "db").read_bytes()


HEADER = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
FILES = {
    "a Git LFS pointer, not the file": POINTER,
    "a zip archive": zipped("a.jsonl"),
    "an Office document. Save its table as CSV": zipped("[Content_Types].xml"),
    "a tar archive": tarred(),
    "gzip. Let its name end in .gz": gzip.compress(LINES),
    "bzip2. Let its name end in .bz2": bz2.compress(LINES),
    "xz. Let its name end in .xz": lzma.compress(LINES),
    "zstd. Let its name end in .zst": zstandard.compress(LINES),
    "Feather of version 1": b"FEA1\0\0\0\0" + bytes(90) + b"FEA1",
    "ORC": orc(),
    "Avro": b"Obj\x01\x04\x14avro.codec\x08null",
    "safetensors": len(HEADER).to_bytes(8, "little") + HEADER + bytes(4),
    "a NumPy array": saved_array(),
    "a Python pickle": pickle.dumps([{"text": "a"}]),
    "an HTML page": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "an XML document": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    "text in UTF-16. Convert it to UTF-8": LINES.decode().encode("utf-16"),
    "UTF-16. Convert": LINES.decode().encode("utf-16-be"),
    "zeros, such as a crash leaves": bytes(5000),
    "binary, of a kind that is not known": b"\x01\x00\x02\x00\x07\x08\x09" * 9,
}
TEXTS = {
    "YAML (it begins with 'messages:')": b"messages:\n  - role: user\n    content: Hi\n",
    "YAML": b"---\n- text: a\n",
    "Markdown (it begins with '# A corpus')": b"# A corpus\n\nOf chats.\n",
    "plain text (it begins with 'Dear all,')": b"Dear all,\n\nthis is not JSON.\n",
    "plain text (it begins with 'It was": b"It was a dark and stormy night; the rain fell in torrents.",
    "CSV (it begins with 'id,text'). Let its name end in .csv, or choose the format csv": b"id,text\n1,a\n2,b\n",
    "TSV": b"id\ttext\n1\ta\n",
    "JSON lines that are not objects": b'"a"\n"b"\n',
    "Python's notation of dicts": b"{'text': 'a'}\n{'text': \"b\"}\n",
    "plain text": b"[2026-01-01] started\n[2026-01-02] stopped\n",
}


def refused(path: Path, content: bytes, format: str = "auto") -> str:
    path.write_bytes(content)
    with pytest.raises(ParameterError) as raised:
        list_inputs([str(path)], format, parameter="input")
    assert (raised.value.parameter, raised.value.value) == ("input", str(path))
    assert "\n" not in raised.value.problem
    return raised.value.problem


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson", "a.parquet", "a.csv", "a"])
@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind_is_refused_with_its_kind(tmp_path, kind, name):
    problem = refused(tmp_path / name, FILES[kind])
    assert kind in problem
    assert problem.endswith("These formats are read: arrow, atif, claude_code, codex, csv, json, jsonl, parquet, tsv.")


def test_a_database_is_refused_with_its_kind(tmp_path):
    assert "an SQLite database" in refused(tmp_path / "a.jsonl", database(tmp_path))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.txt"])
@pytest.mark.parametrize("kind", TEXTS)
def test_text_without_records_is_refused_with_its_kind(tmp_path, kind, name):
    assert f"it looks like {kind}" in refused(tmp_path / name, TEXTS[kind])


def test_the_first_file_of_a_folder_that_is_refused_is_named(tmp_path):
    for name in ("a.jsonl", "c.jsonl"):
        (tmp_path / name).write_bytes(LINES)
    for name in ("b.jsonl", "d.jsonl"):
        (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(ParameterError) as raised:
        list_inputs([str(tmp_path)])
    assert raised.value.value == str(tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", LINES, "it is not csv: it looks like JSON."),
        ("a.tsv", b'\xef\xbb\xbf[\n {"text": "a, b"}]', "it is not tsv: it looks like JSON."),
        (
            "a.csv",
            b"prompt;completion\n1;2\n",
            "it is not csv: the cells of its header are separated by ';'. Convert it",
        ),
        ("a.csv", b'"prompt"\tcompletion\r\n1\t2\n', "separated by '\\t'. Let its name end in .tsv."),
        ("a.tsv", b"prompt,completion\n1,2\n", "separated by ','. Let its name end in .csv."),
    ],
)
def test_a_table_of_which_the_header_contradicts_its_name_is_refused(tmp_path, name, content, problem):
    assert problem in refused(tmp_path / name, content)


@pytest.mark.parametrize(
    "header", [b"text", b"a,b;c", b'"a;b"', b"ORCID,question", b"PAR1,b", b"GGUF,b", b"FEA1", b"[a"]
)
def test_a_table_of_which_the_header_looks_like_another_kind_is_read(tmp_path, header):
    (tmp_path / "a.csv").write_bytes(header + b"\n")
    [file] = list_inputs([str(tmp_path / "a.csv")])
    assert file.format == "csv"


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a"])
def test_parquet_without_its_footer_is_refused(tmp_path, name):
    problem = refused(tmp_path / name, parquet()[:-20])
    assert problem.startswith("it begins like parquet and does not end like it: it is cut short.")


def test_a_table_of_another_format_than_its_name_is_refused(tmp_path):
    assert "it is not parquet: it looks like Arrow. Let its" in refused(tmp_path / "a.parquet", feather())
    assert "it is not arrow: it looks like Parquet. Let its" in refused(tmp_path / "a.arrow", parquet())
    assert "it is not parquet: it looks like jsonl." in refused(tmp_path / "a.parquet", LINES)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl.gz", LINES, "it is not compressed with gzip, as its name says; name it without"),
        ("a.json.zst", gzip.compress(LINES), "it is not compressed with zstd, as its name says; it looks like gzip."),
        ("a.jsonl.gz", POINTER, "; it looks like a Git LFS pointer"),
        ("a.jsonl.gz", gzip.compress(zipped("a")), "it looks like a zip archive"),
        ("a.jsonl.bz2", bz2.compress(b"Dear all,\n"), "it looks like plain text"),
        ("a.txt.gz", gzip.compress(parquet()), "a parquet file that is compressed as a whole cannot be read"),
    ],
    # Compressed content holds the time, and tests have the same names in each process.
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_compressed_file_is_refused_for_its_name_or_its_content(tmp_path, name, content, problem):
    assert problem in refused(tmp_path / name, content)


def test_a_compressed_file_that_is_damaged_at_its_start_is_an_error_that_names_it(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES)[:20])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: the gzip stream is corrupt or cut short"):
        list_inputs([str(tmp_path / "a.jsonl.gz")])


@pytest.mark.parametrize(
    "first",
    [
        *(b"nonsense", b"# a comment", b'{"text": tru}', b"{'text': 'a'}", b"\xff\xfe broken", b"\0\0\0\0\0\0\0\0"),
        *(b'{"text": "zero \0"}', b"version https", b"a,b", b"- a: b", b"[1, 2", b"\x80 and so on", b""),
    ],
)
def test_json_lines_of_which_the_first_is_malformed_are_read(tmp_path, first):
    if first.startswith(b"\xff\xfe"):
        first = first[1:]
    (tmp_path / "a.jsonl").write_bytes(first + b"\n" + LINES)
    [file] = list_inputs([str(tmp_path / "a.jsonl")])
    assert file.format == "jsonl"


def test_a_format_that_is_chosen_is_not_doubted(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"Dear all,\n")
    for format in ("jsonl", "csv", "parquet"):
        [file] = list_inputs([str(tmp_path / "a.txt")], format)
        assert file.format == format
    assert "plain text" in refused(tmp_path / "a.txt", b"Dear all,\n", "json")


objects = st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.lists(st.integers(), max_size=3), max_size=4)


@settings(max_examples=200)
@given(st.lists(objects, min_size=1, max_size=5), st.booleans())
def test_no_json_is_taken_for_another_kind(records, in_array):
    content = json.dumps(records) if in_array else "\n".join(map(json.dumps, records))
    assert unknown_kind(content.encode()) is None
    assert in_array or kind_of_text(content.encode()) is None
