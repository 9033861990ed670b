"""--dedup exact: of records with the same tokens and labels the first is kept, in the order of files and sources."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import (
    assert_statistics_add_up,
    read_exceptions,
    read_manifest,
    read_rows,
    stopped_before_the_commit,
    work_in,
    write_jsonl,
)
from support.paths import TOKENIZER

TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


def chat(number: int) -> dict[str, Any]:
    return {"id": number, "messages": [user(f"{number}?"), assistant("word " * number)]}


def as_sharegpt(record: dict[str, Any]) -> dict[str, Any]:
    turns = [{"from": of["role"].replace("user", "human"), "value": of["content"]} for of in record["messages"]]
    return {"conversations": turns, "topic": "other"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    """30 chats, and a second source: 20 others, 10 of the first in another schema, and one of its own twice."""
    folder = tmp_path_factory.mktemp("sources")
    chats = [chat(number) for number in range(1, 31)]
    with_tools = {**chat(1), "tools": [TOOL]}  # rendered differently, if the template prints tools
    write_jsonl(folder / "first.jsonl", chats)
    second = [chat(number) for number in range(31, 51)] + [as_sharegpt(chat(number)) for number in range(1, 11)]
    write_jsonl(folder / "second.jsonl", [*second, chat(31), with_tools])
    entries = [{"name": name, "input": [f"{folder}/{name}.jsonl"]} for name in ("first", "second")]
    (folder / "recipe.yaml").write_text(json.dumps({"sources": entries}))
    return folder / "recipe.yaml"


def build(recipe: Path, output: Path, *options: object) -> Path:
    others = ("--tokenizer", TOKENIZER, "--split_bytes=1500", "--direct_num_workers=1", "--keep_columns=id")
    assert chatmill("build", recipe, *others, "--unprinted=report", "--output", output, *options) == 0
    return output


@pytest.fixture(scope="module")
def built(recipe, tmp_path_factory) -> Path:
    return build(recipe, tmp_path_factory.mktemp("built") / "out", "--dedup=exact")


def test_duplicates_are_dropped_and_the_exceptions_name_what_is_kept(recipe, built, tmp_path):
    plain = build(recipe, tmp_path / "plain")
    seen, expected = set[tuple[int, ...]](), []
    for row in read_rows(plain):
        if (ids := tuple(row["input_ids"])) not in seen:
            expected.append(row)
        seen.add(ids)
    assert read_rows(built) == expected
    manifest = read_manifest(built)
    dropped = len(read_rows(plain)) - len(expected)
    assert dropped in (11, 12)  # as the template prints tools or not
    outcomes = {"truncated": 0, "dropped": {"duplicate": dropped}, "rejected": {}}
    assert manifest["records"] == {"read": 62, "kept": 62 - dropped, **outcomes}
    assert manifest["statistics"]["duplicates"] == {"1 of 0": dropped - 1, "1 of 1": 1}
    assert [source["records"]["dropped"] for source in manifest["sources"]] == [{}, {"duplicate": dropped}]
    assert_statistics_add_up(manifest)
    assert sum(line["reason"] == "duplicate" for line in read_exceptions(built)) == dropped


def test_records_of_several_examples_are_the_same_if_all_of_these_are(tmp_path):
    ids = {"a": [[5, 6], [7]], "b": [[5], [6, 7]], "c": [[5, 6], [7]], "d": [[5, 6]], "e": [[5, 6]]}
    rows = {id: [{"input_ids": row, "labels": row} for row in of_record] for id, of_record in ids.items()}
    (tmp_path / "rows.py").write_text("def rows(record):\n    return record['rows']\n")
    common = ("--tokenizer", TOKENIZER, "--direct_num_workers=1", "--keep_columns=id", "--dedup=exact")
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"id": id, "rows": of_record} for id, of_record in rows.items()])
    formatter = ("--formatter", f"{tmp_path}/rows.py:rows")
    assert chatmill("build", "--input", corpus, *common, *formatter, "--output", tmp_path / "out") == 0
    found = [(row["id"], row["input_ids"]) for row in read_rows(tmp_path / "out")]
    assert found == [(id, row) for id in "abd" for row in ids[id]]
    assert [json.loads(line["columns"]) for line in read_exceptions(tmp_path / "out")] == [{"id": "c"}, {"id": "e"}]


def test_records_that_train_on_other_tokens_are_no_duplicates(tmp_path):
    """The first one has no label left at this length: it is not to take the others with it."""
    ids = [*range(20, 32)]
    labels = [[-100] * 10 + [30, 31], ids, ids]
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [{"input_ids": ids, "labels": each} for each in labels])
    common = ("--tokenizer", TOKENIZER, "--direct_num_workers=1", "--dedup=exact", "--max_length=8")
    assert chatmill("build", "--input", corpus, *common, "--output", tmp_path / "out") == 0
    assert read_rows(tmp_path / "out") == [{"input_ids": ids[:8], "labels": ids[:8]}]
    dropped = read_manifest(tmp_path / "out")["records"]["dropped"]
    assert dropped == {"no_trained_tokens_left": 1, "duplicate": 1}


def test_append_compares_what_it_adds_with_itself_alone_and_says_so(tmp_path, capfd):
    """In b are chats of a and one chat twice, in c chats of a and of b."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    common = ("--tokenizer", TOKENIZER, "--direct_num_workers=1", "--append", "--dedup=exact", "--keep_columns=id")
    said = []
    for name, numbers in {"a": range(1, 21), "b": [5, *range(21, 31), 21, 6], "c": [30, 5, 31]}.items():
        write_jsonl(folder / f"{name}.jsonl", [chat(number) for number in numbers])
        assert chatmill("build", "--input", folder, *common, "--output", out) == 0
        said.append("new records are compared with each other, not with those that are there" in capfd.readouterr().err)
    assert said == [False, True, True]
    [line] = [line for line in read_exceptions(out) if line["reason"] == "duplicate"]
    assert (line["detail"], line["columns"]) == (f"of {folder}/b.jsonl:{len(json.dumps(chat(5))) + 1}", '{"id":"21"}')
    manifest = read_manifest(out)
    assert manifest["records"]["dropped"] == {"duplicate": 1} and manifest["records"]["kept"] == 35
    assert manifest["statistics"]["duplicates"] == {"0 of 0": 1}


