"""Which records are for validation: a hash of what a record says decides, so that duplicates are in the same split."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.paths import ROOT
from transforms import parse

# Records with the splits in which they are, and records of one content in several forms, which holds N.
CASES = [json.loads(line) for line in (ROOT / "tests" / "data" / "validation_split.jsonl").read_text().splitlines()]
KNOWN, DUPLICATES = ([case for case in CASES if key in case] for key in ("record", "same"))
USER = {"role": "user", "content": "Where is order K-7? 😀"}
ASSISTANT = {"role": "assistant", "content": "On its way."}
CALLS = [{"type": "function", "function": {"name": "track", "arguments": {"order": "K-7", "n": [1, 2.5, None]}}}]


def held_back(record: dict[str, Any], fraction: float = 0.5, seed: int = 0) -> bool:
    return parse(json.dumps(record).encode(), validation_fraction=fraction, seed=seed)[0].validation


def test_which_records_are_for_validation_never_changes():
    # BLAKE2b of 8 bytes, keyed with the seed, of the content as compact JSON; computed without the code.
    # v: for validation with the seed of that number, 0 to 15.
    for case in KNOWN:
        sides = "".join("v" if held_back(case["record"], seed=seed) else "t" for seed in range(16))
        assert sides == case["sides"], case


@pytest.mark.parametrize("case", DUPLICATES, ids=lambda case: case["same"])
def test_duplicates_are_in_the_same_split(case):
    records = [[json.loads(json.dumps(record).replace("N", str(n))) for record in case["records"]] for n in range(40)]
    sides = [{held_back(record) for record in same} for same in records]
    assert all(len(side) == 1 for side in sides)
    assert {True, False} == set.union(*sides)


def test_another_role_answer_or_call_is_not_a_duplicate():
    messages = [
        [USER, ASSISTANT],
        [USER | {"role": "tool"}, ASSISTANT],
        [USER, ASSISTANT | {"content": "On its way!"}],
        [USER, ASSISTANT | {"tool_calls": CALLS}],
    ]
    assert len({tuple(held_back({"messages": each}, seed=seed) for seed in range(16)) for each in messages}) == 4


def test_about_the_given_fraction_is_for_validation_and_another_seed_chooses_other_records():
    records = [{"text": f"Record {i}"} for i in range(2000)]
    first, second = ({i for i, record in enumerate(records) if held_back(record, 0.1, seed)} for seed in (0, 1))
    for chosen in (first, second):
        assert abs(len(chosen) - 200) < 4 * (2000 * 0.1 * 0.9) ** 0.5
    assert abs(len(first & second) - 20) < 4 * 20**0.5
    assert not any(held_back(record, 0.0) for record in records[:100])
    assert all(held_back(record, 1.0) for record in records[:100])
