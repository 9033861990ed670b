"""chatmill diff: names what differs between two datasets, and nothing if only order, packing or sharding do."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import program as cli
from support.chats import assistant, user
from support.datasets import write_jsonl
from support.harms import edit_log
from support.paths import TOKENIZER

RECORDS: list[dict[str, Any]] = [
    {"messages": [user(f"Frage {i}: 水車 \U0001f409?"), assistant(f"Answer {i}, " + "at length " * (i % 7))]}
    for i in range(40)
]
BASE = ("--provenance", "--validation_fraction=0.3")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build a dataset of a name, once: with some records, and with options."""
    folder = tmp_path_factory.mktemp("compared")

    def build(name: str, *options: str, records: list[dict[str, Any]] = RECORDS, tokenizer: Path = TOKENIZER) -> Path:
        output = folder / name
        if not output.exists():
            # The name of the input is the same in each: a row's source is part of what is compared.
            (folder / f"{name}-input").mkdir()
            corpus = write_jsonl(folder / f"{name}-input" / "corpus.jsonl", records)
            arguments = [f"--input={corpus}", f"--tokenizer={tokenizer}", f"--output={output}", *options]
            assert cli.main(["build", *arguments]) == 0
        return output

    return build


@pytest.fixture
def diff(capfd):
    """Compare two datasets in this process; return the exit code, what is printed, and the JSON."""

    def run(a: Path, b: Path) -> tuple[int, str, dict[str, Any]]:
        capfd.readouterr()
        code = cli.main(["diff", str(a), str(b)])
        out, err = capfd.readouterr()
        assert err == "" and "\x1b" not in out
        assert cli.main(["diff", str(a), str(b), "--json"]) == code
        return code, out, json.loads(capfd.readouterr().out)

    return run


def counts_of(document: dict[str, Any]) -> dict[str, int]:
    """The kinds of differences with their counts."""
    return {kind: count for kind, count in document["examples"].items() if kind not in ("a", "b", "equal")}


@pytest.mark.parametrize(
    ("name", "options", "records", "named"),
    [
        ("same", (), RECORDS, set()),
        ("order", (), RECORDS[::-1], {"inputs"}),
        ("packing", ("--packing=bfd", "--max_length=4096"), RECORDS, {"--packing", "--max_length"}),
        ("sharding", ("--split_bytes=2000",), RECORDS, {"--split_bytes"}),
    ],
)
def test_order_packing_and_sharding_alone_are_equal(built, diff, name, options, records, named):
    code, out, found = diff(built("base", *BASE), built(name, *BASE, *options, records=records))
    assert (code, found["equal"], counts_of(found)) == (0, True, {})
    assert found["examples"] == {"a": 40, "b": 40, "equal": 40}
    assert found["job"].keys() - {"inputs"} == named - {"inputs"} and found["records"] == {}
    assert "equal: both have the same 40 examples\n" in out


def test_version_is_named_and_changes_no_example(built, diff, tmp_path):
    other = shutil.copytree(built("base", *BASE), tmp_path / "other")
    edit_log(other, lambda entry: entry["job"]["versions"].update(tokenizers="0.1.0"))
    code, out, found = diff(built("base", *BASE), other)
    assert (code, list(found["job"])) == (0, ["version of tokenizers"])
    assert re.search(r"version of tokenizers +\S+ +0\.1\.0 *\n", out)


def changed(number: int, **fields: Any) -> list[dict[str, Any]]:
    """The records, with another answer in one of them."""
    records = json.loads(json.dumps(RECORDS))
    records[number]["messages"][1] |= fields
    return records


def test_text_of_one_record(built, diff):
    # As long as before, so that the records after it are at the same positions.
    code, out, found = diff(built("base", *BASE), built("text", *BASE, records=changed(7, content="answer 7, ")))
    assert (code, counts_of(found)) == (1, {"tokens": 1})
    assert "tokens  1  the same record, with other tokens" in out
    a, b = out.partition("tokens: 1 of 1\n")[2].split("\nB: row ")
    assert "⟦Answer 7," in a and "⟦answer 7," in b


def test_text_of_one_record_without_its_source(built, diff):
    records = changed(7, content="Another answer.")
    code, out, found = diff(built("plain"), built("plain-text", records=records))
    assert (code, counts_of(found)) == (1, {"only in A": 1, "only in B": 1})
    assert "only builds with --provenance can match records." in out


def test_mask_of_one_record(built, diff):
    record = {"messages": [*RECORDS[0]["messages"], user("And?"), assistant("Well.")]}
    other = json.loads(json.dumps(record))
    other["messages"][1]["weight"] = 0
    names = ["masks-a", "masks-b"]
    a, b = (built(name, records=[*RECORDS[:5], extra]) for name, extra in zip(names, (record, other), strict=True))
    code, out, found = diff(a, b)
    assert (code, counts_of(found)) == (1, {"mask": 1})
    a_text, b_text = out.partition("mask: 1 of 1\n")[2].split("\nB: row ")
    assert "⟦Answer 0, <|im_end|>\n⟧" in a_text and "⟦Answer" not in b_text and "⟦Well.<|im_end|>\n⟧" in b_text