def test_more_records_than_one_step_can_compare_are_refused_with_their_number(recipe, tmp_path, capfd):
    """What a task has sent is in its receipt: here one says that it has 100 million records."""
    command = ("build", recipe, "--tokenizer", TOKENIZER, "--unprinted=report", "--direct_num_workers=1")
    command += ("--dedup=exact", "--output", tmp_path / "out")
    with stopped_before_the_commit():
        assert chatmill(*command) == 1
        raise RuntimeError("stopped before the commit")
    work = work_in(tmp_path / "out")
    receipt = work / "receipts" / "0000000-00000.json"
    content = receipt.read_bytes().rpartition(b',"checksum":"')[0] + b"}"
    content = content.replace(b'"rows":30,', b'"rows":100000000,', 1)
    checksum = hashlib.sha256(work.name.encode() + content).hexdigest().encode()
    receipt.write_bytes(content[:-1] + b',"checksum":"' + checksum + b'"}')
    capfd.readouterr()
    assert chatmill(*command) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        "chatmill: there are 100,000,032 records, and duplicates are found and mixes are made among 100,000,000 at "
        "most, which take 6.4 GB of memory. Build them in parts."
    )


def test_a_build_that_may_have_too_many_records_says_so_at_its_start(tmp_path, capfd):
    """A Parquet file of 150 GB, of which all but 30 records is a hole: it says where its rows are."""
    table = pa.Table.from_pylist([{"text": f"{number} and more"} for number in range(30)])
    pq.write_table(table, tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    with (tmp_path / "a.parquet").open("r+b") as file:
        file.truncate(len(content) - footer)
        file.seek(150 * 10**9 - footer)
        file.write(content[-footer:])
    common = ("--tokenizer", TOKENIZER, "--split_bytes", 10**12, "--direct_num_workers=1")
    for options in (("--dedup=exact",), ("--shuffle=global", "--epochs=2"), ("--shuffle=global",)):
        out = tmp_path / "-".join(options)
        assert chatmill("build", "--input", tmp_path / "a.parquet", *common, *options, "--output", out) == 0
        warning = (
            "chatmill: warning: duplicates are found and mixes are made among 100,000,000 records at most. 150.0 GB of "
            "input have more, unless a record has 1.5 kB on average."
        )
        assert (warning in capfd.readouterr().err.splitlines()) == (options != ("--shuffle=global",))
        assert read_manifest(out)["rows"] == (60 if "--epochs=2" in options else 30)
