"""Reading: each record once, in order and at its position, for any format, compression, layout and cuts of its file.

What is expected is what json, csv and pyarrow say of the same content. Of a damaged file, some first records are read,
and then an error names the file.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from support.command_line import chatmill
from support.contents import COMPRESS, arrow, parquet
from support.datasets import read_rejects, read_rows
from support.drawn import AT_LENGTH
from support.paths import TOKENIZER
from support.reading import File, read, read_content, read_each

MEGA = 1 << 20
BOM = b"\xef\xbb\xbf"
SUFFIXES = [suffix for suffix in COMPRESS if suffix]

# What json, csv and pyarrow say

# Newlines, other characters that some libraries treat as newlines (\r, \v, U+0085, U+2028), byte order marks, halves of
# characters, and a line that is longer than most tasks.
PIECES = [
    *(b"\n", b"\n", b"\r\n", b"\n\n", b"\r", b" ", b"\t", b"\v", b"\x1c", b"\0", BOM, b"\xe2", b"\x80\xa8"),
    *("é".encode(), "😀".encode(), "\u0085".encode(), "\u2028".encode(), b'{"text": "a"}', b"x" * 40, b"y" * 300),
]


def read_lines(content: bytes) -> File:
    """Each line that is not white space, and the position of its first byte."""
    file, start = File(), 0
    for line in content.split(b"\n"):
        if text := line.removeprefix(b"" if start else BOM).strip(b" \t\v\f\r"):
            file.records.append((start, text))
        start += len(line) + 1
    return file


Case = tuple[str, bytes, File]


def json_lines(draw: random.Random) -> Iterator[Case]:
    """Files of lines, in compressed members some of which may be empty."""
    for number in range(100):
        content = b"".join([BOM] * (number % 3 == 0) + draw.choices(PIECES, k=draw.randrange(1, 30)))
        suffix = [*COMPRESS][number % 5]
        cuts = sorted(draw.choices(range(len(content) + 1), k=3)) if suffix else []
        members = [content[i:j] for i, j in zip([0, *cuts], [*cuts, len(content)], strict=True)]
        yield f"lines{number}.jsonl{suffix}", b"".join(map(COMPRESS[suffix], members)), read_lines(content)


def tables_of_text(draw: random.Random) -> Iterator[Case]:
    """CSV and TSV: cells stay text, and an empty one is null if it has no quotes."""
    signs = "\",;\t\n\r é😀[]{}0'\\a"
    for number in range(40):
        suffix, columns = f"{draw.choice(['csv', 'tsv'])}{[*COMPRESS][number % 5]}", draw.randrange(1, 5)
        # The writer does not quote "\r" if lines end with "\n" and it quotes only what it must.
        how = draw.choice([{}, {"quoting": csv.QUOTE_ALL}, {"quoting": csv.QUOTE_ALL, "lineterminator": "\n"}])
        cells = ["".join(draw.choices(signs, k=draw.randrange(5))) for _ in range(columns * draw.randrange(1, 9))]
        rows = [cells[at : at + columns] for at in range(0, len(cells), columns)]
        names, text = [f"c{i}" for i in range(columns)], io.StringIO()
        csv.writer(text, delimiter="\t" if suffix[0] == "t" else ",", **how).writerows([names, *rows])
        # A row of one empty cell is written with quotes.
        records = [
            {name: cell for name, cell in zip(names, row, strict=True) if cell or how or columns == 1} for row in rows
        ]
        content = BOM * (number % 3 == 0) + text.getvalue().encode()
        compress = COMPRESS[suffix[3:]]
        yield f"cells{number}.{suffix}", compress(content), File([*enumerate(records)])


def chats(rows: int) -> list[dict[str, Any]]:
    """Rows whose tool calls have arguments with different keys; some have no tools, or no content."""

    def chat(i: int) -> dict[str, Any]:
        call = {"name": "track", "arguments": {f"order_{i % 3}": f"K-{i}", "nested": {"n": [i]}}}
        asked = {"role": "user", "content": f"Where is order K-{i}? 😀"}
        answers = [{"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": "x" * (i % 7)}]
        return {"id": i, "messages": [asked, *answers], **({} if i % 2 else {"tools": [{"name": "track"}]})}

    return [*map(chat, range(rows))]


CHATS = pa.Table.from_pylist(chats(300))
SMALL = pa.table({"text": [f"{i}" for i in range(6)]})
PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False}


def tables(draw: random.Random) -> Iterator[Case]:
    for number in range(12):
        rows = draw.randrange(41) if number else 300
        how = {"compression": draw.choice(["none", "zstd"]), "use_dictionary": draw.choice([False, True])}
        content = parquet(CHATS.slice(0, rows), row_group_size=draw.randrange(1, 21) if number else 290, **how)
        yield f"rows{number}.parquet", content, File([*enumerate(chats(rows))])
        writer = [pa.ipc.new_stream, pa.ipc.new_file][number % 2]
        content = arrow(CHATS.slice(0, rows), writer, draw.randrange(1, 21) if number else 290)
        yield f"rows{number}.arrow", content, File([*enumerate(chats(rows))])
    small = parquet(SMALL, row_group_size=2, write_statistics=False, **PLAIN)
    yield "small.parquet", small, File([(i, {"text": f"{i}"}) for i in range(6)])


@pytest.mark.parametrize("seed", range(10 if AT_LENGTH else 1))
@pytest.mark.parametrize("split_bytes", [1, 7, 40, 300, MEGA])
@pytest.mark.parametrize(("kind", "options"), [
    (json_lines, {"input_format": "jsonl"}), (tables_of_text, {}), (tables, {}),
])  # fmt: skip
def test_each_record_is_read_once_in_order_at_its_position(tmp_path, kind, options, split_bytes, seed):
    expected = {}
    for name, content, file in kind(random.Random(seed)):
        if len(content) <= 800 * split_bytes:  # of each task something is made ready
            (tmp_path / name).write_bytes(content)
            expected[name] = file
    found = read(str(tmp_path), split_bytes=split_bytes, **options)
    assert {name: found[name] for name in expected if found[name] != expected[name]} == {}
    assert found.keys() == expected.keys()


# Damage


def damaged(kind: str) -> Iterator[tuple[bytes, bool]]:
    """Files of one kind with some damage, and whether each may be read: the damage may be where it is no harm."""
    content, first = INTACT[kind]
    # Messages of an Arrow stream end at multiples of 8 bytes. Without its last 8 bytes, all messages are there.
    size = len(content) - 8 * (kind == "stream.arrow")
    every = 8 if kind == "stream.arrow" else max(1, size // 100)
    for cut in range(every, size, every):
        yield content[:cut], cut == first
    # Damage to the footer of Parquet may end the process: here, it is in the header of the first page.
    for position in range(4, 24) if kind == "a.parquet" else range(0, size if first else 0, 2):
        for bit in range(8) if kind == "a.parquet" else [position % 8]:
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            yield bytes(changed), True


MEMBERS = [b'{"text": "one"}\n{"text": "two"}\n', b'{"text": "three"}\n{"text": "four"}\n']
OF_ARRAY = [b'[{"text": "one"},\n {"text": "two"},', b'{"text": "three"}, {"text": "four"}]\n']
# Each with the size of its first member, which is a complete file of lines.
INTACT = {
    name: (b"".join(map(COMPRESS[Path(name).suffix], members)), len(COMPRESS[Path(name).suffix](members[0])))
    for name, members in {**{f"a.jsonl{suffix}": MEMBERS for suffix in SUFFIXES}, "a.json.gz": OF_ARRAY}.items()
} | {
    "a.parquet": (parquet(SMALL), 0),
    "a.arrow": (arrow(SMALL, pa.ipc.new_file, rows_at_once=2), 0),
    "stream.arrow": (arrow(SMALL, pa.ipc.new_stream, rows_at_once=2), 0),
}


@pytest.mark.parametrize("kind", INTACT)
def test_of_a_damaged_file_the_first_records_are_read_and_an_error_names_it(tmp_path, kind):
    options = {"input_format": kind.split(".")[1]}
    intact = read_content(tmp_path / kind, INTACT[kind][0], **options).records
    assert len(intact) in (4, 6)
    harmless = {}
    for number, (content, may_be_read) in enumerate(damaged(kind)):
        (tmp_path / f"{number}-{kind}").write_bytes(content)
        harmless[f"{number}-{kind}"] = may_be_read
    for name, file in read_each([tmp_path / name for name in harmless], **options).items():
        assert file.records == intact[: len(file.records)] and not file.rejects
        if file.faults:
            assert name in file.faults[0] and len(file.faults) == 1
        else:
            assert harmless[name] and len(file.records) in (len(intact), 2)


def as_csv_reads_it(content: bytes) -> File:
    """The rows that the standard library reads, and those that it does not, of which only the positions are right."""
    rows = csv.reader(io.StringIO(content.decode("utf-8", "surrogateescape"), newline=""), strict=True)
    names, found = next(rows), File()
    position = 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return found
        except csv.Error:
            row = ["malformed"]
        if row:
            is_record = len(row) == len(names) and max("".join(row), default="") < "\udc80"
            cells = {name: cell for name, cell in zip(names, row, strict=False) if cell}
            (found.records if is_record else found.rejects).append((position, cells))  # type: ignore[arg-type]
            position += 1


def test_damage_to_a_file_of_lines_or_rows_costs_what_line_breaks_and_csv_say(tmp_path):
    draw = random.Random(7)
    lines = b"".join(b'{"text": "%d \xc3\xa9"}\r\n' % i for i in range(9))
    table = b"id,text\n" + b"".join(b'%d,"a ""%d"", \xc3\xa9"\n' % (i, i) for i in range(9))
    expected = {}
    for number in range(200):
        kind, content = [("jsonl", lines), ("csv", table)][number % 2]
        at = draw.randrange(10, len(content))
        changed = draw.choice([b"", b"x", b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"\xc3"])
        content = content[:at] if number % 5 == 0 else content[:at] + changed + content[at + 1 :]
        (tmp_path / f"{number}.{kind}").write_bytes(content)
        expected[f"{number}.{kind}"] = read_lines(content) if kind == "jsonl" else as_csv_reads_it(content)
    found = read(f"{tmp_path}/*.jsonl", input_format="jsonl") | read(f"{tmp_path}/*.csv", input_format="csv")
    assert found.keys() == expected.keys()
    for name, file in found.items():
        assert file.records == expected[name].records, name
        assert [each[0] for each in file.rejects] == [each[0] for each in expected[name].rejects], name


def test_damage_of_a_compressed_file_is_found_by_the_task_that_reads_there(tmp_path):
    lines = [b'{"text": "%d"}\n' % i for i in range(20_000)]
    found = read_content(tmp_path / "a.jsonl.gz", COMPRESS[".gz"](b"".join(lines))[:-20], split_bytes=70_000)
    [fault] = found.faults
    assert "a.jsonl.gz: the gzip stream is corrupt or cut short" in fault
    assert 9_000 < len(found.records) < 20_000
    assert [raw + b"\n" for _, raw in found.records] == lines[: len(found.records)]


def nested(depth: int) -> pa.Table:
    deep: pa.DataType = pa.int64()
    for _ in range(depth):
        deep = pa.struct([("a", deep)])
    return pa.table({"a": pa.nulls(1, deep)})


def with_moved_row_group() -> bytes:
    """A Parquet file of which the footer says that a row group is outside of it."""
    content = parquet(pa.table({"text": ["a", "b", "c"]}), row_group_size=1)
    metadata = pq.read_metadata(io.BytesIO(content))
    column = metadata.row_group(1).column(0)
    start = len(content) - metadata.serialized_size - 8
    footer = content[start:]
    for offset in (column.dictionary_page_offset, column.data_page_offset):
        varint = bytes((offset * 2 & 127 | 128, offset * 2 >> 7))  # as the footer has it: zigzag
        assert varint in footer
        footer = footer.replace(varint, b"\xfe\x7f")
    return content[:start] + footer


def reaching_beyond(*more: pa.Array) -> bytes:
    """An Arrow file with lists that reach beyond their values: the memory after them would be read as token ids."""
    offsets = pa.py_buffer(np.array([0, 1 << 30, 2], np.int32))
    lists = pa.ListArray.from_buffers(pa.list_(pa.int64()), 2, [None, offsets], children=[pa.array([1, 2])])
    return arrow(pa.table([*more, lists], names=["text", "ids"][-1 - len(more) :]))  # the first error is reported


def no_text() -> pa.Array:
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"\xff\xfe")])


TEXTS = pa.table({"text": [f"this is text {i}" for i in range(100)]})
COLUMN = pa.table({"column": ["a"]}).replace_schema_metadata(None)
WIDE = pa.table({f"c{i}": [1] for i in range(10_001)})
TWICE = pa.table([["first"], ["second"]], names=["text", "text"])
FAULTS = {
    "crc.parquet": (parquet(TEXTS, write_page_checksum=True, **PLAIN).replace(b"t 50", b"t 51", 1), "CRC"),
    "moved.parquet": (with_moved_row_group(), "row group 1 is outside"),
    "wide.parquet": (parquet(WIDE), "more than 10,000 columns"),
    "wide.arrow": (arrow(WIDE), "more than 10,000 columns"),
    "deep.parquet": (parquet(nested(55)), "more than 50 deep"),
    "deep.arrow": (arrow(nested(55)), "more than 50 deep"),
    "name.parquet": (parquet(COLUMN).replace(b"column", b"\xd0olumn"), "codec can't decode"),
    "name.arrow": (arrow(COLUMN).replace(b"column", b"\xd0olumn"), "codec can't decode"),
    "twice.parquet": (parquet(TWICE), "it has the column 'text' twice"),
    "twice.arrow": (arrow(TWICE), "it has the column 'text' twice"),
    "beyond.arrow": (reaching_beyond(), "it cannot be read as arrow"),
    "beyond, and no text.arrow": (reaching_beyond(no_text()), "it cannot be read as arrow"),
    **{f"{len(start)}.parquet": (start + bytes(100), "") for start in (b"PAR1", b"no table at all", b"")},
    **{f"{len(start)}.arrow": (start + bytes(100), "") for start in (b"ARROW1", b"no table at all", b"")},
    # Such as a crash leaves.
    **{f"zeros.jsonl{suffix}": (bytes(4096), "it is not compressed with") for suffix in SUFFIXES},
    "of a tape.jsonl.gz": (COMPRESS[".gz"](b"{}\n") + bytes(512), "the gzip stream is corrupt"),
    "twice.csv": (b"a,b,a\n1,2,3\n", "header has 'a' twice"),
    "header.csv": (b"\xff,b\n1,2\n", "header is not UTF-8"),
    "wide.csv": (b",".join(b"c%d" % i for i in range(1001)) + b"\n", "more than 1,000 columns"),
    "quoted.csv": (b'"a""b",' * 100_000, "more than 1,000 columns"),
    "empty lines.csv": (b"\n\r\n" + b"," * 100_000, "more than 1,000 columns"),
}


def test_a_file_that_cannot_be_read_is_an_error_that_names_it_and_why(tmp_path):
    long = b"a,b\n1,2\n" + b"x" * (70 * MEGA) + b",2\n"
    open_end = b'{\n"a": 1}\n{"a": "' + b"x" * (70 * MEGA)
    faults = {**FAULTS, "long.csv": (long, "a row is longer than 32 MiB")}
    faults["long.json"] = (open_end, "what begins at byte 10 does not end in 67,108,864 bytes")
    for name, (content, _) in faults.items():
        (tmp_path / name).write_bytes(content)
    for name, file in read_each([tmp_path / name for name in faults], split_bytes=1 << 30).items():
        assert len(file.faults) == 1, name
        assert name in (fault := file.faults[0]) and faults[name][1] in fault and "\n" not in fault, fault


def test_a_file_that_no_longer_exists_is_an_error_that_names_it(tmp_path):
    (tmp_path / "gone.jsonl").write_bytes(b"{}\n")
    found = read(str(tmp_path / "gone.jsonl"), before=lambda: (tmp_path / "gone.jsonl").unlink())
    assert "was deleted after the job was planned" in found["gone.jsonl"].faults[0]


# What a record costs

LATIN1 = pa.array([b"fine", b"caf\xe9 au lait", b"fine too"], pa.binary())
OF_LATIN1 = {
    "string": LATIN1.view(pa.string()),
    "large_string": LATIN1.cast(pa.large_binary()).view(pa.large_string()),
    "nested": pa.StructArray.from_arrays([LATIN1.view(pa.string())], ["content"]),
}


@pytest.mark.parametrize("write", [parquet, arrow])
@pytest.mark.parametrize("type", OF_LATIN1)
def test_a_row_that_is_not_utf8_costs_only_itself_and_its_bytes_are_kept(tmp_path, type, write):
    found = read_content(tmp_path / f"a.{write.__name__}", write(pa.table({"text": OF_LATIN1[type]})))
    first, last = ({"content": text} if type == "nested" else text for text in ("fine", "fine too"))
    assert found.records == [(0, {"text": first}), (2, {"text": last})]
    [(position, reason, _, record)] = found.rejects
    assert (position, reason) == (1, "invalid_unicode") and b"caf" in record and b" au lait" in record


def test_a_column_of_tensors_is_read_and_next_to_one_text_that_is_not_utf8_is_an_error(tmp_path):
    pairs = pa.array([[1, 2]] * 3, pa.list_(pa.int32(), 2))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2]), pairs)
    table = pa.table({"text": ["a"] * 3, "tensor": tensors})
    assert read_content(tmp_path / "a.arrow", arrow(table)).records[2] == (2, {"text": "a", "tensor": [1, 2]})
    nested = pa.StructArray.from_arrays([tensors, LATIN1.view(pa.string())], ["tensor", "content"])
    [fault] = read_content(tmp_path / "b.arrow", arrow(pa.table({"text": nested}))).faults
    assert "it cannot be read as arrow" in fault


NOT_IN_PYTHON = {
    "timestamp": pa.array([0, -(10**18)], pa.timestamp("us")),
    "date": pa.array([0, 10**9], pa.date32()),
    "time zone": pa.array([None, 0], pa.timestamp("us", tz="Nowhere/Atlantis")),  # a container image may have none
}


@pytest.mark.parametrize("kind", NOT_IN_PYTHON)
def test_a_value_that_python_cannot_represent_costs_only_its_row(tmp_path, kind):
    content = parquet(pa.table({"text": ["a", "b"], "at": NOT_IN_PYTHON[kind]}))
    found = read_content(tmp_path / "late.parquet", content)
    assert [raw["text"] for _, raw in found.records] == ["a"]
    assert [position for position, _ in found.rejected] == [1]


def test_rows_with_another_number_of_cells_and_rows_that_are_not_utf8_cost_only_themselves(tmp_path):
    rows = [b"1,one", b"2", b"3,three,x", b'4,"a\nb"', b"\xff,5", b"", b'\xff,"6",6', b"7,seven", b"8,\xe9", b'9,"x"y']
    found = read_content(tmp_path / "a.csv", b"\n".join([b"a,b", *rows]) + b"\n")
    assert found.records == [(0, {"a": "1", "b": "one"}), (3, {"a": "4", "b": "a\nb"}), (6, {"a": "7", "b": "seven"})]
    assert [(position, reason, record) for position, reason, _, record in found.rejects] == [
        (1, "bad_row", b"2"),
        (2, "bad_row", b"3,three,x"),
        (4, "invalid_unicode", b"\xff,5"),
        (5, "bad_row", b'\xff,"6",6'),
        (7, "invalid_unicode", b"8,\xe9"),
        (8, "bad_row", b'9,"x"y'),
    ]
    assert found.rejects[1][2] == "it has 3 cells; expected 2, as the header has"
    assert found.rejects[5][2].startswith("it is malformed (',' expected after '\"'); a quote inside")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_table_that_ends_inside_quotes_ends_with_a_reject_of_all_that_they_hold(tmp_path, end):
    found = read_content(tmp_path / "a.csv", b'a,b\n1,one\n2,"tw""o\n3,three\n4,four' + end)
    assert found.records == [(0, {"a": "1", "b": "one"})]
    assert found.rejected == [(1, "cut_short")] and b"4,four" in found.rejects[0][3]


def test_no_type_is_inferred_and_columns_without_a_name_get_one(tmp_path):
    content = b'a,,c\n007,NA,null\n1e5,true,2026-01-01\n,"",nan\n"x, ""y""\nz",\xc3\xa9,-\n'
    assert read_content(tmp_path / "a.csv", content) == File(
        [
            (0, {"a": "007", "column_2": "NA", "c": "null"}),
            (1, {"a": "1e5", "column_2": "true", "c": "2026-01-01"}),
            (2, {"column_2": "", "c": "nan"}),
            (3, {"a": 'x, "y"\nz', "column_2": "é", "c": "-"}),
        ]
    )


def test_labels_of_answers_are_what_they_look_like(tmp_path):
    found = read_content(tmp_path / "a.csv", b"completion,label\na,False\na,false\na,True\na,1\na,0\na,spam\n")
    assert json.dumps([raw["label"] for _, raw in found.records]) == '[false, false, true, 1, 0, "spam"]'


EMPTY = {
    "a.jsonl": b"\n \r\n\t\n",
    "a.jsonl.gz": COMPRESS[".gz"](b""),
    "a.jsonl.zst": COMPRESS[".zst"](b""),
    "a.json": b"[]",
    "a.parquet": parquet(SMALL.slice(0, 0)),
    "a.arrow": arrow(SMALL.slice(0, 0)),
    "b.arrow": arrow(SMALL.slice(0, 0), pa.ipc.new_file),
    **{f"{len(content)}.csv": content for content in (b"\n", b"a,b\n", BOM + b"a,b")},
}


def test_a_file_may_have_no_record(tmp_path):
    for name, content in EMPTY.items():
        (tmp_path / name).write_bytes(content)
    assert read(str(tmp_path)) == dict.fromkeys(EMPTY, File())


# Other forms of the same


def test_frames_between_those_of_zstd_and_zeros_between_those_of_xz_are_skipped(tmp_path):
    # pzstd writes such a frame before each compressed frame. xz file format 1.2.1, section 2.2: zeros in fours.
    skipped = (0x184D2A50).to_bytes(4, "little") + (4).to_bytes(4, "little") + b"skip"
    zst, xz = ([COMPRESS[suffix](line) for line in (b"a\n", b"b\n")] for suffix in (".zst", ".xz"))
    for name, content in {
        "a.jsonl.zst": skipped + zst[0] + skipped + zst[1] + skipped,
        "a.jsonl.xz": xz[0] + bytes(8) + xz[1] + bytes(4),
    }.items():
        assert read_content(tmp_path / name, content, input_format="jsonl").records == [(0, b"a"), (2, b"b")]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_compressed_file_larger_than_any_buffer_is_read_whole(tmp_path, suffix):
    lines = [b'{"text": "%d %s"}' % (i, b"x" * 300) for i in range(20_000)]  # 6 MB
    found = read_content(tmp_path / f"a.jsonl{suffix}", COMPRESS[suffix](b"\n".join(lines)), split_bytes=2 * MEGA)
    assert [raw for _, raw in found.records] == lines


def test_a_dataset_as_save_to_disk_writes_it_yields_its_rows(tmp_path):
    datasets.Dataset.from_list(chats(30)).save_to_disk(tmp_path / "saved")
    assert [*read(str(tmp_path / "saved")).values()] == [File([*enumerate(chats(30))])]


def test_json_columns_of_a_dataset_are_decoded(tmp_path):
    # load_dataset makes such columns of arguments or contents of different types; nulls in them are part of the data.
    if not hasattr(datasets, "Json"):
        pytest.skip("datasets before 5 has no Json")
    rows = [
        {"messages": [{"content": "Hello", "arguments": {"a": 1}}], "tools": [{"name": "track"}]},
        {"messages": [{"content": [{"type": "text", "text": "Hi"}], "arguments": {"a": "one", "b": [None]}}]},
        {"messages": [{"content": "Hello again", "arguments": {"c": None}}, {"content": ""}]},
    ]
    message = {"content": datasets.Json(), "arguments": datasets.Json()}
    tools = datasets.List({"name": datasets.Value("string")})
    features = datasets.Features({"messages": datasets.List(message), "tools": tools})
    datasets.Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "saved")
    assert [*read(str(tmp_path / "saved")).values()] == [File([*enumerate(rows)])]


@pytest.mark.skipif(not hasattr(pa, "json_"), reason="pyarrow before 19 has no JSON type")
@pytest.mark.parametrize("write", [parquet, arrow])
def test_json_columns_of_any_writer_are_decoded(tmp_path, write):
    calls = pa.StructArray.from_arrays([pa.array(['{"a": [1, null]}', '"one"']).cast(pa.json_())], ["arguments"])
    table = pa.table({"text": pa.array(["a", '"b"']), "call": calls})
    assert read_content(tmp_path / f"a.{write.__name__}", write(table)).records == [
        (0, {"text": "a", "call": {"arguments": {"a": [1, None]}}}),
        (1, {"text": '"b"', "call": {"arguments": "one"}}),
    ]


@pytest.mark.parametrize("write", [parquet, arrow])
def test_a_map_is_an_object_and_one_that_has_a_key_twice_costs_its_row(tmp_path, write):
    kind = pa.map_(pa.string(), pa.struct([("type", pa.string())]))
    table = pa.table({"properties": pa.array([[("a", {"type": "int"})], [], [("a", {}), ("a", {})]], kind)})
    found = read_content(tmp_path / f"a.{write.__name__}", write(table))
    assert found.records == [(0, {"properties": {"a": {"type": "int"}}}), (1, {"properties": {}})]
    assert [position for position, _ in found.rejected] == [2]


# Size

COMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: gzip.zlib.compressobj(1, wbits=31),  # type: ignore[attr-defined]
    ".bz2": lambda: bz2.BZ2Compressor(1),
    ".xz": lambda: lzma.LZMACompressor(preset=0),
    ".zst": lambda: zstandard.ZstdCompressor(level=3).compressobj(),
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_small_file_that_decompresses_to_much_is_read_in_bounded_memory(tmp_path, suffix):
    compressor = COMPRESSORS[suffix]()
    with (tmp_path / f"bomb.jsonl{suffix}").open("wb") as file:
        for piece in [b'{"text": "a"}\n' * 10_000, *[b"x" * MEGA] * 300, b'\n{"text": "b"}\n']:
            file.write(compressor.compress(piece))
        file.write(compressor.flush())
    tracemalloc.start()
    found = read(str(tmp_path), input_format="jsonl")[f"bomb.jsonl{suffix}"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(found.records), found.rejected) == (10_001, [(140_000, "too_long")])
    assert peak < 200 * MEGA


# Longer than what is read at once, whose end may be anywhere in it.
LONG = '}"]\\{[,' * 200_000
AS_JSON = json.dumps(LONG)
LONG_RECORDS: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "a.json": (f'[{{"a": 1}},\n {{"text": {AS_JSON}}}, {{"b": 2}}]', [(1, "too_long")]),
    "b.json": (f'{{\n"a": 1}}\n{{"text": "]}} \\"", "b": {{"c": [{AS_JSON}]}}}}\n\n{{\n"b": 2}}', [(1, "too_long")]),
    "c.json": (f'{{\n"a": 1}}\n{"x" * len(LONG)}\n{{"b": 2}}', [(1, "too_long")]),
    "d.json": (f'{{\n"a": 1}}\n{{"text": {AS_JSON[:-1]}', [(1, "too_long")]),
    "e.csv": (f"text,n\na,1\n{'x' * len(LONG)},2\nb,3\n", [(1, "too_long")]),
    "f.csv": (f'text,n\na,1\n2,"{"x" * len(LONG)}', [(1, "too_long")]),
    "g.jsonl": (
        f'{{"a": 1}}\n\n{LONG}\n{LONG}{LONG}\n{{"a": 1}}\n{LONG}',
        [(10, "too_long"), (1_400_011, "too_long"), (4_200_021, "too_long")],
    ),
}


@pytest.mark.slow
def test_a_record_that_is_too_long_costs_itself_and_what_has_no_end_the_rest_of_the_file(tmp_path):
    (tmp_path / "in").mkdir()
    expected = {"h.parquet": [(1, "too_long")], "i.arrow": [(1, "too_long")]}
    for name, (content, rejects) in LONG_RECORDS.items():
        (tmp_path / "in" / name).write_text(content)
        expected[name] = rejects
    table = pa.table({"text": ["a", LONG, "b"]})
    (tmp_path / "in" / "h.parquet").write_bytes(parquet(table))
    (tmp_path / "in" / "i.arrow").write_bytes(arrow(table))
    (tmp_path / "formatter.py").write_text("def text(record):\n    return 'a'\n")
    options = [f"--tokenizer={TOKENIZER}", f"--formatter={tmp_path}/formatter.py:text", "--max_record_bytes=50000"]
    options += [f"--output={tmp_path}/out", "--split_bytes=700000", "--max_reject_fraction=1", "--report=none"]
    assert chatmill("build", f"--input={tmp_path}/in", *options, "--direct_num_workers=1") == 0
    found: dict[str, list[tuple[int, str]]] = {}
    for reject in read_rejects(tmp_path / "out"):
        found.setdefault(Path(reject["origin_file"]).name, []).append((reject["origin_position"], reject["reason"]))
        assert len(reject["record"]) <= 1 << 16
    assert found == expected
    # One record before the long one, and one after it, where the file has one.
    assert len(read_rows(tmp_path / "out")) == 2 * 9 - 2