def test_template_changes_the_text_of_each_record(built, diff):
    template = (TOKENIZER / "chat_template.jinja").read_text().replace("<|im_end|>\\n", "<|im_end|>\\n\\n")
    assert template != (TOKENIZER / "chat_template.jinja").read_text()
    code, out, found = diff(built("base", *BASE), built("template", *BASE, f"--chat_template={template}"))
    assert (code, counts_of(found)) == (1, {"tokens": 40})
    assert "chat template" in found["job"] and "tokens: 3 of 40\n" in out


def test_tokenizer_changes_the_tokens_of_each_record(built, diff, tmp_path):
    shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
    tokenizer = json.loads((TOKENIZER / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = [pair for pair in tokenizer["model"]["merges"] if "An" not in "".join(pair)]
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(json.dumps(tokenizer))
    code, _, found = diff(built("base", *BASE), built("tokenizer", *BASE, tokenizer=tmp_path / "tokenizer"))
    assert (code, counts_of(found)) == (1, {"tokens": 40})
    assert found["job"].keys() >= {"tokenizer: tokenizer.json"}


def test_max_length_truncates_some(built, diff):
    code, _, found = diff(built("base", *BASE), built("short", *BASE, "--max_length=48"))
    truncated = found["records"]["truncated"]["b"]
    assert (code, counts_of(found)) == (1, {"tokens": truncated}) and truncated > 0
    assert found["job"]["--max_length"] == {"a": None, "b": 48}
    again = diff(built("short", *BASE, "--max_length=48"), built("base", *BASE))[2]
    assert counts_of(again) == {"tokens": truncated}


def test_two_lengths_that_both_truncate(built, diff):
    a, b = built("short", *BASE, "--max_length=48"), built("shorter", *BASE, "--max_length=40")
    _, _, found = diff(a, b)
    assert counts_of(found) == {"tokens": found["records"]["truncated"]["b"]}


def test_seed_moves_examples_to_the_other_split(built, diff):
    code, _, found = diff(built("base", *BASE), built("seed", *BASE, "--seed=1"))
    assert code == 1 and counts_of(found).keys() == {"split"} and found["job"].keys() == {"--seed", "inputs"}


LEDGER = ("--ledger=all", "--validation_fraction=0.3")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("split", ("--packing=bfd_split", "--max_length=48")),
        ("wrapped", ("--packing=wrapped", "--max_length=64")),
        ("many", ("--packing=bfd", "--max_length=4096", "--split_bytes=2000", "--output_format=tfrecord,parquet")),
    ],
)
def test_examples_that_packing_cut_are_joined_by_the_ledger(built, diff, name, options):
    code, _, found = diff(built("ledger", *LEDGER), built(f"ledger-{name}", *LEDGER, *options))
    assert (code, counts_of(found)) == (0, {})
    assert found["examples"] == {"a": 40, "b": 40, "equal": 40}


def test_ledger_matches_records_whose_text_changed(built, diff):
    """The second record is longer, so that all after it are at other positions."""
    records = changed(1, content="A much longer answer than it was before.")
    code, out, found = diff(built("ledger", *LEDGER), built("ledger-text", *LEDGER, records=records))
    assert (code, counts_of(found)) == (1, {"tokens": 1}) and "Builds with" not in out


def test_ledger_matches_records_that_were_cut_at_the_other_end(built, diff):
    options = (*LEDGER, "--max_length=40")
    a, b = built("ledger-start", *options), built("ledger-end", *options, "--truncation=keep_end")
    _, _, found = diff(a, b)
    counts = counts_of(found)
    assert counts["tokens"] > 0 and counts.keys() <= {"tokens", "only in A", "only in B"}


def test_examples_are_compared_as_often_as_they_are_there(built, diff):
    a, b = built("twice", records=[*RECORDS[:3] * 3, RECORDS[3]]), built("once", records=[*RECORDS[:3] * 2, RECORDS[3]])
    assert diff(a, b)[2]["examples"] == {"a": 10, "b": 7, "equal": 7, "only in A": 3}
    assert diff(b, a)[2]["examples"] == {"a": 7, "b": 10, "equal": 7, "only in B": 3}


def test_records_that_one_dataset_has(built, diff):
    records = [*RECORDS[:20], {"messages": "none"}, RECORDS[3]]
    a, b = built("base", *BASE), built("fewer", *BASE, "--max_reject_fraction=0.5", records=records)
    code, out, found = diff(a, b)
    assert (code, counts_of(found)) == (1, {"only in A": 20, "only in B": 1})
    assert found["records"]["rejected: bad_message"] == {"a": 0, "b": 1}
    assert found["first"]["only in A"][0]["b"] is None and out.count("\nA: row ") == 3 and out.count("\nB: row ") == 1


def test_a_user_error_is_one_line(built, capfd, tmp_path):
    a = built("base", *BASE)
    capfd.readouterr()
    for arguments, message in (
        ([a], "the following arguments are required: B"),
        ([a, tmp_path], "there is no dataset"),
        ([a, a, "--limti=1"], "unrecognized arguments: --limti=1"),
    ):
        assert cli.main(["diff", *map(str, arguments)]) == 2
        out, err = capfd.readouterr()
        assert out == "" and len(err.splitlines()) == 1 and message in err
