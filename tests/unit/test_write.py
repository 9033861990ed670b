"""Shards: the output of each format, and its receipt."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.paths import ROOT
from support.tfrecords import Example, records_of, rows_of_tfrecord
from transforms import Slice, Split, StoreError
from transforms.dataset.layout import Folder
from transforms.model.batches import Rows, RowSource, RowTable, Used
from transforms.model.outcomes import Drop, Outcomes, Reject
from transforms.model.receipts import File, FirstExample, Receipt, name_of, read_receipts, write_receipt
from transforms.outputs import CreateFile, OutputFormat, datasets_files, loading_code, parquet
from transforms.outputs.parquet import ParquetWriter
from transforms.outputs.tfrecord import encode_tfrecord, encode_varints
from transforms.rows.columns import OUTPUT_COLUMNS
from transforms.steps import write
from transforms.steps.row_options import WriteOptions
from transforms.steps.write import ShardWriter
from transforms.storage.walking import names_below

URL = "/corpus/chats.jsonl"
INCREMENT = "0123456789abcdef"

# A segment: its ids, its labels, the position of its record.
SegmentOf = tuple[list[int], list[int], int]
UNPACKED: list[list[SegmentOf]] = [
    [([5, 6, 7], [-100, 6, 7], 0)],
    [([127, 128, 151_642, 2], [-100, -100, 151_642, 2], 812)],
]
PACKED: list[list[SegmentOf]] = [
    [([5, 6, 7], [-100, 6, 7], 0), ([8, 9], [-100, 9], 812)],
    [([10, 11, 12, 13], [10, 11, -100, -100], 90)],
    [([1], [1], 5), ([2], [-100], 5), ([3, 4], [3, 4], 6)],
]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows, of which each segment is of a labelled row of its own."""

    rows: list[list[SegmentOf]]
    columns: dict[str, list[str | None]] | None = None

    def segments(self) -> list[SegmentOf]:
        return [segment for row in self.rows for segment in row]

    def row_table(self, sources_before: int) -> RowTable:
        segments = self.segments()
        lengths = [sum(len(ids) for ids, _, _ in row) for row in self.rows]
        return RowTable(
            ids=np.array([token for ids, _, _ in segments for token in ids], np.int32),
            labels=np.array([label for _, labels, _ in segments for label in labels], np.int32),
            offsets=np.cumsum([0, *lengths]).astype(np.int64),
            segment_lengths=np.array([len(ids) for ids, _, _ in segments], np.int64),
            segment_offsets=np.cumsum([0, *map(len, self.rows)]).astype(np.int64),
            sources=sources_before + np.arange(len(segments)),
        )


def table_of(rows: list[list[SegmentOf]], columns: dict[str, list[str | None]] | None = None) -> Table:
    return Table(rows, columns)


def batch_of(
    train: Table | None = None,
    validation: Table | None = None,
    packing: str = "none",
    outcomes: Outcomes | None = None,
    format: str = "jsonl",
    part: int = 0,
    last: bool = True,
    increment: str = INCREMENT,
) -> Rows:
    train, validation = train or table_of([]), validation or table_of([])
    segments = train.segments() + validation.segments()
    read = len(train.rows) + len(validation.rows)
    columns = train.columns and {name: pa.array(values, pa.string()) for name, values in train.columns.items()}
    positions = np.array([position for _, _, position in segments], np.int64)
    nothing = np.zeros(0, np.int64)
    return Rows(
        split=Split(7, (Slice(URL, format, None, start=1024, stop=4096),), increment=increment),
        part=part,
        last=last,
        outcomes=outcomes or Outcomes(read=read, kept=read),
        train=train.row_table(0),
        validation=validation.row_table(len(train.segments())),
        packing=packing,
        source=RowSource(positions, np.zeros(len(segments), bool), columns and pa.table(columns)),
        used=Used(nothing, nothing > 0, nothing > 0, nothing, nothing),
    )


