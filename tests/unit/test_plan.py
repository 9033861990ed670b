"""Which files are read, how they are cut into splits, and the order in which workers get them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random

import msgspec
import pytest
import zstandard

from pipeline.cli.options import RowOptions
from pipeline.job.increment_plan import warn_of_large_shards
from transforms import ParameterError
from transforms.inputs.listing import InputFile, list_inputs
from transforms.inputs.splits import largest_first, splits_of

COMPRESS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_content_size=False).compress,
}
KILO, MEGA = 1 << 10, 1 << 20
CORPORA = {
    "a large file among small ones": [2 * KILO] * 20 + [90 * MEGA] + [3 * KILO] * 20,
    "large and small files in turn": [4 * MEGA, KILO] * 12,
    "the last file is the largest": [*range(50 * KILO, 150 * KILO, KILO), 4 * MEGA],
    "one file": [33 * MEGA],
}


@pytest.mark.parametrize("sizes", CORPORA.values(), ids=CORPORA)
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_no_worker_is_idle_for_longer_than_the_largest_split_takes(sizes, workers):
    files = [InputFile(f"/{i}.jsonl", "jsonl", None, size, "") for i, size in enumerate(sizes)]
    splits = largest_first(splits_of(files, 4 * MEGA))
    largest = max(split.bytes for split in splits)
    # Assigned to the workers in turn, as by Beam's local runner.
    dealt = [sum(split.bytes for split in splits[worker::workers]) for worker in range(workers)]
    assert max(dealt) - min(dealt) <= largest
    # Each split is taken by the first worker that is free.
    busy = [0] * workers
    for split in splits:
        busy[busy.index(min(busy))] += split.bytes
    assert max(busy) - min(busy) <= largest


def test_splits_keep_their_numbers_in_another_order():
    sizes = random.Random(1).choices(range(1, 9 * MEGA), k=50)
    files = [InputFile(f"/{i}.jsonl", "jsonl", None, size, "") for i, size in enumerate(sizes)]
    planned = list(splits_of(files, MEGA))
    assert [split.number for split in planned] == list(range(len(planned)))
    ordered = largest_first(planned)
    assert ordered != planned
    assert sorted(ordered, key=lambda split: split.number) == planned


@pytest.mark.parametrize(
    ("options", "split_bytes", "figures"),
    [
        ({"shuffle": "global", "shards": 2}, 4 * MEGA, ("2.1 GB of input", "need 8.6 GB", "--shards 64", "268.4 MB")),
        ({"dedup": "exact"}, 2048 * MEGA, ("2.1 GB of input", "need 8.6 GB", "--split_bytes 67108864", "268.4 MB")),
        ({"shuffle": "global", "shards": 16}, 4 * MEGA, None),
        ({"shuffle": "global"}, 64 * MEGA, None),
        ({}, 2048 * MEGA, None),
    ],
)
def test_shards_that_need_much_memory_are_warned_of_with_figures(options, split_bytes, figures):
    files = [InputFile(f"/{i}.jsonl.zst", "jsonl", "zstd", MEGA, "", unpacked=1024 * MEGA) for i in range(4)]
    found = "".join(warn_of_large_shards(RowOptions(**options), split_bytes, files))
    assert all(figure in found for figure in figures) if figures else found == ""


def test_small_files_of_a_source_that_follow_each_other_are_one_split():
    sizes = [("a", 3, 0), ("b", 7, 0), ("c", 1, 0), ("d", 25, 0), ("e", 2, 0), ("f", 2, 1), ("g", 1, 1)]
    files = [InputFile(f"/{name}", "jsonl", None, size, "", source) for name, size, source in sizes]
    assert [
        ("".join(piece.url.strip("/") for piece in split.slices), split.bytes, split.source)
        for split in splits_of(files, 10)
    ] == [("ab", 10, 0), ("cd", 9, 0), ("d", 8, 0), ("d", 9, 0), ("e", 2, 0), ("fg", 3, 1)]


def test_each_split_knows_how_large_the_input_is_without_compression():
    files = [InputFile("/a", "jsonl", None, 25, ""), InputFile("/b", "jsonl", "zstd", 3, "", unpacked=17)]
    assert [split.input_bytes for split in splits_of(files, 10)] == [42] * 5


def test_a_split_has_a_limited_number_of_files():
    files = [InputFile(f"/{i}", "jsonl", None, 1, "") for i in range(10_000)]
    assert [len(split.slices) for split in splits_of(files, MEGA)] == [4096, 4096, 1808]


def test_compressed_file_comes_before_a_larger_file_that_is_split():
    files = [
        InputFile("/a.jsonl", "jsonl", None, 4 * MEGA, ""),
        InputFile("/b.csv.gz", "csv", "gzip", MEGA, "", unpacked=5 * MEGA),
    ]
    assert [split.slices[0].url for split in largest_first(splits_of(files, 4 * MEGA))] == ["/b.csv.gz", "/a.jsonl"]


@pytest.mark.parametrize(
    ("format", "compression", "readers"),
    [
        ("jsonl", "zstd", 8), ("jsonl", "gzip", 4), ("jsonl", "xz", 2), ("jsonl", "bz2", 1), ("json", None, 8),
        ("json", "gzip", 4), ("arrow", None, 8), ("csv", None, 1), ("csv", "zstd", 1),
    ],
)  # fmt: skip
def test_a_few_splits_read_a_file_from_its_start_and_the_last_one_to_its_end(format, compression, readers):
    size = 100 * MEGA + 3
    packed, unpacked = (10 * MEGA + 1, size) if compression else (size, 0)
    splits = [*splits_of([InputFile("/a", format, compression, packed, "", unpacked=unpacked)], 4 * MEGA)]
    pieces = [piece for split in splits for piece in split.slices]
    assert len(splits) == len(pieces) == readers
    assert sum(split.bytes for split in splits) == packed
    assert sum(split.unpacked_bytes for split in splits) == size
    edges = [piece.content[0] for piece in pieces]
    assert edges == [size * i // readers for i in range(readers)]
    assert [piece.content[1] for piece in pieces] == [*edges[1:], None]
    # The later slices take longer, since what is before them is read too.
    assert [split.number for split in largest_first(splits)] == [*range(readers)][::-1]
    small = [*splits_of([InputFile("/a", format, compression, packed, "", unpacked=unpacked)], 50 * MEGA)]
    assert len(small) == min(readers, 3)


@pytest.mark.parametrize("compression", ["gzip", "bz2", "xz", "zstd"])
def test_how_large_a_compressed_file_is_without_compression_is_estimated(tmp_path, compression):
    content = b"".join(
        msgspec.json.encode({"text": random.Random(i).randbytes(100).hex()}) + b"\n" for i in range(30_000)
    )
    suffix = {"gzip": "gz", "zstd": "zst"}.get(compression, compression)
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(COMPRESS[compression](content))
    assert path.stat().st_size > 2 * MEGA
    [file] = list_inputs([str(path)])
    assert file.unpacked_bytes == pytest.approx(len(content), rel=0.2)
    path.write_bytes(COMPRESS[compression](content[:10_000]))
    [file] = list_inputs([str(path)])
    assert file.unpacked_bytes == 5 * path.stat().st_size
    path.write_bytes(bytes(512) + COMPRESS[compression](content))  # padding, which is skipped
    [file] = list_inputs([str(path)])
    assert file.unpacked_bytes == pytest.approx(len(content), rel=0.2)


def test_other_files_of_a_folder_are_not_read_and_logged(tmp_path, caplog):
    (tmp_path / "below").mkdir()
    records = ["a.jsonl", "below/b.json.gz"]
    for name in [*records, ".hidden.csv", "_part.csv", "dataset_infos.json", "c.md", "below/d", "e.zip"]:
        (tmp_path / name).write_bytes(gzip.compress(b"[]", mtime=0) if name.endswith(".gz") else b"{}")
    found = list_inputs([str(tmp_path)])
    assert [file.url for file in found] == [str(tmp_path / name) for name in records]
    assert "are not read (3): below/d, c.md, e.zip. To" in caplog.text
    caplog.clear()
    list_inputs([str(tmp_path / "a.jsonl")])
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.jsonl", b"[]", "json"),
        ("a.json", b'\xef\xbb\xbf\n [{"text": "a"}]', "json"),
        ("a.json", b'{"text": "a"}', "jsonl"),
        ("a.JSON.gz", gzip.compress(b"[]", mtime=0), "json"),
        ("a", b"PAR1PAR1", "parquet"),
        ("a.txt", b"ARROW1", "arrow"),
        ("a.bin", b"\xff\xff\xff\xff\x10", "arrow"),
    ],
)
def test_format_is_found_from_the_suffix_or_from_the_first_bytes(tmp_path, name, content, format):
    (tmp_path / name).write_bytes(content)
    [file] = list_inputs(str(tmp_path / name))
    assert file.format == format


def test_chosen_format_overrides_the_suffix(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"{}")
    [file] = list_inputs(str(tmp_path / "a.parquet"), "jsonl")
    assert file.format == "jsonl"


def test_link_to_a_file_is_read_and_one_to_a_folder_is_refused(tmp_path):
    (tmp_path / "blob").write_text('{"text": "b"}\n')
    (tmp_path / "in" / "real").mkdir(parents=True)
    (tmp_path / "in" / "real" / "a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "in" / "b.jsonl").symlink_to("../blob")
    patterns = [str(tmp_path / "in"), str(tmp_path / "in" / "**" / "*.jsonl")]
    for pattern in patterns:
        found = {file.url.removeprefix(f"{tmp_path}/"): file.bytes for file in list_inputs(pattern)}
        assert found == {"in/b.jsonl": 14, "in/real/a.jsonl": 14}
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "in" / "real")
    for pattern in patterns:
        with pytest.raises(ParameterError, match=r"in/linked': it is a link to a folder, which is not followed\. Name"):
            list_inputs(pattern)
    assert len(list_inputs(str(tmp_path / "in" / "linked"))) == len(list_inputs(str(tmp_path / "in" / "*.jsonl"))) == 1
