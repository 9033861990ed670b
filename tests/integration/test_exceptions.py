"""Exceptions: records that are not plainly kept, each with its outcome, its reason and its segments.

That its lines name all segments, and that their sums are those of the manifest, is a law (tests/support/laws.py).
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import pytest

from support.command_line import chatmill
from support.datasets import read_exceptions, read_manifest, write_jsonl
from support.paths import ROOT, TOKENIZER
from support.templates import DROPS_REASONING

FORMATTER = """
def several(record):
    if record.get("several"):
        return [{"messages": messages} for messages in record["several"]]
    return record if record.get("messages") else None
"""


LOST = ("tokens_lost", "trained_tokens_lost")
# Each record, and the outcome, the reason and the example of each of its lines.
CASES = [json.loads(line) for line in (ROOT / "tests/data/exceptions.jsonl").read_text().splitlines()]
RECORDS: list[Any] = [case["record"] for case in CASES]


@pytest.mark.parametrize("packing", ["none", "bfd"])
def test_a_record_has_one_outcome_and_a_reason(build, tmp_path, capfd, packing):
    corpus = write_jsonl(tmp_path / "corpus.jsonl", RECORDS)
    (tmp_path / "formatter.py").write_text(FORMATTER)
    (tmp_path / "template.jinja").write_text(DROPS_REASONING)
    options = [f"--formatter={tmp_path}/formatter.py:several", f"--chat_template={tmp_path}/template.jinja"]
    options += ["--keep_columns=id", "--parity=expand", "--unprinted=report", "--max_reject_fraction=1"]
    options += ["--validation_fraction=0.5", "--seed=1"]
    cut = ["--max_length=48", "--truncation=keep_start", f"--packing={packing}"]
    ended = build(f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out", *options, *cut)
    assert ended.code == 0, ended.err
    lengths = map(len, corpus.read_bytes().splitlines(keepends=True))
    names = dict(zip(accumulate(lengths, initial=0), RECORDS, strict=False))
    lines = read_exceptions(tmp_path / "out")
    found = [(names[line["origin_position"]], line["outcome"], line["reason"], line["example"]) for line in lines]
    assert found == [(case["record"], *line) for case in CASES for line in case["lines"]]
    others = [line for line in lines if line["detail"] and not line["detail"].startswith("looping_answer: ")]
    assert {line["reason"] for line in others} == {"unknown_role", "not_an_object"}
    assert [json.loads(line["columns"] or "{}") for line in lines] == [
        {} if outcome == "rejected" else {"id": record["id"]} for record, outcome, *_ in found
    ]
    first, long = read_manifest(tmp_path / "out")["first_examples"]["records_that_lost_trained_tokens"], lines[0]
    lost = long["trained_tokens_lost"]
    assert (first["position"], first["detail"]) == (
        f"byte {long['origin_position']:,}",
        f"{lost} of its {long['trained_tokens'] + lost} tokens to train on are in no row",
    )
    for option, expected in (
        ("--reason=truncated", ["long", "several", "long too"]),
        (f"--source=corpus.jsonl:{long['origin_position']}", ["long"]),
    ):
        capfd.readouterr()
        assert chatmill("inspect", tmp_path / "out", option, "--json") == 0
        shown = [row["examples"][0] for row in json.loads(capfd.readouterr().out)["rows"]]
        assert [example["columns"]["id"] for example in shown] == expected
        for example in shown:
            [line, *_] = [line for line in lines if line["origin_position"] == example["origin_position"]]
            assert json.loads(line["columns"])["id"] == example["columns"]["id"]
            assert [line[name] for name in LOST] == [example[name] for name in LOST]


def test_a_record_is_listed_that_lost_tokens_none_of_which_is_trained_on(build, tmp_path):
    """Of the two rows that it is cut into, one has nothing to train on, and is not written."""
    corpus = write_jsonl(tmp_path / "rows.jsonl", [{"input_ids": [5] * 8, "labels": [-100] * 7 + [5]}])
    options = [f"--input={corpus}", f"--tokenizer={TOKENIZER}", f"--output={tmp_path}/out"]
    assert build(*options, "--packing=wrapped", "--max_length=4").code == 0
    (line,) = read_exceptions(tmp_path / "out")
    assert (line["tokens"], line["tokens_lost"], line["trained_tokens"], line["trained_tokens_lost"]) == (4, 4, 1, 0)
