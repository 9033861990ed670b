"""Checks of contents: --check, what it finds, and what becomes of the records."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from support.chats import assistant, system, user
from support.command_line import chatmill
from support.datasets import read_exceptions, read_manifest, read_rows, write_jsonl
from support.paths import ROOT, TOKENIZER

# Records, and the checks that find something in each.
CASES = [json.loads(line) for line in (ROOT / "tests/data/checks.jsonl").read_text(encoding="utf-8").splitlines()]
OPTIONS = ("empty_answer,refusal:I cannot help=report", "--unprinted=report")
FAULTY = {"messages": [user("Hi"), user("Are you there?"), assistant("Yes, I am.")]}
LATE = {
    "messages": [
        user("Hi"),
        assistant("Hello."),
        system("Be kind."),
        user("Well?"),
        assistant("I am quite well, and so are they."),
    ]
}
SOUND = {"messages": [user("Hi"), assistant("Hello, how are you?")]}


def build(output: Path, corpus: Path, check: str, *options: str) -> dict[str, Any]:
    """Build a dataset, and return its manifest."""
    paths = (f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={output}")
    assert chatmill("build", *paths, f"--check={check}", "--direct_num_workers=1", *options) == 0
    return read_manifest(output)


def found_in(line: dict[str, Any]) -> list[str]:
    """The checks that found something, of a line of the exceptions."""
    return sorted(words.partition(": ")[0] for words in (line["detail"] or "").splitlines())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checks")
    corpus = write_jsonl(folder / "corpus.jsonl", [case["record"] for case in CASES])
    build(folder / "out", corpus, *OPTIONS)
    return folder / "out"


def test_each_check_finds_what_is_faulty_and_not_what_looks_like_it(dataset):
    lengths = map(len, (dataset.parent / "corpus.jsonl").read_bytes().splitlines(keepends=True))
    names = dict(zip(accumulate(lengths, initial=0), (case["case"] for case in CASES), strict=False))
    found = {names[line["origin_position"]]: found_in(line) for line in read_exceptions(dataset)}
    expected = {case["case"]: sorted(case["finds"]) for case in CASES if case["finds"]}
    assert found == expected
    counts = Counter(name for case in CASES for name in case["finds"])
    manifest = read_manifest(dataset)
    assert {name: manifest["notes"].get(name) for name in counts} == counts
    assert {*counts} <= {*manifest["first_examples"]}


def test_inspect_shows_the_records_of_a_check_with_what_was_found(dataset, capfd):
    assert chatmill("inspect", dataset, "--check", "template_token", "--json", "--limit=9") == 0
    rows = json.loads(capfd.readouterr().out)["rows"]
    texts = [piece["text"] for row in rows for example in row["examples"] for piece in example["text"]]
    assert len(rows) == sum("template_token" in case["finds"] for case in CASES)
    assert "message 1 has '[INST]'" in rows[0]["examples"][0]["detail"] and "[INST] Hi" in "".join(texts)
    assert chatmill("inspect", dataset, "--check", "loop") == 2
    assert "no record has it" in (errors := capfd.readouterr().err) and "looping_answer (" in errors


def test_report_has_what_was_found_the_largest_first(dataset):
    page = (dataset / "report.html").read_text(encoding="utf-8")
    section = page.partition('<section id="content"')[2].partition("</section>")[0]
    shown = [part.partition("</code>")[0] for part in section.split("<code>")[3:]]
    notes = read_manifest(dataset)["notes"]
    assert {*shown} == {name for case in CASES for name in case["finds"]}
    assert [notes[name] for name in shown] == sorted((notes[name] for name in shown), reverse=True)


@pytest.mark.parametrize("packing", ["none", "bfd"])
@pytest.mark.parametrize("shuffle", ["none", "global"])
def test_records_are_kept_dropped_or_rejected_and_the_sums_reconcile(tmp_path, capfd, packing, shuffle):
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl", [SOUND, FAULTY, LATE, *[SOUND] * 3, {"messages": SOUND["messages"][:1]}]
    )
    check = "turns=drop,late_system=report,ends_with_user=reject,long_turn:9=report"
    options = ("--max_reject_fraction=1", "--max_length=64", f"--packing={packing}", f"--shuffle={shuffle}")
    manifest = build(tmp_path / "out", corpus, check, *options)
    assert manifest["records"]["dropped"] == {"consecutive_users": 1}
    assert manifest["records"]["rejected"] == {"ends_with_user": 1}
    assert manifest["records"]["kept"] == 5 and manifest["notes"]["late_system"] == 1
    assert "consecutive_users dropped 1" in " ".join(capfd.readouterr().out.split())
    lines = read_exceptions(tmp_path / "out")
    assert sorted((line["outcome"], re.sub(r"\d+ tr", "N tr", line["detail"])) for line in lines) == [
        ("dropped", "messages 1 and 2 are the user's"),
        ("kept", "late_system: message 3 is the system's\nlong_turn: a turn has N trained tokens"),
        ("rejected", "message 1 is the last one"),
    ]
    assert [line["record"] for line in lines if line["outcome"] == "rejected"] == [
        json.dumps({"messages": SOUND["messages"][:1]}).encode()
    ]


def test_turns_with_too_many_or_too_few_trained_tokens_are_dropped(tmp_path):
    long = {"messages": [user("Hi"), assistant("word " * 60), user("And?"), assistant("No")]}
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [SOUND, long, SOUND])
    manifest = build(tmp_path / "out", corpus, "long_turn:40=drop,short_turn:2=drop")
    assert (manifest["records"]["kept"], manifest["records"]["dropped"]) == (2, {"long_turn": 1})
    assert len(read_rows(tmp_path / "out")) == 2
    [line] = read_exceptions(tmp_path / "out")
    assert line["detail"].startswith("a turn has ")


def test_a_check_that_is_off_finds_nothing_and_the_rows_are_the_same(tmp_path):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [SOUND, FAULTY])
    groups = "tools,turns,loops,reasoning,templates,text"
    on, off = build(tmp_path / "on", corpus, "turns=report"), build(tmp_path / "off", corpus, f"{groups}=off")
    assert on["notes"].pop("consecutive_users") == 1
    assert on["notes"] == off["notes"] and off["exceptions"] == []
    assert read_rows(tmp_path / "on") == read_rows(tmp_path / "off")


def test_all_records_are_counted_and_the_first_thousand_of_a_shard_are_listed(tmp_path):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [FAULTY] * 1200)
    assert build(tmp_path / "out", corpus, "turns=report")["notes"]["consecutive_users"] == 1200
    assert len(read_exceptions(tmp_path / "out")) == 1000


def test_a_record_of_two_examples_is_listed_and_one_of_two_values_is_counted_once(tmp_path):
    (tmp_path / "twice.py").write_text("def twice(record):\n    return [record, record]\n")
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [SOUND, *[FAULTY] * 1100])
    values = "refusal:a=report,refusal:e=report,short_turn:90=report,short_turn:99=report"
    manifest = build(tmp_path / "out", corpus, f"turns=report,{values}", f"--formatter={tmp_path}/twice.py:twice")
    names = ("consecutive_users", "refusal", "short_turn")
    assert [manifest["notes"][name] for name in names] == [1100, 1101, 1101]
    listed = [line["origin_position"] for line in read_exceptions(tmp_path / "out") if "consecutive" in line["detail"]]
    assert (len({*listed}), len(listed)) == (1000, 2000)


def test_masks_shows_what_checks_find_before_a_build(tmp_path, capfd):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [SOUND, FAULTY])
    assert chatmill("masks", f"--tokenizer={TOKENIZER}", f"--input={corpus}") == 0
    assert capfd.readouterr().out.count("check consecutive_users: messages 1 and 2 are the user's") == 1


def test_a_recipe_has_checks_as_a_mapping(tmp_path):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [SOUND, FAULTY])
    recipe = {"input": str(corpus), "tokenizer": str(TOKENIZER), "check": {"turns": "drop"}}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    arguments = ("build", str(tmp_path / "recipe.json"), f"--output={tmp_path}/out", "--direct_num_workers=1")
    assert chatmill(*arguments) == 0
    again = ("build", f"{tmp_path}/out/recipe.yaml", f"--output={tmp_path}/again", "--direct_num_workers=1")
    assert chatmill(*again) == 0
    for name in ("out", "again"):
        assert read_manifest(tmp_path / name)["records"]["dropped"] == {"consecutive_users": 1}


def test_a_record_with_several_findings_has_the_strongest_action(tmp_path):
    both = {"messages": [*FAULTY["messages"], system("Be kind."), user("Well?"), assistant("I am.")]}
    corpus = write_jsonl(tmp_path / "corpus.jsonl", [SOUND, both])
    check = "consecutive_users=drop,late_system=reject"
    records = build(tmp_path / "out", corpus, check, "--max_reject_fraction=1")["records"]
    assert (records["dropped"], records["rejected"]) == ({}, {"late_system": 1})
