"""Reading: each record is read once and at its position, for any split, compression, layout or damage of its file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transforms import InputError, Slice, Split, StoreError, UserError
from transforms.model.batches import Records
from transforms.model.outcomes import Reject
from transforms.steps.read import read_split
from transforms.storage import retries

THOROUGHLY, BRIEFLY = settings(max_examples=120), settings(max_examples=40)

BOM = b"\xef\xbb\xbf"
NEWLINE = ord("\n")
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    # Without the size in the frame header, as if zstd compresses a pipe.
    "zstd": zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress,
}
each_compression = pytest.mark.parametrize("compression", COMPRESS)

# Newlines, other characters that some libraries treat as newlines (\r, \v, U+0085, U+2028), byte order marks, halves of
# characters, and a line that is longer than most splits.
pieces = st.sampled_from(
    [
        *(b"\n", b"\n", b"\r\n", b"\n\n", b"\r", b" ", b"\t", b"\v", b"\x1c", b"\0", BOM, b"\xe2", b"\x80\xa8"),
        *("é".encode(), "😀".encode(), "\u0085".encode(), "\u2028".encode(), b'{"text": "a"}', b"x" * 40),
    ]
)
contents = st.lists(pieces, max_size=30).map(b"".join) | st.lists(pieces, max_size=30).map(
    lambda some: BOM + b"".join(some)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One folder for all examples of a property; each writes its own files into it."""
    return tmp_path_factory.mktemp("read")


def parts_of(
    path: Path,
    content: bytes,
    format: str,
    compression: str | None = None,
    part_bytes: int = 1 << 20,
    within: tuple[int, int | None] = (0, None),
    **bounds: int,
) -> list[Records]:
    """The parts of a split of a file with this content. bounds: start and stop, if the split is not all of it.

    within: the bytes of the decompressed content that are its share.
    """
    path.write_bytes(content)
    split = Split(
        number=7,
        slices=(
            Slice(url=str(path), format=format, compression=compression, content=within, **whole(content) | bounds),
        ),
    )
    parts = list(read_split(split, part_bytes))
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all(
        part.split == split and part.outcomes.read == len(part.records) + len(part.outcomes.rejects) for part in parts
    )
    return parts


def whole(content: bytes) -> dict[str, int]:
    return {"start": 0, "stop": len(content)}


def records_of(parts: Sequence[Records]) -> list[tuple[int, Any]]:
    """The position and the content of each record."""
    return [(record.position, record.raw) for part in parts for record in part.records]


def rejects_of(parts: Sequence[Records]) -> list[Reject]:
    return [reject for part in parts for reject in part.outcomes.rejects]


def ranges_of(cuts: Sequence[int], size: int) -> list[dict[str, int]]:
    return [{"start": start, "stop": stop} for start, stop in pairwise([0, *sorted(min(c, size) for c in cuts), size])]


def lines_of(content: bytes) -> list[tuple[int, bytes]]:
    """Return each line that is not white space, and the position of its first byte; searched byte by byte."""
    lines = []
    start = 0
    for end in [i for i, byte in enumerate(content) if byte == NEWLINE] + [len(content)]:
        line = content[start:end]
        if start == 0 and line[:3] == BOM:
            line = line[3:]
        while line and line[:1] in b" \t\v\f\r":
            line = line[1:]
        while line and line[-1:] in b" \t\v\f\r":
            line = line[:-1]
        if line:
            lines.append((start, line))
        start = end + 1
    return lines


# JSON lines in byte ranges


@THOROUGHLY
@given(contents, st.lists(st.integers(0, 200), max_size=8))
@example(b"a\n\n\nb", [2, 3, 4])
@example(BOM + b"a\nb", [1, 3, 4, 5])
@example(b"a\n" + b"b" * 100 + b"\nc", [2, 3, 50, 60, 102, 103])
def test_every_cut_of_json_lines_yields_each_line_once_at_its_position(folder, content, cuts):
    parts = [
        part
        for bounds in ranges_of(cuts, len(content))
        for part in parts_of(folder / "a.jsonl", content, "jsonl", **bounds)
    ]
    assert records_of(parts) == lines_of(content)


