"""--decontaminate: records that share a run of words with evaluation sets are reported or dropped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import fsspec
import pytest

from support.chats import assistant, system, user
from support.command_line import chatmill
from support.datasets import assert_statistics_add_up, read_exceptions, read_manifest, read_rows, write_jsonl
from support.paths import TOKENIZER

QUESTION = "Mark has a garden with 10 yellow flowers, and he plants 80% more of those in purple. How many has he?"
WORDS = "mark has a garden with 10 yellow flowers and he plants 80 more"
_SPLIT = QUESTION.split()
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": {}}}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}


def chat(*contents: str) -> dict[str, Any]:
    return {"messages": [(assistant if at % 2 else user)(text) for at, text in enumerate(contents)]}


CALLED = [user("look"), assistant("", tool_calls=[CALL]), {"role": "tool", "tool_call_id": "1", "content": QUESTION}]
# What is planted, and the message with which the run begins; None if it is not looked for there.
PLANTED: dict[str, tuple[dict[str, Any], int | None]] = {
    "verbatim": (chat(QUESTION, "18"), 1),
    "spacing and case": (chat(QUESTION.upper().replace(" ", " \n\t"), "18"), 1),
    "punctuation": (chat("hm?", f"«{QUESTION.replace(' ', ' … ')}»"), 2),
    "split across turns": (chat("hi", "hello", " ".join(_SPLIT[:6]), " ".join(_SPLIT[6:])), 3),
    "in a tool's answer": ({"messages": [*CALLED, assistant("ok")], "tools": [TOOL]}, 3),
    "in reasoning": ({"messages": [user("hm?"), assistant("18", reasoning_content=QUESTION)]}, 2),
    "in the system prompt": ({"messages": [system(QUESTION), *chat("hi", "ok")["messages"]]}, None),
    "other words": (chat(QUESTION.replace("garden", "yard").replace("more", "less"), "18"), None),
}
ASKED = (f"Is {number} a number that has {number + 1} after it, and what do you think of it?" for number in range(40))
CLEAN = [chat(question, "Yes.") for question in ASKED]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_jsonl(folder / "chats.jsonl", [*CLEAN[:20], *(record for record, _ in PLANTED.values()), *CLEAN[20:]])
    (folder / "evals").mkdir()
    asked = [{"question": "What is 2 + 2?"}, {"question": QUESTION, "answer": "18"}]
    write_jsonl(folder / "evals" / "math.jsonl", asked)
    (folder / "evals" / "more.json").write_text(json.dumps([{"messages": chat(QUESTION, "18")["messages"]}]))
    return folder


def command(folder: Path, output: Path, *options: object) -> Sequence[str]:
    found = ("build", "--input", folder / "chats.jsonl", "--tokenizer", TOKENIZER, "--output", output)
    others = ("--split_bytes=3000", "--direct_num_workers=1", "--unprinted=report", "--decontaminate", folder / "evals")
    return [*map(str, (*found, *others, *options))]


def positions(folder: Path) -> dict[int, str]:
    """The names of what is planted, by the position of the record."""
    lengths = map(len, (folder / "chats.jsonl").read_bytes().splitlines(keepends=True))
    return dict(zip([*accumulate(lengths, initial=0)][20:], PLANTED, strict=False))


def expected_details() -> dict[str, tuple[str, str]]:
    """What is planted and found: the record and the message, and the words."""
    return {
        name: (f"math.jsonl:{len(json.dumps({'question': 'What is 2 + 2?'})) + 1}, message {message}", WORDS)
        for name, (_, message) in PLANTED.items()
        if message
    }


def details(folder: Path, output: Path) -> dict[str, tuple[str, str]]:
    """What the exceptions say of records that are planted."""
    named, found = positions(folder), {}
    for line in read_exceptions(output):
        if line["detail"]:
            place, _, run = line["detail"].partition(": ")
            found[named[line["origin_position"]]] = place, run.partition(";")[0]
    return found


@pytest.fixture(scope="module")
def reported(folder, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("reported") / "out"
    assert chatmill(*command(folder, output)) == 0
    return output


def test_report_keeps_and_counts_the_records_and_lists_them_as_exceptions(folder, reported, capfd):
    manifest = read_manifest(reported)
    assert manifest["records"]["kept"] == manifest["records"]["read"] == 48
    assert manifest["notes"]["contaminated"] == 6
    assert manifest["statistics"]["contaminated"] == {"math.jsonl": 6}
    evaluations = manifest["job"]["evaluations"]
    assert (evaluations["records"], evaluations["too_short"], evaluations["in_templates"]) == (3, 1, 0)
    assert details(folder, reported) == expected_details()
    assert {line["outcome"] for line in read_exceptions(reported)} == {"kept"}
    assert_statistics_add_up(manifest)
    capfd.readouterr()
    assert chatmill("inspect", reported, "--reason=contaminated", "--limit=9", "--json") == 0
    shown = json.loads(capfd.readouterr().out)
    assert len(shown["records"]) == 6 and not shown["rows"]
    assert WORDS in shown["records"][0]["detail"]
    for page in ("README.md", "report.html"):
        assert "math.jsonl" in (reported / page).read_text(), page


def test_drop_leaves_them_out_and_all_else_is_as_without(folder, reported, tmp_path):
    output = tmp_path / "out"
    assert chatmill(*command(folder, output, "--contaminated=drop")) == 0
    manifest = read_manifest(output)
    outcomes = {"truncated": 0, "dropped": {"contaminated": 6}, "rejected": {}}
    assert manifest["records"] == {"read": 48, "kept": 42, **outcomes}
    assert manifest["statistics"]["contaminated"] == {"math.jsonl": 6}
    assert details(folder, output) == expected_details()
    rows = read_rows(reported)
    assert read_rows(output) == rows[:20] + rows[26:]


def test_shuffled_dataset_has_the_same_matches(folder, tmp_path):
    options = ("--shuffle=global", "--shards=2", "--dedup=exact")
    assert chatmill(*command(folder, tmp_path / "out", *options)) == 0
    assert details(folder, tmp_path / "out") == expected_details()


def test_append_with_changed_evaluation_sets_is_refused(folder, tmp_path, capfd):
    inputs = tmp_path / "inputs"
    (inputs / "evals").mkdir(parents=True)
    for path in ("chats.jsonl", "evals/math.jsonl"):
        (inputs / path).write_bytes((folder / path).read_bytes())
    write_jsonl(inputs / "more.jsonl", CLEAN[:3])
    assert chatmill(*command(inputs, tmp_path / "out", "--append")) == 0
    write_jsonl(inputs / "evals" / "other.jsonl", [{"question": QUESTION}])
    capfd.readouterr()
    assert chatmill(*command(inputs, tmp_path / "out", "--append", "--input", inputs / "more.jsonl")) == 2
    error = capfd.readouterr().err
    assert "the evaluation sets (--decontaminate) differ" in error and error.count("\n") == 1
    (inputs / "evals" / "other.jsonl").unlink()
    assert chatmill(*command(inputs, tmp_path / "out", "--append", "--input", inputs / "more.jsonl")) == 0
    assert read_manifest(tmp_path / "out")["records"]["read"] == 51


def test_evaluation_sets_of_several_stores_have_their_urls_and_of_one_folder_their_names(tmp_path):
    for name in ("a/x", "b/y"):
        (tmp_path / name).parent.mkdir()
        write_jsonl(tmp_path / f"{name}.jsonl", [{"question": QUESTION}])
    fsspec.filesystem("memory").pipe_file("/evals/z.jsonl", json.dumps({"question": QUESTION}).encode())
    chats = write_jsonl(tmp_path / "chats.jsonl", [chat(QUESTION, "18")])
    of_disk = [f"{tmp_path}/a/x.jsonl", f"{tmp_path}/b/y.jsonl"]
    for number, (urls, place) in enumerate(
        [(of_disk, "a/x.jsonl:0"), ([*of_disk, "memory://evals/z.jsonl"], f"{tmp_path}/a/x.jsonl:0")]
    ):
        options = ("--input", chats, "--tokenizer", TOKENIZER, "--output", tmp_path / f"out{number}")
        assert chatmill("build", *options, "--direct_num_workers=1", "--decontaminate", ",".join(urls)) == 0
        assert [line["detail"].partition(", ")[0] for line in read_exceptions(tmp_path / f"out{number}")] == [place]


def test_records_of_the_reason_are_those_with_a_match_and_no_duplicates(tmp_path, capfd):
    evaluations = write_jsonl(tmp_path / "evals.jsonl", [{"question": QUESTION}])
    chats = write_jsonl(tmp_path / "chats.jsonl", [chat(QUESTION, "18"), chat("hi", "ok"), chat("hi", "ok"), {"x": 1}])
    output, others = tmp_path / "out", ("--dedup=exact", "--max_reject_fraction=1", "--direct_num_workers=1")
    common = ("--input", chats, "--tokenizer", TOKENIZER, "--output", output, "--decontaminate", evaluations)
    assert chatmill(*("build", *common, *others)) == 0
    capfd.readouterr()
    assert chatmill("inspect", output, "--reason", "contaminated") == 0
    shown = capfd.readouterr().out
    assert shown.count("chats.jsonl:") == 1 and "evals.jsonl:0" in shown and "duplicate" not in shown