def dropped(**counts: int) -> tuple[Drop, ...]:
    """Drops for reasons, so many of each."""
    return tuple(Drop(number, reason) for reason, count in counts.items() for number in range(count))


def path_of(folder: Path, shard: File) -> Path:
    return folder / shard.path


def receipts_in(folder: Path | str, increment: str = INCREMENT) -> str:
    return Folder(str(folder), increment).receipts


def files_in(folder: Path | str) -> list[str]:
    """The paths of all files but those below _chatmill."""
    return [name for name in names_below(str(folder)) if not name.startswith("_chatmill/")]


def written(folder: Path, batch: Rows, **arguments: Any) -> pa.Table:
    """Return the Parquet shard that a writer writes for the train rows of a batch."""
    (shard,) = ShardWriter(str(folder), **arguments)(batch).shards
    return pq.read_table(path_of(folder, shard))


def joined(rows: list[list[SegmentOf]], which: int) -> list[list[int]]:
    return [[value for segment in row for value in segment[which]] for row in rows]


# Parquet


def test_each_record_of_a_split_of_several_files_is_found_in_its_own(tmp_path: Path):
    slices = (Slice("/a.jsonl", "jsonl", None, 0, 900), Slice("/b.csv", "csv", None, 0, 80))
    split = Split(7, slices)
    later = split.position(1, 3)
    rejects = (Reject(split.position(1, 90), "invalid_json", "it is not JSON", b"{"),)
    outcomes = Outcomes(read=3, kept=2, rejects=rejects).note("odd", 1, (later, "what"))
    unpacked = table_of([[([1], [1], 812)], [([2], [2], later)]])
    batch = dataclasses.replace(batch_of(unpacked, outcomes=outcomes), split=split)
    table = written(tmp_path / "unpacked", batch, provenance=True)
    assert (table["source"].to_pylist(), table["source_position"].to_pylist()) == (["/a.jsonl", "/b.csv"], [812, 3])

    packed = table_of([[([1], [1], 812), ([2], [2], later)]])
    batch = dataclasses.replace(batch_of(packed, packing="bfd", outcomes=outcomes), split=split)
    receipt = ShardWriter(str(tmp_path), provenance=True)(batch)
    (row,) = pq.read_table(path_of(tmp_path, receipt.shards[0])).to_pylist()
    assert (row["source"], row["source_position"]) == (["/a.jsonl", "/b.csv"], [812, 3])
    assert receipt.first_examples == {"odd": FirstExample("/b.csv", "row 3", "what")}
    assert receipt.first_rejects == {"invalid_json": FirstExample("/b.csv", "row 90", "it is not JSON")}
    (reject,) = pq.read_table(tmp_path / receipt.rejects.path).to_pylist()
    assert (reject["source"], reject["position"]) == ("/b.csv", 90)


def test_only_kept_columns_may_have_nulls(tmp_path: Path):
    arguments = {"provenance": True, "write_columns": OUTPUT_COLUMNS}
    schema = written(tmp_path, batch_of(table_of(UNPACKED, {"id": ["a", None]})), **arguments).schema
    assert [field.name for field in schema if field.nullable] == ["id"]
    schema = written(tmp_path, batch_of(table_of(PACKED), packing="bfd"), **arguments).schema
    assert [field.name for field in schema] == [*OUTPUT_COLUMNS, "source", "source_position"]
    assert not any(field.nullable or field.type.value_field.nullable for field in schema)


def test_metadata_contains_the_features_for_datasets(tmp_path: Path):
    table = written(tmp_path, batch_of(table_of(UNPACKED, {"id": ["a", "b"]})), provenance=True)
    tokens = {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "Sequence"}
    assert json.loads(table.schema.metadata[b"huggingface"]) == {
        "info": {
            "features": {
                "input_ids": tokens,
                "labels": tokens,
                "source": {"dtype": "string", "_type": "Value"},
                "source_position": {"dtype": "int64", "_type": "Value"},
                "id": {"dtype": "string", "_type": "Value"},
            }
        }
    }