def test_a_cut_at_any_byte_leaves_each_line_to_the_range_in_which_it_begins(folder):
    content = BOM + '{"a": 1}\r\n\n  \t\n{"a": "é😀"}\n\r\n{"a": 3}'.encode()
    lines = [(0, b'{"a": 1}'), (18, '{"a": "é😀"}'.encode()), (36, b'{"a": 3}')]
    for cut in range(len(content) + 1):
        before, after = (
            records_of(parts_of(folder / "cut.jsonl", content, "jsonl", **bounds))
            for bounds in ranges_of([cut], len(content))
        )
        assert (before, after) == (
            [line for line in lines if line[0] < cut],
            [line for line in lines if line[0] >= cut],
        )


# Compressed streams


@st.composite
def members_of(draw: st.DrawFn, content: bytes) -> list[bytes]:
    """Cut the content at any positions into pieces, some of them empty, and compress each."""
    ranges = ranges_of(draw(st.lists(st.integers(0, len(content)), max_size=3)), len(content))
    return [content[bounds["start"] : bounds["stop"]] for bounds in ranges]


@each_compression
@BRIEFLY
@given(data=st.data(), content=contents, part_bytes=st.integers(1, 80))
def test_a_compressed_file_of_any_members_yields_the_lines_of_its_content_in_bounded_parts(
    folder, compression, data, content, part_bytes
):
    compressed = b"".join(COMPRESS[compression](member) for member in data.draw(members_of(content)))
    parts = parts_of(folder / "a.jsonl.x", compressed, "jsonl", compression, part_bytes)
    assert records_of(parts) == lines_of(content)
    longest = max(len(line) + 1 for line in content.split(b"\n"))
    assert all(extent_of(part) <= part_bytes + longest for part in parts)
    assert len(parts) >= len(content) // (part_bytes + longest)


def shares_of(cuts: list[int]) -> list[tuple[int, int | None]]:
    """The content of each slice of a file that is cut at these positions; the last one goes to its end."""
    edges = [0, *sorted(cuts)]
    return [*zip(edges, [*edges[1:], None], strict=True)]


@each_compression
@BRIEFLY
@given(data=st.data(), content=contents, cuts=st.lists(st.integers(0, 200), max_size=4))
def test_every_cut_of_a_compressed_file_yields_each_line_once_at_its_position(folder, compression, data, content, cuts):
    compressed = b"".join(COMPRESS[compression](member) for member in data.draw(members_of(content)))
    parts = [
        part
        for share in shares_of(cuts)
        for part in parts_of(folder / "cut.jsonl.x", compressed, "jsonl", compression, part_bytes=20, within=share)
    ]
    assert records_of(parts) == lines_of(content)


def test_damage_of_a_compressed_file_is_found_by_the_split_that_reads_there(folder):
    content = b"".join(b'{"text": "%d"}\n' % i for i in range(20_000))
    compressed = gzip.compress(content, mtime=0)[:-20]
    half = len(content) // 2
    shares = shares_of([1000, half])
    found = [parts_of(folder / "damaged.gz", compressed, "jsonl", "gzip", within=share) for share in shares[:2]]
    expected = [line for line in lines_by_split(content) if line[0] < half]
    assert [record for parts in found for record in records_of(parts)] == expected
    with pytest.raises(InputError, match=r"damaged\.gz: the gzip stream is corrupt or cut short"):
        parts_of(folder / "damaged.gz", compressed, "jsonl", "gzip", within=shares[2])


