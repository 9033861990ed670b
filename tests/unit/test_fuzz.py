"""Fuzzing: whatever the bytes of a file are, it is read in the same way at any cut; of a dataset, errors are one line.

What becomes of any values of a record is in test_record_laws, of damaged receipts and plans in test_runs.
"""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from support.command_line import chatmill
from support.contents import COMPRESS, arrow, parquet
from support.drawn import examples
from support.paths import TOKENIZER
from support.reading import File, read_each
from transforms import Dataset, InputError, UserError

FUZZ = examples(150, suppress_health_check=list(HealthCheck))

texts = st.text(max_size=8) | st.sampled_from(["\n", '"', ",", "a\r\nb", "\\", "{", "]}", "\ud800", "<|im_end|>", "\0"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
calls = st.lists(
    st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": texts, "arguments": values})}), max_size=2
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "narrator"]), "content": texts | values},
    optional={"tool_calls": calls | values, "weight": scalars, "name": scalars},
)
turns = st.fixed_dictionaries({"from": st.sampled_from(["human", "gpt", "system"]), "value": texts | values})
records = (
    st.fixed_dictionaries({"messages": st.lists(messages, max_size=4)}, optional={"tools": values})
    | st.fixed_dictionaries({"conversations": st.lists(turns, max_size=3)})
    | st.fixed_dictionaries({"prompt": texts | values, "completion": texts | values})
    | st.fixed_dictionaries({"text": texts | values})
    | st.fixed_dictionaries({"input_ids": st.lists(st.integers(-1, 70000), max_size=4)}, optional={"labels": values})
    | values
)
corpora = st.lists(records, min_size=1, max_size=6)
tables = st.lists(st.fixed_dictionaries({"text": st.none() | st.text(max_size=9), "n": st.integers(0, 9)}), max_size=9)
# A position as a fraction of the length, what is done there, and with which bytes.
damages = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from(["flip", "insert", "remove", "cut", "repeat"]),
        st.binary(min_size=1, max_size=4)
        | st.sampled_from([b"\n", b'"', b"\\", b"[", b"}", b",", b"\xff", b"\0", b"\r"]),
    ),
    max_size=3,
)


def damaged(content: bytes, damage: list[tuple[float, str, bytes]]) -> bytes:
    for fraction, kind, by in damage:
        at = int(fraction * len(content))
        before, after = content[:at], content[at:]
        size = len(by)
        content = {
            "flip": before + bytes(x ^ y for x, y in zip(after, by, strict=False)) + after[size:],
            "insert": before + by + after,
            "remove": before + after[size:],
            "cut": before,
            "repeat": before + after[: 8 * size] + after,
        }[kind]
    return content


def as_lines(found: list[Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in found)


def as_delimited(found: list[Any], delimiter: str) -> bytes:
    rows = [record if isinstance(record, dict) else {"text": record} for record in found]
    names = sorted({str(name) for row in rows for name in row})
    text = io.StringIO()
    writer = csv.DictWriter(text, names, delimiter=delimiter)
    writer.writeheader()
    writer.writerows([{name: row.get(name) for name in names} for row in rows])
    return text.getvalue().encode(errors="replace")


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    nested = [[{"role": "user", "content": row["text"]}] for row in rows]
    return pa.table({name: [row[name] for row in rows] for name in ("text", "n")} | {"messages": nested})


TEXT_FORMATS: dict[str, Callable[[list[Any]], bytes]] = {
    "jsonl": as_lines,
    "json": lambda found: json.dumps(found, indent=1).encode(),
    "csv": lambda found: as_delimited(found, ","),
    "tsv": lambda found: as_delimited(found, "\t"),
}
BINARY_FORMATS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "parquet": lambda rows: parquet(as_table(rows), row_group_size=3, write_page_checksum=True),
    "stream.arrow": lambda rows: arrow(as_table(rows), rows_at_once=3),
    "file.arrow": lambda rows: arrow(as_table(rows), pa.ipc.new_file, rows_at_once=3),
}


# Some files of which each is read as a whole, and then in so many bytes for each task.
CUTS = (1, 7, 60, 200)


