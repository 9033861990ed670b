"""Formatters: what they make of a record is read as any other; each record still has exactly one outcome."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import apache_beam as beam
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from support.chats import assistant, user
from support.command_line import chatmill
from support.datasets import read_manifest, read_rejects, read_rows, write_jsonl
from support.paths import TOKENIZER
from support.records import outcome
from support.templates import DROPS_REASONING
from transforms import (
    ApplyChatTemplate,
    BuildLabels,
    FilterExamples,
    MapExamples,
    ParseConversations,
    PlainText,
    ReadConversations,
    RecordError,
    RenderConfig,
    Tokenize,
    TruncateOrPack,
    WriteDataset,
    parse,
)

FORMATTERS = """
from dataclasses import dataclass

@dataclass
class Pair:
    question: str

def made(record):
    return record["made"]

def to_messages(record):
    return {"messages": [{"role": "user", "content": record["q"]}, {"role": "assistant", "content": record["a"]}]}

def to_text(record):
    return Pair(record["q"]).question + record["a"]

def renames(record):
    return {"body": record["q"], "q": "not this"}

def path(record):
    return __file__

def eats(record):
    if not record["log"]:
        return "nothing to eat"
    while record["log"]:
        record["log"].pop()
    record.clear()
    return record
"""
QUESTION = {"q": "Where? ", "a": "Here."}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("formatters") / "chat_formatters.py"
    path.write_text(FORMATTERS)
    return path


def test_a_formatter_in_a_file_or_a_module_returns_a_record_or_a_text(file, monkeypatch):
    monkeypatch.syspath_prepend(file.parent)
    messages = {"messages": [user("Where? "), assistant("Here.")]}
    made = {"to_text": {"text": "Where? Here."}, "to_messages": messages, "path": {"text": str(file)}}
    for where in (str(file), "chat_formatters"):
        assert {name: outcome(QUESTION, formatter=f"{where}:{name}")["becomes"] for name in made} == made


def test_columns_are_kept_from_the_record_and_renamed_in_what_the_formatter_returns(file):
    found = outcome(QUESTION, formatter=f"{file}:renames", columns={"text": "body"}, keep_columns=("q",))
    assert (found["becomes"], found["columns"]) == ({"text": "Where? "}, {"q": "Where? "})


CANNOT_BE_READ = "it returned a value that cannot be read: "


@pytest.mark.parametrize(
    ("made", "reason", "words"),
    [
        ("record['unheard of']", "formatter", "KeyError: 'unheard of'"),
        ("sys.exit(0)", "formatter", "SystemExit: 0"),
        ("fail('no \\ud83d\\nline')", "formatter", r"ValueError: no \ud83d line"),
        ("1", "formatter", "it returned int; expected a dict, a string"),
        ("{'speech': 1}", "unknown_schema", "speech"),
        ("''", "empty", "text"),
        ("{'messages': [{'role': 'user', 'content': 'a'}], 'tools': '\\ud83d'}", "bad_tools", "tools"),
        ("{'conversations': [{'from': 'function_call', 'value': '\\ud83d'}]}", "bad_tool_calls", "conversations[0]"),
        (
            "{'messages': [{'role': 'assistant', 'tool_calls': [{'arguments': object()}]}]}",
            "bad_tool_calls",
            "messages[0]",
        ),
        ("{'messages': [{'role': 'user', 'content': 'a', 0: 1}]}", "formatter", CANNOT_BE_READ),
        ("{'messages': [{'role': 'user', 'content': 'a', 'weight': {(1, 2): 3}}]}", "formatter", CANNOT_BE_READ),
        ("{'text': 'a', 'images': np.array([])}", "formatter", CANNOT_BE_READ),
        ("['fine', {'text': 'a', 'images': np.array([1, 2])}]", "formatter", CANNOT_BE_READ),
    ],
)
def test_a_formatter_that_fails_or_returns_what_is_not_a_record_costs_its_record(tmp_path, made, reason, words):
    path = tmp_path / "failing.py"
    fail = "import sys\nimport numpy as np\ndef fail(text):\n    raise ValueError(text)\n"
    path.write_text(f"{fail}def made(record):\n    return {made}\n")
    for record in (QUESTION, json.dumps(QUESTION).encode()):
        with pytest.raises(RecordError) as raised:
            parse(record, formatter=f"{path}:made", validation_fraction=0.5)
        assert (raised.value.reason, words in raised.value.detail) == (reason, True), raised.value.detail


def test_a_row_that_a_formatter_changed_is_rejected_as_it_was_read(file, tmp_path):
    pq.write_table(pa.Table.from_pylist([{"log": [1, 2]}, {"log": []}]), tmp_path / "rows.parquet")
    options = [f"--tokenizer={TOKENIZER}", f"--formatter={file}:eats", "--max_reject_fraction=1"]
    options += [f"--input={tmp_path / 'rows.parquet'}", f"--output={tmp_path / 'out'}", "--direct_num_workers=1"]
    assert chatmill("build", *options) == 0
    assert [json.loads(reject["record"]) for reject in read_rejects(tmp_path / "out")] == [{"log": [1, 2]}]


def test_a_formatter_gets_records_of_any_depth_that_can_be_read(file):
    record = b'{"q": "Where? ", "a": "Here.", "deep": ' + b"[" * 600 + b"]" * 600 + b"}"
    assert outcome(record, formatter=f"{file}:to_text")["becomes"] == {"text": "Where? Here."}


def test_a_formatter_file_that_has_changed_is_loaded_again(tmp_path):
    path = tmp_path / "formatter.py"
    for text in ("one", "two"):
        path.write_text(f"def f(record): return {text!r}")
        assert outcome({}, formatter=f"{path}:f")["becomes"] == {"text": text}


CHAT = {"messages": [user("a"), assistant("b")]}
REFUSED = {"messages": [user("refused"), assistant("b")]}
THOUGHTS = {"messages": [user("a"), assistant("b", reasoning_content="X"), user("c"), assistant("d")]}
LONG, BAD = "many words " * 50, {**CHAT, "label": False}
# What a formatter makes of a record, and how many rows there are of it; or why there are none.
MADE: dict[str, tuple[Any, int | str]] = {
    "a text": ("a text", 1),
    "nothing": (None, "filtered"),
    "an empty list": ([], "filtered"),
    "a number": (1, "formatter: it returned int"),
    "several": (["one", CHAT, "two"], 3),
    "a list of one": ([CHAT], 1),
    "one that is malformed": (["one", {"text": ""}], "empty: example 2 of the formatter"),
    "one that is null": (["one", None], "formatter: it returned a list with NoneType"),
    "a list in a list": ([["one"]], "formatter: it returned a list with list"),
    "one that is undesirable": ([BAD, CHAT], 1),
    "all undesirable": ([BAD, BAD], "undesirable"),
    "one is undesirable": (BAD, "undesirable"),
    "refused by the template": ([CHAT, REFUSED, CHAT, REFUSED], "template: no"),
    "one of them too long": (["one", LONG], 1),
    "all too long": ([LONG, LONG], "too_long"),
    "of two contexts": (THOUGHTS, 2),
    "several of two contexts": ([THOUGHTS, THOUGHTS, "x"], 5),
    **{f"split {number}": ([f"record {number}", *(f"{number} {i}" for i in range(4))], 5) for number in range(12)},
}


def test_the_first_example_of_a_record_says_in_which_split_all_are(file):
    for number in range(20):
        made = [f"{number} {i}" for i in range(4)]
        found = parse({"made": made}, formatter=f"{file}:made", validation_fraction=0.5)
        [first] = parse({"text": made[0]}, validation_fraction=0.5)
        assert {example.validation for example in found} == {first.validation}


def rows_by_id(output: Path) -> dict[str, list[str]]:
    """The texts of the rows of each record. All rows of a record are in one split."""
    decode = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).decode
    rows: dict[str, list[str]] = defaultdict(list)
    for split in ("train", "validation"):
        earlier = {*rows}
        for row in read_rows(output, split):
            assert row["id"] not in earlier
            rows[row["id"]].append(decode(row["input_ids"], skip_special_tokens=False))
    return dict(rows)


@pytest.fixture(scope="module")
def output(tmp_path_factory, file) -> Path:
    folder = tmp_path_factory.mktemp("several")
    corpus = write_jsonl(folder / "made.jsonl", [{"id": id, "made": made} for id, (made, _) in MADE.items()])
    refuses = "{% for m in messages %}{% if m.content == 'refused' %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    options = ["--tokenizer", TOKENIZER, "--formatter", f"{file}:made", "--chat_template", refuses + DROPS_REASONING]
    options += ["--keep_columns=id,topic", "--parity=expand", "--max_length=40", "--truncation=drop"]
    options += ["--validation_fraction=0.5", "--max_reject_fraction=1", "--direct_num_workers=1"]
    assert chatmill("build", "--input", corpus, "--output", folder / "out", *options) == 0
    return folder / "out"


def test_each_record_has_one_outcome_and_the_rows_of_its_examples(output):
    rows = rows_by_id(output)
    assert {id: len(texts) for id, texts in rows.items()} == {id: of for id, (_, of) in MADE.items() if of in range(9)}
    assert rows["several"][0].startswith("one") and "assistant" in rows["several"][1] and "two" in rows["several"][2]
    rejects = {json.loads(reject["record"])["id"]: reject for reject in read_rejects(output)}
    expected = {id: of.split(": ") for id, (_, of) in MADE.items() if ":" in str(of)}  # type: ignore[union-attr]
    assert {id: reject["reason"] for id, reject in rejects.items()} == {id: why[0] for id, why in expected.items()}
    for id, (_, words) in expected.items():
        assert words in rejects[id]["detail"]
        assert json.loads(rejects[id]["record"])["made"] == MADE[id][0]


def test_records_are_counted_and_added_rows_are_noted(output):
    manifest = read_manifest(output)
    assert manifest["records"]["read"] == len(MADE)
    assert (manifest["records"]["kept"], manifest["records"]["truncated"]) == (18, 1)
    assert manifest["records"]["dropped"] == {"filtered": 2, "too_long": 1, "undesirable": 2}
    assert manifest["tokenized_by_reference"] == {"small_input": 20}  # records, not examples
    # Rows are not added by an example that is alone, or whose others are not written.
    assert manifest["notes"] == manifest["notes"] | {
        "formatter_rows_added": 2 + 2 + 12 * 4,
        "formatter_examples_dropped": 1,
        "parity_rows_added": 1 + 2,
        "records_without_topic": 21,  # records, not examples
    }


def test_filters_and_maps_of_several_examples_leave_each_record_one_outcome(tmp_path, file):
    made = [["a", "bb"], ["bb", "bb"], "a", ["x", "a"], ["x"]]
    corpus = write_jsonl(tmp_path / "made.jsonl", [{"id": str(id), "made": each} for id, each in enumerate(made)])

    def doubled(example: Any) -> Any:
        text = example.content.text
        return None if text == "x" else [msgspec.structs.replace(example, content=PlainText(text + n)) for n in "12"]

    with beam.Pipeline("FnApiRunner") as pipeline:
        (
            pipeline
            | ReadConversations(str(corpus))
            | ParseConversations(formatter=f"{file}:made", keep_columns=("id",))
            | FilterExamples(lambda example: len(example.content.text) < 2, reason="long")
            | MapExamples(doubled)
            | ApplyChatTemplate(RenderConfig(tokenizer=str(TOKENIZER)))
            | Tokenize(str(TOKENIZER))
            | BuildLabels()
            | TruncateOrPack(max_length=40)
            | WriteDataset(str(tmp_path / "out"), {}, tokenizer=str(TOKENIZER), max_length=40, keep_columns=["id"])
        )
    rows = {id: [text[:2] for text in texts] for id, texts in rows_by_id(tmp_path / "out").items()}
    assert rows == {"0": ["a1", "a2"], "2": ["a1", "a2"], "3": ["a1", "a2"]}
    manifest = read_manifest(tmp_path / "out")
    assert (manifest["records"]["kept"], manifest["records"]["dropped"]) == (3, {"long": 1, "filtered": 1})
    assert manifest["notes"]["formatter_rows_added"] == 3
    # Of "0" the filter left out one, and the map one of "3".
    assert manifest["notes"]["filtered_examples"] == 2
    first = manifest["first_examples"]["filtered_examples"]
    assert (first["position"], first["detail"]) == ("byte 0", "1 of its 2 examples: long")