@each_compression
def test_a_compressed_file_larger_than_any_buffer_is_read_whole(folder, compression):
    content = b"".join(b'{"text": "%d %s"}\n' % (i, b"x" * 300) for i in range(8000))  # 2.5 MB
    parts = parts_of(folder / "large", COMPRESS[compression](content), "jsonl", compression, part_bytes=1 << 20)
    assert records_of(parts) == lines_by_split(content)
    assert len(parts) == 3


def lines_by_split(content: bytes) -> list[tuple[int, bytes]]:
    """A faster lines_of, for content without lines of white space."""
    lines = content.splitlines()
    return list(zip(np.cumsum([0, *(len(line) + 1 for line in lines[:-1])]).tolist(), lines, strict=True))


def extent_of(part: Records) -> int:
    """Bytes from the first record to the end of the last."""
    records = part.records
    return records[-1].position + len(records[-1].raw) - records[0].position if records else 0


def test_skippable_zstd_frames_are_skipped(folder):
    # pzstd writes such a frame before each compressed frame.
    skipped = (0x184D2A50).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"skip"
    frames = [skipped + COMPRESS["zstd"](line) for line in (b"a\n", b"b\n")]
    assert records_of(parts_of(folder / "a.zst", b"".join(frames) + skipped, "jsonl", "zstd")) == [(0, b"a"), (2, b"b")]


def test_xz_streams_with_padding_between_them_are_all_read(folder):
    # Zeros in multiples of four are allowed between streams (xz file format 1.2.1, section 2.2).
    padded = COMPRESS["xz"](b"a\n") + bytes(8) + COMPRESS["xz"](b"b\n") + bytes(4)
    assert records_of(parts_of(folder / "a.xz", padded, "jsonl", "xz")) == [(0, b"a"), (2, b"b")]


MEMBERS = [b'{"text": "one"}\n{"text": "two"}\n', b'{"text": "three"}\n{"text": "four"}\n']


@each_compression
def test_a_compressed_file_that_is_cut_short_is_an_error_that_names_it(folder, compression):
    first, last = map(COMPRESS[compression], MEMBERS)
    path = folder / f"cut.{compression}"
    for cut in range(1, len(first + last)):
        if cut != len(first):  # there, the rest is a complete file
            with pytest.raises(InputError, match=path.name):
                parts_of(path, (first + last)[:cut], "jsonl", compression)


@each_compression
def test_damage_to_a_compressed_file_is_an_error_that_names_it_and_never_loses_records_silently(folder, compression):
    first, last = map(COMPRESS[compression], MEMBERS)
    path = folder / f"damaged.{compression}"
    for position in range(len(first + last)):
        damaged = bytearray(first + last)
        damaged[position] ^= 0xFF
        try:
            found = records_of(parts_of(path, bytes(damaged), "jsonl", compression))
        except InputError as error:
            assert path.name in str(error)
        else:  # a byte that does not matter for the content, such as the time in the header of gzip
            assert found == lines_of(b"".join(MEMBERS)), f"byte {position} of {len(damaged)}, {len(first)} in the first"


@each_compression
def test_a_compressed_file_of_zeros_is_an_error_that_names_it(folder, compression):
    # After a crash, such a file can exist: its blocks were allocated but not written.
    with pytest.raises(InputError, match="zeros"):
        parts_of(folder / "zeros", bytes(4096), "jsonl", compression)


# Tables


def chats(rows: int) -> list[dict[str, Any]]:
    """Rows whose tool calls have arguments with different keys; some have no tools, or no content."""
    return [
        {
            "id": i,
            "messages": [
                {"role": "user", "content": f"Where is order K-{i}? 😀"},
                {
                    "role": "assistant",
                    "tool_calls": [{"name": "track", "arguments": {f"order_{i % 3}": f"K-{i}", "nested": {"n": [i]}}}],
                },
                {"role": "assistant", "content": "x" * (i % 7)},
            ],
            **({"tools": [{"name": "track"}]} if i % 2 == 0 else {}),
        }
        for i in range(rows)
    ]


CHATS = pa.Table.from_pylist(chats(300))
SMALL = pa.table({"text": [f"{i}" for i in range(6)]})


