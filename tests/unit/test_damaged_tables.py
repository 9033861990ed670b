"""Parquet and Arrow files that are damaged, or larger than records are: an error that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transforms import InputError, Slice, Split
from transforms.steps.read import read_split


def read(path: Path) -> list[object]:
    split = Split(0, (Slice(str(path), path.suffix[1:], None, 0, path.stat().st_size),))
    return [record.raw for part in read_split(split, 1 << 20) for record in part.records]


def test_changed_value_of_a_parquet_page_with_a_checksum_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"this is text {i}" for i in range(100)]})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    assert len(read(path)) == 100
    path.write_bytes(path.read_bytes().replace(b"text 50", b"text 51", 1))
    with pytest.raises(InputError, match=r"a\.parquet: it cannot be read as parquet \(.*CRC"):
        read(path)


def written(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    return path


def test_row_group_that_a_damaged_footer_moves_out_of_the_file_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), path, row_group_size=1)
    metadata = pq.read_metadata(path)
    column = metadata.row_group(1).column(0)
    at = column.dictionary_page_offset
    # Each offset is a zigzag varint in the footer.
    content, varints = (
        path.read_bytes(),
        [bytes((n * 2 & 127 | 128, n * 2 >> 7)) for n in (at, column.data_page_offset)],
    )
    start = len(content) - metadata.serialized_size - 8
    footer = content[start:]
    for varint in varints:
        assert varint in footer
        footer = footer.replace(varint, b"\xfe\x7f")
    path.write_bytes(content[:start] + footer)
    with pytest.raises(InputError, match=r"a\.parquet: it cannot be read as parquet \(row group 1 is outside"):
        read(path)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_table_of_too_many_columns_or_nested_too_deeply_is_an_error(tmp_path, suffix):
    wide = pa.table({f"c{i}": [1] for i in range(10_001)})
    with pytest.raises(InputError, match=r"wide.*more than 10,000 columns"):
        read(written(tmp_path / f"wide.{suffix}", wide))
    deep = pa.int64()
    for _ in range(55):
        deep = pa.struct([("a", deep)])
    with pytest.raises(InputError, match=r"deep.*more than 50 deep"):
        read(written(tmp_path / f"deep.{suffix}", pa.table({"a": pa.nulls(1, deep)})))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_name_of_a_column_that_is_not_utf8_is_an_error(tmp_path, suffix):
    path = written(tmp_path / f"a.{suffix}", pa.table({"column": ["a"]}).replace_schema_metadata(None))
    path.write_bytes(path.read_bytes().replace(b"column", b"\xd0olumn"))
    with pytest.raises(InputError, match=rf"a\.{suffix}: it cannot be read as {suffix} \(.*codec can't decode"):
        read(path)


def test_offsets_after_the_values_are_found_next_to_text_that_is_not_utf8(tmp_path):
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    text = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"\xff\xfe")])
    too_far = pa.py_buffer(np.array([0, 1 << 30, 2], np.int32))
    numbers = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, too_far], children=[pa.array([1, 2])])
    for name, columns in {"text.arrow": [text, pa.array([[1], [2]])], "lists.arrow": [text, numbers]}.items():
        batch = pa.record_batch(columns, names=["a", "b"])
        with pa.ipc.new_stream(tmp_path / name, batch.schema) as writer:
            writer.write_batch(batch)
    assert read(tmp_path / "text.arrow") == []  # each row is rejected alone
    with pytest.raises(InputError, match=r"lists\.arrow: it cannot be read as arrow"):
        read(tmp_path / "lists.arrow")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_column_that_a_table_has_twice_is_an_error(name, tmp_path):
    path = written(tmp_path / name, pa.table([["first"], ["second"]], names=["text", "text"]))
    with pytest.raises(InputError, match="it has the column 'text' twice"):
        read(path)
