"""Pairs: both answers of a record in one row, and which of them are dropped."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from support.chats import SPLIT
from transforms.base.errors import ParameterError, RecordError
from transforms.catalog.consumers import RowLayout, problems
from transforms.model.batches import Labels, Rows, RowSource
from transforms.model.examples import Conversation, PromptCompletion, Record
from transforms.model.outcomes import Outcomes
from transforms.rows.answers import PAIR_COLUMNS
from transforms.rows.pairs import equal_pairs
from transforms.rows.preference_options import check_preference
from transforms.steps.pack import Packer
from transforms.steps.parse import Parser

IGNORED = -100
PAIRED = {"schema": "preference", "packing": "pairs"}


def packed(pairs: dict[int, list[list[int]]], prompt: int, **options: object) -> Rows:
    """Pack answers by the positions of their records; their first tokens, the prompt, have no label."""
    rows = [(position, ids) for position, answers in pairs.items() for ids in answers]
    ids = [np.array(ids, np.int32) for _, ids in rows]
    labels = [np.where(np.arange(len(each)) < prompt, IGNORED, each).astype(np.int32) for each in ids]
    numbers = np.array([number for answers in pairs.values() for number in range(len(answers))])
    source = RowSource(np.array([position for position, _ in rows]), np.zeros(len(rows), bool), None, numbers)
    offsets = np.cumsum([0, *map(len, ids)])
    batch = Labels(
        split=SPLIT, part=0, last=True, outcomes=Outcomes(read=len(pairs)),
        ids=np.concatenate(ids), labels=np.concatenate(labels), offsets=offsets, source=source,
    )  # fmt: skip
    return Packer(packing="pairs", **options)(batch)


def test_each_row_has_both_answers_and_each_record_that_is_no_pair_has_a_reason():
    pairs = {
        0: [[1, 2, 3, 4, 5], [1, 2, 6]],  # cut at 4 tokens
        10: [[1, 2, 3], [1, 2, 3]],
        20: [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]],  # equal at 4 tokens
        30: [[1, 2, 3]],  # an answer had no label
        40: [[1, 2, 7], [1, 2, 8]],
    }
    rows = packed(pairs, prompt=2, max_length=4)
    table = rows.train
    assert table.ids.tolist() == [1, 2, 3, 4, 1, 2, 6, 1, 2, 7, 1, 2, 8]
    assert table.labels.tolist() == [-100, -100, 3, 4, -100, -100, 6, -100, -100, 7, -100, -100, 8]
    assert table.offsets.tolist() == [0, 7, 13]
    assert table.segment_lengths.tolist() == [4, 3, 3, 3]
    outcomes = rows.outcomes
    assert (outcomes.kept, outcomes.truncated, outcomes.unaccounted()) == (1, 1, 0)
    assert {drop.position: drop.reason for drop in outcomes.drops} == {
        10: "equal_answers",
        20: "equal_answers_left",
        30: "no_trained_tokens",
    }
    assert outcomes.notes["pair_rows_added"] == 2


def test_both_answers_are_dropped_if_one_is_too_long_to_be_kept():
    rows = packed({0: [[1, 2, 3, 4, 5], [1, 2, 6]]}, prompt=2, max_length=4, truncation="drop")
    assert len(rows.train) == 0
    assert [drop.reason for drop in rows.outcomes.drops] == ["too_long"]


def test_equal_pairs_are_found():
    ids = np.array([1, 2, 1, 2, 1, 2, 1, 3, 1, 1, 2], np.int32)
    assert equal_pairs(ids, np.array([2, 2, 2, 2, 1, 2])).tolist() == [True, False, False]
    assert equal_pairs(ids[:0], np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize(
    ("options", "columns", "parameter"),
    [
        ({"schema": "preference"}, None, "schema"),
        ({"packing": "pairs"}, None, "schema"),
        ({"schema": "unpaired_preference"}, None, "schema"),
        (PAIRED | {"packing": "bfd"}, PAIR_COLUMNS, "packing"),
        (PAIRED | {"parity": "expand"}, PAIR_COLUMNS, "parity"),
        (PAIRED | {"truncation": "windows"}, PAIR_COLUMNS, "truncation"),
        (PAIRED | {"shift_labels": True}, PAIR_COLUMNS, "shift_labels"),
        (PAIRED | {"loss_on": "assistant"}, PAIR_COLUMNS, "loss_on"),
        (PAIRED, ("input_ids",), "write_columns"),
        (PAIRED, ("prompt_ids", "chosen_ids"), "write_columns"),
        (PAIRED, (*PAIR_COLUMNS, "labels"), "write_columns"),
        (PAIRED, ("prompt_ids", "completion_ids"), "write_columns"),
        (PAIRED, ("input_ids", "seq_lengths", "label"), "write_columns"),
        ({}, ("prompt_ids", "chosen_ids"), "write_columns"),
    ],
)
def test_options_that_do_not_suit_preference_data_are_refused(options, columns, parameter):
    with pytest.raises(ParameterError, match=parameter):
        check_preference(options, columns)


def test_a_pair_keeps_the_start_of_its_prompt():
    with pytest.raises(ParameterError, match="truncation"):
        Packer(packing="pairs", max_length=8, truncation="keep_end")


@pytest.mark.parametrize("consumer", ["trl", "axolotl", "trainer", "trl_kto"])
def test_trainers_of_one_answer_do_not_read_pairs(consumer):
    layout = RowLayout(("input_ids", "labels", "seq_lengths"), ("parquet",), "pairs", 8, schema="preference")
    assert problems(consumer, layout)[0].option == "schema"


USER = {"role": "user", "content": "Hi"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in "AB")


@pytest.mark.parametrize(
    ("record", "contents"),
    [
        (
            {"prompt": "Hi", "chosen": " A", "rejected": " B"},
            [PromptCompletion("Hi", " A"), PromptCompletion("Hi", " B")],
        ),
        (
            {"prompt": "Hi", "chosen": [USER, GOOD], "rejected": [USER, BAD]},  # UltraFeedback
            [Conversation([USER, each], completion_start=1) for each in (GOOD, BAD)],
        ),
        (
            {"messages": [USER, GOOD], "chosen": [USER, GOOD], "rejected": [USER, BAD]},
            [Conversation([USER, each], completion_start=1) for each in (GOOD, BAD)],
        ),
        (
            {"chosen": [USER, GOOD, USER, GOOD], "rejected": [USER, GOOD]},
            [Conversation([USER, GOOD, *more], completion_start=1) for more in ([USER, GOOD], [])],
        ),
        (
            {"messages": [USER], "preferred_output": [GOOD], "non_preferred_output": [BAD]},  # a shape
            [Conversation([USER, each], completion_start=1) for each in (GOOD, BAD)],
        ),
    ],
)
def test_a_pair_is_two_examples_of_one_prompt(record, contents):
    examples = Parser(schema="preference").parse_all(Record(0, json.dumps(record).encode()))
    assert [example.content for example in examples] == contents
    assert [example.number for example in examples] == [0, 1]
    assert not any(example.notes for example in examples)


INT32, INT8 = (pa.list_(pa.field("element", kind, nullable=False)) for kind in (pa.int32(), pa.int8()))


@pytest.mark.parametrize(
    ("record", "answers"),
    [
        ({"prompt": [USER], "completion": [GOOD], "label": True}, [(1, True)]),  # kto-mix
        ({"prompt": "Hi", "completion": " A", "label": 0}, [(None, False)]),
        ({"messages": [USER, BAD, USER, GOOD], "kto_tag": "TRUE"}, [(3, True)]),  # LLaMA-Factory
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, [(1, True), (1, False)]),
    ],
)
def test_an_answer_has_the_label_of_its_record(record, answers):
    examples = Parser(schema="unpaired_preference").parse_all(Record(0, json.dumps(record).encode()))
    found = [(getattr(example.content, "completion_start", None), example.desirable) for example in examples]
    assert found == answers


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"messages": [USER, GOOD]}, "has no label and no kto_tag"),
        ({"messages": [USER, GOOD], "label": 2}, "label is 2; expected true or false"),
        ({"messages": [USER, GOOD], "label": "good"}, "label is 'good'"),
        ({"messages": [USER, GOOD, USER], "label": True}, "the last message"),
        ({"text": "Hi", "label": True}, "no prompt with an answer"),
    ],
)
def test_a_record_without_a_label_of_its_answer_is_rejected(record, problem):
    with pytest.raises(RecordError, match=problem) as raised:
        Parser(schema="unpaired_preference").parse(Record(0, json.dumps(record).encode()))
    assert raised.value.reason == "no_label"


def test_a_formatter_makes_one_pair_of_a_record(tmp_path):
    pair = {"chosen": [USER, GOOD], "rejected": [USER, BAD]}
    formatter = tmp_path / "pairs.py"
    formatter.write_text(
        "def one(record):\n    return record['of']\n\ndef two(record):\n    return [record['of']] * 2\n"
    )
    record = Record(0, json.dumps({"of": pair}).encode())
    one = Parser(schema="preference", formatter=f"{formatter}:one").parse_all(record)
    assert [example.content for example in one] == [
        Conversation([USER, each], completion_start=1) for each in (GOOD, BAD)
    ]
    with pytest.raises(RecordError, match="it returned 2 pairs; expected one"):
        Parser(schema="preference", formatter=f"{formatter}:two").parse_all(record)