def parquet(table: pa.Table, **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def arrow(table: pa.Table, writer: Callable[..., Any], rows_at_once: int = 50) -> bytes:
    sink = io.BytesIO()
    with writer(sink, table.schema) as file:
        for batch in table.to_batches(max_chunksize=rows_at_once):
            file.write_batch(batch)
    return sink.getvalue()


@BRIEFLY
@given(
    rows=st.integers(0, 40),
    rows_in_group=st.integers(1, 20),
    cuts=st.lists(st.floats(0, 1), max_size=6),
    how=st.fixed_dictionaries({"compression": st.sampled_from(["none", "zstd"]), "use_dictionary": st.booleans()}),
)
def test_every_cut_of_a_parquet_file_yields_each_row_once_with_its_number(folder, rows, rows_in_group, cuts, how):
    content = parquet(CHATS.slice(0, rows), row_group_size=rows_in_group, **how)
    ranges = ranges_of([int(cut * len(content)) for cut in cuts], len(content))
    parts = [part for bounds in ranges for part in parts_of(folder / "a.parquet", content, "parquet", **bounds)]
    assert records_of(parts) == list(enumerate(chats(rows)))


def test_a_cut_at_any_byte_leaves_each_row_group_to_one_range(folder):
    content = parquet(SMALL, row_group_size=2, compression="none", use_dictionary=False, write_statistics=False)
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for cut in range(len(content) - footer + 2):
        parts = [
            part
            for bounds in ranges_of([cut], len(content))
            for part in parts_of(folder / "cut.parquet", content, "parquet", **bounds)
        ]
        assert records_of(parts) == [(i, {"text": f"{i}"}) for i in range(6)], f"cut at {cut} of {len(content)}"


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("parquet", parquet(CHATS, row_group_size=290)),
        ("arrow", arrow(CHATS, pa.ipc.new_stream)),
        ("arrow", arrow(CHATS, pa.ipc.new_stream, rows_at_once=1000)),
        ("arrow", arrow(CHATS, pa.ipc.new_file)),
    ],
)
def test_a_table_yields_its_rows_without_nulls_in_bounded_parts(folder, format, content):
    parts = parts_of(folder / "a.table", content, format, part_bytes=1)
    assert records_of(parts) == list(enumerate(chats(300)))
    assert (
        max(len(part.records) for part in parts) <= 128
    )  # the size of a part is checked after each batch of that many rows


@pytest.mark.parametrize("kind", [pa.ipc.new_stream, pa.ipc.new_file])
@BRIEFLY
@given(cuts=st.lists(st.integers(0, 40_000), max_size=5))
def test_every_cut_of_an_arrow_file_yields_each_row_once_at_its_position(folder, kind, cuts):
    content = arrow(CHATS, kind, rows_at_once=7)
    found = [parts_of(folder / "cut.arrow", content, "arrow", within=share) for share in shares_of(cuts)]
    assert [record for parts in found for record in records_of(parts)] == list(enumerate(chats(300)))


