"""Preference data: pairs are refused or their chosen answers are trained on; answers labelled as bad are dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transforms import Conversation, Examples, PromptCompletion, RecordDropped, RecordError, Slice, Split
from transforms import parse as read_record
from transforms.model.batches import Records
from transforms.model.examples import Record
from transforms.model.outcomes import Outcomes
from transforms.steps.parse import Parser

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Is tea hot?"}
GOOD = {"role": "assistant", "content": "Mostly, yes."}
BAD = {"role": "assistant", "content": "No."}
EARLIER = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
ASKED, ANSWERED = {"from": "human", "value": "Is tea hot?"}, {"from": "gpt", "value": "Mostly, yes."}

PAIRS: dict[str, tuple[dict[str, Any], Conversation | PromptCompletion]] = {
    "strings": (
        {"prompt": "Is tea hot?", "chosen": " Mostly, yes.", "rejected": " No."},
        PromptCompletion("Is tea hot?", " Mostly, yes."),
    ),
    "messages with an explicit prompt": (
        {"prompt": [SYSTEM, USER], "chosen": [GOOD], "rejected": [BAD]},
        Conversation([SYSTEM, USER, GOOD], completion_start=2),
    ),
    "whole conversations": (
        {"chosen": [*EARLIER, USER, GOOD], "rejected": [*EARLIER, USER, BAD], "score_chosen": 8.5},
        Conversation([*EARLIER, USER, GOOD], completion_start=3),
    ),
    "a rejected conversation that only goes on longer": (
        {"chosen": [USER, GOOD], "rejected": [USER, GOOD, USER, BAD]},
        Conversation([USER, GOOD], completion_start=1),
    ),
    "UltraFeedback": (
        {"prompt": "Is tea hot?", "chosen": [USER, GOOD], "rejected": [USER, BAD], "messages": [USER, GOOD]},
        Conversation([USER, GOOD], completion_start=1),
    ),
    "messages with the chosen answer": (
        {"messages": [USER, GOOD], "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        Conversation([USER, GOOD], completion_start=1),
    ),
    "messages that end with the chosen answer": (
        {"messages": [USER, GOOD], "chosen": GOOD["content"], "rejected": BAD["content"]},
        Conversation([USER, GOOD], completion_start=1),
    ),
    "messages as the prompt": (
        {"messages": [*EARLIER, USER], "chosen": GOOD, "rejected": BAD},
        Conversation([*EARLIER, USER, GOOD], completion_start=3),
    ),
    "a prompt of another system message than the conversation lacks": (
        {"system": "Be brief.", "prompt": "Is tea hot?", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        Conversation([SYSTEM, USER, GOOD], completion_start=2),
    ),
    "a whole conversation and a rejected answer alone": (
        {"prompt": [USER], "chosen": [SYSTEM, USER, GOOD], "rejected": [BAD]},
        Conversation([SYSTEM, USER, GOOD], completion_start=2),
    ),
    "a whole conversation and a rejected text": (
        {"prompt": "Is tea hot?", "chosen": [USER, GOOD], "rejected": "No."},
        Conversation([USER, GOOD], completion_start=1),
    ),
    "LLaMA-Factory's ShareGPT": (
        {"conversations": [ASKED], "chosen": ANSWERED, "rejected": {"from": "gpt", "value": "No."}},
        Conversation([USER, GOOD], completion_start=1),
    ),
    "LLaMA-Factory's Alpaca": (
        {
            "instruction": "Is it hot?",
            "input": "tea",
            "history": [["Hi", "Hello."]],
            "system": "Be brief.",
            "chosen": "Mostly, yes.",
            "rejected": "No.",
        },
        Conversation([SYSTEM, *EARLIER, {"role": "user", "content": "Is it hot?\ntea"}, GOOD], completion_start=4),
    ),
    "a list of outputs": (
        {"instruction": "Is tea hot?", "output": ["Mostly, yes.", "No."]},
        Conversation([USER, GOOD], completion_start=1),
    ),
    "a question": (
        {"system": "Be brief.", "question": "Is tea hot?", "chosen": "Mostly, yes.", "rejected": "No."},
        Conversation([SYSTEM, USER, GOOD], completion_start=2),
    ),
}


def parse(record: dict[str, Any], **options: Any) -> Any:
    return read_record(json.dumps(record).encode(), **options)[0].content


def parse_batch(records: list[dict[str, Any]], **options: Any) -> Examples:
    raw = [Record(10 * number, json.dumps(record).encode()) for number, record in enumerate(records)]
    split = Split(0, (Slice("pairs.jsonl", "jsonl", None, 0, 1),))
    return Parser(**options)(Records(split=split, part=0, last=True, outcomes=Outcomes(read=len(raw)), records=raw))


@pytest.mark.parametrize("record", [record for record, _ in PAIRS.values()], ids=PAIRS)
def test_a_pair_is_rejected_with_a_message_that_names_the_parameters(record):
    with pytest.raises(RecordError, match="with schema chosen, the") as raised:
        parse(record)
    assert raised.value.reason == "preference_data"


@pytest.mark.parametrize(("record", "expected"), PAIRS.values(), ids=PAIRS)
def test_the_chosen_answer_is_the_completion(record, expected):
    assert parse(record, schema="chosen") == expected


def test_pairs_are_counted_in_the_notes():
    batch = parse_batch([{"prompt": "a", "chosen": "b", "rejected": "c"}] * 3, schema="chosen")
    assert (len(batch.examples), batch.outcomes.notes) == (3, {"preference_chosen": 3})


def test_a_schema_that_the_user_gives_reads_its_own_columns():
    record = {"messages": [USER, GOOD], "chosen": "Mostly, yes.", "rejected": "No."}
    assert parse(record, schema="messages") == Conversation([USER, GOOD])


def test_columns_name_the_answers():
    record = {"prompt": "a", "better": "b", "worse": "c"}
    options: dict[str, Any] = {"columns": {"chosen": "better", "rejected": "worse"}}
    with pytest.raises(RecordError) as raised:
        parse(record, **options)
    assert raised.value.reason == "preference_data"
    assert parse(record, schema="chosen", **options) == PromptCompletion("a", "b")


@pytest.mark.parametrize("flags", [{"chosen": True, "rejected": False}, {"chosen": GOOD["content"], "rejected": None}])
def test_columns_of_these_names_that_are_not_two_answers_mean_nothing(flags):
    assert parse({"messages": [USER, GOOD], **flags}) == Conversation([USER, GOOD])


@pytest.mark.parametrize(
    "record",
    [
        {"chosen": "Mostly, yes.", "rejected": "No."},
        {"chosen": [GOOD], "rejected": [BAD]},
        {"prompt": "Is coffee hot?", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": [SYSTEM, USER], "chosen": [{**SYSTEM, "content": "Be long."}, USER, GOOD], "rejected": [BAD]},
        {"prompt": [USER], "chosen": [USER], "rejected": [BAD]},
        {"prompt": [USER], "chosen": [], "rejected": []},
        {"chosen": [USER, GOOD], "rejected": [BAD]},
    ],
)
def test_a_pair_without_a_certain_prompt_is_rejected(record):
    with pytest.raises(RecordError) as raised:
        parse(record, schema="chosen")
    assert raised.value.reason == "bad_preference"


def test_a_record_without_a_pair_does_not_fit_the_schema():
    with pytest.raises(RecordError) as raised:
        parse({"messages": [USER, GOOD]}, schema="chosen")
    assert raised.value.reason == "missing_column"


ANSWERS: dict[str, dict[str, Any]] = {
    "messages": {"messages": [USER, GOOD]},
    "prompt and completion": {"prompt": [USER], "completion": [GOOD]},
    "strings": {"prompt": "Is tea hot?", "completion": " Mostly, yes."},
    "ShareGPT": {"conversations": [ASKED, ANSWERED]},
    "Alpaca": {"instruction": "Is tea hot?", "output": "Mostly, yes."},
}


@pytest.mark.parametrize("name", ["label", "kto_tag"])
@pytest.mark.parametrize("label", [False, "False", "false"])
@pytest.mark.parametrize("record", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_labelled_as_bad_is_dropped(record, label, name):
    with pytest.raises(RecordDropped) as raised:
        parse({**record, name: label})
    assert raised.value.reason == "undesirable"


@pytest.mark.parametrize("label", [True, 0, 0.0, -0.0, 1, 2, 0.5, None, "True", "bad", "falsehood", "0", [], [0]])
@pytest.mark.parametrize("record", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_with_any_other_label_is_kept(record, label):
    assert parse({**record, "label": label}) == parse(record)


@pytest.mark.parametrize(
    "labels", [{"label": 0}, {"label": 0.0}, {"label": -0.5}, {"kto_tag": 0}, {"kto_tag": 1}, {"kto_tag": "bad"}]
)
@pytest.mark.parametrize("record", ANSWERS.values(), ids=ANSWERS)
def test_a_label_that_may_mean_a_bad_answer_is_kept_and_noted(record, labels):
    assert parse({**record, **labels}) == parse(record)
    assert parse_batch([{**record, **labels}]).outcomes.notes == {"label_not_understood": 1}


@pytest.mark.parametrize("label", [1, 2, "bad", "positive", "True"])
def test_a_label_that_is_a_class_or_says_that_the_answer_is_good_has_no_note(label):
    assert parse_batch([{**ANSWERS["messages"], "label": label}]).outcomes.notes == {}


@pytest.mark.parametrize("label", [False, 0])
def test_the_label_of_a_text_is_a_class(label):
    assert parse({"text": "Tea is hot.", "label": label}) == parse({"text": "Tea is hot."})


def test_dropped_records_are_counted_and_the_others_are_not_affected():
    good = ANSWERS["messages"]
    batch = parse_batch(
        [{**good, "label": False}, {**good, "label": True}, good, {**good, "kto_tag": "FALSE"}, {"id": 1}]
    )
    assert [example.position for example in batch.examples] == [10, 20]
    assert batch.outcomes.dropped == {"undesirable": 2}
    assert [reject.position for reject in batch.outcomes.rejects] == [40]
    assert batch.outcomes.unaccounted() == 2  # the two that later steps keep