def test_datasets_loads_a_shard_with_its_features(tmp_path: Path):
    import datasets

    batch = batch_of(table_of(PACKED), packing="bfd")
    (shard,) = ShardWriter(str(tmp_path), write_columns=OUTPUT_COLUMNS, provenance=True)(batch).shards

    loaded = datasets.load_dataset(
        "parquet", data_files=str(path_of(tmp_path, shard)), split="train", cache_dir=str(tmp_path / "cache")
    )

    assert loaded.to_dict() == pq.read_table(path_of(tmp_path, shard)).to_pydict()
    types = {"attention_mask": "int8", "loss_mask": "int8", "part_kinds": "int8"}
    types["source_position"] = "int64"
    lists = (*OUTPUT_COLUMNS, "source_position")
    expected = {name: datasets.List(datasets.Value(types.get(name, "int32"))) for name in lists}
    assert loaded.features == datasets.Features(expected | {"source": datasets.List(datasets.Value("string"))})


def encode_parquet(*tables: pa.Table) -> bytes:
    """The Parquet file of tables that are written one after the other."""
    file = io.BytesIO()
    writer = ParquetWriter(file)
    for table in tables:
        writer.write(table)
    writer.close()
    return file.getvalue()


def test_row_groups_have_a_bounded_number_of_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = pa.table({"input_ids": pa.array([[i] * 5 for i in range(40)], pa.list_(pa.int32()))})
    monkeypatch.setattr(parquet, "_VALUES_IN_ROW_GROUP", 50)

    content = encode_parquet(table)

    file = pq.ParquetFile(pa.BufferReader(content))
    assert [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)] == [10, 10, 10, 10]
    assert file.read().to_pydict() == table.to_pydict()


def test_row_with_more_values_than_a_row_group_has_a_row_group_of_its_own(monkeypatch: pytest.MonkeyPatch):
    table = pa.table({"input_ids": pa.array([[1] * 100, [2] * 100], pa.list_(pa.int32()))})
    monkeypatch.setattr(parquet, "_VALUES_IN_ROW_GROUP", 50)
    assert pq.ParquetFile(pa.BufferReader(encode_parquet(table))).metadata.num_row_groups == 2


# TFRecord, read according to its specification


def test_tfrecord_holds_an_example_for_each_row(tmp_path: Path):
    batch = batch_of(table_of(UNPACKED))
    (shard,) = ShardWriter(str(tmp_path), output_format=("tfrecord",))(batch).shards
    assert rows_of_tfrecord(path_of(tmp_path, shard).read_bytes()) == [
        {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]},
        {"input_ids": [127, 128, 151_642, 2], "labels": [-100, -100, 151_642, 2]},
    ]


def test_tfrecord_has_each_column_that_parquet_has(tmp_path: Path):
    batch = batch_of(table_of(PACKED), packing="bfd")
    writer = ShardWriter(
        str(tmp_path), output_format=("parquet", "tfrecord"), write_columns=OUTPUT_COLUMNS, provenance=True
    )
    of_parquet, of_tfrecord = writer(batch).shards

    expected = pq.read_table(path_of(tmp_path, of_parquet)).to_pylist()
    for row in expected:
        row["source"] = [url.encode() for url in row["source"]]
    assert rows_of_tfrecord(path_of(tmp_path, of_tfrecord).read_bytes()) == expected


def test_tfrecord_has_strings_as_bytes_integers_as_lists_of_one_and_nulls_as_empty_lists(tmp_path: Path):
    batch = batch_of(table_of(UNPACKED, {"id": ["Rückgabe 📦" * 20, None], "note": ["", "x"]}))
    writer = ShardWriter(str(tmp_path), output_format=("tfrecord",), write_columns=("input_ids",), provenance=True)
    (shard,) = writer(batch).shards

    first, second = rows_of_tfrecord(path_of(tmp_path, shard).read_bytes())
    assert first == {
        "input_ids": [5, 6, 7],
        "id": [("Rückgabe 📦" * 20).encode()],
        "note": [b""],
        "source": [URL.encode()],
        "source_position": [0],
    }
    assert (second["id"], second["note"], second["source_position"]) == ([], [b"x"], [812])