def test_slices_of_an_arrow_file_share_its_batches(folder):
    for kind in (pa.ipc.new_stream, pa.ipc.new_file):
        content = arrow(CHATS, kind, rows_at_once=10)
        shares = shares_of([len(content) // 2])
        counts = [len(records_of(parts_of(folder / "a.arrow", content, "arrow", within=share))) for share in shares]
        assert counts == pytest.approx([150, 150], abs=10)


def test_a_part_of_a_table_ends_with_the_rows_that_fill_it(folder):
    table = pa.table({"text": [f"{i:<999}" for i in range(300)]})  # 1,003 bytes with the offset
    content = arrow(table, pa.ipc.new_stream, rows_at_once=10)
    parts = parts_of(folder / "parts.arrow", content, "arrow", part_bytes=25_000)
    assert [len(part.records) for part in parts] == [30] * 10


def test_a_dataset_as_save_to_disk_writes_it_yields_its_rows(folder):
    import datasets

    dataset = datasets.Dataset.from_list(chats(30))
    assert records_of(saved(dataset, folder / "saved")) == list(enumerate(chats(30)))


def test_json_columns_of_a_dataset_are_decoded(folder):
    # load_dataset makes such columns of arguments or contents of different types; nulls in them are part of the data.
    import datasets

    if not hasattr(datasets, "Json"):
        pytest.skip("datasets before 5 has no Json")
    rows = [
        {"messages": [{"content": "Hello", "arguments": {"a": 1}}], "tools": [{"name": "track"}]},
        {"messages": [{"content": [{"type": "text", "text": "Hi"}], "arguments": {"a": "one", "b": [None]}}]},
        {"messages": [{"content": "Hello again", "arguments": {"c": None}}, {"content": ""}]},
    ]
    json_column, text = datasets.Json(), datasets.Value("string")
    message = {"content": json_column, "arguments": json_column}
    features = datasets.Features({"messages": datasets.List(message), "tools": datasets.List({"name": text})})
    dataset = datasets.Dataset.from_list(rows, features=features)
    assert records_of(saved(dataset, folder / "saved_json")) == list(enumerate(rows))


@pytest.mark.skipif(not hasattr(pa, "json_"), reason="pyarrow before 19 has no JSON type")
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_json_columns_of_any_writer_are_decoded(folder, format):
    calls = pa.StructArray.from_arrays([pa.array(['{"a": [1, null]}', '"one"']).cast(pa.json_())], ["arguments"])
    table = pa.table({"text": pa.array(["a", '"b"']), "call": calls})
    content = parquet(table) if format == "parquet" else arrow(table, pa.ipc.new_stream)
    assert records_of(parts_of(folder / f"json.{format}", content, format)) == [
        (0, {"text": "a", "call": {"arguments": {"a": [1, None]}}}),
        (1, {"text": '"b"', "call": {"arguments": "one"}}),
    ]


def saved(dataset: Any, path: Path) -> list[Records]:
    import datasets

    datasets.disable_progress_bars()
    dataset.save_to_disk(path)
    [file] = path.glob("*.arrow")
    return parts_of(file, file.read_bytes(), "arrow")


@pytest.mark.parametrize(
    ("format", "content", "every"),
    [
        ("parquet", parquet(SMALL), 5),
        ("arrow", arrow(SMALL, pa.ipc.new_file, rows_at_once=2), 5),
        # Messages of a stream end at multiples of 8 bytes. Without its last 8 bytes, all messages are there.
        ("arrow", arrow(SMALL, pa.ipc.new_stream, rows_at_once=2)[:-8], 8),
    ],
    ids=["parquet", "arrow file", "arrow stream"],
)
def test_a_table_that_is_cut_short_is_an_error_that_names_it(folder, format, content, every):
    for cut in range(every, len(content), every):
        with pytest.raises(InputError, match=r"cut\.table"):
            parts_of(folder / "cut.table", content[:cut], format)
            pytest.fail(f"cut at {cut} of {len(content)}")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no table at all", bytes(100), b"PAR1" + bytes(100) + b"PAR1"])
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_file_that_is_not_a_table_is_an_error_that_names_it(folder, format, content):
    with pytest.raises(InputError, match=r"no\.table"):
        parts_of(folder / "no.table", content, format, start=0, stop=1 << 20)


def test_damage_to_the_pages_of_a_parquet_file_is_an_error_that_names_it_and_never_loses_rows_silently(folder):
    rows = 20
    content = parquet(pa.table({"text": [f"{i}" for i in range(rows)]}))
    found = set()
    for position in range(4, 24):  # the header of the first page; damage to the footer may end the process
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            try:
                parts = parts_of(folder / "damaged.parquet", bytes(damaged), "parquet")
            except InputError as error:
                assert "damaged.parquet" in str(error)
                found.add("an error")
            else:
                assert sum(part.outcomes.read for part in parts) == rows, f"bit {bit} of byte {position}"
    assert found


def test_lists_that_reach_beyond_their_values_are_an_error_that_names_the_file(folder):
    # Otherwise the memory after them would be read as token ids, or the process would crash.
    offsets = pa.py_buffer(np.array([0, 4, 2], np.int32))
    lists = pa.ListArray.from_buffers(pa.list_(pa.int64()), 2, [None, offsets], children=[pa.array([1, 2])])
    table = pa.table({"input_ids": lists, "text": ["a" * 100] * 2})
    with pytest.raises(InputError, match=r"beyond\.arrow"):
        parts_of(folder / "beyond.arrow", arrow(table, pa.ipc.new_stream), "arrow")


LATIN1 = pa.array([b"fine", b"caf\xe9 au lait", b"fine too"], pa.binary())
WITH_LATIN1 = {
    "string": LATIN1.view(pa.string()),
    "large_string": LATIN1.cast(pa.large_binary()).view(pa.large_string()),
    "nested": pa.StructArray.from_arrays([LATIN1.view(pa.string())], ["content"]),
}


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("type", WITH_LATIN1)
def test_a_row_that_is_not_utf8_costs_only_itself_and_its_bytes_are_kept(folder, type, format):
    table = pa.table({"text": WITH_LATIN1[type]})
    content = parquet(table) if format == "parquet" else arrow(table, pa.ipc.new_stream)
    parts = parts_of(folder / f"latin1.{format}", content, format)
    fine = {"content": "fine"} if type == "nested" else "fine"
    assert [position for position, _ in records_of(parts)] == [0, 2]
    assert records_of(parts)[0] == (0, {"text": fine})
    [reject] = rejects_of(parts)
    assert (reject.position, reject.reason) == (1, "invalid_unicode")
    assert b"caf" in reject.record and b" au lait" in reject.record


@pytest.mark.parametrize(
    "values",
    [pa.array([0, -(10**18)], pa.timestamp("us")), pa.array([0, 10**9], pa.date32())],
    ids=["timestamp", "date"],
)
def test_a_value_that_python_cannot_represent_costs_only_its_row(folder, values):
    parts = parts_of(folder / "late.parquet", parquet(pa.table({"text": ["a", "b"], "at": values})), "parquet")
    assert [raw["text"] for _, raw in records_of(parts)] == ["a"]
    [reject] = rejects_of(parts)
    assert reject.position == 1


def test_timestamps_with_an_unknown_time_zone_cost_their_rows_and_not_the_run(folder):
    # A container image without tzdata has no time zones.
    values = pa.array([0, None], pa.timestamp("us", tz="Nowhere/Atlantis"))
    parts = parts_of(folder / "zone.parquet", parquet(pa.table({"text": ["a", "b"], "at": values})), "parquet")
    assert records_of(parts) == [(1, {"text": "b"})]
    assert [reject.position for reject in rejects_of(parts)] == [0]


def test_a_table_of_rejects_alone_has_a_part_that_contains_them(folder):
    table = pa.table({"text": WITH_LATIN1["string"].slice(1, 1)})
    parts = parts_of(folder / "rejects.parquet", parquet(table), "parquet")
    assert (records_of(parts), len(rejects_of(parts))) == ([], 1)


# A split


@pytest.mark.parametrize(
    ("format", "compression", "content", "bounds"),
    [
        ("jsonl", None, b'{"text": "longer than its split"}', {"start": 4, "stop": 8}),
        ("jsonl", None, b'{"text": "a"}\n', {"start": 3, "stop": 3}),
        ("jsonl", None, b"\n \r\n\t\n", {}),
        ("jsonl", "gzip", gzip.compress(b"", mtime=0), {}),
        ("jsonl", "zstd", COMPRESS["zstd"](b""), {}),
        ("json", None, b"[]", {}),
        ("parquet", None, parquet(CHATS), {"start": 0, "stop": 4}),
        ("parquet", None, parquet(CHATS.slice(0, 0)), {}),
        ("arrow", None, arrow(CHATS.slice(0, 0), pa.ipc.new_stream), {}),
        ("arrow", None, arrow(CHATS.slice(0, 0), pa.ipc.new_file), {}),
    ],
)
def test_a_split_in_which_no_record_begins_has_one_empty_part(folder, format, compression, content, bounds):
    [part] = parts_of(folder / "empty", content, format, compression, **bounds)
    assert (part.records, part.part, part.last, part.outcomes.read) == ([], 0, True, 0)


def test_a_file_that_no_longer_exists_is_an_error_that_names_it(folder):
    with pytest.raises(UserError, match="no longer exists"):
        list(read_split(Split(0, (Slice(str(folder / "gone.jsonl"), "jsonl", None, 0, 10),)), 100))


@pytest.mark.parametrize("error", [OSError("the disk is on fire"), TimeoutError()], ids=repr)
def test_a_store_that_fails_is_an_error_that_names_the_file(monkeypatch, error):
    # fsspec's FSTimeoutError is a TimeoutError without a message.
    def fail(*arguments: Any) -> None:
        raise error

    MemoryFileSystem().pipe_file("/far/away.jsonl", b"{}\n")
    monkeypatch.setattr(MemoryFile, "read", fail)
    monkeypatch.setattr(retries._RETRYING, "sleep", lambda seconds: None)
    with pytest.raises(StoreError, match=r"memory://far/away\.jsonl: it cannot be read \((the disk|TimeoutError)"):
        list(read_split(Split(0, (Slice("memory://far/away.jsonl", "jsonl", None, 0, 3),)), 100))


@THOROUGHLY
@given(data=st.data(), content=contents, part_bytes=st.integers(1, 80))
def test_a_range_of_json_lines_is_the_same_in_parts_of_any_size(folder, data, content, part_bytes):
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, len(content)))
    bounds = {"start": start, "stop": stop}
    [at_once] = parts_of(folder / "at_once.jsonl", content, "jsonl", **bounds)
    parts = parts_of(folder / "parts.jsonl", content, "jsonl", part_bytes=part_bytes, **bounds)
    assert [record for part in parts for record in part.records] == at_once.records