def read_at_a_cut(paths: list[Path], split_bytes: int) -> dict[str, File | str]:
    """What was read of each file: its records and rejects, or that it is an error."""
    found = read_each(paths, split_bytes=split_bytes)
    assert not any("\n" in fault for file in found.values() for fault in file.faults)
    return {name: "an error" if file.faults else file for name, file in found.items()}


@pytest.mark.parametrize("format", TEXT_FORMATS)
def test_each_record_of_a_text_file_is_read_in_the_same_way_at_any_cut(tmp_path, format):
    numbers, paths = count(), []

    @examples(40)
    @given(st.sampled_from(["", "", *COMPRESS]), corpora, damages, damages)
    def draw(suffix, corpus, damage, damage_after):
        paths.append(tmp_path / f"{next(numbers)}.{format}{suffix}")
        content = COMPRESS[suffix](damaged(TEXT_FORMATS[format](corpus), damage))
        paths[-1].write_bytes(damaged(content, damage_after if suffix else []))

    draw()
    whole = read_at_a_cut(paths, 1 << 20)
    for number, split_bytes in enumerate(CUTS):
        some = paths[number :: len(CUTS)]
        assert read_at_a_cut(some, split_bytes) == {path.name: whole[path.name] for path in some}


@pytest.mark.parametrize("name", BINARY_FORMATS)
def test_each_row_of_a_table_is_read_in_the_same_way_at_any_cut(tmp_path, name):
    """pyarrow may crash at a damaged file, of which a run reports the name: in another process."""
    numbers, intact = count(), dict[Path, tuple[bytes, int]]()

    @examples(20)
    @given(tables, damages)
    def draw(rows, damage):
        path, content = tmp_path / f"{next(numbers)}.{name}", BINARY_FORMATS[name](rows)
        path.write_bytes(damaged(content, damage))
        intact[path] = content, len(rows)

    draw()
    read, pool = dict[str, File | str](), None
    paths = [*intact]
    for start in range(0, len(paths), 2):
        some = paths[start : start + 2]
        pool = pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            whole = pool.submit(read_at_a_cut, some, 1 << 20).result()
            assert pool.submit(read_at_a_cut, some, CUTS[start // 2 % len(CUTS)]).result() == whole
            read |= whole
        except BrokenProcessPool:
            pool = None
    if pool:
        pool.shutdown()
    assert len(read) > len(paths) / 2
    for path in (path for path in paths if isinstance(read.get(path.name), File)):
        (content, rows), file = intact[path], read[path.name]
        if path.read_bytes() == content or name == "parquet":
            assert len(file.records) + len(file.rejects) == rows  # type: ignore[union-attr]


VERSION = ("format", "number", "previous", "kind", "time", "job", "increments", "total")


@pytest.fixture(scope="module")
def grown(tmp_path_factory) -> Path:
    """A dataset of which one version has expired."""
    folder = tmp_path_factory.mktemp("grown")
    (folder / "a.jsonl").write_text('{"text": "one"}\n')
    for kind in ("--append", "--overwrite"):
        options = [f"--input={folder}/a.jsonl", f"--tokenizer={TOKENIZER}", f"--output={folder}/out"]
        assert chatmill("build", kind, *options, "--direct_num_workers=1") == 0
    assert chatmill("expire", folder / "out", "--older_than=0s") == 0
    return folder / "out"


@FUZZ
@given(values | st.fixed_dictionaries(dict.fromkeys(VERSION, values)), damages)
def test_any_bytes_in_a_version_of_a_dataset_are_an_error_in_one_line(grown, content, damage):
    version = grown / "_chatmill" / "versions" / "00000002.json"
    written = version.read_bytes()
    try:
        for found in (damaged(written, damage), damaged(json.dumps(content).encode(), damage)):
            version.write_bytes(found)
            try:
                assert Dataset(str(grown)).version == 2
            except (InputError, UserError) as error:  # it may have another format
                assert "\n" not in str(error) and str(version) in str(error)
    finally:
        version.write_bytes(written)
