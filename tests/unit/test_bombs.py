"""Bombs: small files that decompress to gigabytes, and records without end, are read in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from transforms import Slice, Split
from transforms.inputs.listing import list_inputs
from transforms.inputs.splits import splits_of
from transforms.model.outcomes import Reject
from transforms.steps.read import read_split
from transforms.storage.compression import decompressed, estimated_size

MEGA = 1 << 20
COMPRESSORS = {
    "gzip": lambda: gzip.zlib.compressobj(1, wbits=31),
    "bz2": lambda: bz2.BZ2Compressor(1),
    "xz": lambda: lzma.LZMACompressor(preset=0),
    "zstd": lambda: zstandard.ZstdCompressor(level=3).compressobj(),
}
each_compression = pytest.mark.parametrize("compression", COMPRESSORS)


def compressed(path: Path, compression: str, pieces: Iterator[bytes]) -> Path:
    """Write a file of one frame with this content."""
    compressor = COMPRESSORS[compression]()
    with path.open("wb") as file:
        for piece in pieces:
            file.write(compressor.compress(piece))
        file.write(compressor.flush())
    return path


def split_of(path: Path, format: str = "jsonl", compression: str | None = None, **bounds: int) -> Split:
    return Split(0, (Slice(str(path), format, compression, **{"start": 0, "stop": path.stat().st_size, **bounds}),))


def in_memory(work: Callable[[], object]) -> int:
    """The most bytes that Python had at once during some work."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def records_of(split: Split, max_record_bytes: int, part_bytes: int = MEGA) -> tuple[int, list[Reject]]:
    """How many records a split has, and its rejects."""
    records, rejects = 0, []
    for part in read_split(split, part_bytes, max_record_bytes):
        records += len(part.records)
        rejects += part.outcomes.rejects
    return records, rejects


@each_compression
@pytest.mark.parametrize(
    ("pieces", "rejected"),
    [([bytes(MEGA)] * 128, 1), ([b"x" * MEGA] * 128, 1), ([b'{"text": "a"}\n' * 10_000] * 20, 0)],
    ids=["zeros", "one line", "small records"],
)
def test_a_compressed_file_of_any_size_is_read_in_constant_memory(tmp_path, compression, pieces, rejected):
    path = compressed(tmp_path / "bomb", compression, iter([*pieces, b'\n{"text": "b"}\n']))
    found = []
    peak = in_memory(lambda: found.extend(records_of(split_of(path, compression=compression), 2 * MEGA)))
    records, rejects = found
    assert records == (1 if rejected else 200_001)
    assert [reject.reason for reject in rejects] == ["too_long"] * rejected
    assert peak < 48 * MEGA


@each_compression
def test_each_read_of_a_compressed_file_is_all_of_its_content(tmp_path, compression):
    content = os.urandom(MEGA) + bytes(40 * MEGA) + b"".join(b"%d," % i for i in range(100_000))
    path = compressed(tmp_path / "mixed", compression, iter([content]))
    path.write_bytes(path.read_bytes() * 2)  # two frames
    with path.open("rb") as raw:
        assert decompressed(raw, compression).read() == content * 2


def test_the_size_of_a_bomb_is_estimated_from_its_start(tmp_path):
    path = compressed(tmp_path / "bomb", "zstd", iter([bytes(MEGA)] * 512))
    sample = path.read_bytes()
    assert in_memory(lambda: estimated_size(sample, len(sample), "zstd")) < 48 * MEGA


def test_a_line_that_is_longer_than_max_record_bytes_is_rejected_at_any_cut(tmp_path):
    lines = [b"a" * 10, b"b" * 11, b"", b"c" * 400, b"d" * 9, b"e" * 12]
    content = b"\n".join(lines)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(content)
    for split_bytes in (1, 7, 50, 500):
        for part_bytes in (1, 30, 1000):
            records, rejects = [], []
            for start in range(0, len(content), split_bytes):
                stop = min(start + split_bytes, len(content))
                for part in read_split(split_of(path, start=start, stop=stop), part_bytes, 10):
                    records += [(record.position, record.raw) for record in part.records]
                    rejects += [(reject.position, reject.reason) for reject in part.outcomes.rejects]
            assert records == [(0, lines[0]), (425, lines[4])]
            assert rejects == [(11, "too_long"), (24, "too_long"), (435, "too_long")]


def test_a_split_reads_no_further_than_its_own_bytes_and_one_record(tmp_path):
    path = tmp_path / "endless.jsonl"
    path.write_bytes(b"x" * (64 * MEGA))
    inside = split_of(path, start=MEGA, stop=2 * MEGA)
    assert in_memory(lambda: records_of(inside, MEGA)) < 8 * MEGA
    [reject] = records_of(split_of(path, start=0, stop=MEGA), MEGA)[1]
    assert reject.record == b"x" * (1 << 16)
    assert reject.detail == "it is longer than 1,048,576 bytes (max_record_bytes), so only its start is kept"