def test_gzipped_tfrecord_is_the_plain_one_compressed(tmp_path: Path):
    batch = batch_of(table_of(UNPACKED))
    (plain,) = ShardWriter(str(tmp_path), output_format=("tfrecord",))(batch).shards
    (gzipped,) = ShardWriter(str(tmp_path), output_format=("tfrecord.gz",))(batch).shards

    assert plain.path.endswith(".tfrecord")
    assert gzipped.path.endswith(".tfrecord.gz")
    content = path_of(tmp_path, gzipped).read_bytes()
    assert gzip.decompress(content) == path_of(tmp_path, plain).read_bytes()
    assert content[4:8] == b"\0\0\0\0"  # MTIME of RFC 1952: the bytes must not depend on the clock


int32 = st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.lists(int32, min_size=1, max_size=200), max_size=6))
def test_any_row_of_integers_comes_back_from_tfrecord(lists: list[list[int]]):
    table = pa.table({"input_ids": pa.array(lists, pa.list_(pa.int32()))})
    assert rows_of_tfrecord(encode_tfrecord(table)) == [{"input_ids": row} for row in lists]


def test_fields_of_lengths_about_128_come_back_from_tfrecord():
    """A length takes one byte up to 127; the fields that enclose a field are two, four, … bytes longer."""
    lengths = range(100, 140)
    table = pa.table(
        {
            "text": pa.array(["x" * length for length in lengths], pa.string()),
            "input_ids": pa.array([[1] * length for length in lengths], pa.list_(pa.int32())),
        }
    )
    assert rows_of_tfrecord(encode_tfrecord(table)) == [
        {"text": [b"x" * length], "input_ids": [1] * length} for length in lengths
    ]


def protobuf_varint(value: int) -> bytes:
    """The value as protobuf itself encodes it: a packed list of this value alone, without its tag and its length."""
    feature = Example().features.feature["x"]
    feature.int64_list.value.append(value)
    return feature.int64_list.SerializeToString()[2:]


EDGES = [
    0,
    1,
    127,
    128,
    -1,
    -100,
    2**31 - 1,
    2**63 - 1,
    -(2**63),
    *(2 ** (7 * i) + d for i in range(2, 9) for d in (-1, 0)),
]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20) | st.lists(st.integers(-130, 2**20 + 2), max_size=20))
@example(EDGES)
@example([-128, 127, 128, 2**20 - 1])
@example([-129, 2**20])
def test_varints_are_encoded_as_by_protobuf(values: list[int]):
    expected = [protobuf_varint(value) for value in values]
    encoded, offsets = encode_varints(np.array(values, np.int64))
    assert encoded.tobytes() == b"".join(expected)
    assert np.diff(offsets).tolist() == [len(varint) for varint in expected]


any_row = st.fixed_dictionaries(
    {
        "ids": st.lists(st.integers(-129, 2**31 - 1) | st.integers(-100, 300), min_size=1, max_size=150),
        "position": st.integers(0, 2**40),
        "text": st.text(max_size=300),
    }
)


@given(st.lists(any_row, max_size=5), st.integers(0, 2))
def test_tfrecord_has_the_bytes_that_protobuf_itself_writes(rows: list[dict[str, Any]], skipped: int):
    types = {"ids": pa.list_(pa.int32()), "position": pa.int64(), "text": pa.string()}
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()})
    expected = []
    for row in rows[skipped:]:
        features = Example().features
        features.feature["ids"].int64_list.value.extend(row["ids"])
        features.feature["position"].int64_list.value.append(row["position"])
        features.feature["text"].bytes_list.value.append(row["text"].encode())
        expected.append(Example(features=features).SerializeToString(deterministic=True))
    assert list(records_of(encode_tfrecord(table.slice(skipped)))) == expected


