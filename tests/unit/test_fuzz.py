"""Fuzzing: whatever the bytes of a file are, each record has one outcome, and the same one at any cut."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from pipeline.job import read_job
from support.command_line import chatmill
from support.drawn import examples
from support.paths import TOKENIZER
from transforms import Conversation, Dataset, InputError, UserError
from transforms.dataset.layout import Folder
from transforms.files.listing import list_inputs
from transforms.files.tasks import make_tasks
from transforms.model.receipts import File, Receipt, Sent, read_receipt, write_receipt
from transforms.records.input_options import ParseOptions
from transforms.steps.parse import Parser
from transforms.steps.read import read_task

FUZZ = examples(150, suppress_health_check=list(HealthCheck))
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}

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


def as_arrow(rows: list[dict[str, Any]], new: Callable[..., Any]) -> bytes:
    sink, table = io.BytesIO(), as_table(rows)
    with new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return sink.getvalue()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(as_table(rows), sink, row_group_size=3, write_page_checksum=True)
    return sink.getvalue()


def footer_of(parquet: bytes) -> bytes:
    """The end of a file, which has no checksum: it may say something else of the columns."""
    return parquet[-8 - int.from_bytes(parquet[-8:-4], "little") :]


TEXT_FORMATS: dict[str, Callable[[list[Any]], bytes]] = {
    "jsonl": as_lines,
    "json": lambda found: json.dumps(found, indent=1).encode(),
    "csv": lambda found: as_delimited(found, ","),
    "tsv": lambda found: as_delimited(found, "\t"),
}
BINARY_FORMATS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "parquet": as_parquet,
    "stream.arrow": lambda rows: as_arrow(rows, pa.ipc.new_stream),
    "file.arrow": lambda rows: as_arrow(rows, pa.ipc.new_file),
}


PARSE = Parser(ParseOptions())


def read_outcomes(path: Path, tasks: int = 1, chunk_bytes: int = 1 << 20) -> Any:
    """What became of each record of a file, in order; or the error that is meant for the user."""
    try:
        found: list[tuple[Any, ...]] = []
        files = list_inputs([str(path)])
        for task in make_tasks(files, 1 + sum(file.unpacked_bytes for file in files) // tasks):
            for chunk in read_task(task, chunk_bytes, max_record_bytes=400):
                examples = PARSE(chunk)
                outcomes = examples.outcomes
                assert outcomes.read == len(chunk.records) + len(chunk.outcomes.rejects)
                left_out = len(outcomes.drops) + len(outcomes.rejects)
                assert outcomes.read - left_out == len(examples.examples), "a record has no outcome, or two"
                found += [("reject", *task.origin(one.position)[1:], one.reason) for one in outcomes.rejects]
                found += [
                    ("example", *task.origin(one.position)[1:], said_by(one.content)) for one in examples.examples
                ]
        return sorted(found)
    except (InputError, UserError) as error:
        assert "\n" not in str(error)
        return type(error).__name__


def said_by(content: Any) -> str:
    """All that an example says. Messages may be decoded or not: that depends on what was parsed before."""
    if isinstance(content, Conversation):
        return repr((content.messages, content.tools, content.template_kwargs, content.completion_start))
    return repr(pickle.dumps(content))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One folder for all examples of a property; each writes its own files into it."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("format", TEXT_FORMATS)
@FUZZ
@given(st.sampled_from(["", "", *COMPRESS]), corpora, damages, damages, st.integers(1, 9), st.integers(1, 200))
def test_each_record_of_a_text_file_has_one_outcome_at_any_cut(
    folder, format, suffix, corpus, damage, damage_after, tasks, chunk_bytes
):
    path = folder / f"a.{format}{suffix}"
    path.write_bytes(
        damaged(COMPRESS[suffix](damaged(TEXT_FORMATS[format](corpus), damage)), damage_after if suffix else [])
    )
    whole = read_outcomes(path)
    assert read_outcomes(path) == whole
    assert read_outcomes(path, tasks, chunk_bytes) == whole


class Isolated:
    """Calls functions in another process, which may crash."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns; `crash` if it ends its process."""
        self._pool = self._pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self._pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            self._pool = None
            return "crash"

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()


@pytest.fixture(scope="module")
def isolated() -> Iterator[Isolated]:
    calls = Isolated()
    yield calls
    calls.close()


@pytest.mark.parametrize("name", BINARY_FORMATS)
@FUZZ
@given(tables, damages, st.integers(1, 9), st.integers(1, 200))
def test_each_row_of_a_table_has_one_outcome_at_any_cut(folder, isolated, name, rows, damage, tasks, chunk_bytes):
    """pyarrow may crash at a damaged file, of which a run reports the name."""
    path = folder / f"a.{name}"
    content = BINARY_FORMATS[name](rows)
    path.write_bytes(damaged(content, damage))
    whole = isolated(read_outcomes, path)
    found = isolated(read_outcomes, path, tasks, chunk_bytes)
    assert found == whole or "crash" in (whole, found)
    if path.read_bytes() == content:
        assert not rows or len(whole) == len(rows)
    elif name == "parquet" and isinstance(whole, list):
        assert len(whole) == len(rows)
        if path.read_bytes().endswith(footer_of(content)):  # the damage is where it changes nothing
            path.write_bytes(content)
            assert whole == read_outcomes(path)


INCREMENT = "0123456789abcdef"
names = st.text(max_size=9) | st.sampled_from(["a.parquet", "../a", "/a", "a/b", "..", ""])
paths = names | st.builds("{}/{}".format, st.sampled_from([f"data/{INCREMENT}", INCREMENT, "..", ""]), names)
sizes = st.integers(0, 1 << 40)
shards = st.builds(File, paths, sizes, names, names, names, sizes, sizes, sizes)
counts = st.dictionaries(names, st.integers(0, 1 << 40), max_size=2)
receipts = st.builds(
    Receipt, task=st.integers(0, 9), shard=st.just(0), last=st.just(True), files=st.lists(shards, max_size=2),
    counts=st.builds(lambda notes: msgspec.Raw(msgspec.json.encode({"notes": notes})), counts),
    sent=st.none() | st.builds(Sent, paths, sizes, names), increment=st.just(INCREMENT),
)  # fmt: skip


@FUZZ
@given(receipts, damages)
def test_a_receipt_is_read_as_it_was_written_or_refused(folder, receipt, damage):
    write_receipt(str(folder), receipt)
    path = folder / f"{receipt.task:07d}-00000.json"
    written = path.read_bytes()
    path.write_bytes(damaged(written, damage))
    try:
        assert read_receipt(str(path), INCREMENT) == receipt and receipt.sums()
        assert path.read_bytes() == written
        assert all(
            re.fullmatch(rf"\w+/{INCREMENT}/[^/]+", file.path) and ".." not in file.path for file in receipt.all_files()
        )
    except ValueError as error:
        assert str(path) in str(error)


@FUZZ
@given(values | st.fixed_dictionaries({"options": values, "tasks": values, "sources": values}), damages)
def test_any_job_json_is_a_job_or_damaged_or_refused_in_one_line(folder, content, damage):
    output = Folder(str(folder / "out"), INCREMENT)
    Path(output.work).mkdir(parents=True, exist_ok=True)
    Path(output.job).write_bytes(damaged(json.dumps(content).encode(), damage))
    try:
        assert read_job(output) is None
    except UserError as error:
        assert "\n" not in str(error)


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