def test_a_long_record_of_any_other_format_is_rejected(tmp_path):
    long = "x" * 5000
    table = pa.table({"text": ["a", long, "b"]})
    (tmp_path / "a.json").write_text(f'[{{"text": "a"}},\n{{"text": "{long}"}},\n{{"text": "b"}}]')
    (tmp_path / "a.csv").write_text(f"text,n\na,1\n{long},2\nb,3\n")
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    for split in splits_of(list_inputs([str(tmp_path)]), MEGA):
        records, rejects = records_of(split, 1000)
        assert records == 2 * len(split.slices)
        assert [(split.origin(reject.position)[1], reject.reason) for reject in rejects] == [(1, "too_long")] * 4


@pytest.mark.parametrize(
    ("content", "outcomes"),
    [
        (b'[{"a": 1},\n {"text": "\\"%s\\""}, {"b": 2}]', [0, (1, "too_long"), 2]),
        (b'{"a": 1}\n{"text": "]} \\"", "b": {"c": ["%s"]}}\n{"b": 2}', [0, (1, "too_long"), 2]),
        (b'[{"a": 1}, %s, {"b": 2}]', [0, (1, "too_long"), 2]),
        (b'{"a": 1}\n%s\n{"b": 2}', [0, (1, "too_long"), 2]),
        (b'{"a": 1}\n%s', [0, (1, "too_long")]),
        (b'{"a": 1}\n{"text": "%s', [0, (1, "cut_short")]),
        (b'[{"a": 1},\n {"text": "%s', [0, (1, "cut_short")]),
    ],
)
def test_a_record_of_json_that_is_too_long_costs_itself_and_what_has_no_end_the_rest_of_the_file(
    tmp_path, content, outcomes
):
    path, found = tmp_path / "long.json", []
    path.write_bytes(content % (b"x" * (16 * MEGA)))
    assert in_memory(lambda: found.append(all_outcomes(split_of(path, "json"), MEGA))) < 16 * MEGA
    assert found == [outcomes]


def all_outcomes(split: Split, max_record_bytes: int) -> list[int | tuple[int, str]]:
    """The positions of the records of a split, and of its rejects with their reasons, in their order."""
    found: dict[int, int | tuple[int, str]] = {}
    for part in read_split(split, MEGA, max_record_bytes):
        found |= {record.position: record.position for record in part.records}
        found |= {reject.position: (reject.position, reject.reason) for reject in part.outcomes.rejects}
        assert all(len(reject.record) <= 1 << 16 for reject in part.outcomes.rejects)
    return [found[position] for position in sorted(found)]


def test_the_end_of_a_long_record_is_found_wherever_the_reads_end(tmp_path, monkeypatch):
    monkeypatch.setattr("transforms.inputs.formats.json._CHUNK", 1)
    record = b'{"a\\"": ["}\\\\", {"]": "\\\\\\""}], "b": "[{,"}'
    for content in (record + b'\n{"b": 2}', b"[" + record + b' , {"b": 2}]', b"[[" + record + b'], {"b": 2}]'):
        (tmp_path / "long.json").write_bytes(content)
        assert all_outcomes(split_of(tmp_path / "long.json", "json"), 10) == [(0, "too_long"), 1]


@pytest.mark.parametrize("header", [b"c," * 100_000, b'"a""b",' * 100_000, b"\n\r\n" + b"," * 100_000])
def test_a_header_of_too_many_columns_is_refused_before_any_is_made(tmp_path, header):
    path = tmp_path / "wide.csv"
    path.write_bytes(header + b"\n" + b"1," * 100_000 + b"\n")
    program = (
        "import resource, sys\n"
        "from transforms.base.errors import InputError\n"
        "from transforms.model.batches import Slice, Split\n"
        "from transforms.steps.read import read_split\n"
        "import pyarrow.csv\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    list(read_split(Split(0, (Slice(sys.argv[1], 'csv', None, 0, 1),)), 1 << 20))\n"
        "except InputError as error:\n"
        "    assert 'the header has more than 1,000 columns' in str(error), error\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 30_000


@pytest.mark.nightly  # it reads 12 GB
@each_compression
def test_gigabytes_in_a_few_kilobytes_need_less_than_300_mb_of_memory(tmp_path, compression):
    gigabytes = {"gzip": 5, "zstd": 5, "bz2": 1, "xz": 1}[compression]
    path = compressed(tmp_path / "bomb", compression, iter([b"x" * MEGA] * (gigabytes << 10)))
    program = (
        "import resource, sys\n"
        "from transforms.model.batches import Slice, Split\n"
        "from transforms.steps.read import PART_BYTES, read_split\n"
        "split = Split(0, (Slice(sys.argv[1], 'jsonl', sys.argv[2], 0, 1),))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "[part] = read_split(split, PART_BYTES)\n"
        "assert [reject.reason for reject in part.outcomes.rejects] == ['too_long']\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path, compression], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 300_000