def test_varints_of_narrower_integers_are_the_same():
    for dtype in (np.int8, np.int32):
        encoded, _ = encode_varints(np.array([-100, 1, 127], dtype))
        assert encoded.tobytes() == b"".join(map(protobuf_varint, (-100, 1, 127)))


# The registry of formats


class TwoFiles:
    def __init__(self, create: CreateFile):
        self._files = create(".bin"), create(".idx")

    def write(self, table: pa.Table) -> None:
        ids = table["input_ids"].combine_chunks()
        for file, values in zip(self._files, (ids.values, ids.offsets), strict=True):
            file.write(values.to_numpy().tobytes())

    def close(self) -> None:
        pass


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a format with two files for each shard, like another module of transforms.outputs."""
    module = types.ModuleType("transforms.outputs.flat")
    module.FORMAT = OutputFormat("flat", TwoFiles, lambda folder, shards: f"load {folder}/{shards[0]['path']}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(WriteOptions, "__post_init__", lambda self: None)


@pytest.mark.usefixtures("flat")
def test_format_of_two_files_counts_its_rows_once_and_gives_both_files_one_number(tmp_path: Path):
    receipt = ShardWriter(str(tmp_path), output_format=("flat", "parquet"))(batch_of(table_of(UNPACKED)))

    assert [(shard.path, shard.rows, shard.tokens, shard.trained_tokens) for shard in receipt.shards] == [
        (f"flat/train-{INCREMENT}-000007-000.bin", 2, 7, 4),
        (f"flat/train-{INCREMENT}-000007-000.idx", 0, 0, 0),
        (f"data/train-{INCREMENT}-000007-000.parquet", 2, 7, 4),
    ]
    assert sum(shard.rows for shard in receipt.shards_once()) == 2
    ids = np.frombuffer(path_of(tmp_path, receipt.shards[0]).read_bytes(), np.int32)
    assert ids.tolist() == [5, 6, 7, 127, 128, 151_642, 2]
    assert read_receipts(receipts_in(tmp_path), 7, 1, INCREMENT) == [receipt]


@pytest.mark.usefixtures("flat")
def test_dataset_is_loaded_in_the_format_that_datasets_reads_if_it_has_one():
    flat_shard = {"path": "flat/train-0f1e-000000-000.bin", "format": "flat", "split": "train"}
    names = [("validation", "0a"), ("train", "0a"), ("train", "0f1e"), ("train", "0f1e")]
    shards = [flat_shard, *(
        {"path": f"data/{split}-{id}-000000-000.parquet", "format": "parquet", "split": split}
        for split, id in names
    )]  # fmt: skip
    assert loading_code("out", shards) == 'import datasets; dataset = datasets.load_dataset("out")'
    assert datasets_files(shards) == {
        "train": ["data/train-0a-*.parquet", "data/train-0f1e-*.parquet"],
        "validation": ["data/validation-0a-*.parquet"],
    }
    assert loading_code("out", [flat_shard]) == "load out/flat/train-0f1e-000000-000.bin"
    assert datasets_files([flat_shard]) == {}


@pytest.mark.parametrize(("format", "compression"), [("tfrecord", ""), ("tfrecord.gz", ', compression_type="GZIP"')])
def test_tfrecord_is_loaded_with_its_compression(format: str, compression: str):
    shard = {"path": f"tfrecord/train-0f1e-000000-000.{format}", "format": format, "split": "train"}
    assert loading_code("out", [shard]).endswith(
        f'TFRecordDataset(tf.io.gfile.glob("out/tfrecord/train-0f1e-*.{format}"){compression})'
    )
    increments = [shard | {"path": shard["path"].replace("0f1e", id)} for id in ("0f1e", "2d3c")]
    assert f'.glob(["out/tfrecord/train-0f1e-*.{format}", "out/tfrecord/train-2d3c-*.{format}"])' in loading_code(
        "out", increments
    )
    validation = shard | {"split": "validation", "path": shard["path"].replace("train", "validation")}
    assert f'.glob("out/tfrecord/validation-0f1e-*.{format}")' in loading_code("out", [validation])


def test_names_of_formats_are_known_without_importing_their_libraries():
    code = (
        "import sys; from transforms.inputs.formats import INPUT_FORMATS; "
        "from transforms.outputs import OUTPUT_FORMATS; "
        "assert 'pyarrow' not in sys.modules; print(*INPUT_FORMATS, *OUTPUT_FORMATS)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    outputs = ["parquet", "tfrecord", "tfrecord.gz"]
    inputs = ["auto", "arrow", "atif", "claude_code", "codex", "csv", "json", "jsonl", "parquet", "tsv"]
    assert done.stdout.split() == [*inputs, *outputs]


# Shards, rejects and receipts


def parts_of_a_split() -> list[Rows]:
    """Three parts, of which the second has no rows for training, and each rejects a record."""
    parts = []
    for number, (train, validation) in enumerate([(PACKED, UNPACKED), ([], UNPACKED), (PACKED[:2], [])]):
        rejects = (Reject(900 + number, "empty", f"of part {number}", b"{}"), Reject(800 + number, "odd", "so", b""))
        outcomes = Outcomes(read=5, kept=1, drops=dropped(too_long=2), rejects=rejects, trained_tokens_lost=number)
        outcomes = outcomes.note("odd", 1, (number, f"of part {number}"))
        tables = [table_of(rows) for rows in (train, validation)]
        parts.append(batch_of(*tables, packing="bfd", outcomes=outcomes, part=number, last=number == 2))
    return parts


def test_parts_of_a_split_are_one_shard(tmp_path: Path):
    parts = parts_of_a_split()
    write_part = ShardWriter(str(tmp_path), output_format=("parquet", "tfrecord"))

    *unfinished, receipt = map(write_part, parts)

    assert unfinished == [None, None]
    assert (receipt.read, receipt.kept, receipt.dropped, receipt.rejected) == (
        15,
        3,
        {"too_long": 6},
        {"empty": 3, "odd": 3},
    )
    assert (receipt.trained_tokens_lost, receipt.notes) == (3, {"odd": 3})
    assert receipt.first_examples == {"odd": FirstExample(URL, "byte 0", "of part 0")}
    assert receipt.first_rejects["empty"] == FirstExample(URL, "byte 900", "of part 0")
    rejects = pq.read_table(tmp_path / receipt.rejects.path)
    assert rejects["position"].to_pylist() == [800, 900, 801, 901, 802, 902]
    train, train_records, validation, _ = receipt.shards
    facts = [(shard.split, shard.format, shard.rows, shard.tokens, shard.trained_tokens) for shard in receipt.shards]
    assert facts == [
        ("train", "parquet", 5, 22, 13), ("train", "tfrecord", 5, 22, 13),
        ("validation", "parquet", 4, 14, 8), ("validation", "tfrecord", 4, 14, 8),
    ]  # fmt: skip
    file = pq.ParquetFile(path_of(tmp_path, train))
    assert [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)] == [3, 2]
    assert file.read()["input_ids"].to_pylist() == joined(PACKED + PACKED[:2], 0)
    assert pq.read_table(path_of(tmp_path, validation))["input_ids"].to_pylist() == joined(UNPACKED * 2, 0)
    records = rows_of_tfrecord(path_of(tmp_path, train_records).read_bytes())
    assert [row["input_ids"] for row in records] == joined(PACKED + PACKED[:2], 0)
    for shard in receipt.shards:
        content = path_of(tmp_path, shard).read_bytes()
        assert (shard.bytes, shard.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_long_split_is_several_shards_with_a_receipt_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(write, "_TOKENS_IN_SHARD", 27)
    write_part = ShardWriter(str(tmp_path))
    receipts = [receipt for part in parts_of_a_split() if (receipt := write_part(part))]
    assert [(receipt.split, receipt.part, receipt.last, receipt.read) for receipt in receipts] == [
        (7, 0, False, 10),
        (7, 1, True, 5),
    ]
    assert read_receipts(receipts_in(tmp_path), 7, len(receipts), INCREMENT) == receipts
    assert [receipt.shards[0].path.rpartition("/")[2] for receipt in receipts] == [
        f"train-{INCREMENT}-000007-000.parquet", f"train-{INCREMENT}-000007-001.parquet"
    ]  # fmt: skip


def test_shard_that_cannot_be_written_is_a_store_error(tmp_path: Path):
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(StoreError, match=r"/data/train-.*-.*: it cannot be written \((File exists|Not a directory)\)"):
        ShardWriter(str(tmp_path))(parts_of_a_split()[0])


def receipt_of(split: int, part: int, last: bool, rejects: File | None = None) -> Receipt:
    none = {"read": 0, "kept": 0, "truncated": 0, "dropped": {}, "rejected": {}, "shards": []}
    firsts = {"first_rejects": {}, "first_examples": {}}
    return Receipt(split=split, part=part, last=last, rejects=rejects, increment=INCREMENT, **none, **firsts)


def test_receipts_of_a_split_are_read_when_all_its_parts_are_there(tmp_path: Path):
    folder = str(tmp_path)
    parts = [receipt_of(3, part, last=part == 2) for part in range(3)]
    other = receipt_of(30, 0, last=True)
    for receipt in (parts[2], other, parts[0]):
        write_receipt(folder, receipt)
    with pytest.raises(FileNotFoundError):
        read_receipts(folder, 3, 2, INCREMENT)
    write_receipt(folder, parts[1])
    assert read_receipts(folder, 3, 3, INCREMENT) == parts
    assert read_receipts(folder, 3, 2, INCREMENT) == []
    assert read_receipts(folder, 30, 1, INCREMENT) == [other]
    with pytest.raises(ValueError, match="is damaged, or a receipt of another increment"):
        read_receipts(folder, 30, 1, "another")


def test_a_receipt_in_the_place_of_another_one_does_not_count(tmp_path: Path):
    write_receipt(str(tmp_path), receipt_of(3, 0, last=True))
    (tmp_path / "0000003-00000.json").rename(tmp_path / "0000004-00000.json")
    with pytest.raises(ValueError, match="are receipts of others"):
        read_receipts(str(tmp_path), 4, 1, INCREMENT)


@pytest.mark.parametrize(
    "path",
    [
        "../../victim", "/etc/passwd", "a/b", "..", "", "rejects.parquet", f"rejects/rejects-{INCREMENT}-..",
        f"rejects/rejects-{INCREMENT}-", f"rejects/.rejects-{INCREMENT}-0", f"rejects/rejects-{INCREMENT}-a\0b",
        f"rejects/rejects-{INCREMENT}-a\nb", f"rejects/rejects-{INCREMENT}-a/b", f"rejects/rejects-{'f' * 16}-a",
        f"/rejects/rejects-{INCREMENT}-a", f"../rejects/rejects-{INCREMENT}-a", f"rejects\n/rejects-{INCREMENT}-a",
        f"rejects/rejects-{INCREMENT}-a\n", f"rejects/rejects-{INCREMENT}",
    ],
)  # fmt: skip
def test_a_receipt_that_names_a_file_elsewhere_does_not_count(tmp_path: Path, path: str):
    write_receipt(str(tmp_path), receipt_of(3, 0, last=True, rejects=File(path, 1, "0" * 64)))
    with pytest.raises(ValueError, match="which is not one of the increment"):
        read_receipts(str(tmp_path), 3, 1, INCREMENT)
    own = File(f"rejects/rejects-{INCREMENT}-a", 1, "0" * 64)
    write_receipt(str(tmp_path), receipt_of(3, 0, last=True, rejects=own))
    assert read_receipts(str(tmp_path), 3, 1, INCREMENT)


def test_names_of_files_are_in_the_order_of_the_splits_and_their_parts():
    assert name_of("train", INCREMENT, 7) == f"train-{INCREMENT}-000007-000"
    names = [name_of("train", INCREMENT, split, part) for split in range(0, 200_000, 1_999) for part in (0, 1, 10, 999)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "outcomes", [Outcomes(read=3, kept=2), Outcomes(read=1, kept=2)], ids=["lost", "counted twice"]
)
def test_record_without_exactly_one_outcome_is_an_error_with_advice(tmp_path: Path, outcomes: Outcomes):
    with pytest.raises(ValueError, match=r"chats\.jsonl.*have no outcome\. .*must use FilterExamples"):
        ShardWriter(str(tmp_path))(batch_of(table_of(UNPACKED), outcomes=outcomes))
    assert not list(tmp_path.iterdir())


def test_rejects_are_written_with_their_reason_their_position_and_the_record_itself(tmp_path: Path):
    rejects = (
        Reject(2048, "invalid_json", "the record is not JSON: it ends", b'{"messages": [\xff'),
        Reject(1030, "empty", "there are no messages", b'{"messages": []}'),
        Reject(1024, "invalid_json", "the record is not JSON: what is this", "¿qué?".encode()),
    )
    receipt = ShardWriter(str(tmp_path))(batch_of(outcomes=Outcomes(read=3, rejects=rejects)))

    assert receipt.rejects
    table = pq.read_table(tmp_path / receipt.rejects.path)
    assert table.to_pydict() == {
        "source": [URL] * 3,
        "position": [1024, 1030, 2048],
        "reason": ["invalid_json", "empty", "invalid_json"],
        "detail": ["the record is not JSON: what is this", "there are no messages", "the record is not JSON: it ends"],
        "record": ["¿qué?".encode(), b'{"messages": []}', b'{"messages": [\xff'],
    }
    assert table.schema.field("record").type == pa.binary()
    assert receipt.rejected == {"empty": 1, "invalid_json": 2}


@pytest.mark.parametrize(
    ("format", "unit"), [("jsonl", "byte"), ("json", "record"), ("parquet", "row"), ("arrow", "row")]
)
def test_receipt_has_the_first_record_that_was_rejected_for_each_reason(tmp_path: Path, format: str, unit: str):
    rejects = (
        Reject(9000, "empty", "second", b""),
        Reject(20, "template", "only", b""),
        Reject(70, "empty", "first", b""),
    )
    receipt = ShardWriter(str(tmp_path))(batch_of(outcomes=Outcomes(read=3, rejects=rejects), format=format))
    assert receipt.first_rejects == {
        "empty": FirstExample(URL, f"{unit} 70", "first"),
        "template": FirstExample(URL, f"{unit} 20", "only"),
    }


def test_a_shard_that_is_written_again_is_never_missing_or_seen_in_part(tmp_path: Path):
    """By a worker that was taken for dead but is alive."""
    batch, writer = batch_of(table_of(UNPACKED)), ShardWriter(str(tmp_path))
    final = path_of(tmp_path, writer(batch).shards[0])
    content, ended, read = final.read_bytes(), threading.Event(), []

    def read_again_and_again() -> None:
        try:
            while not ended.is_set():
                read.append(final.read_bytes())
        except OSError as error:
            read.append(error)

    reader = threading.Thread(target=read_again_and_again)
    reader.start()
    for _ in range(200):
        writer(batch)
    ended.set()
    reader.join()
    assert {*read} == {content}
    assert [path.name for path in final.parent.iterdir()] == [final.name]