def test_several_files_are_read_as_one_split_whose_positions_lead_to_each_file(folder):
    contents = {
        "a.jsonl": (b'{"a": 1}\n\n{"a": 2}', "jsonl", None),
        "b.csv": (b"a,b\n1,2\n3\n5,6\n", "csv", None),
        "c.jsonl.gz": (gzip.compress(b'{"c": 1}\n{"c": 2}\n'), "jsonl", "gzip"),
        "d.json": (b'[{"d": 1}, {"d": 2}]', "json", None),
    }
    for name, (content, _, _) in contents.items():
        (folder / name).write_bytes(content)
    split = Split(
        3,
        tuple(
            Slice(str(folder / name), format, compression, 0, len(content))
            for name, (content, format, compression) in contents.items()
        ),
    )
    [whole_split] = read_split(split, 1 << 20)
    assert [(Path(piece.url).name, position) for piece, position in map(split.origin, positions_of(whole_split))] == [
        ("a.jsonl", 0), ("a.jsonl", 10), ("b.csv", 0), ("b.csv", 2), ("c.jsonl.gz", 0), ("c.jsonl.gz", 9),
        ("d.json", 0), ("d.json", 1),
    ]  # fmt: skip
    [reject] = whole_split.outcomes.rejects
    assert (Path(split.origin(reject.position)[0].url).name, split.origin(reject.position)[1]) == ("b.csv", 1)
    parts = list(read_split(split, 9))
    assert len(parts) > 2
    assert [record for part in parts for record in part.records] == whole_split.records


def positions_of(part: Records) -> list[int]:
    return [record.position for record in part.records]
